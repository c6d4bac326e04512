"""One algorithm in a process of its own; prints what it said that it would move, and what it moved."""

import json
import os
import sys

group, name, budget = sys.argv[1:4]
# Before anything is imported, so that all of this process counts.
with open(os.path.join(group, "cgroup.procs"), "w") as stream:
    stream.write(str(os.getpid()))

import algorithm_runs  # noqa: E402


def moved():
    with open("/proc/self/io") as stream:
        lines = dict(line.split(":", 1) for line in stream)
    return [int(lines[name]) for name in ("read_bytes", "write_bytes")]


case = algorithm_runs.in_files(name, made=False)
case.inputs, case.memory = (), int(budget)
planned = algorithm_runs.call(case, explain=True)
before = moved()
planned.run()
told = planned.report
report = {
    "planned": [told.read_bytes, told.written_bytes],
    "measured": [told.measured.read_bytes, told.measured.written_bytes],
    "bound": told.lower_bound_bytes,
    "peak": [told.peak_bytes, told.measured.peak_bytes],
    "seconds": told.measured.seconds,
}
outside = [after - old for after, old in zip(moved(), before, strict=True)]
print(json.dumps({"outside": outside, "report": report}))
