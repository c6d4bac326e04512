"""
Zarr version 3: a folder with ``zarr.json`` and one file for each chunk or shard.

Problem: arrays in groups, nested to any depth, whose metadata other libraries read and write at the
same time, and whose codecs encode elements in many ways.
Approach: ``zarr.json`` is read here, with the standard library, and becomes a `Chunked` layout:
transposition becomes strides, byte order the dtype, shards and chunk keys the source, and the rest byte
codecs. The folder is authoritative: consolidated metadata of a group is kept up to date, and used for
members that have no ``zarr.json``.
Invariants: no chunk is opened here, and none is removed unless it is outside the shape in the metadata.
A new array replaces an old one as a whole, so old chunks never occur with new metadata.

Specification: https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html
"""

from __future__ import annotations

import functools
import heapq
import itertools
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Literal

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
from outcore.formats.format import HasShards
from outcore.formats.layout import (
    ArrayInfo,
    Chunked,
    FileSource,
    ShardSource,
)
from outcore.formats.missing_values import ATTRIBUTE as MISSING
from outcore.formats.missing_values import decode, encode
from outcore.formats.spec import Entry, Spec, check_shape
from outcore.formats.texts import make_entry, raise_read_only
from outcore.formats.zarr import codecs as zarr_codecs
from outcore.formats.zarr import dtypes as zarr_dtypes
from outcore.formats.zarr import staged as zarr_staged
from outcore.formats.zarr import strings as zarr_strings
from outcore.formats.zarr.chunks import chunk_path
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
from outcore.formats.zarr.shards import describe_shared_bytes
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

_FILE = "zarr.json"
_ARRAY_FIELDS = (
    "attributes",
    "chunk_grid",
    "chunk_key_encoding",
    "codecs",
    "data_type",
    "dimension_names",
    "fill_value",
    "node_type",
    "shape",
    "storage_transformers",
    "zarr_format",
)


def _find(path: str, names: Sequence[str]) -> tuple[str, NodeDocument]:
    """Return folder and metadata of a node."""
    folder = os.path.join(path, *names)
    found = _read_metadata(folder)
    if found is None:
        raise missing_node_error(path, names, _list_arrays(find_deepest_node(path, names)))
    return folder, found


def find_kind(folder: str) -> Literal["array", "group"] | None:
    """Return the kind of the node in a folder; None if it is not a node."""
    found = _read_metadata(folder)
    return None if found is None else found.document["node_type"]


def _read_metadata(folder: str) -> NodeDocument | None:
    file = os.path.abspath(os.path.join(folder, _FILE))
    own = read_stamped(file)
    found = _find_consolidated(folder) if own is None else NodeDocument(own[0], file, own[1])
    if found is not None:
        _check_node(found.document, Judge(os.path.join(folder, _FILE)))
    return found


def node(folder: str) -> ZarrNode | None:
    """Return the array or group in a folder, or None."""
    found = _read_metadata(folder)
    if found is None:
        return None
    document, judge = found.document, Judge(os.path.join(folder, _FILE))
    attrs = extract_part(document, judge.mapping(document.get("attributes") or {}, "attributes"))
    told = frozenset(key.split("/")[0] for key in _find_members(document, judge))
    return ZarrNode(document["node_type"] == "array", document, attrs, told)


def _describe_identified(
    name: str, folder: str, found: NodeDocument, here: tuple[int, int] | None
) -> ArrayInfo:
    """Describe an array, and add its identity."""
    folder = os.path.abspath(folder)

    def again() -> tuple[ArrayInfo, Stamp]:
        now = _read_metadata(folder)
        if now is None or now.stamp is None:
            raise make_gone_error(name)
        return describe(name, folder, now.document), now.stamp

    info = describe(name, folder, found.document)
    return add_identity(info, found.file, here, found.stamp, again)


def _check_node(document: Document, judge: Judge) -> None:
    if document.get("zarr_format") != 3 or isinstance(document["zarr_format"], bool):
        raise judge.bad(f"zarr_format is {document.get('zarr_format')!r:.40}, not 3")
    if document.get("node_type") not in ("array", "group"):
        raise judge.bad("node_type is neither 'array' nor 'group'")


def _find_members(document: Document, judge: Judge) -> Document:
    """Return the consolidated metadata of a group, relative path to document, or nothing."""
    inline = document.get("consolidated_metadata")
    if inline is None:
        return {}
    members = judge.mapping(inline, "consolidated_metadata").get("metadata", {})
    return judge.mapping(members, "consolidated_metadata.metadata")


