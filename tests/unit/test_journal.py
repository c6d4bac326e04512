"""A journal tells the truth about what is done, for one job, to one process."""

import contextlib
import json
import multiprocessing
import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import outcore
from fuzz import documents
from outcore import _core, errors
from outcore.compute import jobs
from outcore.compute.jobs.journal import Journal, acquire_journal, gather_steps, make_rank_path
from outcore.errors import FormatError, StorageError, UsageError

BAD_LINES = ["x\n", "9\n", "0-9\n", "0-99999999999999999999\n", "3-2\n", "-1\n"]
JOB = {"source": "a.npy", "shape": (3, 4), "dtype": "<f8"}


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "x.outcore-journal")


def test_what_was_committed_is_there_again(path):
    with Journal(path) as journal:
        assert journal.job is None
        journal.begin(JOB, [1, 4], 10)
        journal.commit([3, 1, 2, 7])
        journal.commit([])
        journal.commit([8, 9, 1])
    with Journal(path) as journal:
        assert journal.list_differences(JOB) == []
        assert journal.cut == [1, 4]
        assert journal.done == {1, 2, 3, 7, 8, 9}


def test_another_job_is_told_by_what_differs(path):
    with Journal(path) as journal:
        journal.begin(JOB, None, 200)
        assert journal.list_differences({**JOB, "dtype": "<f4", "order": "F"}) == ["dtype", "order"]


@pytest.mark.parametrize("cut", [0, 1, 50])
def test_what_was_announced_stays_until_there_is_more(path, cut):
    with Journal(path) as journal:
        journal.begin(JOB, {"partial": 1}, 0)
        journal.begin(JOB, {"partial": 2}, 10)
    os.truncate(path, os.path.getsize(path) - cut)
    with Journal(path) as journal:
        assert (journal.job is not None, journal.cut, journal.steps, len(journal.done)) == (
            (True, {"partial": 1}, 0, 0) if cut else (True, {"partial": 2}, 10, 0)
        )
        journal.begin(JOB, {"partial": 3}, 20)
        journal.commit([19])
    with Journal(path) as journal:
        assert (journal.cut, journal.steps, journal.done) == ({"partial": 3}, 20, {19})


@pytest.mark.parametrize("cut", [0, 1, 50])
def test_a_job_is_told_whole_until_another_one_is(path, cut):
    """Who begins anew is killed while he says so."""
    with Journal(path) as journal:
        journal.begin(JOB, {"partial": 1}, 10)
        journal.commit([3, 4])
        journal.begin({**JOB, "dtype": "<f4"}, {"partial": 2}, 5)
    os.truncate(path, os.path.getsize(path) - cut)
    with Journal(path) as journal:
        now = JOB if cut else {**JOB, "dtype": "<f4"}
        assert journal.list_differences(now) == []
        assert (journal.cut["partial"], journal.steps, journal.done) == (
            (1, 10, {3, 4}) if cut else (2, 5, set())
        )


@pytest.mark.parametrize("cut", range(1, 6))
def test_a_torn_last_line_is_not_done(path, cut):
    with Journal(path) as journal:
        journal.begin(JOB, None, 200)
        journal.commit([5])
        journal.commit([100, 101])
    os.truncate(path, os.path.getsize(path) - cut)
    with Journal(path) as journal:
        assert journal.done == {5}
        journal.commit([6])
    with Journal(path) as journal:
        assert journal.done == {5, 6}


@pytest.mark.parametrize(
    "text",
    ["hello\n", "{}\n", '{"outcore-journal": 99, "job": {}, "cut": 1}\n', "[]\n", "\0" * 100]
    + ['{"outcore-journal": 1, "job": {}, "cut": 1, "steps": 9}\n' + line for line in BAD_LINES]
    + ['{"outcore-journal": 1, "job"']
    + [
        '{"outcore-journal": 1, "cut": 1, "steps": 9, "job": ' + odd + "}\n"
        for odd in ("[" * 100_000, '{"a":' * 100_000, "5", "[1]", '"x"', "null")
    ]
    + [
        '{"outcore-journal": 1, "cut": 1, "job": {}, "steps": ' + odd + "}\n"
        for odd in ("Infinity", "NaN", "-1", "1.5", "true", '"9"', "null", "[]", "9" * 5000)
    ],
    ids=lambda text: f"{len(text)} {text[:60]!r}",
)
def test_what_is_no_journal_is_refused(path, text):
    with open(path, "w") as stream:
        stream.write(text)
    with pytest.raises(FormatError) as caught:
        Journal(path)
    assert caught.value.code == "bad-journal"


def hold(path, taken, leave):
    with Journal(path):
        taken.set()
        leave.wait(30)


def test_one_process_at_a_time(path):
    context = multiprocessing.get_context("spawn")
    taken, leave = context.Event(), context.Event()
    other = context.Process(target=hold, args=(path, taken, leave))
    other.start()
    assert taken.wait(30)
    with pytest.raises(UsageError) as caught:
        Journal(path)
    assert caught.value.code == "in-use"
    leave.set()
    other.join(30)
    Journal(path).close()


