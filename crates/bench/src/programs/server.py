"""A small in-memory store of JSON objects: one request a line on standard input, one answer a line."""
import gc
import json
import sys
import zlib

store = {}
answers = []

gc.disable()
for line in sys.stdin.buffer:
    verb = line[:1]
    if verb == b"G":
        record = store[int(line[2:])]
        answers.append("%s %d %d %08x %s\n" % (
            record["name"],
            record["balance_cents"],
            sum(record["scores"]),
            zlib.crc32(record["note"].encode()),
            record["token"],
        ))
    elif verb == b"P":
        key, text = line[2:].split(b" ", 1)
        record = json.loads(text)
        store[int(key)] = record
        answers.append("ok %d %d\n" % (record["id"], record["version"]))
    elif verb == b"F":
        # Servers do so after start: what is loaded now is no garbage.
        gc.collect()
        gc.freeze()
        gc.enable()
        answers.append("filled %d\n" % len(store))
    elif verb == b".":
        sys.stdout.write("".join(answers))
        sys.stdout.flush()
        answers.clear()
    else:
        answers.append("unknown request\n")