def _find_consolidated(folder: str) -> NodeDocument | None:
    """Return metadata of a node that only a group above it has, or None."""
    for above, relative in find_groups_above(os.path.abspath(folder)):
        file = os.path.join(above, _FILE)
        group = read_stamped(file)
        found = None if group is None else _find_members(group[0], Judge(file)).get(relative)
        if group is not None and found is not None:
            part = extract_part(group[0], Judge(file).mapping(found, relative))
            return NodeDocument(part, file, group[1])
    return None


def describe(name: str, folder: str, document: Document) -> ArrayInfo:
    """Convert metadata to an `ArrayInfo`."""
    judge = Judge(os.path.join(folder, _FILE))
    for key, value in document.items():
        if key not in _ARRAY_FIELDS:
            judge.ignorable(key, value)
    if judge.sequence(document.get("storage_transformers") or [], "storage_transformers"):
        raise judge.make_unsupported_error("storage_transformers")
    shape = judge.lengths(document.get("shape"), "shape", 0)
    text = zarr_strings.is_text_v3(document)
    dtype = zarr_strings.STANDS_FOR
    if not text:
        dtype = zarr_dtypes.from_v3(document.get("data_type"), judge)
    check_shape(shape, dtype.itemsize, name, stored=True)
    grid, options = judge.parse_name(document.get("chunk_grid"), "chunk_grid")
    if grid != "regular":
        raise judge.make_unsupported_error(f"chunk_grid {grid!r:.40}")
    outer = judge.lengths(options.get("chunk_shape"), "chunk_shape", 1)
    if len(outer) != len(shape):
        raise judge.bad(f"chunk_shape has {len(outer)} axes, shape has {len(shape)}")
    if text:
        words = document.get("codecs"), document["data_type"]
        pipeline = zarr_strings.parse_pipeline_v3(*words, outer, judge)
    else:
        pipeline = zarr_codecs.from_v3(document.get("codecs"), outer, dtype, judge)
    if "fill_value" not in document or document["fill_value"] is None:
        raise judge.bad("fill_value is missing")
    prefix, separator = _parse_keys(document.get("chunk_key_encoding"), len(shape), judge)
    fill = document["fill_value"]
    attrs = judge.mapping(document.get("attributes") or {}, "attributes")
    info = ArrayInfo(
        path=name,
        format=Zarr3.name,
        shape=shape,
        dtype=pipeline.dtype,
        layout=_make_layout(pipeline, os.path.abspath(folder), prefix, separator),
        order=pipeline.order,
        fill_value=None if text else zarr_dtypes.read_fill(fill, pipeline.dtype, judge),
        attrs=extract_part(document, attrs),
        dims=_parse_dims(document.get("dimension_names"), len(shape), judge),
        extra=_make_extra(pipeline),
        declares=functools.partial(decode, attrs.get(MISSING), pipeline.dtype),
    )
    if text:
        return zarr_strings.make_texts(info, zarr_strings.find_codec_v3(document), fill, judge)
    return info


def _parse_keys(value: Any, ndim: int, judge: Judge) -> tuple[str, str]:
    """Return prefix and separator of chunk keys; the only chunk of an array without axes is ``c``."""
    name, options = judge.parse_name(value, "chunk_key_encoding")
    if name not in ("default", "v2"):
        raise judge.make_unsupported_error(f"chunk_key_encoding {name!r:.40}")
    separator = options.get("separator", "/" if name == "default" else ".")
    if separator not in ("/", "."):
        raise judge.bad("the separator of chunk keys is neither '/' nor '.'")
    if name == "v2":
        return "", separator
    return f"c{separator}" if ndim else "c/", separator


def _parse_dims(value: Any, ndim: int, judge: Judge) -> tuple[str | None, ...] | None:
    if value is None:
        return None
    names = judge.sequence(value, "dimension_names")
    if len(names) != ndim:
        raise judge.bad(f"{len(names)} dimension_names for {ndim} axes")
    return tuple(None if n is None else judge.text(n, "dimension name") for n in names)


def _make_layout(pipeline: zarr_codecs.Pipeline, root: str, prefix: str, separator: str) -> Chunked:
    lock = os.path.join(root, _FILE)
    source: FileSource | ShardSource
    if pipeline.shard is None:
        source = FileSource(root, prefix, separator, lock)
    else:
        per_shard = tuple(
            s // n for s, n in zip(pipeline.shard.shape, pipeline.chunks, strict=True)
        )
        source = ShardSource(
            root,
            prefix,
            separator,
            lock,
            per_shard,
            pipeline.shard.index_at,
            pipeline.shard.index_crc32c,
        )
    return Chunked(pipeline.chunks, pipeline.strides, pipeline.codecs, source)


