"""The HDF5 library through h5py, which is optional and imported on first use."""

from __future__ import annotations

from typing import Any

from outcore.errors import UnsupportedError

__all__ = ["check_library", "h5py"]


def check_library(path: str) -> None:
    """Raise `UnsupportedError` if h5py is not installed."""
    try:
        import h5py  # noqa: F401
    except ImportError as error:
        raise UnsupportedError(
            f"{path!r} is an HDF5 or NetCDF4 file, and h5py is not installed: pip install h5py",
            code="missing-library",
            path=path,
        ) from error


class _Library:
    """The module h5py. Call `check_library` first, where h5py may be missing."""

    def __getattr__(self, name: str) -> Any:
        import h5py

        return getattr(h5py, name)


h5py: Any = _Library()
