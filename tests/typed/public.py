"""
What type checkers must say of public calls. Checked by `./x lint` (mypy and pyright, strict), never run.

`assert_type` fails where a call gives `Any`, or another type.
"""

from collections.abc import Mapping
from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import outcore


def opened(
    comm: outcore.mpi.Communicator,
    group: outcore.mpi.Transport,
    perhaps: outcore.mpi.Transport | None,
) -> None:
    """One communicator more, and it is another class."""
    assert_type(outcore.open("a.npy"), outcore.DiskArray)
    assert_type(outcore.open("a.npy", "w", shape=3, dtype="f4"), outcore.DiskArray)
    assert_type(outcore.open("a.npy", comm=None), outcore.DiskArray)
    assert_type(outcore.open("a.npy", "a", shape=3, dtype="f4"), outcore.DiskArray)
    made = outcore.create("b.zarr", like=np.zeros(3), chunks="auto", typical_sections=(2,))
    assert_type(made.maxshape, tuple[int | None, ...])
    assert_type(made.shards, tuple[int, ...] | None)
    assert_type(made.layout, outcore.mpi.ResidentLayout)
    loop = made.blocks(key=np.s_[::2])
    assert_type(loop.within, tuple[slice[Any, Any, Any], ...])
    assert_type(loop.report.svg(), str)
    assert_type(outcore.open("a.npy", comm=comm), outcore.mpi.CollectiveArray)
    assert_type(outcore.open(["a.bin"], "r+", comm=group, dtype="f4"), outcore.mpi.CollectiveArray)
    with outcore.open("a.npy", comm=group) as array:
        array.write_all(np.s_[: array.shape[0]], 1)
        assert_type(array.explain_all(...), outcore.mpi.CollectiveReport)
        assert_type(array.transport, outcore.mpi.Transport)
    either: outcore.DiskArray = outcore.open("a.npy", comm=perhaps)
    assert_type(outcore.create("a.npy", (3,), comm=comm), outcore.mpi.CollectiveArray)
    assert_type(outcore.create("a.npy", (3,)), outcore.DiskArray)
    either.close()


def grouped(group: outcore.Group, comm: outcore.mpi.Communicator) -> None:
    """Members are arrays or groups; whoever knows which asks for them."""
    assert_type(outcore.open_group("a.h5"), outcore.Group)
    assert_type(outcore.open_group("a.h5", "a", comm=comm), outcore.Group)
    assert_type(group["a"], outcore.DiskArray | outcore.Group)
    for name, array in group.arrays():
        assert_type(name, str)
        assert_type(array, outcore.DiskArray)
    for _, below in group.groups():
        assert_type(below, outcore.Group)
        below.attrs["units"] = "K"
    assert_type(group.create("a", (3, 4), "f4"), outcore.DiskArray)
    assert_type(group.create_group("b"), outcore.Group)
    assert_type(group.info, outcore.types.GroupInfo)
    assert_type(group.tree(), outcore.types.Tree)
    outcore.convert(group, "b.zarr", skip=True)


def asked(array: outcore.DiskArray, group: outcore.mpi.Transport) -> None:
    """What is returned has a name in `outcore`."""
    info: outcore.types.ArrayInfo = array.info
    layout: outcore.types.Strided | outcore.types.Chunked = info.layout
    if isinstance(layout, outcore.types.Strided):
        assert_type(layout.parts, tuple[outcore.types.Part, ...])
    else:
        assert_type(layout.codecs, tuple[outcore.types.Codec, ...])
    attrs: outcore.types.Attributes = array.attrs
    attrs["units"] = "K"
    assert_type(array.explain(...), outcore.types.Report)
    assert_type(outcore.ls("a.h5"), list[outcore.types.Entry])
    assert_type(outcore.verify("a.h5"), list[outcore.types.Damage])
    assert_type(outcore.memory(), outcore.types.MemoryLimit)
    assert_type(outcore.mpi.explain_all([(array, ...)], comm=group), outcore.mpi.ManyReport)
    blocks = array.blocks()
    assert_type(blocks, outcore.types.Blocks)
    assert_type(blocks.report, outcore.types.BlocksReport)


def chosen(array: outcore.DiskArray) -> None:
    """Elements that are chosen by indices."""
    outer: outcore.types.Indexer = array.oindex
    outer[[1, 2], :] = 0.0
    assert_type(array.nonzero(), tuple[NDArray[np.int64], ...])
    assert_type(array.explain([1, 2]), outcore.types.Report)
    array.put([1, 2], 0.0, mode="clip")


def reported(many: outcore.mpi.ManyReport) -> None:
    """The parts of reports."""
    assert_type(many.owners, tuple[outcore.mpi.OwnerReport, ...])
    assert_type(many.arrays, tuple[outcore.mpi.ArrayReport, ...])


def started(array: outcore.DiskArray) -> None:
    """Started I/O keeps the type of what it gives."""
    request: outcore.types.IORequest[Any] = array.iread(np.s_[:3])
    request.wait()


def started_together(array: outcore.mpi.CollectiveArray) -> None:
    """So do collectives."""
    written: outcore.mpi.CollectiveRequest[None] = array.iwrite_all(np.s_[:3], 1.0)
    request: outcore.types.IORequest[Any] = array.iread_all(np.s_[:3])
    assert_type(written.test(), bool)
    request.wait()


def with_options(path: str, options: Mapping[str, Any]) -> outcore.DiskArray:
    """A library on top."""
    array: outcore.DiskArray = outcore.open(path, **options)
    return array


def caught() -> None:
    """Errors are what callers of NumPy and of `open` catch."""
    try:
        outcore.open("a.npy")
    except outcore.errors.NotFoundError as error:
        assert_type(error.code, str)
        missing: FileNotFoundError = error
        raise missing from None


def divided(edges: NDArray[np.int64], x: NDArray[np.float64], array: outcore.DiskArray) -> None:
    """Unstructured problems."""

    def kernel(edges: NDArray[np.int32], x: NDArray[np.float64], y: NDArray[np.float64]) -> None:
        np.add.at(x, edges[:, 0], y[edges[:, 1]])

    partition = outcore.unstructured.partition(x, 4, method="hilbert", levels=(2, 2))
    assert_type(partition, outcore.unstructured.Partition)
    assert_type(partition.members(1), NDArray[np.int64])
    table = outcore.unstructured.TranslationTable(partition)
    assert_type(table.dereference([1, 2])[0], NDArray[np.int32])
    local: outcore.unstructured.LocalEdges = outcore.unstructured.AllocationList(
        edges, table
    ).localize(0)
    local.scatter(array, local.gather(x), "max")
    schedule = outcore.unstructured.edge_schedule(edges, len(x), partition=partition)
    assert_type(schedule, outcore.unstructured.EdgeSchedule)
    outcore.unstructured.edge_loop(
        schedule, reads={"y": x}, updates={"x": (array, "add")}, kernel=kernel
    )
