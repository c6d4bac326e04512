"""The command line on all ranks: they share the work, one of them talks, and all end alike."""

import contextlib
import importlib
import json
import os
import threading

import numpy as np
import pytest

import outcore
from outcore import cli
from outcore.compute import jobs
from outcore.mpi import transport, world
from outcore.testing.sim import SimWorld
from ranks import once, tell_all
from stopping import Stop

DATA = np.random.default_rng(3).random((700, 500))


@pytest.fixture
def here(folder, monkeypatch):
    """A folder that all ranks are in, with two arrays."""
    monkeypatch.chdir(folder)
    once(transport(world()), lambda: [np.save(name, DATA) for name in ("a.npy", "b.npy")])


def run(capsys, *words):
    """Run a command; what the ranks said and their statuses."""
    status = cli.main(list(words))
    out, err = capsys.readouterr()
    statuses, outs, errs = zip(*tell_all((status, out, err)), strict=True)
    assert not any(outs[1:]) and not any(errs[1:])
    assert len(set(statuses)) == 1, statuses
    return statuses[0], outs[0], errs[0]


@pytest.mark.real_mpi
def test_ranks_share_a_computation_and_one_of_them_tells(here, capsys):
    assert run(capsys, "run", "transpose", "a.npy", "t.npy", "--memory", "1MiB")[0] == 0
    np.testing.assert_array_equal(DATA.T, np.load("t.npy"))
    status, out, _ = run(capsys, "run", "mean", "a.npy", "--axis", "0", "--json")
    np.testing.assert_allclose(json.loads(out)["results"][0]["value"], DATA.mean(axis=0))
    status, out, err = run(capsys, "run", "sort", "a.npy", "s.npy", "--progress")
    assert (status, out.count("s.npy: shape"), "sort" in err) == (0, 1, True)
    status, out, _ = run(capsys, "run", "fft2", "a.npy", "f.npy", "--explain")
    assert (status, out.count("must move")) == (0, 1)
    assert "shape" in run(capsys, "info", "a.npy")[1]