def _make_extra(pipeline: zarr_codecs.Pipeline) -> dict[str, Any]:
    extra: dict[str, Any] = {"zarr_format": 3, "codecs": list(pipeline.names)}
    if pipeline.shard is not None:
        extra["shards"] = pipeline.shard.shape
    if pipeline.order != "F" and pipeline.axes != tuple(range(len(pipeline.axes))):
        extra["axes"] = pipeline.axes
    return extra


# Names from the group down, folder, and metadata or the error in them.
_Node = tuple[tuple[str, ...], str, Document | FormatError]


def _make_entry(name: str, folder: str, document: Document | FormatError) -> Entry:
    if isinstance(document, FormatError):
        return Entry(name, "array", note=str(document))
    try:
        _check_node(document, Judge(os.path.join(folder, _FILE)))
        if document["node_type"] == "group":
            return Entry(name, "group")
        return make_entry(name, describe(name, folder, document))
    except FormatError as error:
        return Entry(name, "array", note=str(error))


def _walk_tree(folder: str, *, deep: bool = True, drop: Collection[str] = ()) -> Iterator[_Node]:
    """
    Yield all nodes below a group, by name: names, folder, and metadata or the error in them.

    Not `deep`: only those directly in the group, except names in `drop`.
    """
    documents: dict[str, Document | FormatError] = {}

    def is_group(place: str) -> bool | None:
        try:
            document = read_document(os.path.join(place, _FILE))
            if document is None and place == folder:
                found = _find_consolidated(folder)
                document = None if found is None else found.document
        except FormatError as error:
            documents[place] = error
            return False
        if document is None:
            return None
        documents[place] = document
        return document.get("node_type") == "group"

    def of_folders() -> Iterator[_Node]:
        for names, below in walk(folder, is_group, deep=deep, drop=drop):
            yield names, below, documents.pop(below)

    def of_group(top: Document) -> Iterator[_Node]:
        judge = Judge(os.path.join(folder, _FILE))
        members = _find_members(top, judge)
        for names in sorted(tuple(relative.split("/")) for relative in members):
            if all(name.strip(".") for name in names) and (
                deep or (len(names) == 1 and names[0] not in drop)
            ):
                member = judge.mapping(members["/".join(names)], "a member")
                yield names, os.path.join(folder, *names), member

    last = None
    with durable.os_errors("listing", folder):
        walked = of_folders()
        first = list(itertools.islice(walked, 1))  # this also reads the group itself
        top = documents.get(folder)
        told = of_group(top) if isinstance(top, dict) else iter(())
        # Both are in the order of names; a folder's own metadata take precedence.
        for node in heapq.merge(itertools.chain(first, walked), told, key=lambda node: node[0]):
            if node[0] != last:
                yield node
            last = node[0]


