"""The applications in `examples/` on all ranks: they say once what they say on one process."""

import contextlib
import io
import os
import re

import numpy as np
import pytest

import outcore
from applications import SMALL, results, run
from mpi.real import ROOT
from outcore import mpi
from ranks import once, ranks, tell_all

#: What computes with arrays on disk that ranks share, or goes on on other numbers of ranks.
SHARED = ("heat_steps", "integrals")


def said(name, where, comm, patch, *more):
    """What an application prints on these ranks; `comm` as `outcore.mpi.world` tells it."""
    where.mkdir(exist_ok=True)
    patch.chdir(where)
    patch.setattr(mpi, "world", lambda: comm)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        run(name, *more)
    return out.getvalue()


@pytest.mark.real_mpi
@pytest.mark.parametrize("name", SMALL)
@ranks(1, 2, 3, 5, 8)
def test_ranks_say_what_one_process_says(world, name, folder, monkeypatch):
    def alone():
        with monkeypatch.context() as patch:
            found.append(said(name, folder / "alone", None, patch))

    def body(t):
        once(t, alone)
        with monkeypatch.context() as patch:
            return said(name, folder / "shared", mpi.world(), patch)

    found = []
    together = tell_all(world.run(body)[0])
    if found:
        assert results(name, "".join(together)) == results(name, found[0])
        assert sorted(os.listdir(folder / "shared")) == sorted(os.listdir(folder / "alone"))


def by_some(t, size, work):
    """The first so many ranks do something; what the first one has."""
    some = t.split(0 if t.rank < size else -1, t.rank)
    found = b""
    if some is not None:
        found = work(some).encode()
        some.close()
    return t.allgather_bytes(found)[0].decode()


@pytest.mark.real_mpi
@pytest.mark.parametrize("name", SHARED)
@ranks(2, 3, 5, 8)
def test_some_of_the_ranks_say_it_too(world, name, folder, monkeypatch):
    def body(t):
        told = []
        for size in (1, 2, t.size):
            with monkeypatch.context() as patch:
                where = folder / str(size)
                told.append(by_some(t, size, lambda some: said(name, where, some, patch)))  # noqa: B023
        assert len({tuple(results(name, one)) for one in told}) == 1, told

    world.run(body)


@pytest.mark.real_mpi
@ranks(2, 3, 5, 8)
def test_heat_goes_on_on_other_numbers_of_ranks(world, folder, monkeypatch):
    """From few ranks to all, and from all to few."""

    def body(t):
        for first, second in ((2, t.size), (t.size, 1)):
            place = folder / f"{first}-{second}"

            def go(size, *more, place=place):
                with monkeypatch.context() as patch:
                    return by_some(
                        t, size, lambda some: said("heat_steps", place, some, patch, *more)
                    )

            go(first, "--every", "7", "--stop-after", "18")
            told = go(second, "--resume")
            assert re.search("^from step 14 to 30, ", told, re.M)
            assert results("heat_steps", told.replace("from step 14", "from step 0"))

    world.run(body)


@pytest.mark.real_mpi
@ranks(2, 3, 5, 8)
def test_the_program_of_the_page_about_placement(world, folder, monkeypatch):
    """On 1, 2 and all ranks, which give the same in each placement."""
    text = (ROOT / "docs" / "howto" / "placement.md").read_text()
    (block,) = re.findall(r"^```python\n(.*?)^```", text, re.S | re.M)
    program = block.partition("\nstart = np.load")[0]
    data = np.random.default_rng(0).random((60, 40))

    def body(t):
        names = {"np": np, "outcore": outcore}
        defined = program[program.index("def smooth") :]
        exec(compile(defined, "placement.md", "exec"), names)
        for size in (1, 2, t.size):
            where = folder / str(size)
            once(t, lambda: (where.mkdir(exist_ok=True), np.save(where / "start.npy", data)))  # noqa: B023
            monkeypatch.chdir(where)
            for placement in ("global", "local", "partitioned"):

                def smoothed(some, placement=placement):
                    whole = names["smooth"](some, placement)
                    if some.rank == 0:
                        expected = (data[:-2] + data[2:]) / 2
                        np.testing.assert_array_equal(expected, whole[1:-1])
                    return "done"

                assert by_some(t, size, smoothed) == "done"

    world.run(body)