@pytest.mark.real_mpi
@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["run", "transpose", "a.npy", "a.npy"], 2, "[same-file]"),
        (["run", "transpose", "a.npy", "b.npy"], 2, "use --overwrite"),
        (["run", "transpose", "none.npy", "t.npy"], 3, "[not-found]"),
        (["run", "transpose", "a.npy", "t.npy", "--axes", "0,0"], 2, "repeated or do not exist"),
        (["run", "transpose", "a.npy", "t.npy", "--memory", "1000"], 3, "--memory BYTES"),
        (["run", "sort", "a.npy", "t.npy", "--axis", "5"], 2, "[bad-axis]"),
        (["run", "matmul", "a.npy", "a.npy", "t.npy"], 2, "matmul"),
        (["info", "none.npy"], 3, "[not-found]"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_errors_are_printed_by_one_rank(here, words, status, said, capsys):
    found = cli.main(words)
    told = tell_all((found, *capsys.readouterr()))
    assert said in told[0][2]
    assert told[0][2].count("outcore: ") == 1
    assert not any(out + err for _, out, err in told[1:])
    ranks = told if words[0] == "run" else told[:1]
    assert {code for code, _, _ in ranks} == {status}


@pytest.mark.real_mpi
def test_one_rank_without_the_file_ends_all(here, capsys, monkeypatch):
    t = transport(world())
    name = "a.npy" if t.rank < t.size - 1 else "none.npy"
    status, _, err = run(capsys, "run", "transpose", name, "t.npy")
    assert (status, "[not-found]" in err) == (3, True)


@pytest.fixture
def parts(monkeypatch):
    """How many steps each rank of this process was given, of all rounds."""
    carry, found = importlib.import_module("outcore.compute.jobs.carry"), {}
    part = carry.Carrier.run_part

    def noted(self, schedule, parts, *more):
        rank = self.ranks.rank
        found[rank] = found.get(rank, 0) + len(parts[rank])
        return part(self, schedule, parts, *more)

    monkeypatch.setattr(carry.Carrier, "run_part", noted)
    return found


@pytest.mark.real_mpi
def test_ranks_share_a_conversion(here, capsys, parts):
    status, out, _ = run(
        capsys, "convert", "a.npy", "c.npy", "--order", "F", "--memory", "1MiB", "--json"
    )
    told = json.loads(out)
    assert (status, told["nbytes"], told["resumed_nbytes"]) == (0, DATA.nbytes, 0)
    np.testing.assert_array_equal(DATA, np.load("c.npy"))
    assert all(found.get(rank) for rank, found in enumerate(tell_all(parts)))
    status, out, err = run(capsys, "convert", "none.npy", "d.npy")
    assert (status, out, "[not-found]" in err) == (3, "", True)
    assert run(capsys, "convert", "a.npy", "c.npy")[0] == 2


@pytest.mark.simulated
def test_each_rank_does_a_part_of_what_a_command_does(tmp_path, monkeypatch, capsys, parts):
    """Conversions, and jobs that another process left. Simulated ranks share one budget."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jobs.checkpoints, "_CHECKPOINT", 0.0)
    np.save("a.npy", DATA)
    mine = threading.local()
    for module in (cli.commands, cli.run):
        monkeypatch.setattr(module, "world", lambda: mine.transport)

    def all_do(*words):
        def body(t):
            mine.transport = t
            assert cli.commands._run_reporting_errors(words, first=t.rank == 0) == 0

        parts.clear()
        SimWorld(3).run(body)
        assert sorted(parts) == [0, 1, 2]
        assert min(parts.values()) > 0

    def stop(done, total):
        if done > DATA.nbytes // 3:
            raise Stop

    with pytest.raises(Stop):
        outcore.transpose("a.npy", out="t.npy", memory="1 MiB", progress=stop)
    with pytest.raises(Stop):
        outcore.convert("a.npy", "d.npy", order="F", memory="1 MiB", progress=stop)
    all_do("convert", "a.npy", "d.npy", "--order", "F", "--resume", "-q", "--json")
    np.testing.assert_array_equal(DATA, np.load("d.npy"))
    told, _ = json.JSONDecoder().raw_decode(capsys.readouterr().out)  # each would print it
    assert told["nbytes"] == DATA.nbytes
    assert 0 < told["resumed_nbytes"] < DATA.nbytes
    all_do("resume")
    np.testing.assert_array_equal(DATA.T, np.load("t.npy"))
    assert capsys.readouterr().out.count("t.npy: complete") == 3
    assert not [name for name in os.listdir() if "outcore-" in name]


@pytest.mark.real_mpi
def test_jobs_counts_what_all_ranks_have_noted_and_resume_shares_the_rest(
    here, capsys, monkeypatch, parts
):
    """As after a kill: nobody has put their journals together."""
    monkeypatch.setattr(jobs.checkpoints, "_CHECKPOINT", 0.0)
    monkeypatch.setattr(
        importlib.import_module("outcore.compute.jobs.job"), "gather_steps", lambda journal: None
    )
    t, calls = transport(world()), []
    if t.size > 5:
        pytest.skip("of 8 steps each rank would have one: none is left when the last rank stops")

    class Bar(contextlib.nullcontext):
        def __init__(self, *words, **more):
            super().__init__(self)

        def __call__(self, done, total):
            calls.append(done)
            if t.rank == t.size - 1 and len(calls) > 1:
                raise Stop

    words = ["run", "transpose", "a.npy", "t.npy", "--memory", "1MiB"]
    with monkeypatch.context() as patch:
        patch.setattr(cli.run, "Bar", Bar)
        status, _, err = run(capsys, *words)
    assert (status, "Stop" in err) == (3, True)
    noted = sorted(name for name in os.listdir() if "outcore-journal." in name)
    assert len(noted) == t.size - 1
    _, out, _ = run(capsys, "jobs", "--json")
    (one,) = json.loads(out)["jobs"]
    # Each but the one that stopped has done its part.
    assert one["steps"] // t.size * (t.size - 1) <= one["done"] < one["steps"]
    parts.clear()
    status, out, _ = run(capsys, "resume")
    assert (status, out) == (0, f"{os.path.realpath('t.npy')}: complete\n")
    # What is left is divided anew; one step more than one rank may be none for another.
    shared = [found.get(rank, 0) for rank, found in enumerate(tell_all(parts))]
    assert sum(shared) == one["steps"]
    assert run(capsys, "resume")[1] == ".: nothing to resume\n"
    np.testing.assert_array_equal(DATA.T, np.load("t.npy"))
    assert not [name for name in os.listdir() if "outcore-" in name]


@pytest.mark.simulated
def test_other_ranks_say_nothing_and_leave_most_to_the_first(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", DATA)

    def body(t):
        if t.rank == 1:
            monkeypatch.setattr(cli.commands, "world", lambda: t)
            assert cli.main(["info", "none.npy"]) == 0
            for wrong in (["transpose", "a.npy"], ["nonsense"]):
                with pytest.raises(SystemExit) as ended:
                    cli.main(["run", *wrong])
                assert ended.value.code == 2
        t.barrier()

    SimWorld(2).run(body)
    assert capsys.readouterr() == ("", "")
