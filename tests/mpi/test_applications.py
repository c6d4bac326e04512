"""The applications in `examples/` on all ranks: they say once what they say on one process."""

import contextlib
import io
import os

import pytest

from applications import SMALL, results, run
from outcore import transport
from ranks import once, ranks, tell_all


@pytest.mark.real_mpi
@pytest.mark.parametrize("name", SMALL)
@ranks(1, 2, 3, 5, 8)
def test_ranks_say_what_one_process_says(world, name, folder, monkeypatch):
    def said(where):
        where.mkdir(exist_ok=True)
        monkeypatch.chdir(where)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            run(name)
        return out.getvalue()

    def alone():
        with monkeypatch.context() as patch:
            patch.setattr(transport, "world", lambda: None)
            found.append(said(folder / "alone"))

    def body(t):
        once(t, alone)
        return said(folder / "shared")

    found = []
    together = tell_all(world.run(body)[0])
    if found:
        assert results(name, "".join(together)) == results(name, found[0])
        assert sorted(os.listdir(folder / "shared")) == sorted(os.listdir(folder / "alone"))
