"""Settings of all tests."""

import contextlib
import gc
import glob
import os
import signal
import tempfile
from pathlib import Path

import hypothesis
import pytest

import lanes
from outcore import _core
from outcore.arrays import measured
from outcore.formats.zarr.format import ZarrFormat
from ranks import UNDER_MPI, communicator

# Machines that run tests are busy: time says nothing. A failure prints how to repeat it.
hypothesis.settings.register_profile("outcore", deadline=None, print_blob=True)
hypothesis.settings.load_profile("outcore")

# Plans of tests are priced for the assumed disk, whatever was measured on this machine.
os.environ["OUTCORE_LEARN_DISKS"] = "0"
os.environ["XDG_CACHE_HOME"] = os.path.join(tempfile.gettempdir(), "outcore-tests-no-figures")
# What was measured is read when outcore is imported: above.
measured.apply_parameters()

# A shell that runs something in the background has it ignore Ctrl-C, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Whether decoded chunks are kept depends on how long ago somebody changed the file: only tests of
# that let it happen, so that in all others the memory that is held does not depend on the time.
_core.keep_chunks_after(10**6)


class Failures:
    """Tells each failure when it happens: whoever stops a run that takes too long sees what failed."""

    def __init__(self, config):
        self.plugins = config.pluginmanager

    def pytest_runtest_logreport(self, report):
        terminal = self.plugins.get_plugin("terminalreporter")
        if report.failed and terminal:
            terminal.ensure_newline()
            terminal.write_line(f"{report.nodeid} failed ({report.when}):")
            terminal.write_line("\n".join(report.longreprtext.splitlines()[-12:]))
            terminal.write_line(f"The machine: {machine()}")


def machine():
    """How much memory is left, how busy the processors are, and which processes are large."""
    found = ["load {:.1f} {:.1f} {:.1f}".format(*os.getloadavg())]
    with contextlib.suppress(OSError), open("/proc/meminfo") as lines:
        found += [" ".join(line.split()) for line in lines if line.startswith("MemAvailable")]
    for path in glob.glob("/proc/[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            nbytes = int(Path(path, "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            if nbytes > 2 << 30:
                words = Path(path, "cmdline").read_text().replace("\0", " ")
                found.append(f"{nbytes / 2**30:.1f} GiB: {words[:150]!r}")
    return "; ".join(found)


def pytest_addoption(parser):
    lanes.add_options(parser)


@pytest.hookimpl(trylast=True)  # after -k, and after folders have taken tests away
def pytest_collection_modifyitems(config, items):
    lanes.apply(config, items, communicator().Get_size() if UNDER_MPI else 0)


# In these folders tests look at bytes, chunks and budgets of Zarr arrays that they make without a word
# about codecs: there new ones have none. In the others they have what users get.
PLAIN = ("crash", "fuzz", "memory", "mpi", "property", "unit")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    codec = ZarrFormat.new_codec
    if item.path.parent.name in PLAIN:
        ZarrFormat.new_codec = None
    try:
        return (yield)
    finally:
        ZarrFormat.new_codec = codec


def pytest_configure(config):
    if not hasattr(config, "workerinput"):  # a worker's reports are told by who started it
        config.pluginmanager.register(Failures(config))


# What of the budget was held when this was last looked at.
_held = [0]


@pytest.fixture(autouse=True)
def budget():
    """
    Each test leaves the budget as it was, and holds nothing of it any more when the next one begins.

    Ranks that are threads restore it in any order, and what failures refer to waits for the collector.
    """
    before = _core.memory_limit()
    if _core.memory_state()[0] > _held[0]:
        gc.collect()
    _held[0] = _core.memory_state()[0]
    yield
    _core.set_memory_limit(before)
