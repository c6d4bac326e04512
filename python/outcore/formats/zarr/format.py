"""
The common part of both versions of Zarr: `ZarrFormat`.

Problem: the metadata of a group may exist several times: in its folder, in its own consolidated
metadata, and in those of the groups above it, which other processes update at the same time.
Approach: both versions derive from one class. They differ in their documents: `version2` and `version3`
read, list and change them.
Invariants: as in `version2` and `version3`. Attributes are changed under the lock of the document that
makes the group, and nothing else in it; then the copies are updated. A group is never replaced, but a
whole store is, if nothing else is in its folder.
"""

from __future__ import annotations

import contextlib
import os
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from outcore import formats
from outcore.errors import FormatError, UnsupportedError, UsageError
from outcore.formats.documents import Document
from outcore.formats.format import (
    Format,
    HasCodecs,
    HasGroups,
    HasLibrary,
    KeepsAttributes,
    LeavesOldBytes,
    Resizable,
    ServesXarray,
    Stages,
)
from outcore.formats.groups import is_empty
from outcore.formats.layout import ArrayInfo, Chunked, Codec
from outcore.formats.members import Kind, Member, Members, make_array_name, no_group_error
from outcore.formats.zarr import codecs as zarr_codecs
from outcore.formats.zarr import grid as zarr_grid
from outcore.formats.zarr import staged as zarr_staged
from outcore.formats.zarr.store import changed_attributes, publish, write_document
from outcore.formats.zarr.store import check_writable as check_folder
from outcore.formats.zarr.tree import (
    ZarrNode,
    check_only_nodes,
    check_replaceable,
    find_node_folder,
    join_name,
    not_a_group_error,
    place,
    split_node,
)