def test_who_has_it_for_a_moment_is_waited_for(path):
    """As those who list jobs have."""
    with Journal(path):
        before = time.monotonic()
        with pytest.raises(UsageError, match="locked by another"):
            Journal(path, patience=0.05)
        assert time.monotonic() - before >= 0.05
    listing = Journal(path)
    threading.Timer(0.1, listing.close).start()
    Journal(path, patience=30).close()


def test_a_journal_that_is_removed_meanwhile_is_made_anew(path):
    """Whoever waited for it would hold a file without a name, which nobody finds after a kill."""
    ended = Journal(path)

    def end():
        ended.remove()
        ended.close()

    threading.Timer(0.1, end).start()
    with Journal(path, patience=30) as journal:
        assert os.path.samestat(os.fstat(journal._fd), os.stat(path))


def test_who_only_looks_makes_none(path):
    with pytest.raises(StorageError) as caught:
        acquire_journal(path, make=False)
    assert caught.value.code == "not-found"
    assert not os.path.exists(path)


def test_what_another_rank_has_noted_counts_while_it_is_at_work(path):
    """It is about to released: nobody waits for that, and what it has done is not lost."""
    with Journal(path) as journal, Journal(make_rank_path(path, 1)) as other:
        for one in (journal, other):
            one.begin(JOB, {"program": "p"}, 10)
        other.commit([4, 5])
        with open(other.path, "a") as stream:
            stream.write("1")  # more is under way
        gather_steps(journal)
        assert journal.done == {4, 5}
        other.commit([])
    with open(other.path) as stream:
        assert stream.read().endswith("\n1"), "only its owner cuts it"


def test_what_another_rank_has_noted_of_other_steps_does_not_count(path):
    """The same job, cut differently: its numbers mean other steps."""
    for program, expected in (("one", {1}), ("two", {1, 2})):
        with Journal(path) as journal, Journal(make_rank_path(path, 1)) as other:
            journal.begin(JOB, {"program": "two"}, 5)
            journal.commit([1])
            other.begin(JOB, {"program": program}, 5)
            other.commit([2])
            gather_steps(journal)
            assert journal.done == expected, program


def test_lines_are_on_the_disk_before_they_count(path, monkeypatch):
    """As what they say, and the name of the journal."""
    calls, fdatasync, fsync_folder = [], os.fdatasync, _core.fsync_folder

    def synced(fd):
        calls.append(("lines", os.fstat(fd).st_size))
        fdatasync(fd)

    def folder(name):
        calls.append(("name", os.path.basename(name)))
        fsync_folder(name)

    monkeypatch.setattr(os, "fdatasync", synced)
    monkeypatch.setattr(_core, "fsync_folder", folder)
    with Journal(path) as journal:
        journal.begin(JOB, None, 5)
        first = os.path.getsize(path)
        journal.commit([1])
        last = os.path.getsize(path)
    assert calls == [("lines", first), ("name", os.path.basename(path)), ("lines", last)]


def test_a_job_on_which_a_rank_is_at_work_is_held(path):
    """The first one is gone, and another one still writes."""
    with Journal(path) as journal, Journal(make_rank_path(path, 1)) as other:
        for one in (journal, other):
            one.begin(JOB, {"program": "p"}, 10)
        journal.close()
        journal._fd = os.open(os.devnull, os.O_RDONLY)
        with pytest.raises(UsageError, match="locked by another process"):
            acquire_journal(path)
    acquire_journal(path).close()


def test_a_journal_that_makes_no_sense_is_refused_by_all_who_read_it(tmp_path, monkeypatch):
    """Each value of the head and of the call is replaced, or nested too deeply: no raw exception."""
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.zeros((3, 4)))
    cut = {"partial": [["b.outcore-partial.npy", None]], "call": documents.CALL}
    good = {"outcore-journal": 1, "job": documents.JOB, "cut": cut, "steps": 9}
    tried = 0
    for where in documents.paths_of(good):
        for value in (None, 5, "x", [], {}, [1], {"a": 1}, -1, 1e400, "\ud800", "nested"):
            document = documents.changed(good, where, value, False)
            text = json.dumps(document).replace('"nested"', "[" * 3000 + "]" * 3000)
            Path("b.npy.outcore-journal").write_text(f"{text}\n1\n")
            with contextlib.suppress(errors.OutcoreError):
                for one in jobs.unfinished("."):
                    repr(one)
            with contextlib.suppress(errors.OutcoreError):
                jobs.resume(".")
            for name in os.listdir():
                if name != "a.npy":
                    Path(name).unlink()
            tried += 1
    assert tried > 300


def test_what_a_function_of_the_user_raises_is_no_fault_of_the_journal(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.zeros((600, 700)))

    def stop(done, total):
        if done:
            raise KeyError("mine")

    with pytest.raises(KeyError):
        outcore.transpose("a.npy", out="b.npy", memory="600 kB", progress=stop)
    with pytest.raises(KeyError, match="mine"):
        jobs.resume(".", progress=stop)
    assert jobs.resume(".") == [str(tmp_path / "b.npy")]
