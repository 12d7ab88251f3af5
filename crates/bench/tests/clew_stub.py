#!/usr/bin/python3
"""Speaks the command line and the control protocol of `clew`, swaps nothing: for tests of the demo."""
import json
import os
import socket
import sys

arguments = sys.argv[2:]
options = {}
while arguments and arguments[0].startswith("--") and arguments[0] != "--":
    options[arguments[0]] = arguments[1]
    arguments = arguments[2:]
path = options["--socket"]


def ask(request):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        client.sendall((json.dumps(request) + "\n").encode())
        return client.makefile().readline()


if sys.argv[1] == "run":
    ask({"verb": "stub-run", "app": options["--app"]})
    os.execvp(arguments[1], arguments[1:])

assert sys.argv[1] == "daemon" and int(options["--budget"]) > 0 and options["--scheme"] == "zram"
# A status with one app with one process, as the protocol's own types print it.
template = json.load(open(os.environ["CLEW_STUB_STATUS"]))
apps = {}
# Apps that came to the front and have not answered yet.
asked = set()


def answer(request):
    verb, app = request["verb"], request.get("app")
    if verb == "stub-run":
        apps[app] = {"state": "background", "faults": 0, "demand_faults": 0}
    elif verb in ("fg", "bg"):
        if app not in apps:
            return {"result": "error", "message": f"no app {app}"}
        if verb == "bg" and app in asked:
            return {"result": "error", "message": f"{app} goes before its answer was told"}
        if verb == "fg":
            asked.add(app)
        apps[app]["state"] = "foreground" if verb == "fg" else "background"
        apps[app]["demand_faults"] += verb == "fg"
    elif verb == "responded" and request["response_ns"] > 0:
        asked.remove(app)
    elif verb == "status":
        listed = [dict(template["apps"][0], name=name, **app) for name, app in sorted(apps.items())]
        return {"result": "ok", "value": dict(template, apps=listed)}
    return {"result": "ok", "value": None}


with socket.socket(socket.AF_UNIX) as server:
    server.bind(path)
    server.listen()
    import threading

    def serve(client):
        lines = client.makefile()
        for line in lines:
            request = json.loads(line)
            client.sendall((json.dumps(answer(request)) + "\n").encode())
            if request["verb"] == "stop":
                os._exit(0)

    while True:
        client, _ = server.accept()
        threading.Thread(target=serve, args=(client,), daemon=True).start()