class ZarrFormat(
    Format,
    Resizable,
    LeavesOldBytes,
    KeepsAttributes,
    HasCodecs,
    Stages,
    HasGroups,
    HasLibrary,
    ServesXarray,
):
    """
    Zarr, of either version.

    `version` is that of the specification. `group_file` is the document that makes a folder a group.
    `dims_attribute` is the attribute with the names of axes, or None if the document of an array has
    them.
    """

    is_folder = True
    plain_orders = ()
    chunk_orders = ("C", "F")
    has_chunk_files = True
    library = "zarr"
    states_fill = True
    new_codec = Codec("zstd", {"level": 0})
    version: ClassVar[int]
    group_file: ClassVar[str]
    dims_attribute: ClassVar[str | None] = None

    # Documents, which differ between the versions

    @staticmethod
    @abstractmethod
    def node(folder: str) -> ZarrNode | None:
        """Return the node of a folder, or None."""

    @staticmethod
    @abstractmethod
    def find_node_kind(folder: str) -> Kind | None:
        """Return the kind of the node in a folder according to its documents, or None."""

    @staticmethod
    @abstractmethod
    def nodes_below(
        folder: str, *, deep: bool, drop: Collection[str] = ()
    ) -> Iterable[tuple[tuple[str, ...], bool]]:
        """Iterate over the nodes below a group: their names, and whether they are arrays."""

    @staticmethod
    @abstractmethod
    def is_group(folder: str) -> bool:
        """Return whether a folder is a group of this version."""

    @staticmethod
    @abstractmethod
    def group_documents(attrs: Document) -> Mapping[str, Document]:
        """Return the documents of a new group, by the names of their files."""

    @staticmethod
    @abstractmethod
    def change_group(folder: str, edit: Callable[[Document], Document]) -> Document | None:
        """Change the attributes of a group, under its lock; None if it has no document of its own."""

    @staticmethod
    @abstractmethod
    def tell_groups(folder: str, documents: Mapping[str, Document]) -> None:
        """Update the consolidated metadata of the groups above a node."""

    # Arrays

    def lock_length(self, info: ArrayInfo) -> contextlib.AbstractContextManager[ArrayInfo]:
        """Keep others from changing the shape; the context is the array with its current shape."""
        return zarr_grid.lock_shape(info, lambda root: self.describe(root, None, True))

    def reserve(self, info: ArrayInfo, shape: tuple[int, ...]) -> ArrayInfo:
        """Make room for a longer array."""
        return zarr_grid.reserve(info, shape)

    def release(self, info: ArrayInfo) -> None:
        """Release what was reserved for an array that did not grow."""
        zarr_grid.release(self.describe(zarr_grid.source_of(info).root, None, True))

    def find_stale_sections(
        self, info: ArrayInfo, shape: tuple[int, ...]
    ) -> Iterator[tuple[slice, ...]]:
        """Iterate over the sections of a longer array that would show old bytes."""
        return zarr_grid.find_stale_sections(info, shape)

    def can_encode(self, codec: Codec, dtype: np.dtype[Any]) -> bool:
        """Return whether a new array can have a codec."""
        return zarr_codecs.takes(codec, dtype, self.version)

    def check_replaceable(self, folder: str, *, whole: bool) -> None:
        """Raise unless a folder is an array or an empty group; with `whole`, only Zarr nodes."""
        if whole:
            check_only_nodes(folder)
        else:
            check_replaceable(folder)

    # Arrays of zarr and xarray

    @contextlib.contextmanager
    def open_by_library(self, path: str, inner: str | None) -> Iterator[Any]:
        """Open an array with zarr."""
        import zarr

        yield zarr.open_array(path, path=(inner or "/").strip("/"), mode="r")

    def is_library_text(self, array: Any) -> bool:
        """Return whether an array of zarr has a dtype of text or objects."""
        return bool(array.dtype.kind in "OT")

    def describe_library_array(self, array: Any) -> ArrayInfo | None:
        """Describe an array of zarr in a folder; None if it is elsewhere or unsupported."""
        root = getattr(getattr(array, "store", None), "root", None)
        path = getattr(array, "path", None)
        if root is None or path is None:
            return None
        try:
            info = formats.open_info(f"{os.fspath(root)}::/{path}" if path else os.fspath(root))
        except (OSError, UnsupportedError, UsageError):
            return None
        return replace(info, attrs=dict(array.attrs))

    def is_default_engine(self) -> bool:
        """Return whether xarray's own engine lacks its library."""
        return not self.has_library()

    def get_encoding(self, info: ArrayInfo) -> dict[str, Any]:
        """Return chunks and shards."""
        chunks = info.layout.chunks if isinstance(info.layout, Chunked) else None
        return {"chunks": chunks, "shards": info.extra.get("shards")}

    # Arrays that are not complete

    def find_staging_path(self, path: str, inner: str) -> str | None:
        """Return the path under which a new array grows."""
        return zarr_staged.find_staging_path(path, inner)

    def prepare(self, path: str, inner: str) -> None:
        """Remove what an earlier attempt left, and prepare the hidden folder."""
        zarr_staged.prepare(path, inner)

    def discard(self, path: str, inner: str) -> None:
        """Remove an array that is not complete."""
        zarr_staged.discard(path, inner)

    def check_place(self, path: str, inner: str, exclusive: bool) -> None:
        """Raise what `publish` would raise."""
        zarr_staged.check_place(path, inner, self.is_group, exclusive)

    # Groups

    def find_kind(self, path: str, inner: str | None) -> Kind | None:
        """Return the kind of a node according to its documents."""
        found: Kind | None = self.find_node_kind(os.path.join(path, *split_node(inner, path)))
        return found

    def list_members(self, path: str, inner: str | None, deep: bool) -> list[tuple[str, Kind]]:
        """Return names and kinds, in the order of names; an unreadable node counts as an array."""
        names = split_node(inner, path)
        folder = os.path.join(path, *names)
        if self.find_kind(path, inner) != "group":
            raise not_a_group_error(join_name(path, names))
        found = self.nodes_below(folder, deep=deep)
        return [("/".join(names), "array" if is_array else "group") for names, is_array in found]

    def describe_group(self, path: str, inner: str, drop: Collection[str]) -> Members:
        """Describe a group and the arrays directly in it; or an array as the only one of a group."""
        names = split_node(inner, path)
        folder = os.path.join(path, *names)
        found: ZarrNode | None = self.node(folder)
        if found is None:
            raise no_group_error(path, inner, "there is no Zarr group of this version")
        if found.is_array:
            info = self.describe(path, inner if names else None, False)
            name = names[-1] if names else make_array_name(path)
            return Members(path, inner, self.name, arrays={name: Member.of(info)})
        arrays: dict[str, Member] = {}
        groups: list[str] = []
        for (name,), is_array in self.nodes_below(folder, deep=False, drop=drop):
            if is_array:
                arrays[name] = self._describe_member(path, (*names, name))
            else:
                groups.append(name)
        # Omit NCZarr's internal attributes.
        attrs = {key: one for key, one in found.attrs.items() if not key.lower().startswith("_nc")}
        identity = (os.path.realpath(folder), 0)
        return Members(path, inner, self.name, attrs, arrays, tuple(groups), identity=identity)

    def _describe_member(self, path: str, names: tuple[str, ...]) -> Member:
        """Describe an array of a group, readable or not."""
        try:
            return Member.of(self.describe(path, "/" + "/".join(names), False))
        except FormatError as error:
            refused = error
        try:
            node: ZarrNode | None = self.node(os.path.join(path, *names))
        except FormatError:
            node = None
        document, attrs = ({}, {}) if node is None else (node.document, node.attrs)
        dims_in = self.dims_attribute
        told = attrs.get(dims_in) if dims_in else document.get("dimension_names")
        lengths = document.get("shape")
        shape = tuple(lengths) if isinstance(lengths, list) else ()
        dims = tuple(told) if isinstance(told, list) and len(told) == len(shape) else None
        attrs = {key: one for key, one in attrs.items() if key != dims_in}
        return Member(join_name(path, names), shape, dims, attrs, refused=refused)

    def read_group_attrs(self, path: str, inner: str | None) -> Mapping[str, Any]:
        """Return the attributes of a group."""
        names = split_node(inner, path)
        found: ZarrNode | None = self.node(os.path.join(path, *names))
        if found is None or found.is_array:
            raise not_a_group_error(join_name(path, names))
        return found.attrs

    def check_group_writable(self, path: str, inner: str | None) -> None:
        """Raise `StorageError` if its folder cannot be written."""
        names = split_node(inner, path)
        folder = find_node_folder(path, names)
        if not os.path.lexists(os.path.join(folder, self.group_file)):
            raise _no_document_error(join_name(path, names))
        check_folder(folder)

    def set_group_attrs(
        self,
        path: str,
        inner: str | None,
        attrs: Mapping[str, Any],
        drop: Collection[str] | None,
    ) -> Mapping[str, Any]:
        """Set attributes and remove others (None: all), in the group and in consolidated metadata."""
        names = split_node(inner, path)
        name = join_name(path, names)

        def edit(old: Document) -> Document:
            return changed_attributes(old, attrs, drop, name)

        changed: Document | None = self.change_group(find_node_folder(path, names), edit)
        if changed is None:
            raise _no_document_error(name)
        return changed

    def create_group(
        self, path: str, inner: str | None, attrs: Mapping[str, Any], replace: bool
    ) -> None:
        """Create a group, and those above it if they are missing."""
        names = split_node(inner, path)
        given = changed_attributes({}, attrs, None, join_name(path, names))
        documents = self.group_documents(given)
        target = find_node_folder(path, names)
        if replace and os.path.isdir(target):
            check_only_nodes(target)

            def build(folder: str) -> None:
                for file, document in documents.items():
                    write_document(os.path.join(folder, file), document)

            publish(target, build, exclusive=False)
            return
        # An empty folder may become a store.
        empty = is_empty(target)
        made = place(path, names, documents, self.group_documents({}), self.is_group, not empty)
        for folder, files in made.nodes:
            self.tell_groups(folder, files)


def _no_document_error(name: str) -> FormatError:
    return FormatError(
        f"{name!r} has no metadata document: only a group above lists it, or it was removed; open it "
        "for reading, or create it",
        code="not-a-group",
        path=name,
    )