def nodes_below(
    folder: str, *, deep: bool, drop: Collection[str] = ()
) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Yield the names of all nodes below a group, and whether each is an array, or damaged."""
    for names, _, document in _walk_tree(folder, deep=deep, drop=drop):
        yield names, not (isinstance(document, dict) and document.get("node_type") == "group")


def _list_arrays(folder: str) -> list[str]:
    if not os.path.isdir(folder):
        return []
    return [
        "/".join(names)
        for names, _, document in _walk_tree(folder)
        if isinstance(document, dict) and document.get("node_type") == "array"
    ]


def is_group(folder: str) -> bool:
    """Return whether a folder is a group of this version."""
    document = read_document(os.path.join(folder, _FILE))
    return document is not None and document.get("node_type") == "group"


def group_documents(attrs: Document) -> Mapping[str, Document]:
    """Return the documents of a new group, by the names of their files."""
    return {_FILE: {"zarr_format": 3, "node_type": "group", "attributes": attrs}}


def change_group(folder: str, edit: Callable[[Document], Document]) -> Document | None:
    """
    Edit the attributes of a group under its lock, there and in the groups above.

    None: the folder has no metadata of a group.
    """
    file = os.path.join(folder, _FILE)
    with lock_document(file):
        document = read_document(file)
        if document is None or document.get("node_type") != "group":
            return None
        changed = edit(document.get("attributes") or {})
        write_document(file, {**document, "attributes": changed})
    tell_groups(folder, {_FILE: {**document, "attributes": changed}}, only="attributes")
    return changed


def _new_document(spec: Spec, path: str, separator: str) -> Document:
    data_type, dtype = zarr_dtypes.to_v3(spec.dtype, path)
    chunks = spec.chunks or choose_chunks(spec.shards or spec.shape, dtype.itemsize, spec.shards)
    if spec.shards and any(s % n for s, n in zip(spec.shards, chunks, strict=True)):
        raise UsageError(
            f"{path!r}: chunks {chunks} do not divide shards {spec.shards}; make each length of a "
            "shard a multiple of the chunk's",
            code="bad-chunks",
            path=path,
        )
    attrs, missing = dict(spec.attrs), spec.find_missing_value(habit=False)
    if missing is not None:
        attrs[MISSING] = encode(missing, dtype)
        if attrs[MISSING] is None:
            raise UnsupportedError(
                f"{path!r}: xarray has no form of {MISSING} for dtype {dtype} in Zarr v3; use "
                "format='zarr2', or omit it",
                code="unsupported-feature",
                path=path,
            )
    inner = chunks if spec.shards else None
    ndim = len(spec.shape)
    document: Document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(spec.shape),
        "data_type": data_type,
        "chunk_grid": _make_named("regular", chunk_shape=list(spec.shards or chunks)),
        "chunk_key_encoding": _make_named("default", separator=separator),
        "fill_value": zarr_dtypes.write_fill(spec.fill_value, dtype, 3),
        "codecs": zarr_codecs.to_v3(spec.compression, dtype, spec.order, ndim, inner, path),
        "attributes": changed_attributes({}, attrs, None, path),
    }
    if spec.dims is not None:
        document["dimension_names"] = list(spec.dims)
    return document


def _make_named(name: str, **options: Any) -> Document:
    return {"name": name, "configuration": options}


def tell_groups(
    folder: str,
    documents: Mapping[str, Document],
    *,
    known: bool = False,
    only: str | None = None,
) -> None:
    """
    Update the consolidated metadata of the groups above a node, where there are any.

    `known`: do not change an entry of the node that exists already. `only`: change only this field of
    an existing entry. The entry is taken from the current metadata of the node, which another process
    may have changed.
    """
    for above, relative in find_groups_above(folder):
        file = os.path.join(above, _FILE)
        with lock_document(file):
            group = read_document(file)
            if group is None or group.get("consolidated_metadata") is None:
                continue
            members = _find_members(group, Judge(file))
            now = read_document(os.path.join(folder, _FILE)) or documents[_FILE]
            # Without the consolidated metadata of a group, which may be out of date.
            document = {key: one for key, one in now.items() if key != "consolidated_metadata"}
            told = document
            if only is not None and isinstance(members.get(relative), dict):
                told = {**members[relative], only: document[only]}
            if members.get(relative) != told and not (known and relative in members):
                members[relative] = told
                group["consolidated_metadata"]["metadata"] = members
                write_document(file, group)


def _change(
    info: ArrayInfo, edit: Callable[[Document], None], finish: Callable[[], None] | None = None
) -> ArrayInfo:
    """Edit the array's metadata under its lock, there and in the groups above; then call `finish`."""
    source = source_of(info)
    file = os.path.join(source.root, _FILE)
    with editing(source.lock):
        confirm(info)
        document = read_document(file)
        if document is None:
            raise missing_node_error(source.root, (), [])
        _check_node(document, Judge(file))
        edit(document)
        known = identity_of(info)
        here = None if known is None else known.folder
        changed = _describe_identified(
            info.path, source.root, NodeDocument(document, file, None), here
        )
        write_document(file, document)
        if finish is not None:
            finish()
    tell_groups(source.root, {_FILE: document})
    return changed


