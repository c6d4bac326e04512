"""
What a program did to a folder, call by call, and the folder as a crash at any point may leave it.

Problem. Between two syncs a file system may write what it likes; a kill stops a program anywhere. Both
must be tried from the outside, whoever makes the calls: Python, the core, or HDF5's library.
Idea. A child runs under ``strace``; its calls change a small model of the folder, a tree of files and
folders, each with what is visible and what is known to be on the disk. `crashes` yields the tree after
every call in four ways: only the process died; all unsynced bytes and names are lost; the names are
kept but not the bytes; the bytes are kept but not the names.
Invariants. After the last call the model equals the real folder (`Trace.check`), so that no call that
matters went unseen.

Paper: Pillai et al., "All File Systems Are Not Created Equal", OSDI 2014.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

CALLS = """
    open openat creat write pwrite64 writev pwritev pwritev2 lseek ftruncate truncate fallocate
    fsync fdatasync rename renameat renameat2 link linkat unlink unlinkat mkdir mkdirat rmdir
    copy_file_range sendfile
"""


def _few_stops() -> list[str]:
    words = [shutil.which("strace") or "true", "--help"]
    told = subprocess.run(words, capture_output=True, text=True).stdout
    return ["--seccomp-bpf"] if "--seccomp-bpf" in told else []


#: For ``strace -f``, where it can: the process stops at calls that are traced, and at no other.
FEW_STOPS = _few_stops()
LINE = re.compile(r"^(\d+\.\d+) (\w+)\((.*)\)\s+= (-?\d+)")
WORD = re.compile(
    r'"(?P<text>(?:\\x[0-9a-f]{2})*)"(?P<cut>\.\.\.)?'
    r"|(?P<fd>-?\d+|AT_FDCWD)<(?P<path>[^>]*)>(?P<gone>\(deleted\))?"
    r"|(?P<plain>[A-Za-z0-9_|]+)"
)
EXCHANGE = "RENAME_EXCHANGE"


@dataclass
class File:
    """Bytes as they are seen, and as they are on the disk (None: never synced)."""

    data: bytearray = field(default_factory=bytearray)
    safe: bytes = b""

    def write(self, at: int, new: bytes) -> None:
        self.data.extend(bytes(max(at + len(new) - len(self.data), 0)))
        self.data[at : at + len(new)] = new

    def sync(self) -> None:
        self.safe = bytes(self.data)


@dataclass
class Folder:
    """Names as they are seen, and as they are on the disk."""

    names: dict[str, File | Folder] = field(default_factory=dict)
    safe: dict[str, File | Folder] = field(default_factory=dict)

    def sync(self) -> None:
        self.safe = dict(self.names)


def load(path: Path) -> Folder:
    """A real folder, all of it on the disk."""
    folder = Folder()
    for entry in path.iterdir():
        if entry.is_dir():
            folder.names[entry.name] = load(entry)
        else:
            content = entry.read_bytes()
            folder.names[entry.name] = File(bytearray(content), content)
    folder.sync()
    return folder


def store(folder: Folder, target: Path, names: str, data: str) -> None:
    """Make the folder for real, of its ``"names"`` or ``"safe"`` names and ``"data"`` or safe bytes."""
    target.mkdir(parents=True)
    for name, entry in getattr(folder, names).items():
        if isinstance(entry, Folder):
            store(entry, target / name, names, data)
        else:
            (target / name).write_bytes(getattr(entry, data))


LOSSES = {
    "killed": ("names", "data"),
    "unsynced lost": ("safe", "safe"),
    "names first": ("names", "safe"),
    "bytes first": ("safe", "data"),
}


class Trace:
    """The calls of ``python -c script`` on the files below `folder`."""

    def __init__(self, folder: Path, script: str, *words: str) -> None:
        self._begin(folder)
        log = self.folder.with_name(self.folder.name + ".strace")
        command = [
            "strace",
            "-ff",
            *FEW_STOPS,
            "-ttt",
            "-y",
            "-xx",
            "-s",
            str(1 << 26),
            "-o",
            str(log),
        ]
        command += ["-e", "trace=" + ",".join(CALLS.split()), sys.executable, "-c", script]
        done = subprocess.run(
            [*command, str(folder), *words], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr[-2000:]
        lines = []
        for part in log.parent.glob(log.name + ".*"):
            for line in part.read_text().splitlines():
                found = LINE.match(line)
                if found and int(found[4]) >= 0:
                    lines.append((float(found[1]), found[2], found[3], int(found[4])))
            part.unlink()
        # Each thread has a log of its own; the times are those at which calls began. What one thread
        # waits for in another ends before, so only calls that are independent may change places.
        self._lines = sorted(lines, key=lambda line: line[0])

    @classmethod
    def of(cls, folder: Path, lines: list[tuple[float, str, str, int]]) -> Trace:
        """Of calls that were recorded elsewhere: time, name, arguments, result."""
        trace = cls.__new__(cls)
        trace._begin(folder)
        trace._lines = lines
        return trace

    def _begin(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.tree = load(self.folder)
        self._fds: dict[str, File | Folder | None] = {}
        self._at: dict[str, int] = {}

    def crashes(self, target: Path) -> Iterator[tuple[str, Path]]:
        """Before the first call, and after each that changes something: `target`, four times."""
        number = 0
        for when in ["at the start", *self._lines]:
            if not isinstance(when, str) and not self._apply(*when[1:]):
                continue
            for loss, (names, data) in LOSSES.items():
                copy = target / f"{number}-{loss.replace(' ', '-')}"
                store(self.tree, copy, names, data)
                call = when if isinstance(when, str) else when[1]
                yield f"{loss} after call {number} ({call})", copy
            number += 1
        self.check()

    def check(self) -> None:
        """The model saw everything."""
        assert _plain(self.tree) == _plain(load(self.folder))

    # The calls

    def _apply(self, call: str, arguments: str, result: int) -> bool:
        if call.startswith("syscall_"):
            return False  # too new for strace (cachestat); `check` would notice a change
        words = [self._word(found) for found in WORD.finditer(arguments)]
        step = getattr(self, "_" + call.removesuffix("64").removesuffix("2"), None)
        assert step is not None, f"{call} is not modelled"
        return bool(step(words, result))

    def _word(self, found: re.Match[str]) -> str | bytes | tuple[str, ...]:
        if found["text"] is not None:
            assert not found["cut"], "strace cut a string"
            return bytes.fromhex(found["text"].replace("\\x", ""))
        if found["fd"] is not None:
            path = (
                bytes.fromhex(found["path"].replace("\\x", "")) if "\\x" in found["path"] else b""
            )
            return (
                (found["fd"], path.decode(), "gone")
                if found["gone"]
                else (found["fd"], path.decode())
            )
        return found["plain"]

    def _place(self, where: object, name: object) -> tuple[Folder, str] | None:
        """Folder of the model and name in it."""
        base = where[1] if isinstance(where, tuple) else os.getcwd()
        path = os.path.normpath(os.path.join(base, os.fsdecode(name)))
        if not path.startswith(f"{self.folder}/"):
            return None
        *above, last = os.path.relpath(path, self.folder).split("/")
        folder = self.tree
        for part in above:
            folder = folder.names[part]
        return folder, last

    def _openat(self, words: list, result: int) -> bool:
        where, name, flags = words[:3]
        path = os.path.normpath(os.path.join(where[1], os.fsdecode(name)))
        fd = str(result)
        self._fds.pop(fd, None)
        self._at[fd] = 0
        if path == str(self.folder):
            self._fds[fd] = self.tree
        place = self._place(where, name)
        if place is None:
            return False
        folder, last = place
        changed = "O_CREAT" in flags and last not in folder.names
        if changed:
            folder.names[last] = File()
        entry = folder.names[last]
        if "O_TRUNC" in flags and entry.data:
            entry.data.clear()
            changed = True
        self._fds[fd] = entry
        return changed

    def _file(self, word: object) -> File | Folder | None:
        """The open file, if it is one of ours: numbers are used again for pipes and sockets."""
        if not isinstance(word, tuple) or not word[1].startswith(str(self.folder)):
            return None
        # By its path: where threads open and close side by side, a call that begins before another
        # may get the number that this one gave back.
        entry: File | Folder = self.tree
        for part in filter(None, os.path.relpath(word[1], self.folder).split("/")):
            if part == ".":
                continue
            if not isinstance(entry, Folder) or part not in entry.names:
                return self._fds.get(word[0])  # it has no name any more
            entry = entry.names[part]
        return self._fds.get(word[0]) if len(word) > 2 else entry

    def _pwrite(self, words: list, result: int) -> bool:
        file = self._file(words[0])
        if file is None:
            return False
        file.write(int(words[3]), words[1][:result])
        return True

    def _write(self, words: list, result: int) -> bool:
        file = self._file(words[0])
        if file is None:
            return False
        fd = words[0][0]
        file.write(self._at[fd], words[1][:result])
        self._at[fd] += result
        return True

    def _writev(self, words: list, result: int) -> bool:
        assert self._file(words[0]) is None, "vectors are not modelled"
        return False

    _pwritev = _sendfile = _truncate = _writev

    def _lseek(self, words: list, result: int) -> bool:
        if isinstance(words[0], tuple):
            self._at[words[0][0]] = result
        return False

    def _ftruncate(self, words: list, result: int) -> bool:
        file = self._file(words[0])
        if file is None:
            return False
        length = int(words[1])
        file.data.extend(bytes(max(length - len(file.data), 0)))
        del file.data[length:]
        return True

    def _fallocate(self, words: list, result: int) -> bool:
        file = self._file(words[0])
        if file is None or words[1] != "0":
            assert file is None, f"fallocate with mode {words[1]} is not modelled"
            return False
        end = int(words[2]) + int(words[3])
        file.data.extend(bytes(max(end - len(file.data), 0)))
        return True

    def _fsync(self, words: list, result: int) -> bool:
        file = self._file(words[0])
        if file is not None:
            file.sync()
        return file is not None

    _fdatasync = _fsync

    def _copy_file_range(self, words: list, result: int) -> bool:
        source, target = self._file(words[0]), self._file(words[2])
        if target is None:
            return False
        assert isinstance(source, File), "copied from elsewhere, which is not modelled"
        assert words[1] == words[3] == "NULL", "places in files are not modelled"
        here, there = words[0][0], words[2][0]
        target.write(self._at[there], source.data[self._at[here] : self._at[here] + result])
        self._at[here] += result
        self._at[there] += result
        return result > 0

    def _renameat(self, words: list, result: int) -> bool:
        source, target = self._place(*words[:2]), self._place(*words[2:4])
        if source is None or target is None:
            return False
        (here, name), (there, new) = source, target
        if EXCHANGE in str(words[4:]):
            here.names[name], there.names[new] = there.names[new], here.names[name]
        else:
            there.names[new] = here.names.pop(name)
        return True

    def _rename(self, words: list, result: int) -> bool:
        return self._renameat([None, words[0], None, words[1]], result)

    def _link(self, words: list, result: int) -> bool:
        (here, name), (there, new) = self._place(None, words[0]), self._place(None, words[1])
        there.names[new] = here.names[name]
        return True

    def _linkat(self, words: list, result: int) -> bool:
        (here, name), (there, new) = self._place(*words[:2]), self._place(*words[2:4])
        there.names[new] = here.names[name]
        return True

    def _unlinkat(self, words: list, result: int) -> bool:
        place = self._place(*words[:2])
        if place is None:
            return False
        del place[0].names[place[1]]
        return True

    def _unlink(self, words: list, result: int) -> bool:
        return self._unlinkat([None, *words], result)

    _rmdir = _unlink

    def _mkdirat(self, words: list, result: int) -> bool:
        place = self._place(*words[:2])
        if place is None:
            return False
        place[0].names[place[1]] = Folder()
        return True

    def _mkdir(self, words: list, result: int) -> bool:
        return self._mkdirat([None, *words], result)


def _plain(folder: Folder) -> dict:
    return {
        name: _plain(entry) if isinstance(entry, Folder) else bytes(entry.data)
        for name, entry in folder.names.items()
    }
