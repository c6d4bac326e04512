"""Where blocks of a run lie: in huge pages, and in their pages as in the file."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import outcore
from outcore import _core
from outcore.arrays.schedule import Block, Buffer, Load, Schedule, ScheduleRun, ScheduleStep, Store
from outcore.arrays.schedule import memory as lies
from outcore.formats.layout import ArrayInfo, Part, Strided

PAGE = 4096
HUGE = 2 << 20


def of_huge_pages(address: int) -> int:
    """Bytes in huge pages of the mapping that has an address."""
    text = Path("/proc/self/smaps").read_text()
    for mapping in re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", text, flags=re.M):
        ends = re.match(r"([0-9a-f]+)-([0-9a-f]+) ", mapping)
        if ends and int(ends[1], 16) <= address < int(ends[2], 16):
            return int(re.search(r"AnonHugePages: *(\d+) kB", mapping)[1]) << 10
    return 0


def schedule_of(loads, shape, dtype="f8", order="C", copies=1):
    """A schedule of one step for each load, all into blocks of one shape."""
    size = int(np.prod(shape))

    def step(number):
        return ScheduleStep((Block(0, shape),), (loads[number],), kernel=0)

    return Schedule(
        "some loads",
        ("a",),
        (Buffer(size, np.dtype(dtype), order, copies=copies),),
        len(loads),
        step,
        (lambda blocks: seen.append((blocks[0].ctypes.data, blocks[0].copy())),),
    )


seen: list = []


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["f4", ">f8", "c16"])
def test_blocks_lie_in_their_pages_as_in_the_file(tmp_path, order, dtype):
    """Direct reads of whole pages end in the block; nothing is copied."""
    wanted = np.arange(700 * 333).reshape(700, 333).astype(dtype)
    path = tmp_path / "a.npy"
    np.save(path, np.asarray(wanted, order=order))
    rows, columns = (300, 333) if order == "C" else (700, 130)
    at = (slice(3, rows), slice(0, 333)) if order == "C" else (slice(0, 700), slice(5, columns))
    loads, places = [], []
    for first in (0, 1, 2, 100):
        lengths = [part.stop - part.start for part in at]
        if order == "C":
            section = (slice(first, first + lengths[0]), slice(0, 333))
        else:
            section = (slice(0, 700), slice(first, first + lengths[1]))
        loads.append(Load(0, section, 0, at))
        item = wanted.itemsize
        begin = first * (333 if order == "C" else 700) * item
        places.append(128 + begin - (3 * 333 if order == "C" else 5 * 700) * item)
    seen.clear()
    with outcore.open(path) as a:
        native = np.dtype(dtype).newbyteorder("=")
        with ScheduleRun(schedule_of(loads, (rows, columns), native, order), [a]) as run:
            run.finish()
    for load, place, (address, block) in zip(loads, places, seen, strict=True):
        assert np.array_equal(wanted[load.section], block[at])
        expected = place % PAGE if place % 16 == 0 else 0
        assert expected == address % PAGE


def test_what_is_only_stored_lies_in_its_pages_as_in_the_file(tmp_path):
    """Direct writes of whole pages go out of the block; nothing is copied."""
    np.save(tmp_path / "a.npy", np.zeros((200, 600)))

    def step(number):
        rows = slice(2 * number + 1, 2 * number + 101)
        across = None if number < 2 else (1, 0)
        shape = (600, 100) if across else (100, 600)
        section = (rows, slice(0, 600))
        return ScheduleStep((Block(0, shape),), (), (Store(0, section, 0, axes=across),), kernel=0)

    def kernel(blocks):
        seen.append((blocks[0].ctypes.data, None))
        blocks[0].fill(len(seen))

    seen.clear()
    buffers = (Buffer(60_000, np.dtype("f8"), copies=2),)
    with outcore.open(tmp_path / "a.npy", "r+") as a:
        with ScheduleRun(Schedule("stores", ("a",), buffers, 3, step, (kernel,)), [a]) as run:
            run.finish()
        assert a[1:7, 5].tolist() == [1, 1, 2, 2, 3, 3]
    # What is stored with other axes is copied, wherever it lies.
    places = [(128 + (2 * n + 1) * 4800) % PAGE for n in range(2)]
    assert [*places, 0] == [address % PAGE for address, _ in seen]


@given(offset=st.integers(0, 9000), start=st.integers(0, 50), width=st.integers(1, 900))
def test_a_block_begins_at_a_multiple_of_its_elements(offset, start, width):
    """A file may begin anywhere; memory may not."""
    layout = Strided((Part("a", offset, 1 << 40),), (width * 8, 8))
    info = ArrayInfo("a.raw", "raw", (1 << 20, width), np.dtype("f8"), layout)
    load = Load(0, (slice(start, start + 400), slice(0, width)), 0)
    array = type("Array", (), {"info": info})
    found = lies.find_lead(load, Block(0, (400, width)), Buffer(1 << 20, np.dtype("f8")), array)
    there = (offset + start * width * 8) % PAGE
    assert found == (there if there % 16 == 0 else 0)


def test_large_buffers_are_in_huge_pages():
    """Shared memory, which `mmap` makes by default, would not be."""
    enabled = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not enabled.exists() or "[never]" in enabled.read_text():
        pytest.skip("the system has no huge pages")
    elements = 3 * HUGE + 5 * PAGE
    schedule = schedule_of([], (elements,), "u1", copies=2)
    before = _core.memory_state()[0]
    memory = lies.Pages(schedule)
    assert _core.memory_state()[0] - before == schedule.held + 2 * PAGE
    copies = [memory.take(0), memory.take(0)]
    for copy in copies:
        block = memory.view(Block(0, (elements,)), copy)
        block.fill(1)
        assert of_huge_pages(block.ctypes.data) == 3 * HUGE
    memory.close()
    assert before == _core.memory_state()[0]
