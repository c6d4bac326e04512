"""A schedule of a list larger than memory, in a process of its own; run by test_lists.py."""

import json
import os
import sys

group, folder, budget = sys.argv[1:4]
# Before anything is imported, so that all of this process counts.
with open(os.path.join(group, "cgroup.procs"), "w") as stream:
    stream.write(str(os.getpid()))

import outcore  # noqa: E402

outcore.memory(int(budget))
a = outcore.open(f"{folder}/a.npy", "r+")
indices = outcore.open(f"{folder}/indices.npy")
values = outcore.open(f"{folder}/values.npy")
schedule = a.schedule(indices)
assert not schedule.in_memory
schedule.scatter(values, "add")
with outcore.create(f"{folder}/out.npy", schedule.shape, "f8") as out:
    schedule.gather(out)
schedule.save(f"{folder}/schedule.npz")
del schedule
again = outcore.IndexSchedule.open(f"{folder}/schedule.npz", a)
assert not again.in_memory
again.scatter(values, "max")
a.close()
print(json.dumps({"peak": outcore._core.memory_state()[2]}))
