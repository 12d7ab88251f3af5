"""Holds about 60 MiB of Python's own data and answers with digests over all of it.

On each line of its input: "check" prints "digest HEX", "mutate K" changes K things and prints
"mutated K", "quit" ends. The same lines give the same digests in every run.
"""

import hashlib
import os
import random
import sys


class Node:
    __slots__ = ("name", "weight", "links")

    def __init__(self, name, weight, links):
        self.name = name
        self.weight = weight
        self.links = links


def text(rng, words):
    return " ".join("%x" % rng.getrandbits(16) for _ in range(words))


def build(rng):
    return {
        "dict": {i: (rng.random(), text(rng, 4)) for i in range(60_000)},
        "by_name": {"key:%d" % i: [rng.getrandbits(40) for _ in range(3)] for i in range(50_000)},
        "list": [rng.getrandbits(62) for _ in range(250_000)],
        "bytes": [rng.randbytes(rng.randrange(10, 3000)) for _ in range(4_000)],
        "arrays": [bytearray(b"%d " % i * 300) for i in range(4_000)],
        "big": [rng.getrandbits(4096) for _ in range(5_000)],
        "strings": [text(rng, 20) for _ in range(40_000)],
        "nodes": [Node("n%d" % i, i / 7, [rng.randrange(20_000) for _ in range(4)]) for i in range(20_000)],
    }


def digest(data):
    h = hashlib.blake2b(digest_size=16)

    def add(*values):
        h.update(repr(values).encode())

    for key, value in data["dict"].items():
        add(key, value)
    for key, value in data["by_name"].items():
        add(key, value)
    for i in range(0, len(data["list"]), 1000):
        add(data["list"][i : i + 1000])
    for part in data["bytes"]:
        h.update(part)
    for part in data["arrays"]:
        h.update(part)
    for number in data["big"]:
        h.update(number.to_bytes(1024, "little"))
    for part in data["strings"]:
        h.update(part.encode())
    for node in data["nodes"]:
        add(node.name, node.weight, node.links)
    return h.hexdigest()


def mutate(data, rng, count):
    for _ in range(count):
        what = rng.randrange(8)
        if what == 0:
            data["dict"][rng.randrange(90_000)] = (rng.random(), text(rng, 4))
        elif what == 1:
            data["by_name"].pop("key:%d" % rng.randrange(50_000), None)
        elif what == 2:
            data["list"][rng.randrange(len(data["list"]))] ^= rng.getrandbits(62)
        elif what == 3:
            data["bytes"][rng.randrange(4_000)] = rng.randbytes(rng.randrange(10, 3000))
        elif what == 4:
            part = data["arrays"][rng.randrange(4_000)]
            part[rng.randrange(len(part))] ^= 255
        elif what == 5:
            i = rng.randrange(5_000)
            data["big"][i] = data["big"][i] * 3 % (1 << 4096)
        elif what == 6:
            data["strings"][rng.randrange(40_000)] = text(rng, 20)
        else:
            node = data["nodes"][rng.randrange(20_000)]
            node.links = node.links[1:] + [rng.randrange(20_000)]


def main():
    rng = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    data = build(rng)
    print("pid", os.getpid())
    print("ready", flush=True)
    for line in sys.stdin:
        words = line.split()
        if words == ["check"]:
            print("digest", digest(data), flush=True)
        elif len(words) == 2 and words[0] == "mutate":
            mutate(data, rng, int(words[1]))
            print("mutated", words[1], flush=True)
        elif words == ["quit"]:
            return
        else:
            print("what?", line.strip(), flush=True)


main()
