"""
Zarr version 2: a folder with ``.zarray``, ``.zattrs``, ``.zgroup`` and one file for each chunk.

Problem: most Zarr data in the world is of version 2, written by zarr-python 2 and xarray.
Approach: as in `version3`, with other documents: types are NumPy's strings, the codecs are a memory
order, a list of filters and a compressor, and the names of the axes are in xarray's
``_ARRAY_DIMENSIONS``.
Invariants: as in `version3`.

Specification: https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from outcore.errors import FormatError, UnsupportedError, UsageError
from outcore.formats import durable
from outcore.formats.documents import (
    Document,
    Judge,
    Stamp,
    extract_part,
    read_document,
    read_stamped,
)
from outcore.formats.layout import ArrayInfo, Chunked, FileSource
from outcore.formats.missing_values import ATTRIBUTE as MISSING
from outcore.formats.missing_values import parse_attribute
from outcore.formats.spec import Entry, Spec, check_shape
from outcore.formats.texts import make_entry, raise_read_only
from outcore.formats.zarr import codecs as zarr_codecs
from outcore.formats.zarr import dtypes as zarr_dtypes
from outcore.formats.zarr import staged as zarr_staged
from outcore.formats.zarr import strings as zarr_strings
from outcore.formats.zarr.format import ZarrFormat
from outcore.formats.zarr.grid import (
    check_resize,
    check_separator,
    choose_chunks,
    remove_shrunk,
    source_of,
)
from outcore.formats.zarr.identity import (
    add_identity,
    confirm,
    folder_of,
    identity_of,
    make_gone_error,
)
from outcore.formats.zarr.store import (
    changed_attributes,
    check_writable,
    editing,
    lock_document,
    write_document,
)
from outcore.formats.zarr.tree import (
    NodeDocument,
    ZarrNode,
    find_deepest_node,
    find_groups_above,
    find_node_folder,
    join_name,
    missing_node_error,
    place,
    split_node,
    walk,
)

_ARRAY, _GROUP, _ATTRS, _ALL = ".zarray", ".zgroup", ".zattrs", ".zmetadata"
_DOCUMENTS = (_ARRAY, _GROUP, _ATTRS)
_DIMS = "_ARRAY_DIMENSIONS"


def _find_document(folder: str, file: str) -> NodeDocument | None:
    """Return a document of a node: its own, or the consolidated one of a group above it."""
    place = os.path.abspath(os.path.join(folder, file))
    own = read_stamped(place)
    if own is not None:
        return NodeDocument(own[0], place, own[1])
    if os.path.lexists(os.path.join(folder, _ARRAY)) or (file == _ARRAY and is_group(folder)):
        return None
    for above, relative in [(folder, ""), *find_groups_above(os.path.abspath(folder))]:
        place = os.path.abspath(os.path.join(above, _ALL))
        group = read_stamped(place)
        members = {} if group is None else _find_members(group[0], place)
        found = members.get(f"{relative}/{file}" if relative else file)
        if group is not None and found is not None:
            part = extract_part(members, Judge(place).mapping(found, file))
            return NodeDocument(part, place, group[1])
    return None


def _has_documents(folder: str) -> bool:
    return any(os.path.lexists(os.path.join(folder, name)) for name in (_ARRAY, _GROUP, _ALL))


def document_of(folder: str, file: str) -> Document | None:
    """Return a document of a node, own or consolidated, or None."""
    found = _find_document(folder, file)
    return None if found is None else found.document


def node(folder: str) -> ZarrNode | None:
    """Return the array or group in a folder, or None."""
    array, attrs = document_of(folder, _ARRAY), document_of(folder, _ATTRS) or {}
    if array is not None:
        return ZarrNode(True, array, attrs, frozenset())
    everything = os.path.join(folder, _ALL)
    members = _find_members(read_document(everything) or {}, everything)
    told = frozenset(key.split("/")[0] for key in members if "/" in key)
    if not told and document_of(folder, _GROUP) is None:
        return None
    return ZarrNode(False, {}, attrs, told)


def _find_members(group: Document, file: str) -> Document:
    """Return the consolidated metadata of a group: key to document."""
    return extract_part(group, Judge(file).mapping(group.get("metadata", {}), "metadata"))


def _describe_identified(
    name: str, folder: str, found: NodeDocument, attrs: Document, here: tuple[int, int] | None
) -> ArrayInfo:
    """Describe an array, and add its identity."""
    folder = os.path.abspath(folder)

    def again() -> tuple[ArrayInfo, Stamp]:
        now = _find_document(folder, _ARRAY)
        if now is None or now.stamp is None:
            raise make_gone_error(name)
        return describe(name, folder, now.document, {}), now.stamp

    info = describe(name, folder, found.document, attrs)
    return add_identity(info, found.file, here, found.stamp, again)


def describe(name: str, folder: str, document: Document, attrs: Document) -> ArrayInfo:
    """Convert metadata to an `ArrayInfo`."""
    judge = Judge(os.path.join(folder, _ARRAY))
    if document.get("zarr_format") != 2 or isinstance(document["zarr_format"], bool):
        raise judge.bad(f"zarr_format is {document.get('zarr_format')!r:.40}, not 2")
    shape = judge.lengths(document.get("shape"), "shape", 0)
    text = zarr_strings.is_text_v2(document)
    dtype = zarr_strings.STANDS_FOR
    if not text:
        dtype = zarr_dtypes.from_v2(document.get("dtype"), judge)
    check_shape(shape, dtype.itemsize, name, stored=True)
    chunks = judge.lengths(document.get("chunks"), "chunks", 0)
    if len(chunks) != len(shape):
        raise judge.bad(f"chunks have {len(chunks)} axes, shape has {len(shape)}")
    if any(c == 0 < n for c, n in zip(chunks, shape, strict=True)):
        raise judge.bad(f"chunks {chunks} hold no element of shape {shape}")
    chunks = tuple(max(c, 1) for c in chunks)
    separator = document.get("dimension_separator") or "."
    if separator not in (".", "/"):
        raise judge.bad("dimension_separator is neither '.' nor '/'")
    order = document.get("order")
    if text:
        pipeline = zarr_strings.parse_pipeline_v2(document, chunks, judge)
    else:
        pipeline = zarr_codecs.from_v2(
            document.get("filters"), document.get("compressor"), order, chunks, dtype, judge
        )
    root = os.path.abspath(folder)
    source = FileSource(root, "", separator, os.path.join(root, _ARRAY))
    dims = _parse_dims(attrs.get(_DIMS), len(shape))
    fill = zarr_dtypes.number_of_text(document.get("fill_value"), dtype)
    info = ArrayInfo(
        path=name,
        format=Zarr2.name,
        shape=shape,
        dtype=dtype,
        layout=Chunked(chunks, pipeline.strides, pipeline.codecs, source),
        order=pipeline.order,
        fill_value=None if text else zarr_dtypes.read_fill(fill, dtype, judge),
        attrs=extract_part(attrs, {k: v for k, v in attrs.items() if k != _DIMS or dims is None}),
        dims=dims or None,
        extra={"zarr_format": 2, "codecs": list(pipeline.names)},
        declares=None
        if text
        else functools.partial(_read_declared, fill, attrs.get(MISSING), dtype, judge),
    )
    if text:
        return zarr_strings.make_texts(info, document["filters"][0]["id"], fill, judge)
    return info


def _read_declared(fill: Any, attribute: Any, dtype: np.dtype[Any], judge: Judge) -> Any:
    """Return the value that means "missing": xarray uses the fill value, or else the attribute."""
    if fill is not None:
        return zarr_dtypes.read_fill(fill, dtype, judge)
    return None if attribute is None else parse_attribute(attribute, dtype)


def _parse_dims(value: Any, ndim: int) -> tuple[str, ...] | None:
    """Return the names of the axes if the attribute has xarray's form; others may use it differently."""
    if isinstance(value, list) and len(value) == ndim and all(isinstance(n, str) for n in value):
        return tuple(value)
    return None


