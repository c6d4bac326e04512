"""
Groups of arrays: files and stores with many arrays, as mappings.

Problem: an HDF5 or NetCDF4 file, or a Zarr store, is a tree of groups with arrays. Users of h5py and
zarr navigate it with ``file["a/b"]`` and set attributes of groups.
Approach: a group is a name. It keeps no file open and asks the format on each use
(`outcore.formats.groups`). Its arrays are opened by `outcore.open` and created by `outcore.create`,
with the same rules.
Invariants: listing opens no array. An attribute that reads as set is durable. Ranks that opened a group
together all open the same members, or all raise.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar

from numpy.typing import DTypeLike

import outcore
from outcore import formats
from outcore.arrays.disk import DiskArray
from outcore.arrays.disk.attributes import Attributes
from outcore.arrays.disk.described import OnDisk
from outcore.arrays.opening import create, open
from outcore.base.hints import Hints
from outcore.base.ranked import get_service
from outcore.base.report import format_count
from outcore.errors import (
    NoSuchMemberError,
    OutcoreError,
    PathTypeError,
    UsageError,
    other_process_error,
)
from outcore.formats import groups as of_formats
from outcore.formats.groups import GroupInfo
from outcore.formats.known_options import check_known
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
    comm: outcore.mpi.Communicator | outcore.mpi.Transport | None = None,
    format: str | None = None,
) -> Group:
    """
    Open a file or store with many arrays, or a group in it.

    Parameters
    ----------
    path
        Path of an HDF5 or NetCDF4 file, the folder of a Zarr store, or ``file.h5::/group``.
    mode
        ``"r"`` reads; ``"r+"`` reads and writes; ``"a"`` also creates a missing group; ``"x"`` creates
        the group and raises an error if it exists; ``"w"`` creates a new file or store and replaces an
        old one *with all its contents*. ``"a"``, ``"x"`` and ``"w"`` also create missing parent groups.
    hints
        Hints for all arrays that are opened through the group; they never change results.
    comm
        Communicator of mpi4py, or a transport: all its ranks open the group together, and its arrays
        are `CollectiveArray`s. Collective: all return, or all raise `CollectiveError`. The first rank
        creates missing groups and files.
    format
        Name of the format, if neither the suffix nor the first bytes determine it.

    Returns
    -------
    Group
        Group that keeps no file and no array open.

    Raises
    ------
    FormatError
        ``not-a-group``: the path is an array or does not exist in the file; or the file is damaged, or
        its format has no groups.
    StorageError
        The file does not exist, already exists (``"x"``), or cannot be opened.
    UsageError
        The mode is unknown; or ``"w"`` would replace a group inside a file, or a Zarr store whose
        folder has other files.
    CollectiveError
        With `comm`, on all ranks: a rank failed or made a different call.

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
        return get_service().open_group(comm, path, mode, hints, format)
    check_mode(mode)
    settings = Hints.of(hints)
    made = make_group(path, mode, format)
    info = of_formats.describe_group(path, writable=mode != "r", format=made or format)
    return Group(info, mode, settings)


def check_mode(mode: str) -> None:
    """Raise `UsageError` (``bad-mode``) for an unknown mode of `open_group`."""
    if mode not in MODES:
        raise UsageError(
            f"unknown mode {mode!r}; modes of groups: r, r+ (write as well), a (create it if it is "
            "missing), w (replace), x (create)",
            code="bad-mode",
        )


def make_group(path: str | os.PathLike[str], mode: Mode, format: str | None) -> str | None:
    """Create a group if the mode requires it, and return the name of its format; see `open_group`."""
    if mode in ("r", "r+"):
        return None
    if mode == "a":
        outer = formats.split_path(one_name(path))[0]
        there = os.path.lexists(outer) and not of_formats.is_empty(outer)
        if there and of_formats.find_kind(path, format) is not None:
            return None
    return of_formats.create(path, format=format, replace=mode == "w").format