class Zarr3(ZarrFormat, HasShards):
    """Zarr, version 3."""

    name = "zarr"
    suffixes = (".zarr", ".zarr3")
    version = 3
    group_file = _FILE

    node = staticmethod(node)
    find_node_kind = staticmethod(find_kind)
    nodes_below = staticmethod(nodes_below)
    is_group = staticmethod(is_group)
    group_documents = staticmethod(group_documents)
    change_group = staticmethod(change_group)
    tell_groups = staticmethod(tell_groups)

    def recognise(self, path: str) -> bool:
        """Return whether `path` is a folder with a ``zarr.json``."""
        return os.path.lexists(os.path.join(path, _FILE))

    def find_shared_bytes(self, info: ArrayInfo, at: Sequence[int]) -> tuple[str, str] | None:
        """Return the file of a shard in which two chunks share bytes, and a description of these."""
        if not isinstance(info.layout, Chunked) or not isinstance(info.layout.source, ShardSource):
            return None
        source = info.layout.source
        path = chunk_path(source.root, source.prefix, source.separator, at)
        why = describe_shared_bytes(path, source)
        return None if why is None else (path, why)

    def describe(self, path: str, inner: str | None, writable: bool) -> ArrayInfo:
        """
        Describe an array of Zarr version 3.

        `path` is the folder of the array, or of a group above it; without `inner` the group must have
        only one array. `FormatError`: ``not-an-array`` (the message lists the existing arrays),
        ``bad-metadata``. `UnsupportedError`: a codec, data type or extension that outcore lacks.

        >>> import numpy as np, tempfile
        >>> from outcore.formats.spec import make_spec
        >>> folder = tempfile.mkdtemp() + "/a.zarr"
        >>> made = Zarr3().create(folder, "/x", make_spec(folder, (100, 100), "f4", chunks=(10, 100)))
        >>> Zarr3().describe(folder, "/x", writable=False).layout.chunks
        (10, 100)
        """
        names = split_node(inner, path)
        folder, found = _find(path, names)
        if found.document.get("node_type") == "group":
            arrays = _list_arrays(folder)
            if inner is None and len(arrays) == 1:
                return self.describe(path, f"/{arrays[0]}", writable)
            raise missing_node_error(path, names, arrays)
        name = join_name(path, names)
        if writable:
            if zarr_strings.is_text_v3(found.document):
                raise_read_only(name)
            find_node_folder(path, names)
            check_writable(folder)
        here = folder_of(folder) if os.path.isdir(folder) else None
        return _describe_identified(name, folder, found, here)

    def ls(self, path: str, inner: str | None) -> list[Entry]:
        """List groups and arrays below a group, or the array itself."""
        names = split_node(inner, path)
        folder, own = _find(path, names)
        if own.document["node_type"] == "array":
            return [_make_entry(join_name(path, names), folder, own.document)]
        return [
            _make_entry(join_name(path, (*names, *below)), place, found)
            for below, place, found in _walk_tree(folder)
        ]

    def create(
        self, path: str, inner: str | None, spec: Spec, *, separator: str = "/"
    ) -> ArrayInfo:
        """
        Create an array of Zarr version 3, and the groups above it that are missing.

        Without `inner`, `path` itself becomes the array. Default chunks have at most 4 MiB, are nearly
        cubic, and have even size along each axis. `separator`, ``"/"`` or ``"."``, is between the
        coordinates in the names of chunk files.
        """
        names = split_node(inner, path)
        check_separator(separator)
        document = _new_document(spec, path, separator)
        # The new array must be readable: all rules for reading are checked here.
        name, target = join_name(path, names), find_node_folder(path, names)
        describe(name, target, document)
        group = group_documents({})
        made = place(path, names, {_FILE: document}, group, is_group, spec.exclusive)
        for folder, files in made.nodes:
            tell_groups(folder, files)
        found = NodeDocument(document, os.path.join(target, _FILE), made.document)
        return _describe_identified(name, target, found, made.folder)

    def publish(self, path: str, inner: str, exclusive: bool) -> None:
        """Give a staged array its place, and update the groups above it."""
        for folder in zarr_staged.take_place(path, inner, is_group, exclusive):
            document = read_document(os.path.join(folder, _FILE))
            if document is not None:
                # Leave the entries of groups that existed before unchanged.
                tell_groups(folder, {_FILE: document}, known=document.get("node_type") == "group")

    def set_attrs(
        self, info: ArrayInfo, attrs: Mapping[str, Any], drop: Collection[str] | None = None
    ) -> ArrayInfo:
        """Set user attributes and remove others (None: all)."""

        def edit(document: Document) -> None:
            old = document.get("attributes") or {}
            document["attributes"] = changed_attributes(old, attrs, drop, info.path)

        return _change(info, edit)

    def resize(self, info: ArrayInfo, shape: tuple[int, ...]) -> ArrayInfo:
        """
        Change the shape in the metadata; remove the chunks outside a smaller shape.

        Before a larger shape: call `reserve`, and fill the sections of `find_stale_sections`.
        """

        def edit(document: Document) -> None:
            check_resize(info, shape, document.get("shape"))
            document["shape"] = list(shape)

        return _change(info, edit, lambda: remove_shrunk(info, shape))
