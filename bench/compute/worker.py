"""
The process that does one piece of work (`contained.py`): nothing but the standard library, for it
runs in the environment of any peer.

It prints one line of JSON. A task gives None, or a dict of what else there is to say; `seconds` in it
replaces what the clock says (an in-core rate that was measured with less data).
"""

import importlib.util
import json
import os
import sys
import time


def _io():
    """Bytes that this process had the disk read and write."""
    try:
        with open("/proc/self/io") as stream:
            found = dict(line.split(": ") for line in stream)
    except OSError:
        return 0, 0
    return int(found["read_bytes"]), int(found["write_bytes"])


def _durable(place):
    """Sync a file, or all files of a folder, and the folders."""
    paths = [place]
    for folder, _, names in os.walk(place):
        paths += [folder, *(os.path.join(folder, name) for name in names)]
    for path in {*paths, os.path.dirname(place)}:
        if os.path.exists(path):
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)


def _enter(group):
    if group:
        with open(os.path.join(group, "cgroup.procs"), "w") as stream:
            stream.write(str(os.getpid()))


def main():
    """Do what the first argument says."""
    asked = json.loads(sys.argv[1])
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: asked["cores"]])
    if not asked["outside"]:
        _enter(asked["group"])
    spec = importlib.util.spec_from_file_location("work", asked["module"])
    module = importlib.util.module_from_spec(spec)
    sys.modules["work"] = module
    spec.loader.exec_module(module)
    task = getattr(module, asked["task"], None)
    if task is None:
        return {"seconds": None, "why": "cannot", "missing": True}
    missing = getattr(module, "missing", lambda name: "")(asked["task"])
    if missing:
        return {"seconds": None, "why": missing, "missing": True}
    if asked["outside"]:
        _enter(asked["group"])
    before = _io()
    start = time.perf_counter()
    more = task(**asked["words"]) or {}
    for place in asked["results"]:
        _durable(place)
    spent = time.perf_counter() - start
    after = _io()
    save = more.pop("save", None)
    if save is not None:
        save()
    with open("/proc/self/status") as stream:
        lines = dict(line.split(":", 1) for line in stream)
    return {
        "seconds": more.pop("seconds", spent),
        "peak": int(lines["VmHWM"].split()[0]) * 1024,
        "read": after[0] - before[0],
        "written": after[1] - before[1],
        "more": more,
    }


if __name__ == "__main__":
    print(json.dumps({"outcore-bench": main()}), flush=True)
    # A pool of a peer may not want to end.
    os._exit(0)
