"""Libraries that some algorithms need and that are not installed with outcore."""

from __future__ import annotations

import importlib
from typing import Any

from outcore.errors import UnsupportedError

__all__ = ["scipy"]


def scipy(name: str, what: str) -> Any:
    """
    Return a module of SciPy, such as ``"linalg"``.

    Parameters
    ----------
    name
        Name of the module within SciPy.
    what
        Operation that needs it, for the message.
    """
    try:
        return importlib.import_module(f"scipy.{name}")
    except ImportError as error:
        raise UnsupportedError(
            f"{what} needs SciPy; install it with: pip install scipy",
            code="needs-scipy",
        ) from error
