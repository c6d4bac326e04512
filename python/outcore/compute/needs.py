"""Libraries that some algorithms need and that are not installed with outcore."""

from __future__ import annotations

import ctypes
import importlib
from typing import Any

from outcore.errors import UnsupportedError

__all__ = ["read_capsule", "scipy"]


def scipy(name: str, what: str) -> Any:
    """Return a module of SciPy, such as ``"linalg"``; `what` is the operation that needs it."""
    try:
        return importlib.import_module(f"scipy.{name}")
    except ImportError as error:
        raise UnsupportedError(
            f"{what} needs SciPy; install it with: pip install scipy",
            code="needs-scipy",
        ) from error


def read_capsule(capsule: Any) -> tuple[bytes, int]:
    """Return the type and the address of a function that SciPy publishes for compiled callers."""
    name, address = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    address.restype, address.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    kind: bytes = name(capsule)
    return kind, address(capsule, kind)
