"""
Interface of an array in memory for arrays on disk: operators, NumPy's functions, dask, xarray.

Problem: ``a + 1``, ``numpy.mean(a)`` and ``xarray.DataArray(a)`` must mean the same as for an array in
memory, and must not read elements that are not needed.
Approach: the protocols of NumPy. Code that needs all elements gets the array read whole, within the
budget; code that only stores the array keeps it on disk. Products belong to a layer above arrays: their
module is imported when the first product is computed, as for `outcore.matmul`.

Invariants: results equal those of NumPy for the array in memory. Nothing is read before elements are
needed. Nothing is ever changed here: ``a += 1`` raises an error.

References: NumPy enhancement proposals 13 (``__array_ufunc__``) and 18 (``__array_function__``).
"""

from __future__ import annotations

import importlib
import os
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import DTypeLike, NDArray

if TYPE_CHECKING:
    from outcore.arrays.disk.array import DiskArray

__all__ = ["Operators"]


class Operators(NDArrayOperatorsMixin):
    """Methods of an array on disk for code that expects an array in memory."""

    def __matmul__(self, other: Any) -> Any:
        """Return ``a @ b`` as a NumPy array if it fits half of the budget, else as `outcore.matmul`."""
        return _multiply(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return _multiply(other, self)

    # ``a == b`` compares elements; as the key of a dictionary an array is compared by identity.
    def __hash__(self) -> int:
        return object.__hash__(self)

    def __int__(self) -> int:
        return int(self._to_convert())

    def __float__(self) -> float:
        return float(self._to_convert())

    def __complex__(self) -> complex:
        return complex(self._to_convert())

    def _to_convert(self) -> NDArray[Any]:
        """Return an array that NumPy converts to a number, or rejects with the same error."""
        array = cast("DiskArray", self)
        if array.size == 1:
            return np.asarray(self)
        return np.broadcast_to(np.zeros((), array.dtype), array.shape)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Apply a ufunc to the whole array, read within the budget; a product reads it in blocks."""
        if ufunc is np.matmul and method == "__call__" and not options:
            return _multiply(*inputs)
        for one in options.get("out", ()):
            if isinstance(one, Operators):
                name = cast("DiskArray", one).path
                raise TypeError(
                    f"numpy.{ufunc.__name__} cannot write to {name!r}, an array on disk; assign "
                    "its result (a[...] = a[...] + 1), or use outcore.map_blocks"
                )
        arrays = [np.asarray(one) if isinstance(one, Operators) else one for one in inputs]
        return getattr(ufunc, method)(*arrays, **options)

    def __array_function__(
        self,
        function: Callable[..., Any],
        types: tuple[type, ...],
        inputs: tuple[Any, ...],
        options: Mapping[str, Any],
    ) -> Any:
        """Call NumPy's own function, which calls `take` and similar methods where they exist."""
        if all(issubclass(kind, Operators | np.ndarray) for kind in types):
            return getattr(function, "_implementation", function)(*inputs, **options)
        # An array of another library is among the arguments: that library decides.
        return function(*_read(inputs), **_read(dict(options)))

    def transpose(self, *axes: Any) -> NDArray[Any]:
        """
        Read the whole array with its axes in another order, as `numpy.ndarray.transpose`.

        Parameters
        ----------
        axes
            Order of the axes of the result, as integers or one sequence; by default reversed.

        Returns
        -------
        numpy.ndarray
            Array in memory, within the budget.

        Raises
        ------
        BudgetError
            The array does not fit the budget; `outcore.transpose` creates the result on disk.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> a = outcore.create("field.npy", data=np.arange(6).reshape(2, 3))
        >>> a.transpose().shape
        (3, 2)
        """
        return np.asarray(self).transpose(*axes)

    def astype(self, dtype: DTypeLike, **options: Any) -> NDArray[Any]:
        """
        Read the whole array and cast it to another dtype, as `numpy.ndarray.astype`.

        Parameters
        ----------
        dtype
            Dtype of the result.
        options
            Options of `numpy.ndarray.astype`; the result is always a copy.

        Returns
        -------
        numpy.ndarray
            Array in memory, within the budget.

        Raises
        ------
        BudgetError
            The array does not fit the budget; `outcore.convert` with ``dtype=`` creates the result on
            disk.

        Examples
        --------
        >>> import numpy as np, outcore
        >>> a = outcore.create("field.npy", data=np.arange(3))
        >>> a.astype("f4")
        array([0., 1., 2.], dtype=float32)
        """
        return np.asarray(self).astype(dtype, **options)

    def __dask_tokenize__(self) -> object:
        """
        Return a token by which dask recognises equal arrays, without reading them.

        For an array opened for reading, the token identifies the file and its state. An array open for
        writing gets a new token on each call, so it equals no array, not even itself later.
        """
        array = cast("DiskArray", self)
        if array.writable:
            return uuid.uuid4().hex
        outer = array.handle.location.partition("::")[0]
        state: tuple[int, ...] = ()
        if os.path.exists(outer):
            found = os.stat(outer)
            state = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        return (
            "outcore",
            array.handle.location,
            array.handle.files,
            array.shape,
            array.dtype.str,
            array.order,
            state,
        )


def _multiply(a: Any, b: Any) -> Any:
    """Return ``a @ b`` as a NumPy array."""
    return importlib.import_module("outcore.compute.products.matmul").multiply_in_memory(a, b)


def _read(value: Any) -> Any:
    """Replace arrays on disk by arrays in memory in the arguments of a function."""
    if isinstance(value, Operators):
        return np.asarray(value)
    if isinstance(value, list | tuple):
        read = [_read(one) for one in value]
        return read if isinstance(value, list) else tuple(read)
    return {k: _read(v) for k, v in value.items()} if isinstance(value, dict) else value
