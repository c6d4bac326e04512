"""
Groups of arrays: files and stores that hold many, as mappings.

Problem. A file of HDF5 or NetCDF4, or a store of Zarr, is a tree of groups with arrays in them; users of
h5py and zarr walk through it with ``file["a/b"]``, and set attributes of groups.
Idea. A group is a name: it holds no file open, and asks the format each time
(`outcore.formats.groups`). Its arrays are opened by `outcore.open` and made by `outcore.create`, which
have no other rules here.
Invariants. Listing opens no array. What reads as set is on the disk. Of ranks that opened a group
together, all open the same members, or all raise.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from numpy.typing import DTypeLike

import outcore
from outcore import formats
from outcore.arrays.disk import DiskArray
from outcore.arrays.disk.attributes import Attributes
from outcore.arrays.disk.described import OnDisk
from outcore.arrays.opening import create, open
from outcore.base.hints import Hints
from outcore.base.ranked import service
from outcore.base.report import counted
from outcore.errors import (
    NoSuchMemberError,
    OutcoreError,
    PathTypeError,
    UsageError,
    stays,
)
from outcore.formats import groups as of_formats
from outcore.formats.groups import GroupInfo
from outcore.formats.known_options import refuse_unknown
from outcore.formats.paths import one_name

__all__ = ["MODES", "Group", "Tree", "check_mode", "make_group", "open_group"]

T = TypeVar("T")
Mode = Literal["r", "r+", "a", "w", "x"]
MODES = ("r", "r+", "a", "w", "x")


def open_group(
    path: str | os.PathLike[str],
    mode: Mode = "r",
    *,
    hints: Hints | Mapping[str, Any] | None = None,
    comm: outcore.Communicator | outcore.Transport | None = None,
    format: str | None = None,
) -> Group:
    """
    Open a file or store that holds many arrays, or a group in it.

    Parameters
    ----------
    path
        A file of HDF5 or NetCDF4, the folder of a Zarr store, or ``file.h5::/group``.
    mode
        ``"r"`` reads, ``"r+"`` reads and writes, ``"a"`` as well and makes the group if it is not
        there, ``"x"`` makes it and refuses to replace anything, ``"w"`` makes a new file or store in
        place of an old one *with all that is in it*. The last three make groups above it that are
        missing.
    hints
        For all arrays that are opened through the group; they never change results.
    comm
        A communicator of mpi4py, or a transport: all its ranks open the group together, and its arrays
        are `CollectiveArray`s. Collective: all return, or all raise `CollectiveError`. The first rank
        makes what is to be made.
    format
        Name of the format, if neither the suffix nor the first bytes tell.

    Returns
    -------
    Group
        It holds no file open, and no array.

    Raises
    ------
    FormatError
        ``not-a-group``: the path leads to an array, or to nothing; the file is damaged, or of a format
        without groups.
    StorageError
        The file is not there, exists already (``"x"``), or cannot be opened.
    UsageError
        An unknown mode; a group inside a file that is to be replaced (``"w"``); a Zarr store with other
        files in its folder that is.
    CollectiveError
        With `comm`, on all ranks: a rank failed, or called something else.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> with outcore.open_group("run.h5", "w") as run:
    ...     run.create("grid/x", data=np.arange(3.0)).close()
    ...     run["grid"].attrs["units"] = "m"
    >>> run = outcore.open_group("run.h5")
    >>> run["grid/x"][1:]
    array([1., 2.])
    >>> run.tree()
    /
    └── grid
        └── x  float64 (3,)
    """
    if comm is not None:
        return service().open_group(comm, path, mode, hints, format)
    check_mode(mode)
    settings = Hints.of(hints)
    made = make_group(path, mode, format)
    info = of_formats.info(path, writable=mode != "r", format=made or format)
    return Group(info, mode, settings)


def check_mode(mode: str) -> None:
    """
    Raise `UsageError` (``bad-mode``) for an unknown mode.

    Parameters
    ----------
    mode
        Argument of `open_group`.
    """
    if mode not in MODES:
        raise UsageError(
            f"mode {mode!r} is not known; modes of groups: r, r+ (write as well), a (make it if it is "
            "missing), w (replace), x (create)",
            code="bad-mode",
        )


def make_group(path: str | os.PathLike[str], mode: Mode, format: str | None) -> str | None:
    """
    Create a group if the mode asks for it, and return the name of its format.

    Parameters
    ----------
    path, mode, format
        As for `open_group`.
    """
    if mode in ("r", "r+"):
        return None
    if mode == "a":
        outer = formats.split_path(one_name(path))[0]
        there = os.path.lexists(outer) and not of_formats.is_empty(outer)
        if there and of_formats.kind_of(path, format) is not None:
            return None
    return of_formats.create(path, format=format, replace=mode == "w").format


class Tree(str):
    """
    What is in a group, as text for people.

    Examples
    --------
    >>> import outcore
    >>> run = outcore.open_group("run.zarr", "w")
    >>> run.create("u", (4, 6), "f4").close()
    >>> run.tree()
    /
    └── u  float32 (4, 6)
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Group(OnDisk, Mapping[str, "DiskArray | Group"]):
    """
    A group of arrays on disk, and of groups. Made by `outcore.open_group`.

    A mapping: ``group["a"]``, ``group["a/b"]`` and ``group["/from/the/root"]`` give a `DiskArray`,
    opened as by `outcore.open`, or a `Group`. Names come in their order. Iteration, ``len`` and ``in``
    look at names, and open no array; `values`, `items`, `arrays` and `walk` open each when its turn
    comes.

    Of ranks that opened it together (``comm=``), ``group[...]``, `create`, `create_group`, and what
    opens members one after another, are collective: all ranks do the same. Names, `tree`, and
    attributes are each rank's own matter, as those of arrays.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> run = outcore.open_group("run.zarr", "w")
    >>> for name in ("u", "v"):
    ...     run.create(name, data=np.arange(4.0)).close()
    >>> list(run), "u" in run, len(run)
    (['u', 'v'], True, 2)
    >>> with run["u"] as u:
    ...     u[2:]
    array([2., 3.])
    """

    def __init__(
        self,
        info: GroupInfo,
        mode: Mode,
        hints: Hints,
        transport: outcore.Transport | None = None,
    ) -> None:
        self._info = info
        self._mode: Mode = mode
        self._hints = hints
        self._transport = transport
        outer, inner = formats.split_path(info.path)
        self._outer = outer
        # Relative paths must mean the same file after a chdir.
        self._place = os.path.abspath(outer)
        self._parts = tuple(part for part in (inner or "").split("/") if part)
        self._closed = False
        self._changing = threading.RLock()

    # What it is

    @property
    def mode(self) -> str:
        """Mode with which the group was opened."""
        return self._mode

    @property
    def hints(self) -> Hints:
        """Hints of the arrays that are opened through the group."""
        return self._hints

    @property
    def name(self) -> str:
        """Where it is in its file: ``"/"``, ``"/a/b"``."""
        return "/" + "/".join(self._parts)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @property
    def info(self) -> GroupInfo:
        """What the format knows about the group."""
        return self._info

    @property
    def attrs(self) -> Attributes:
        """
        User attributes of the group; of the root, those of the file (NetCDF: global attributes).

        As those of arrays (`DiskArray.attrs`): each change is on the disk when it returns, or did not
        happen. What a format can keep: Zarr all that JSON has, nested too (OME-NGFF); HDF5 numbers, text
        and arrays of these; NetCDF4 these with one axis.

        Raises
        ------
        UsageError
            On a change: the group was opened for reading, or the format cannot keep the value.

        Examples
        --------
        >>> import outcore
        >>> image = outcore.open_group("image.zarr", "w")
        >>> image.attrs["multiscales"] = [{"version": "0.4", "datasets": [{"path": "0"}]}]
        >>> image.attrs["multiscales"][0]["version"]
        '0.4'
        """
        return Attributes(self, self._change_attrs)

    def _change_attrs(self, changes: Mapping[str, Any], drop: Collection[str]) -> None:
        with self._changing:
            self._must_write("change the attributes of")
            found = of_formats.set_attrs(replace(self._info, path=self.location), changes, drop)
            self._info = replace(self._info, attrs=found.attrs)

    # What is in it

    def __getitem__(self, name: str) -> DiskArray | Group:
        self.check_open()
        where = self._where(name)
        kind = self._told("open", where, lambda: of_formats.kind_of(where, self.format))
        if kind is None:
            raise NoSuchMemberError(
                f"{self.path!r} holds no array and no group {name!r}; list(group) names what it holds, "
                "and outcore.ls() says which links lead nowhere",
                code="no-such-member",
                path=self.path,
            )
        if kind == "array":
            return self._open(where)
        return self._group(where)

    def _open(self, where: str) -> DiskArray:
        mode: Any = "r+" if self.writable else "r"
        words: dict[str, Any] = {"hints": self._hints, "format": self.format}
        if self._transport is not None:
            words["comm"] = self._transport
        array: DiskArray = open(where, mode, **words)
        return array

    def _group(self, where: str) -> Group:
        mode: Mode = "r+" if self.writable else "r"
        if self._transport is not None:
            return service().open_group(self._transport, where, mode, self._hints, self.format)
        info = of_formats.info(where, writable=self.writable, format=self.format)
        return Group(info, mode, self._hints)

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str) or self._closed:
            return False
        try:
            where = self._where(name)
        except UsageError:
            return False
        return of_formats.kind_of(where, self.format) is not None

    def __iter__(self) -> Iterator[str]:
        self.check_open()
        return iter([name for name, _ in self._members()])

    def __len__(self) -> int:
        self.check_open()
        return len(self._members())

    def __bool__(self) -> bool:
        """Open: an empty group is a group, too."""
        return not self._closed

    # Two groups are one if they are the same handle: a comparison would have to open all arrays.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def _members(self, *, deep: bool = False) -> list[tuple[str, of_formats.Kind]]:
        return of_formats.members(self.location, format=self.format, deep=deep)

    def arrays(self) -> Iterator[tuple[str, DiskArray]]:
        """
        Open the arrays in the group, one after another. Collective, if the group is.

        Returns
        -------
        iterator of (str, DiskArray)
            Name and array; who takes it closes it.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> run = outcore.open_group("run.h5", "w")
        >>> run.create("u", data=np.arange(4.0)).close()
        >>> for name, array in run.arrays():
        ...     with array:
        ...         print(name, array[:].sum())
        u 6.0
        """
        for name, kind in self._listed(deep=False):
            if kind == "array":
                yield name, self._open(self._where(name))

    def groups(self) -> Iterator[tuple[str, Group]]:
        """
        Open the groups in the group, one after another. Collective, if the group is.

        Returns
        -------
        iterator of (str, Group)
            Name and group.

        Examples
        --------
        >>> import outcore
        >>> run = outcore.open_group("run.h5", "w")
        >>> _ = run.create_group("grid")
        >>> [name for name, _ in run.groups()]
        ['grid']
        """
        for name, kind in self._listed(deep=False):
            if kind == "group":
                yield name, self._group(self._where(name))

    def walk(self) -> Iterator[tuple[str, DiskArray | Group]]:
        """
        Open everything below the group, one after another, depth first. Collective, if the group is.

        Returns
        -------
        iterator of (str, DiskArray or Group)
            Path from this group, and what is there; who takes an array closes it. Links in HDF5 files
            that are only names are not followed, and what has several names comes once.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> run = outcore.open_group("run.zarr", "w")
        >>> run.create("grid/x", data=np.arange(3.0)).close()
        >>> [name for name, _ in run.walk()]
        ['grid', 'grid/x']
        """
        for name, kind in self._listed(deep=True):
            where = self._where(name)
            yield name, self._open(where) if kind == "array" else self._group(where)

    def _listed(self, *, deep: bool) -> list[tuple[str, str]]:
        """Names and kinds, of all ranks the same."""
        self.check_open()
        found = self._told(
            "walk" if deep else "list", self.location, lambda: self._members(deep=deep)
        )
        return [(str(name), str(kind)) for name, kind in found]

    def tree(self) -> Tree:
        """
        Tell what is below the group: names, types and shapes.

        Returns
        -------
        Tree
            Text; a note stands beside an array that cannot be opened.

        Raises
        ------
        StorageError, FormatError
            As `outcore.ls`, which gives the same as values.

        Examples
        --------
        >>> import outcore
        >>> run = outcore.open_group("run.h5", "w")
        >>> run.create("grid/x", (3,), "f8").close()
        >>> print(run.tree())
        /
        └── grid
            └── x  float64 (3,)
        """
        self.check_open()
        below: dict[tuple[str, ...], str] = {}
        for entry in formats.ls(self.location, format=self.format):
            inner = formats.split_path(entry.path)[1] or "/"
            names = tuple(part for part in inner.split("/") if part)[len(self._parts) :]
            what = "" if entry.kind == "group" else f"  {entry.dtype} {entry.shape}"
            below[names] = "  (cannot be opened: outcore.ls() says why)" if entry.note else what
        return Tree("\n".join([self.name, *_branches(below)]))

    # Making things in it

    def create(
        self,
        name: str,
        shape: int | Sequence[int] | None = None,
        dtype: DTypeLike | None = None,
        *,
        data: Any = None,
        overwrite: bool = False,
        **options: Any,
    ) -> DiskArray:
        """
        Create an array in the group. Collective, if the group is.

        Parameters
        ----------
        name
            Its name; of a path, groups that are missing are made.
        shape, dtype, data, overwrite, options
            As for `outcore.create`.

        Returns
        -------
        DiskArray
            Open for reading and writing; of several ranks a `CollectiveArray`.

        Raises
        ------
        UsageError, StorageError, UnsupportedError
            As `outcore.create`; and if the group was opened for reading.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> run = outcore.open_group("run.nc", "w")
        >>> t = run.create("t", data=np.arange(3.0), dims=("t",), attrs={"units": "s"})
        >>> u = run.create("u", (3, 4), "f4", dims=("t", "x"), unlimited="t")
        >>> u.dims
        ('t', 'x')
        """
        self._must_write("create an array in")
        refuse_unknown(Group.create, "create", options)
        options = {"hints": self._hints, "format": self.format, **options}
        where = self._where(name)
        if self._transport is None:
            made: DiskArray = create(where, shape, dtype, data=data, overwrite=overwrite, **options)
            return made
        words = {"shape": shape, "dtype": dtype, "data": data, **options}
        said = {name: value for name, value in words.items() if value is not None}
        if "compression" in options:
            said["compression"] = options["compression"] or "none"
        array: DiskArray = open(where, "w" if overwrite else "x", comm=self._transport, **said)
        return array

    def create_group(
        self,
        name: str,
        *,
        attrs: Mapping[str, Any] | None = None,
        exist_ok: bool = False,
    ) -> Group:
        """
        Create a group in the group. Collective, if the group is.

        Parameters
        ----------
        name
            Its name; of a path, groups that are missing are made.
        attrs
            Its attributes.
        exist_ok
            Give the group that is there already, and set the attributes beside those that it has.

        Returns
        -------
        Group
            Open for reading and writing.

        Raises
        ------
        StorageError
            ``already-exists``: something has that name.
        UsageError
            An array is in the way; the group was opened for reading.

        Examples
        --------
        >>> import outcore
        >>> run = outcore.open_group("run.h5", "w")
        >>> grid = run.create_group("grid/fine", attrs={"level": 2})
        >>> grid.name, int(grid.attrs["level"])
        ('/grid/fine', 2)
        """
        self._must_write("create a group in")
        where = self._where(name)

        def make() -> None:
            there = exist_ok and of_formats.kind_of(where, self.format) == "group"
            if not there:
                of_formats.create(where, format=self.format, attrs=attrs)
            elif attrs:
                known = of_formats.info(where, format=self.format)
                of_formats.set_attrs(known, attrs, ())

        self._told(f"create_group(attrs={attrs!r}, exist_ok={exist_ok})", where, make)
        return self._group(where)

    # Its life

    def close(self) -> None:
        """
        End the use of the group; arrays that were opened through it stay open.

        It holds no file: what was set or made is on the disk already.

        Examples
        --------
        >>> import outcore
        >>> run = outcore.open_group("run.h5", "w")
        >>> run.close()
        >>> run.closed
        True
        """
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        about = f"{self.format}, mode {self._mode!r}"
        if self._closed:
            return f"<Group {self.path!r}: {about}, closed>"
        try:
            count = counted(len(self._members()), "member")
        except OutcoreError as error:  # what is gone can be printed, too
            count = error.code
        return f"<Group {self.path!r}: {count}, {about}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._transport is not None:
            raise stays(f"{self.path!r} was opened by several ranks together", path=self.path)
        mode = "r+" if self.writable else "r"
        return (_reopen, (self.location, mode, self._hints, self.format))

    def check_open(self, verb: str = "read") -> None:
        """
        Raise `UsageError` (``closed``) if the group is closed.

        Parameters
        ----------
        verb
            Operation that the caller wants to do, for the message.
        """
        if self._closed:
            raise UsageError(
                f"cannot {verb} {self.path!r}: it is closed; open it again with outcore.open_group()",
                code="closed",
                path=self.path,
            )

    def _must_write(self, verb: str) -> None:
        if not self.writable:
            raise UsageError(
                f"cannot {verb} {self.path!r}: it was opened with mode 'r'; use 'r+'",
                code="read-only",
                path=self.path,
            )
        self.check_open(verb)

    # Names

    @property
    def location(self) -> str:
        """Path of the group that is valid in any working directory."""
        return self._path(self._parts)

    def _path(self, parts: Sequence[str]) -> str:
        same = os.path.abspath(self._outer) == self._place
        outer = self._outer if same else self._place
        return f"{outer}::/{'/'.join(parts)}" if parts else outer

    def _where(self, name: str) -> str:
        """What `outcore.open` takes for a member."""
        if not isinstance(name, str):
            raise PathTypeError(
                f"members of a group are named by text, such as 'a' or 'a/b', not {name!r}",
                code="bad-path",
                path=self.path,
            )
        parts = [part for part in name.split("/") if part]
        if (not parts and not name.startswith("/")) or any(set(part) == {"."} for part in parts):
            raise UsageError(
                f"{name!r} is no name of a member of {self.path!r}; write 'a', 'a/b', or '/a' from the "
                "root of the file",
                code="bad-name",
                path=self.path,
            )
        return self._path(parts if name.startswith("/") else [*self._parts, *parts])

    def _told(self, verb: str, where: str, work: Callable[[], T]) -> T:
        """Do something short; of several ranks the first one does, which tells the others."""
        group = self._transport
        if group is None:
            return work()
        return service().on_first_rank(group, verb, where, work)


def _reopen(path: str, mode: Mode, hints: Hints, format: str) -> Group:
    return open_group(path, mode, hints=hints, format=format)


def _branches(below: Mapping[tuple[str, ...], str]) -> Iterator[str]:
    """Lines of a tree, of names with what is said of each; groups that nobody named are drawn, too."""
    children: dict[tuple[str, ...], list[str]] = {}
    for names in below:
        for depth in range(len(names)):
            known = children.setdefault(names[:depth], [])
            if names[depth] not in known:
                known.append(names[depth])

    def draw(above: tuple[str, ...], margin: str) -> Iterator[str]:
        found = sorted(children.get(above, ()))
        for number, name in enumerate(found):
            last = number == len(found) - 1
            what = below.get((*above, name), "")
            yield f"{margin}{'└── ' if last else '├── '}{name}{what}"
            yield from draw((*above, name), margin + ("    " if last else "│   "))

    return draw((), "")