class _ListedNode(NamedTuple):
    """An array or a group; `told` are its documents if only the group above has them."""

    folder: str
    is_array: bool
    told: tuple[Any, Any] | None = None


def find_kind(folder: str) -> Literal["array", "group"] | None:
    """Return the kind of the node in a folder; None if it is not a node."""
    if document_of(folder, _ARRAY) is not None:
        return "array"
    return "group" if _has_documents(folder) or document_of(folder, _GROUP) is not None else None


def nodes_below(
    folder: str, *, deep: bool, drop: Collection[str] = ()
) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Yield the names of all nodes below a group, and whether each is an array."""
    return (
        (names, node.is_array) for names, node in _list_tree(folder, deep=deep, drop=drop).items()
    )


def _make_entry(name: str, node: _ListedNode) -> Entry:
    folder = node.folder
    if not node.is_array:
        return Entry(name, "group")
    try:
        if node.told is None:
            document, attrs = document_of(folder, _ARRAY) or {}, document_of(folder, _ATTRS) or {}
        else:
            judge = Judge(os.path.join(folder, _ARRAY))
            document, attrs = (judge.mapping(found, "a member") for found in node.told)
        return make_entry(name, describe(name, folder, document, attrs))
    except FormatError as error:
        return Entry(name, "array", note=str(error))


def _list_tree(
    folder: str, *, deep: bool = True, drop: Collection[str] = ()
) -> dict[tuple[str, ...], _ListedNode]:
    """
    Return all nodes below a group, by name.

    Not `deep`: only those directly in the group, except names in `drop`.
    """

    def is_group(below: str) -> bool | None:
        if os.path.lexists(os.path.join(below, _ARRAY)):
            return False
        return True if below == folder or os.path.lexists(os.path.join(below, _GROUP)) else None

    with durable.os_errors("listing", folder):
        found = {
            names: _ListedNode(below, not is_group(below))
            for names, below in walk(folder, is_group, deep=deep, drop=drop)
        }
    everything = os.path.join(folder, _ALL)
    members = _find_members(read_document(everything) or {}, everything)
    for key, document in members.items():
        *names, file = key.split("/")
        if not names or not (deep or (len(names) == 1 and names[0] not in drop)):
            continue
        if file in (_ARRAY, _GROUP) and all(name.strip(".") for name in names):
            told = document, members.get("/".join((*names, _ATTRS))) or {}
            node = _ListedNode(os.path.join(folder, *names), file == _ARRAY, told)
            found.setdefault(tuple(names), node)
    return {names: found[names] for names in sorted(found)}


def _list_arrays(folder: str) -> list[str]:
    if not os.path.isdir(folder):
        return []
    return ["/".join(names) for names, node in _list_tree(folder).items() if node.is_array]


def _choose_axes(
    dims: Sequence[str | None] | None, shape: Sequence[int]
) -> Sequence[str | None] | None:
    """Return the names of the axes for the attribute, which xarray also expects without axes."""
    return dims if shape or dims else ()


def _add_dims(attrs: Mapping[str, Any], dims: Sequence[str | None] | None) -> Document:
    if dims is None:
        return dict(attrs)
    return {**attrs, _DIMS: [f"dim_{k}" if n is None else n for k, n in enumerate(dims)]}


def is_group(folder: str) -> bool:
    """Return whether a folder is a group of this version."""
    return os.path.lexists(os.path.join(folder, _GROUP))


def group_documents(attrs: Document) -> Mapping[str, Document]:
    """Return the documents of a new group, by the names of their files."""
    return {_GROUP: {"zarr_format": 2}, **({_ATTRS: attrs} if attrs else {})}


def change_group(folder: str, edit: Callable[[Document], Document]) -> Document | None:
    """
    Edit the attributes of a group under the lock of its ``.zgroup``, there and in consolidated
    metadata.

    None: the folder has no metadata of a group.
    """
    with lock_document(os.path.join(folder, _GROUP)):
        if not is_group(folder):
            return None
        changed = edit(document_of(folder, _ATTRS) or {})
        write_document(os.path.join(folder, _ATTRS), changed)
    tell_groups(folder, {_ATTRS: changed}, itself=True)
    return changed


def tell_groups(folder: str, documents: Mapping[str, Document], *, itself: bool = False) -> None:
    """
    Update the consolidated metadata of the groups above a node, where there are any.

    `itself`: the node is a group, and its own consolidated metadata is updated too. The entry is taken
    from the current documents of the node, which another process may have changed.
    """
    own = [(folder, "")] if itself else []
    for above, relative in [*own, *find_groups_above(folder)]:
        file = os.path.join(above, _ALL)
        with lock_document(file):
            group = read_document(file)
            if group is None:
                continue
            members = Judge(file).mapping(group.get("metadata", {}), "metadata")
            before = f"{relative}/" if relative else ""
            for name, given in documents.items():
                now = read_document(os.path.join(folder, name))
                members[f"{before}{name}"] = given if now is None else now
            write_document(file, {**group, "metadata": members})


def _change(
    info: ArrayInfo,
    file: str,
    edit: Callable[[Document], Document],
    finish: Callable[[], None] | None = None,
) -> ArrayInfo:
    """Edit a document of the array under its lock, there and in the groups above; then call `finish`."""
    root = source_of(info).root
    with editing(source_of(info).lock):
        confirm(info)
        documents = {name: document_of(root, name) or {} for name in (_ARRAY, _ATTRS)}
        documents[file] = edit(documents[file])
        known = identity_of(info)
        found = NodeDocument(documents[_ARRAY], source_of(info).lock, None)
        here = None if known is None else known.folder
        changed = _describe_identified(info.path, root, found, documents[_ATTRS], here)
        write_document(os.path.join(root, file), documents[file])
        if finish is not None:
            finish()
    tell_groups(root, {file: documents[file]})
    return changed


class Zarr2(ZarrFormat):
    """Zarr, version 2."""

    name = "zarr2"
    suffixes = (".zarr2",)
    version = 2
    group_file = _GROUP
    dims_attribute = _DIMS
    fill_means_missing = True

    node = staticmethod(node)
    find_node_kind = staticmethod(find_kind)
    nodes_below = staticmethod(nodes_below)
    is_group = staticmethod(is_group)
    group_documents = staticmethod(group_documents)
    change_group = staticmethod(change_group)
    tell_groups = staticmethod(tell_groups)

    def recognise(self, path: str) -> bool:
        """Return whether `path` is a folder with a ``.zarray``, ``.zgroup`` or ``.zmetadata``."""
        return _has_documents(path)

    def describe(self, path: str, inner: str | None, writable: bool) -> ArrayInfo:
        """
        Describe an array of Zarr version 2.

        `path` is the folder of the array, or of a group above it; without `inner` the group must have
        only one array. `FormatError`: ``not-an-array`` (the message lists the existing arrays),
        ``bad-metadata``. `UnsupportedError`: a codec, filter or data type that outcore lacks.
        """
        names = split_node(inner, path)
        folder = os.path.join(path, *names)
        found = _find_document(folder, _ARRAY)
        if found is None:
            arrays = _list_arrays(find_deepest_node(path, names))
            if inner is None and len(arrays) == 1:
                return self.describe(path, f"/{arrays[0]}", writable)
            raise missing_node_error(path, names, arrays)
        if writable:
            if zarr_strings.is_text_v2(found.document):
                raise_read_only(join_name(path, names))
            find_node_folder(path, names)
            check_writable(folder)
        here = folder_of(folder) if os.path.isdir(folder) else None
        return _describe_identified(
            join_name(path, names), folder, found, document_of(folder, _ATTRS) or {}, here
        )

    def ls(self, path: str, inner: str | None) -> list[Entry]:
        """List groups and arrays below a group, or the array itself."""
        names = split_node(inner, path)
        folder = os.path.join(path, *names)
        if document_of(folder, _ARRAY) is not None:
            return [_make_entry(join_name(path, names), _ListedNode(folder, True))]
        if not _has_documents(folder) and document_of(folder, _GROUP) is None:
            raise missing_node_error(path, names, _list_arrays(find_deepest_node(path, names)))
        return [
            _make_entry(join_name(path, (*names, *below)), node)
            for below, node in _list_tree(folder).items()
        ]

    def create(
        self, path: str, inner: str | None, spec: Spec, *, separator: str = "."
    ) -> ArrayInfo:
        """
        Create an array of Zarr version 2, and the groups above it that are missing.

        Without `inner`, `path` itself becomes the array. Default chunks are as in `version3`; there are
        no shards. `separator`, ``"."`` or ``"/"``, is between the coordinates in the names of chunk
        files.
        """
        names = split_node(inner, path)
        check_separator(separator)
        if spec.shards is not None:
            raise UnsupportedError(
                f"{path!r}: Zarr version 2 has no shards; use format='zarr'",
                code="unsupported-feature",
                path=path,
            )
        value, dtype = zarr_dtypes.to_v2(spec.dtype)
        filters, compressor = zarr_codecs.to_v2(spec.compression, dtype, path)
        fill = spec.find_missing_value(habit=True)
        document = {
            "zarr_format": 2,
            "shape": list(spec.shape),
            "chunks": list(spec.chunks or choose_chunks(spec.shape, dtype.itemsize)),
            "dtype": value,
            "compressor": compressor,
            "filters": filters,
            # xarray masks elements equal to the fill value: without one, none must be masked.
            "fill_value": None if fill is None else zarr_dtypes.write_fill(fill, dtype, 2),
            "order": spec.order,
            "dimension_separator": separator,
        }
        dims = _choose_axes(spec.dims, spec.shape)
        attrs = _add_dims(changed_attributes({}, spec.attrs, None, path), dims)
        # The new array must be readable: all rules for reading are checked here.
        name, target = join_name(path, names), find_node_folder(path, names)
        describe(name, target, document, attrs)
        files = {_ARRAY: document, _ATTRS: attrs}
        made = place(path, names, files, group_documents({}), is_group, spec.exclusive)
        for folder, documents in made.nodes:
            tell_groups(folder, documents)
        found = NodeDocument(document, os.path.join(target, _ARRAY), made.document)
        return _describe_identified(name, target, found, attrs, made.folder)

    def publish(self, path: str, inner: str, exclusive: bool) -> None:
        """Give a staged array its place, and update the groups above it."""
        for folder in zarr_staged.take_place(path, inner, is_group, exclusive):
            found = {name: read_document(os.path.join(folder, name)) for name in _DOCUMENTS}
            documents = {name: document for name, document in found.items() if document is not None}
            if documents:
                tell_groups(folder, documents)

    def set_attrs(
        self, info: ArrayInfo, attrs: Mapping[str, Any], drop: Collection[str] | None = None
    ) -> ArrayInfo:
        """Set user attributes and remove others (None: all); the names of the axes stay."""
        dims = _choose_axes(info.dims, info.shape)
        if _DIMS in attrs and dims is not None:
            raise UsageError(
                f"{info.path!r}: attribute {_DIMS!r} holds the names of the axes; use another name",
                code="bad-attribute",
                path=info.path,
            )

        def edit(document: Document) -> Document:
            found = changed_attributes(document, attrs, drop, info.path)
            return _add_dims(found, dims) if drop is None else found

        return _change(info, _ATTRS, edit)

    def resize(self, info: ArrayInfo, shape: tuple[int, ...]) -> ArrayInfo:
        """
        Change the shape in the metadata; remove the chunks outside a smaller shape.

        Before a larger shape: call `reserve`, and fill the sections of `find_stale_sections`.
        """

        def edit(document: Document) -> Document:
            check_resize(info, shape, document.get("shape"))
            return {**document, "shape": list(shape)}

        return _change(info, _ARRAY, edit, lambda: remove_shrunk(info, shape))
