"""
Tests of several ranks: fixtures, and what keeps ranks together under mpiexec.

Every rank collects the same tests in the same order. After each phase of a test they tell each other
what came of it: a test that fails on one rank fails on all, and all go on with the next.
"""

import os
import threading
from dataclasses import replace

import pytest

from disks import SLOW
from outcore import _core
from outcore.arrays import measured
from outcore.ranks.collective import call, planning
from outcore.ranks.collective.packets import Packets
from outcore.ranks.collective.traffic import PackedExchange
from outcore.ranks.transport.group import GroupTransport
from outcore.ranks.transport.serial import SerialTransport
from ranks import UNDER_MPI, World, tell_all

MARKS = {
    "simulated": "simulated ranks only: what cannot be done, or not in time, under mpiexec",
    "real_mpi": "under mpiexec only",
}


def pytest_configure(config):
    for name, meaning in MARKS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")


def pytest_collection_modifyitems(config, items):
    other = "simulated" if UNDER_MPI else "real_mpi"
    away = [item for item in items if item.get_closest_marker(other)]
    if away:
        items[:] = [item for item in items if item not in away]
        config.hook.pytest_deselected(items=away)


@pytest.fixture
def world(request):
    """Ranks to run bodies on; `ranks.ranks` says how many."""
    return World(*request.param)


@pytest.fixture
def folder(tmp_path):
    """One folder for all ranks."""
    return tell_all(tmp_path)[0] if UNDER_MPI else tmp_path


@pytest.fixture
def agree_on(monkeypatch):
    """Sets what plans are made with where neither budget nor hint says otherwise: many small tiles."""

    def change(slot, least=1, **more):
        changed = replace(planning.AGREED, slot=slot, least=least, **more)
        monkeypatch.setattr(planning, "AGREED", changed)

    return change


class Undecided:
    """A plan of which nobody could find out whether ranks write the same elements."""

    in_order = True

    def __init__(self, plan):
        self.plan = plan

    def __getattr__(self, name):
        return getattr(self.plan, name)

    def overlap(self):
        return None


@pytest.fixture
def undecided(monkeypatch):
    """That there are too many pairs of sections to look at is played: it takes thousands of ranks."""
    plan_of, decided = call.make_plan, call.choose_method

    def chosen(plan, records, prices, *, write, **more):
        if write:
            return "two-phase", ("undecided", 0, 0)
        return decided(plan.plan, records, prices, write=write, **more)

    monkeypatch.setattr(call, "make_plan", lambda *args, **more: Undecided(plan_of(*args, **more)))
    monkeypatch.setattr(call, "choose_method", chosen)
    for name in ("Owner", "Messages"):
        plain = getattr(_core, name)

        def made(plan, *args, plain=plain, **more):
            return plain(getattr(plan, "plan", plan), *args, **more)

        monkeypatch.setattr(_core, name, made)


@pytest.fixture
def on_packets(monkeypatch):
    """Calls a function for each part of packets before it is sent: the packets, and the exchange."""
    here, exchange, start = threading.local(), Packets.exchange, PackedExchange.start

    def hook(seen):
        def noted(self, *args):
            here.packets = self
            try:
                return exchange(self, *args)
            finally:
                here.packets = None

        def sends(self, *args):
            if getattr(here, "packets", None) is not None:
                seen(here.packets, self)
            return start(self, *args)

        monkeypatch.setattr(Packets, "exchange", noted)
        monkeypatch.setattr(PackedExchange, "start", sends)

    return hook


@pytest.fixture
def slow_disk(folder):
    """Requests to the disk of `folder` take 5 ms, as plans see it; for as long as a test runs."""
    _core.set_disks({os.stat(folder).st_dev: SLOW})
    yield
    measured.apply_parameters()


@pytest.fixture
def steps(monkeypatch):
    """The calls of transports, by rank."""
    seen = {}
    for kind in (GroupTransport, SerialTransport):
        for name in ("allgather", "allgather_bytes", "agree", "barrier", "shared"):
            plain = getattr(kind, name)

            def counted(self, *args, call=plain, name=name):
                seen.setdefault(self.rank, []).append(name)
                return call(self, *args)

            monkeypatch.setattr(kind, name, counted)
    return seen


if UNDER_MPI:

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(item, call):
        report = yield
        outcomes = tell_all((report.outcome, report.longreprtext[-4000:]))
        others = [
            f"rank {rank}: {outcome}\n{text}"
            for rank, (outcome, text) in enumerate(outcomes)
            if outcome == "failed"
        ]
        if others and report.outcome != "failed":
            report.outcome = "failed"
            report.longrepr = "\n".join(others)
        return report

    def pytest_collection_finish(session):
        names = [item.nodeid for item in session.items]
        everywhere = tell_all(names)
        if any(other != names for other in everywhere):
            pytest.exit("ranks have collected different tests", returncode=3)
