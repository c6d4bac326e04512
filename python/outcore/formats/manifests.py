"""
Manifests: small JSON files that name the other files of an array or a checkpoint.

Problem: a manifest names files that are read, written and removed, and may come from elsewhere. A crash
must leave the old manifest or the new one.
Approach: all manifests are read, checked and written by `ManifestKind`; each kind is one value of it.
Invariants: only regular files of at most 64 MiB are read (`documents`). A file in another folder is
accepted only if the array was created with it (`homes`), or if the user allows the folder. A manifest is
written by one durable rename.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outcore.errors import FormatError
from outcore.formats import durable, homes
from outcore.formats.documents import Document, Judge, read_document

__all__ = ["ManifestKind"]


@dataclass(frozen=True, slots=True)
class ManifestKind:
    """
    A kind of manifests: its first fields, its words in messages, and the form of its text.

    `name` is the field ``format``; without a name the version is the only mark. `writer` writes such
    manifests, and `contents` is what may have to be created again if one is damaged.
    """

    name: str | None
    version: int
    writer: str
    contents: str
    version_key: str = "version"
    indent: int | None = 1
    is_ascii: bool = False
    encoding_errors: str = "strict"
    ending: str = "\n"

    @property
    def header(self) -> Document:
        """First fields of the document."""
        named = {} if self.name is None else {"format": self.name}
        return {**named, self.version_key: self.version}

    def make_judge(self, path: str) -> Judge:
        """Return the judge of a manifest at a path."""
        return Judge(path, self.writer, self.contents)

    def read(self, file: str, path: str | None = None) -> Document | None:
        """
        Return the document, its first fields checked; None if there is no such file.

        `path` names the manifest in messages; by default it is `file`. `FormatError`: it is damaged, or
        not of this kind. `UnsupportedError`: it has another version.
        """
        judge = self.make_judge(file if path is None else path)
        document = read_document(file, judge)
        if document is not None:
            self._check_header(document, judge)
        return document

    def read_existing(self, file: str, path: str | None = None) -> Document:
        """Return the document like `read`; raise `StorageError` if there is no such file."""
        document = self.read(file, path)
        if document is None:
            path = file if path is None else path
            with durable.os_errors("opening", path):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return document

    def _check_header(self, document: Document, judge: Judge) -> None:
        version = document.get(self.version_key)
        if self.name is None:
            if version != self.version:
                raise judge.bad(f"its version is {version!r:.100}, not {self.version}")
            return
        if document.get("format") != self.name:
            raise judge.bad(f"the format is {document.get('format')!r:.100}, not {self.name!r}")
        if judge.integer(version, self.version_key, 1) != self.version:
            raise judge.make_unsupported_error(
                f"{self.name!r} of version {version} (only version {self.version})"
            )

    def write(self, file: str, fields: Mapping[str, Any], *, exclusive: bool = False) -> None:
        """Write the first fields and further ones durably and atomically."""
        document = {**self.header, **fields}
        text = json.dumps(document, indent=self.indent, ensure_ascii=self.is_ascii) + self.ending
        raw = text.encode(errors=self.encoding_errors)
        durable.create_file(file, lambda fd: durable.write_all(fd, raw, 0), exclusive=exclusive)

    def check_folders(
        self, path: str, files: Iterable[str], array_id: str, home: str, folders: Sequence[str]
    ) -> None:
        """
        Raise `FormatError` ``names-outside`` if a file is where the array may not have files.

        `home` is the folder of the manifest, and `folders` are those that the user allows.
        """
        odd = homes.find_outside(files, array_id, home, folders)
        if odd is not None:
            raise FormatError(
                f"the manifest of {path!r} names the file {odd!r} in another folder, but the array was "
                "not created there, or has been moved; if this file belongs to it, pass folders= with "
                "the folders of all files",
                code="names-outside",
                path=path,
            )
