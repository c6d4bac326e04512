"""Errors for damaged HDF5 files."""

from __future__ import annotations

from outcore.errors import FormatError

__all__ = ["make_damage_error"]


def make_damage_error(
    path: str,
    problem: str,
    code: str = "hdf5-refused",
    *,
    offset: int | None = None,
    step: str = "restore it from a copy",
) -> FormatError:
    """Return the error for a problem that only damage can cause, at byte `offset` of the file."""
    details = {} if offset is None else {"offset": offset}
    message = f"{path!r}: {problem}; the file is damaged, {step}"
    return FormatError(message, code=code, path=path, **details)
