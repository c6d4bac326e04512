"""A file may name a pipe: nobody waits for who never writes to it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

import outcore

# In a process of its own: what waits for a pipe, inside a library, cannot be interrupted.
LOOK = """
import json, sys, warnings
import outcore
from outcore.cli import main

path, names = sys.argv[1], json.loads(sys.argv[2])
warnings.simplefilter("ignore")
told = {}


def look(what, call):
    print(what, file=sys.stderr, flush=True)
    try:
        told[what] = repr(call())
    except outcore.OutcoreError as error:
        told[what] = f"{error.code}: {error.message}"


look("ls", lambda: main(["ls", path]))
look("group", lambda: sorted(name for name in outcore.open_group(path)))
look("tree", lambda: main(["info", path]))
look("verify", lambda: outcore.verify(path))
look("convert", lambda: outcore.convert(path, "converted.zarr", whole=True, skip=True))
for name in names:
    look(f"open {name}", lambda: outcore.open(f"{path}::/{name}")[...])
    look(f"write {name}", lambda: outcore.open(f"{path}::/{name}", "r+"))
    look(f"group {name}", lambda: outcore.open_group(f"{path}::/{name}"))
    look(f"list {name}", lambda: main(["ls", f"{path}::/{name}"]))
    look(f"create {name}", lambda: outcore.create(f"{path}::/{name}/new", (3,), "f4"))
import xarray

look("xarray", lambda: xarray.open_dataset(path, engine="outcore", drop_variables=names).load())
print("@" + json.dumps(told))
"""


def looked(path, names):
    arguments = [sys.executable, "-c", LOOK, str(path), json.dumps(names)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.rpartition("@")[2])


def test_pipes_that_an_hdf5_file_names_are_not_opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    os.mkfifo("part-3.h5")
    os.symlink("pipe", "linked.h5")
    with h5py.File("other.h5", "w") as file:
        file["through"] = h5py.ExternalLink("linked.h5", "/x")
        file["a"] = np.arange(4)
    with h5py.File("a.h5", "w") as file:
        file["sound"] = np.arange(5)
        file["external"] = h5py.ExternalLink("pipe", "/x")
        file["absolute"] = h5py.ExternalLink(str(tmp_path / "pipe"), "/x")
        file["symlink"] = h5py.ExternalLink("linked.h5", "/g")
        file["device"] = h5py.ExternalLink("/dev/zero", "/g")
        file["soft"] = h5py.SoftLink("/external/deep/er")
        file["twice"] = h5py.ExternalLink("other.h5", "/through/deeper")
        file["works"] = h5py.ExternalLink("other.h5", "/a")
        file.create_dataset("raw", (4,), "f4", external=[("pipe", 0, 16)])
        file.create_dataset("empty", (0,), "f4", external=[("pipe", 0, h5py.h5f.UNLIMITED)])
        endless = h5py.h5s.UNLIMITED
        layout = h5py.VirtualLayout((4, 3), "f4", maxshape=(None, 3))
        layout[0:endless] = h5py.VirtualSource("pipe", "x", (4, 3), maxshape=(None, 3))[0:endless]
        file.create_virtual_dataset("virtual", layout)
        # A file for each block, by its number.
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.VIRTUAL)
        space = h5py.h5s.create_simple((4, 3), (endless, 3))
        part = space.copy()
        part.select_hyperslab((0, 0), (endless, 1), (2, 3), (2, 3))
        plist.set_virtual(part, b"part-%b.h5", b"x", h5py.h5s.create_simple((2, 3)))
        h5py.h5d.create(file.id, b"numbered", h5py.h5t.IEEE_F32LE, space, plist)
    names = ["external", "absolute", "symlink", "device", "soft", "twice"]
    stored = ["raw", "empty", "virtual", "numbered"]
    told = looked("a.h5", names + stored)
    assert told["ls"] == "0", told
    for name in names:
        for call in ("open", "write", "group"):
            code = told[f"{call} {name}"].split(":")[0]
            assert code in ("no-such-array", "not-a-group", "no-such-group"), (name, call, told)
    for name in stored:
        for call in ("open", "write"):
            assert told[f"{call} {name}"].startswith("not-regular"), (name, told[f"{call} {name}"])
    assert "'sound'" in told["group"] and "'works'" in told["group"], told["group"]
    assert "<xarray.Dataset" in told["xarray"]


def test_pipes_that_a_manifest_names_are_not_opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcore.create("a.parts", data=np.arange(20.0), parts=3).close()
    outcore.create("b.zarr", data=np.arange(20.0), chunks=5).close()
    parts = json.loads(Path("a.parts").read_text())["parts"]
    for name in [parts[1], "b.zarr/c/2"]:
        with outcore.open("b.zarr" if name.startswith("b") else "a.parts") as a:
            os.unlink(name)
            os.mkfifo(name)
            with pytest.raises(outcore.OutcoreError) as raised:
                a[...]
            assert raised.value.code in ("not-regular", "file-changed"), name
    with pytest.raises(outcore.errors.FormatError) as raised:
        outcore.open("a.parts")
    assert raised.value.code == "not-regular"
    assert {one.reason or one.code for one in outcore.verify("a.parts")} == {"not-regular"}
    os.mkfifo("pipe")
    with pytest.raises(outcore.errors.UsageError) as raised:
        outcore.open(["pipe"], dtype="u1", shape=(4,), format="raw")
    assert raised.value.code == "not-a-file"
