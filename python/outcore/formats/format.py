"""
The interface of a file format: `Format`, and its optional capabilities.

Problem: formats differ in their abilities: to grow, to store attributes, to hold groups, to encode
chunks. Code that works with all of them must not name one, and must not guess the abilities of another.
Approach: a format is an object of a class that derives from `Format`, with three required methods. Each
other ability is a separate class, from which the format derives too; callers test for it with
``isinstance``.
Invariants: a format reads and writes metadata, never elements. Errors about the file are `FormatError`,
about the system `StorageError`, about the call `UsageError`.

| class            | ability of the format |
|------------------|---|
| `ReadOnlyFormat` | creates and changes nothing; the framework raises for writing |
| `OpensMany`      | describes several arrays of a file in one visit |
| `Resizable`      | changes the length of axes |
| `GrowsItself`    | has its own way to keep others from changing a length |
| `LeavesOldBytes` | keeps old bytes beyond the shape, which must be filled when an array grows |
| `KeepsAttributes`| stores attributes of users |
| `HasCodecs`      | encodes chunks |
| `HasShards`      | stores several chunks in one file |
| `Stages`         | creates an array of an existing file under another name until it is complete |
| `HasFiles`       | stores an array in several files |
| `HasGroups`      | stores groups of arrays |
| `HasLibrary`     | has a Python library that reads arrays which outcore cannot read |
| `ServesXarray`   | its files are datasets of xarray |
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NoReturn

import numpy as np

from outcore.errors import OutcoreError, UnsupportedError, UsageError
from outcore.formats.growing import Growing
from outcore.formats.layout import ArrayInfo, Codec
from outcore.formats.members import Kind, Members
from outcore.formats.spec import Entry, Spec

__all__ = [
    "Format",
    "GrowsItself",
    "HasCodecs",
    "HasFiles",
    "HasGroups",
    "HasLibrary",
    "HasShards",
    "KeepsAttributes",
    "LeavesOldBytes",
    "OpensMany",
    "ReadOnlyFormat",
    "Resizable",
    "ServesXarray",
    "Stages",
]


class Format(ABC):
    """
    A file format.

    Attributes
    ----------
    name
        Name for ``format=``.
    suffixes
        Suffixes of its files, in lower case, with the dot.
    is_folder
        Whether it stores arrays in folders.
    checks_marks
        Whether `describe` raises ``bad-magic`` for a file with the marks of another format. `recognise`
        is then not called before `describe` for files with a suffix of the format.
    moves_files
        Whether a change of attributes may put a new file in the place of the old one.
    new_suffix
        Suffix of names that outcore chooses for new arrays; None: the first one of `suffixes`.
    plain_orders, chunk_orders
        Orders (``"C"``, ``"F"``) in which a new array without chunks, and a chunk of one, can be stored.
    has_chunk_files
        Whether each chunk of a new array is a file.
    unrecorded_options
        Options of `describe` that files of the format do not record, so that each call must pass them.
    library
        Name of the Python module of the library that owns the format (`HasLibrary`), or None.
    """

    name: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]] = ()
    is_folder: ClassVar[bool] = False
    checks_marks: ClassVar[bool] = False
    moves_files: ClassVar[bool] = False
    new_suffix: ClassVar[str | None] = None
    plain_orders: ClassVar[tuple[str, ...]] = ("C",)
    chunk_orders: ClassVar[tuple[str, ...]] = ()
    has_chunk_files: ClassVar[bool] = False
    unrecorded_options: ClassVar[tuple[str, ...]] = ()
    library: ClassVar[str | None] = None

    @abstractmethod
    def recognise(self, path: str) -> bool:
        """
        Return whether a file or folder has the marks of the format, such as its first bytes.

        Parameters
        ----------
        path
            The file or folder.
        """

    @abstractmethod
    def describe(self, path: str, inner: str | None, writable: bool) -> ArrayInfo:
        """
        Read the metadata of an array.

        Options of a format are further keyword-only arguments of its method.

        Parameters
        ----------
        path
            The file or folder.
        inner
            Path of the array in the file, or None.
        writable
            Whether the array must be writable; raise if it is not.
        """

    @abstractmethod
    def create(self, path: str, inner: str | None, spec: Spec) -> ArrayInfo:
        """
        Create an array, completely or not at all.

        Options of a format are further keyword-only arguments of its method.

        Parameters
        ----------
        path
            The file or folder.
        inner
            Path of the array in the file, or None.
        spec
            The new array.
        """

    def ls(self, path: str, inner: str | None) -> list[Entry]:
        """
        Return the arrays and groups in a file; by default its only array.

        Parameters
        ----------
        path
            The file or folder.
        inner
            Path of the group whose contents are listed, or None.
        """
        info = self.describe(path, inner, False)
        return [Entry(path, "array", info.shape, info.dtype)]

    def has_library(self) -> bool:
        """Return whether `library` is installed."""
        if self.library is None:
            return False
        try:
            return self.library in sys.modules or importlib.util.find_spec(self.library) is not None
        except (ImportError, ValueError):
            return False

    def get_unrecorded_options(self, info: ArrayInfo) -> dict[str, Any]:
        """Return the values of `unrecorded_options` that open an array again."""
        return {}

    def adapt_options(
        self, info: ArrayInfo, options: Mapping[str, Any]
    ) -> tuple[list[str], dict[str, Any]]:
        """
        Return the names of options that do not apply to a copy of an array, and further options.

        Lengths for each axis apply to arrays with that number of axes.

        Parameters
        ----------
        info
            The array, of any format.
        options
            Options of `create` for many arrays.
        """
        lengths = {name: options.get(name) for name in ("chunks", "shards")}
        misfits = [
            name
            for name, value in lengths.items()
            if isinstance(value, tuple | list) and len(value) != len(info.shape)
        ]
        return misfits, {}

    def check_replaceable(self, folder: str, *, whole: bool) -> None:
        """
        Raise if a new array, or with `whole` a new store, must not replace a folder.

        Parameters
        ----------
        folder
            A folder with the marks of the format, or without any.
        whole
            Whether groups in the folder are replaced, too.
        """
        raise UsageError(
            f"{folder!r} is a folder, which is not replaced; remove it first, or choose another name",
            code="not-an-array",
            path=folder,
        )

    def get_log_path(self, path: str) -> str | None:
        """Return the file that exists during a change, and after an interrupted one; or None."""
        return None


class ReadOnlyFormat(Format):
    """A format that outcore reads and does not write."""

    #: Advice for a user who wants to write, at the end of the message.
    instead: ClassVar[str] = "convert the array to another format with outcore.convert"

    def refuse_writing(self, path: str) -> NoReturn:
        """
        Raise `UnsupportedError`: outcore does not write files of this format.

        Parameters
        ----------
        path
            The file.
        """
        raise UnsupportedError(
            f"{path!r}: outcore only reads files of the format {self.name}; {self.instead}",
            code="cannot-change",
            path=path,
        )

    def create(self, path: str, inner: str | None, spec: Spec) -> ArrayInfo:
        """Raise `UnsupportedError`."""
        self.refuse_writing(path)


class OpensMany(ABC):
    """Formats that describe several arrays of a file in one visit of it."""

    @abstractmethod
    def describe_many(
        self, path: str, inners: Sequence[str | None], writable: bool
    ) -> list[ArrayInfo]:
        """
        Read the metadata of several arrays, in their order.

        Parameters
        ----------
        path, writable
            As for `Format.describe`.
        inners
            Paths of the arrays in the file.
        """


class Resizable(ABC):
    """
    Formats that change the length of axes.

    Growing is safe for readers and after crashes: `reserve` allocates space that no reader sees, the
    caller writes the new elements and makes them durable, and `resize` then changes the metadata in
    one step.
    """

    @abstractmethod
    def lock_length(self, info: ArrayInfo) -> contextlib.AbstractContextManager[ArrayInfo]:
        """
        Keep all others from changing the length of an array.

        The context is the array with its current shape.

        Parameters
        ----------
        info
            The array as the caller knows it.
        """

    @abstractmethod
    def reserve(self, info: ArrayInfo, shape: tuple[int, ...]) -> ArrayInfo:
        """
        Allocate space for a longer array, without changing the metadata.

        Parameters
        ----------
        info
            The array.
        shape
            Its new shape.
        """

    @abstractmethod
    def resize(self, info: ArrayInfo, shape: tuple[int, ...]) -> ArrayInfo:
        """
        Change the shape on disk.

        Parameters
        ----------
        info
            The array, or the result of `reserve`.
        shape
            Its new shape.
        """

    @abstractmethod
    def release(self, info: ArrayInfo) -> None:
        """
        Release the space that was reserved for an array that did not grow.

        Parameters
        ----------
        info
            The array.
        """


class GrowsItself(ABC):
    """Formats whose library has its own way to change a length; not needed with `Resizable`."""

    @abstractmethod
    def begin_growing(self, info: ArrayInfo) -> contextlib.AbstractContextManager[Growing]:
        """
        Keep all others from changing the length of an array while the caller does.

        Parameters
        ----------
        info
            The array as the caller knows it.
        """

    @abstractmethod
    def resize(self, info: ArrayInfo, shape: tuple[int, ...]) -> ArrayInfo:
        """
        Change the shape on disk.

        Parameters
        ----------
        info
            The array.
        shape
            Its new shape.
        """


class LeavesOldBytes(ABC):
    """Formats that keep old bytes beyond the shape of an array."""

    @abstractmethod
    def find_stale_sections(
        self, info: ArrayInfo, shape: tuple[int, ...]
    ) -> Iterator[tuple[slice, ...]]:
        """
        Iterate over the sections of a longer array that would show old bytes.

        Parameters
        ----------
        info
            The array.
        shape
            The longer shape.
        """


class KeepsAttributes(ABC):
    """Formats that store attributes of users."""

    @abstractmethod
    def set_attrs(
        self, info: ArrayInfo, attrs: Mapping[str, Any], drop: Collection[str] | None = None
    ) -> ArrayInfo:
        """
        Set attributes and remove others, in one step.

        Parameters
        ----------
        info
            The array.
        attrs
            Names and values.
        drop
            Names of attributes to remove; None: all that are not in `attrs`.
        """


class HasCodecs(ABC):
    """
    Formats that encode chunks.

    Attributes
    ----------
    new_codec
        Default codec of new arrays, as in the library of the format; or None.
    """

    new_codec: ClassVar[Codec | None] = None

    @abstractmethod
    def can_encode(self, codec: Codec, dtype: np.dtype[Any]) -> bool:
        """
        Return whether a new array can have a codec.

        Parameters
        ----------
        codec
            The codec.
        dtype
            Type of the elements.
        """

    def needs_plugin(self, codec: Codec) -> bool:
        """
        Return whether the library of the format needs a plug-in to read a codec.

        Parameters
        ----------
        codec
            The codec.
        """
        return False


class HasShards(ABC):
    """Formats that store several chunks in one file, a shard."""

    @abstractmethod
    def find_shared_bytes(self, info: ArrayInfo, at: Sequence[int]) -> tuple[str, str] | None:
        """
        Return the file of a shard in which two chunks share bytes, and a description of these.

        None if there are none, or if the index is damaged, which reading it reports.

        Parameters
        ----------
        info
            The array.
        at
            Coordinates of the shard in the grid of shards.
        """


class Stages(ABC):
    """Formats that create an array of an existing file under another name until it is complete."""

    @abstractmethod
    def find_staging_path(self, path: str, inner: str) -> str | None:
        """
        Return the path under which a new array grows, or None for its final path.

        Parameters
        ----------
        path
            The file or folder.
        inner
            Path of the array in it.
        """

    @abstractmethod
    def publish(self, path: str, inner: str, exclusive: bool) -> None:
        """
        Give a complete array its name, in one step; do nothing if that has already happened.

        Parameters
        ----------
        path, inner
            As for `find_staging_path`.
        exclusive
            Whether to raise instead of replacing an array.
        """

    @abstractmethod
    def discard(self, path: str, inner: str) -> None:
        """
        Remove an incomplete array, if there is one.

        Parameters
        ----------
        path, inner
            As for `find_staging_path`.
        """

    def check_place(self, path: str, inner: str, exclusive: bool) -> None:  # noqa: B027
        """
        Raise what `publish` would raise, before the array is created.

        Parameters
        ----------
        path, inner, exclusive
            As for `publish`.
        """

    def prepare(self, path: str, inner: str) -> None:  # noqa: B027
        """
        Prepare the place where the array grows.

        Parameters
        ----------
        path, inner
            As for `find_staging_path`.
        """


class HasFiles(ABC):
    """
    Formats that store an array in several files, one of which names the others.

    Attributes
    ----------
    part_format
        Name of the format of these files, which also has arrays of one file.
    file_options
        Options of `create` that divide an array over files.
    """

    part_format: ClassVar[str]
    file_options: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def files(self, path: str) -> tuple[str, ...]:
        """
        Return all files of an array, the one that names the others first.

        Parameters
        ----------
        path
            The array.
        """

    @abstractmethod
    def copy(
        self, source: str, target: str, *, exclusive: bool, folders: Sequence[str] | None = None
    ) -> None:
        """
        Copy an array.

        Parameters
        ----------
        source, target
            The array and its copy.
        exclusive
            Whether to raise instead of replacing an array.
        folders
            Folders for the files of the copy.
        """

    @abstractmethod
    def move(self, source: str, target: str, *, exclusive: bool) -> None:
        """
        Rename an array.

        Parameters
        ----------
        source, target, exclusive
            As for `copy`.
        """

    @abstractmethod
    def remove(self, path: str) -> None:
        """
        Remove an array with all its files.

        Parameters
        ----------
        path
            The array.
        """

    @abstractmethod
    def take_place(self, fresh: str, target: str, exclusive: bool) -> None:
        """
        Give a complete array the name of the one that it replaces.

        Parameters
        ----------
        fresh, target
            The complete array, and its final name.
        exclusive
            Whether to raise instead of replacing an array.
        """


class HasGroups(ABC):
    """Formats whose files hold groups of arrays. ``inner`` is the path of a group, or None: the root."""

    @abstractmethod
    def find_kind(self, path: str, inner: str | None) -> Kind | None:
        """
        Return the kind of the object at a path in the file, or None.

        Parameters
        ----------
        path
            The file or folder.
        inner
            The path in it.
        """

    @abstractmethod
    def list_members(self, path: str, inner: str | None, deep: bool) -> list[tuple[str, Kind]]:
        """
        Return names and kinds of the members of a group, in the order of names.

        Parameters
        ----------
        path, inner
            The group.
        deep
            Whether to include the members of groups below it, each once.
        """

    @abstractmethod
    def describe_group(self, path: str, inner: str, drop: Collection[str]) -> Members:
        """
        Describe a group and the arrays directly in it.

        Parameters
        ----------
        path, inner
            The group.
        drop
            Names of arrays to omit.
        """

    @abstractmethod
    def read_group_attrs(self, path: str, inner: str | None) -> Mapping[str, Any]:
        """
        Return the attributes of a group.

        Parameters
        ----------
        path, inner
            The group.
        """

    @abstractmethod
    def check_group_writable(self, path: str, inner: str | None) -> None:
        """
        Raise if a group cannot be changed.

        Parameters
        ----------
        path, inner
            The group.
        """

    @abstractmethod
    def set_group_attrs(
        self,
        path: str,
        inner: str | None,
        attrs: Mapping[str, Any],
        drop: Collection[str] | None,
    ) -> Mapping[str, Any]:
        """
        Set attributes of a group and remove others, in one step; return them all.

        Parameters
        ----------
        path, inner
            The group.
        attrs, drop
            As for `KeepsAttributes.set_attrs`.
        """

    @abstractmethod
    def create_group(
        self, path: str, inner: str | None, attrs: Mapping[str, Any], replace: bool
    ) -> None:
        """
        Create a group, with the file and the groups above it that are missing.

        Parameters
        ----------
        path, inner
            The group.
        attrs
            Its attributes.
        replace
            Whether to replace the file.
        """

    def list_broken_links(self, path: str, inner: str | None) -> list[tuple[str, OutcoreError]]:
        """
        Return the broken links below a group, each with the reason.

        Parameters
        ----------
        path, inner
            The group.
        """
        return []

    def list_aliases(self, path: str, inner: str | None) -> list[tuple[str, str]]:
        """
        Return further names of members below a group, and the kind of link of each.

        Parameters
        ----------
        path, inner
            The group.
        """
        return []

    def expect(self, path: str, arrays: Sequence[tuple[str, ArrayInfo]]) -> None:  # noqa: B027
        """
        Prepare a new file for arrays that will be created one by one.

        Parameters
        ----------
        path
            The file.
        arrays
            Names of the arrays in it, and arrays of their shape, type and dimensions.
        """

    def complete(self, path: str) -> None:  # noqa: B027
        """
        Complete a new file after all its arrays were created.

        Parameters
        ----------
        path
            The file.
        """


class HasLibrary(ABC):
    """
    Formats with a Python library that reads arrays which outcore cannot read; see `Format.library`.

    Attributes
    ----------
    library_indexing
        Indices that arrays of the library support: ``"outer"`` includes one index array.
    """

    library_indexing: ClassVar[Literal["basic", "outer"]] = "basic"

    @abstractmethod
    def open_by_library(
        self, path: str, inner: str | None
    ) -> contextlib.AbstractContextManager[Any]:
        """Open an array with the library; the context is an object of the library."""

    @abstractmethod
    def is_library_text(self, array: Any) -> bool:
        """Return whether elements of an array of the library are text."""

    @abstractmethod
    def describe_library_array(self, array: Any) -> ArrayInfo | dict[str, Any] | None:
        """
        Describe an array that a program has opened with the library, for ``like=``.

        The result is its description, or its layout and labels as options of `outcore.create`; None if
        outcore cannot describe it.

        Parameters
        ----------
        array
            Array of the library.
        """


class ServesXarray(ABC):
    """
    Formats whose files are datasets of xarray.

    Attributes
    ----------
    states_fill
        Whether the metadata of an array state a fill value that no attribute repeats.
    fill_means_missing
        Whether xarray stores the value that means "missing" as that fill value.
    """

    states_fill: ClassVar[bool] = False
    fill_means_missing: ClassVar[bool] = False

    @abstractmethod
    def is_default_engine(self) -> bool:
        """Return whether outcore opens a file of the format if the user of xarray names no engine."""

    @abstractmethod
    def get_encoding(self, info: ArrayInfo) -> dict[str, Any]:
        """Return the storage of an array, with the keys of xarray's own engine for the format."""
