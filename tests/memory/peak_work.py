"""One piece of work in a process of its own; prints its high-water mark. Run by test_peak.py."""

import json
import os
import sys

case, folder, source, budget, group = sys.argv[1:6]
if group:
    # Before anything is imported, so that all of this process counts.
    with open(os.path.join(group, "cgroup.procs"), "w") as stream:
        stream.write(str(os.getpid()))

import numpy as np  # noqa: E402

import outcore  # noqa: E402

outcore.memory(int(budget))
a = outcore.open(f"{folder}/{source}")
result = 0
if case == "read":
    part = a[: a.shape[0] // 16]
    result = part.nbytes
    assert part[5, 7] == 5 * a.shape[1] + 7
elif case == "read_strided":
    part = a[::3, ::11]
    result = part.nbytes
    assert part[1, 1] == 3 * a.shape[1] + 11
elif case == "read_column":
    part = a[:, 3:5]
    result = part.nbytes
    assert part[9, 1] == 9 * a.shape[1] + 4
elif case == "blocks":
    seen = 0
    for key, block in a.blocks():
        assert block[0, 0] == key[0].start * a.shape[1] + key[1].start
        seen += block.size
    assert seen == a.size
elif case == "write":
    words = {"chunks": a.chunks, "compression": "zstd"} if source.endswith("zarr") else {}
    row = np.arange(a.shape[1], dtype=a.dtype)
    with outcore.create(f"{folder}/made-{source}", a.shape, a.dtype, **words) as b:
        b[::2] = row  # broadcast: much larger than the budget
        b[1::2] = -row
        b.flush()
        assert b[3, 2] == -2
elif case == "write_strided":
    with outcore.create(f"{folder}/made-{source}", a.shape, a.dtype) as b:
        b[:, ::5] = 1
        assert b[7, :6].tolist() == [1, 0, 0, 0, 0, 1]
elif case.startswith("convert"):
    options = {
        "convert_transposed": ("to.npy", {"order": "F"}),
        "convert_chunked": ("to.zarr", {"chunks": (1024, 1024), "compression": "zstd"}),
        "convert_cast": ("to.npy", {"dtype": "f8"}),
        "convert_hdf5": ("to.h5::/a", {"chunks": (1000, 1000), "compression": "gzip"}),
    }[case]
    outcore.convert(a, f"{folder}/{options[0]}", overwrite=True, **options[1])
    with outcore.open(f"{folder}/{options[0]}") as made:
        assert (made[77:99, 5] == a[77:99, 5]).all()
else:
    raise SystemExit(f"no case {case}")
with open("/proc/self/status") as stream:
    lines = dict(line.split(":", 1) for line in stream)
print(json.dumps({"peak": int(lines["VmHWM"].split()[0]) * 1024, "result": result}))