class Tree(str):
    """
    Contents of a group as human-readable text.

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

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre class='outcore'>{escape(self)}</pre>"


class Group(OnDisk, Mapping[str, "DiskArray | Group"]):
    """
    A group of arrays and groups on disk, opened by `outcore.open_group`.

    A group is a mapping: ``group["a"]``, ``group["a/b"]`` and ``group["/from/the/root"]`` return a
    `DiskArray`, opened as by `outcore.open`, or a `Group`. Names are sorted. Iteration, ``len`` and
    ``in`` use names only and open no array; `values`, `items`, `arrays` and `walk` open their items one
    at a time, as you iterate.

    If ranks opened the group together (``comm=``), ``group[...]``, `create`, `create_group` and the
    iterators that open members are collective: all ranks make the same calls. Names, `tree` and
    attributes are independent on each rank, as for arrays.

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
        transport: outcore.mpi.Transport | None = None,
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

    # Properties

    @property
    def mode(self) -> str:
        """Mode in which the group was opened."""
        return self._mode

    @property
    def hints(self) -> Hints:
        """Hints of the arrays that are opened through the group."""
        return self._hints

    @property
    def name(self) -> str:
        """Path of the group in its file: ``"/"``, ``"/a/b"``."""
        return "/" + "/".join(self._parts)

    @property
    def closed(self) -> bool:
        """True after `close` was called."""
        return self._closed

    @property
    def info(self) -> GroupInfo:
        """Description of the group by its format."""
        return self._info

    @property
    def attrs(self) -> Attributes:
        """
        User attributes of the group; for the root, attributes of the file (NetCDF: global attributes).

        As for arrays (`DiskArray.attrs`), each change is atomic, and durable when it returns. Supported
        values: in Zarr everything that JSON supports, including nested values (OME-NGFF); in HDF5
        numbers, text and arrays of these; in NetCDF4 the same with one axis.

        Raises
        ------
        UsageError
            On a change: the group was opened for reading, or the format cannot store the value.

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
            self._check_writable("change the attributes of")
            found = of_formats.set_attrs(replace(self._info, path=self.location), changes, drop)
            self._info = replace(self._info, attrs=found.attrs)

    # Members

    def __getitem__(self, name: str) -> DiskArray | Group:
        self.check_open()
        where = self._make_member_path(name)
        kind = self._run_on_first("open", where, lambda: of_formats.find_kind(where, self.format))
        if kind is None:
            raise NoSuchMemberError(
                f"{self.path!r} has no array and no group {name!r}; see list(group) for its "
                "members, and outcore.ls() for broken links",
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
            return get_service().open_group(self._transport, where, mode, self._hints, self.format)
        info = of_formats.describe_group(where, writable=self.writable, format=self.format)
        return Group(info, mode, self._hints)

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str) or self._closed:
            return False
        try:
            where = self._make_member_path(name)
        except UsageError:
            return False
        return of_formats.find_kind(where, self.format) is not None

    def __iter__(self) -> Iterator[str]:
        self.check_open()
        return iter([name for name, _ in self._read_members()])

    def __len__(self) -> int:
        self.check_open()
        return len(self._read_members())

    def __bool__(self) -> bool:
        """Return True for an open group, also if it is empty."""
        return not self._closed

    # Groups are compared by identity: comparing contents would have to open all arrays.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def _read_members(self, *, deep: bool = False) -> list[tuple[str, of_formats.Kind]]:
        return of_formats.list_members(self.location, format=self.format, deep=deep)

    def arrays(self) -> Iterator[tuple[str, DiskArray]]:
        """
        Open the arrays in the group one at a time. Collective if the group is.

        Returns
        -------
        iterator of (str, DiskArray)
            Name and array; you must close each array.

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
        for name, kind in self._list_members(deep=False):
            if kind == "array":
                yield name, self._open(self._make_member_path(name))

    def groups(self) -> Iterator[tuple[str, Group]]:
        """
        Open the groups in the group one at a time. Collective if the group is.

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
        for name, kind in self._list_members(deep=False):
            if kind == "group":
                yield name, self._group(self._make_member_path(name))

    def walk(self) -> Iterator[tuple[str, DiskArray | Group]]:
        """
        Open all members below the group one at a time, depth first. Collective if the group is.

        Returns
        -------
        iterator of (str, DiskArray or Group)
            Path relative to this group, and the member; you must close each array. Soft and external
            links of HDF5 files are not followed, and a member with several names appears once.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> run = outcore.open_group("run.zarr", "w")
        >>> run.create("grid/x", data=np.arange(3.0)).close()
        >>> [name for name, _ in run.walk()]
        ['grid', 'grid/x']
        """
        for name, kind in self._list_members(deep=True):
            where = self._make_member_path(name)
            yield name, self._open(where) if kind == "array" else self._group(where)

    def _list_members(self, *, deep: bool) -> list[tuple[str, str]]:
        """Return names and kinds of members, identical on all ranks."""
        self.check_open()
        found = self._run_on_first(
            "walk" if deep else "list", self.location, lambda: self._read_members(deep=deep)
        )
        return [(str(name), str(kind)) for name, kind in found]

    def tree(self) -> Tree:
        """
        Describe the members below the group: names, types and shapes.

        Returns
        -------
        Tree
            Text with one line per member; an array that cannot be opened has a note.

        Raises
        ------
        StorageError, FormatError
            As for `outcore.ls`, which returns the same information as values.

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
        return Tree("\n".join([self.name, *_draw_branches(below)]))

    # Creating members

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
        Create an array in the group. Collective if the group is.

        Parameters
        ----------
        name
            Name, or a path whose missing groups are created.
        shape, dtype, data, overwrite, options
            As for `outcore.create`.

        Returns
        -------
        DiskArray
            Array open for reading and writing; a `CollectiveArray` for a collective group.

        Raises
        ------
        UsageError, StorageError, UnsupportedError
            As for `outcore.create`; also if the group was opened for reading.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> run = outcore.open_group("run.nc", "w")
        >>> t = run.create("t", data=np.arange(3.0), dims=("t",), attrs={"units": "s"})
        >>> u = run.create("u", (3, 4), "f4", dims=("t", "x"), unlimited="t")
        >>> u.dims
        ('t', 'x')
        """
        self._check_writable("create an array in")
        check_known(Group.create, "create", options)
        options = {"hints": self._hints, "format": self.format, **options}
        where = self._make_member_path(name)
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
        Create a group in the group. Collective if the group is.

        Parameters
        ----------
        name
            Name, or a path whose missing groups are created.
        attrs
            Attributes of the new group.
        exist_ok
            If True, return an existing group and add `attrs` to its attributes.

        Returns
        -------
        Group
            Group open for reading and writing.

        Raises
        ------
        StorageError
            ``already-exists``: a member has that name.
        UsageError
            An array is in the path, or the group was opened for reading.

        Examples
        --------
        >>> import outcore
        >>> run = outcore.open_group("run.h5", "w")
        >>> grid = run.create_group("grid/fine", attrs={"level": 2})
        >>> grid.name, int(grid.attrs["level"])
        ('/grid/fine', 2)
        """
        self._check_writable("create a group in")
        where = self._make_member_path(name)

        def make() -> None:
            there = exist_ok and of_formats.find_kind(where, self.format) == "group"
            if not there:
                of_formats.create(where, format=self.format, attrs=attrs)
            elif attrs:
                known = of_formats.describe_group(where, format=self.format)
                of_formats.set_attrs(known, attrs, ())

        self._run_on_first(f"create_group(attrs={attrs!r}, exist_ok={exist_ok})", where, make)
        return self._group(where)

    # Closing

    def close(self) -> None:
        """
        End the use of the group; arrays that were opened through it stay open.

        A group keeps no file open: its changes and new members are already durable.

        Examples
        --------
        >>> import outcore
        >>> run = outcore.open_group("run.h5", "w")
        >>> run.close()
        >>> run.closed
        True
        """
        self._closed = True

    def _rows(self) -> Iterable[tuple[str, str]]:
        yield "path", self.path
        yield "format", self.format
        if not self._closed:
            yield "members", ", ".join(self) or "none"
        yield "mode", f"{self._mode}, closed" if self._closed else self._mode

    def __repr__(self) -> str:
        about = f"{self.format}, mode {self._mode!r}"
        if self._closed:
            return f"<Group {self.path!r}: {about}, closed>"
        try:
            count = format_count(len(self._read_members()), "member")
        except OutcoreError as error:  # a removed group can still be printed
            count = error.code
        return f"<Group {self.path!r}: {count}, {about}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._transport is not None:
            raise other_process_error(
                f"{self.path!r} was opened collectively by several ranks", path=self.path
            )
        mode = "r+" if self.writable else "r"
        return (_reopen, (self.location, mode, self._hints, self.format))

    def check_open(self, verb: str = "read") -> None:
        """Raise `UsageError` (``closed``) if the group is closed; `verb` is the caller's operation."""
        if self._closed:
            raise UsageError(
                f"cannot {verb} {self.path!r}: it is closed; open it again with outcore.open_group()",
                code="closed",
                path=self.path,
            )

    def _check_writable(self, verb: str) -> None:
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
        return self._make_group_path(self._parts)

    def _make_group_path(self, parts: Sequence[str]) -> str:
        same = os.path.abspath(self._outer) == self._place
        outer = self._outer if same else self._place
        return f"{outer}::/{'/'.join(parts)}" if parts else outer

    def _make_member_path(self, name: str) -> str:
        """Return the path of a member for `outcore.open`."""
        if not isinstance(name, str):
            raise PathTypeError(
                f"{name!r} is not a name of a member of a group; pass text such as 'a' or 'a/b'",
                code="bad-path",
                path=self.path,
            )
        parts = [part for part in name.split("/") if part]
        if (not parts and not name.startswith("/")) or any(set(part) == {"."} for part in parts):
            raise UsageError(
                f"{name!r} is not a name of a member of {self.path!r}; write 'a', 'a/b', or '/a' "
                "from the root of the file",
                code="bad-name",
                path=self.path,
            )
        return self._make_group_path(parts if name.startswith("/") else [*self._parts, *parts])

    def _run_on_first(self, verb: str, where: str, work: Callable[[], T]) -> T:
        """Run a short operation; if the group is collective, on its first rank, which broadcasts."""
        group = self._transport
        if group is None:
            return work()
        return get_service().run_on_first_rank(group, verb, where, work)


def _reopen(path: str, mode: Mode, hints: Hints, format: str) -> Group:
    return open_group(path, mode, hints=hints, format=format)


def _draw_branches(below: Mapping[tuple[str, ...], str]) -> Iterator[str]:
    """Yield the lines of a tree from names and descriptions; unlisted parent groups are drawn too."""
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
