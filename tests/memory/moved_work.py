"""One conversion in a process of its own; prints what it read from the disk and wrote to it."""

import json
import os
import sys

group, source, target, budget, words = sys.argv[1:6]
# Before anything is imported, so that all of this process counts.
with open(os.path.join(group, "cgroup.procs"), "w") as stream:
    stream.write(str(os.getpid()))

import outcore  # noqa: E402


def moved():
    with open("/proc/self/io") as stream:
        lines = dict(line.split(":", 1) for line in stream)
    return [int(lines[name]) for name in ("read_bytes", "write_bytes")]


before = moved()
outcore.convert(source, target, memory=int(budget), **json.loads(words))
print(json.dumps([after - old for after, old in zip(moved(), before, strict=True)]))
