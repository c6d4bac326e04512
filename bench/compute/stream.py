"""
*Stream*: reading some bytes and writing some bytes with direct I/O, both at once.

What an out-of-core computation cannot be faster than, whatever it computes: its inputs are read once
and its result is written once, into a new file that is durable at the end. Requests of 1 MiB into huge
pages, 16 on their way for each of two readers and two writers (`peers/floor.c`); `dd` beside it by
``python bench/compute/stream.py FILE``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from device import PAGE, floor_run, huge_pages, load_floor

REQUEST = 1 << 20
_DEPTH = 16
_PER_SIDE = 2
# A file goes to a thread in parts of so many bytes, so that both are busy to the end.
_PART = 64 * REQUEST


class Stream:
    """
    Reads files and writes one, at the same time.

    Parameters
    ----------
    sources
        Files to be read, whole.
    target, nbytes
        A file to be made, and how long it is to be; 0 bytes: nothing is written.
    """

    def __init__(self, sources: Sequence[Path], target: Path, nbytes: int) -> None:
        self._sources = [path for path in sources if path.stat().st_size]
        self._target, self._nbytes = target, -(-nbytes // PAGE) * PAGE
        sides = (_PER_SIDE if self._sources else 0) + (_PER_SIDE if nbytes else 0)
        load_floor()
        self._memory = [huge_pages(_DEPTH * REQUEST) for _ in range(sides)]

    def run(self) -> None:
        """Do it once; what is written is durable then, and stays until `clean`."""
        opened = [os.open(path, os.O_RDONLY | os.O_DIRECT) for path in self._sources]
        reads = [part for fd in opened for part in _parts(fd, os.fstat(fd).st_size)]
        writes: list[tuple[int, int, int]] = []
        if self._nbytes:
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_DIRECT
            opened.append(os.open(self._target, flags, 0o644))
            os.posix_fallocate(opened[-1], 0, self._nbytes)
            writes = _parts(opened[-1], self._nbytes)
        work = [(reads, False)] * (_PER_SIDE if reads else 0)
        work += [(writes, True)] * (_PER_SIDE if writes else 0)
        failed: list[BaseException] = []

        def side(parts: list[tuple[int, int, int]], write: bool, memory: np.ndarray) -> None:
            try:
                while not failed:
                    try:
                        fd, begin, end = parts.pop(0)
                    except IndexError:
                        return
                    offset = np.arange(begin, end, REQUEST, dtype=np.int64)
                    length = np.minimum(REQUEST, end - offset)
                    # A direct read needs whole pages, and ends with its file.
                    length = -(-length // PAGE) * PAGE
                    floor_run(fd, offset, length, memory, REQUEST, write=write)
            except BaseException as error:
                failed.append(error)

        threads = [
            threading.Thread(target=side, args=(*some, memory))
            for some, memory in zip(work, self._memory, strict=True)
        ]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if failed:
                raise failed[0]
            if self._nbytes:
                os.fsync(opened[-1])
        finally:
            for fd in opened:
                os.close(fd)

    def clean(self) -> None:
        """Remove what was written."""
        self._target.unlink(missing_ok=True)


def _parts(fd: int, size: int) -> list[tuple[int, int, int]]:
    return [(fd, begin, min(begin + _PART, size)) for begin in range(0, size, _PART)]


def main() -> None:
    """Compare with `dd`: reading a file, writing as much, and both at once; five turns."""
    source = Path(sys.argv[1])
    target, size = source.with_name(f"{source.name}.stream"), source.stat().st_size
    read = ["dd", f"if={source}", "of=/dev/null", "bs=1M", "iflag=direct"]
    write = ["dd", "if=/dev/zero", f"of={target}", "bs=1M", "oflag=direct", "conv=fsync"]
    write += [f"count={size >> 20}"]

    def dd(*commands: list[str]) -> None:
        running = [subprocess.Popen(words, stderr=subprocess.DEVNULL) for words in commands]
        codes = [process.wait() for process in running]
        if any(codes):
            raise SystemExit("dd failed")

    ways = {
        "read": (Stream([source], target, 0).run, lambda: dd(read)),
        "written": (Stream([], target, size).run, lambda: dd(write)),
        "both": (Stream([source], target, size).run, lambda: dd(read, write)),
    }
    for name, (ours, theirs) in ways.items():
        for turn in range(5):
            spent = []
            for call in (ours, theirs) if turn % 2 else (theirs, ours):
                target.unlink(missing_ok=True)
                os.sync()
                start = time.perf_counter()
                call()
                spent.append(time.perf_counter() - start)
            stream, dd_ = spent if turn % 2 else reversed(spent)
            print(f"{name}: {size / stream / 1e6:.0f} MB/s, dd {size / dd_ / 1e6:.0f} MB/s")
    target.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
