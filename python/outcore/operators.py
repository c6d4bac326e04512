"""
Operators of arrays on disk: ``a @ b``, and NumPy's functions.

Problem. Products stand above arrays, which must not know them.
Idea. `outcore.ooc.products.matmul` puts its own function here. All other functions of NumPy read the
array whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

__all__ = ["Operators"]


class Operators:
    """What an array on disk does where NumPy expects one in memory."""

    #: What ``a @ b`` calls.
    _product: ClassVar[Callable[[Any, Any], Any]]

    def __matmul__(self, other: Any) -> Any:
        """``a @ b`` as a NumPy array, if it fits in half of the budget; else `outcore.matmul`."""
        return type(self)._product(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return type(self)._product(other, self)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """NumPy's functions read it whole, within the budget; a product reads it block by block."""
        if ufunc is np.matmul and method == "__call__" and not options:
            return type(self)._product(*inputs)
        if any(isinstance(one, Operators) for one in options.get("out", ())):
            return NotImplemented
        arrays = [np.asarray(one) if isinstance(one, Operators) else one for one in inputs]
        return getattr(ufunc, method)(*arrays, **options)
