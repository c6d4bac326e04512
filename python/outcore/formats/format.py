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
| `Stages`         | creates an array of an existing file under another name until it is complete |
| `HasFiles`       | stores an array in several files |
| `HasGroups`      | stores groups of arrays |
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NoReturn

import numpy as np

from outcore.errors import OutcoreError, UnsupportedError
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
    "KeepsAttributes",
    "LeavesOldBytes",
    "OpensMany",
    "ReadOnlyFormat",
    "Resizable",
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
    """

    name: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]] = ()
    is_folder: ClassVar[bool] = False
    checks_marks: ClassVar[bool] = False
    moves_files: ClassVar[bool] = False

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
    """Formats that store an array in several files, one of which names the others."""

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
