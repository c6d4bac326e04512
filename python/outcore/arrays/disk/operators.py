"""
An array on disk where others expect one in memory: operators, NumPy's functions, dask, xarray.

Problem. ``a + 1``, ``numpy.mean(a)`` and ``xarray.DataArray(a)`` must mean what they mean for an array
in memory, and must not read what nobody asked for.
Idea. The protocols of NumPy: whoever asks for elements of all of the array gets them read whole, within
the budget; whoever only keeps the array keeps it on disk. Products are a layer above arrays: their
module is imported when the first product is computed, as `outcore.matmul` is.

Invariants. Results are those of NumPy for the array in memory. Nothing is read before elements are
needed. Nothing is ever changed here: ``a += 1`` is refused.

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
    """What an array on disk does where NumPy expects one in memory."""

    def __matmul__(self, other: Any) -> Any:
        """``a @ b`` as a NumPy array, if it fits in half of the budget; else `outcore.matmul`."""
        return _multiply(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return _multiply(other, self)

    # ``a == b`` compares elements; as a key of a dictionary an array on disk is itself.
    def __hash__(self) -> int:
        return object.__hash__(self)

    def __int__(self) -> int:
        return int(self._to_convert())

    def __float__(self) -> float:
        return float(self._to_convert())

    def __complex__(self) -> complex:
        return complex(self._to_convert())

    def _to_convert(self) -> NDArray[Any]:
        """Return an array that NumPy converts to a number, or refuses as it refuses this one."""
        array = cast("DiskArray", self)
        if array.size == 1:
            return np.asarray(self)
        return np.broadcast_to(np.zeros((), array.dtype), array.shape)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """NumPy's functions read it whole, within the budget; a product reads it block by block."""
        if ufunc is np.matmul and method == "__call__" and not options:
            return _multiply(*inputs)
        for one in options.get("out", ()):
            if isinstance(one, Operators):
                name = cast("DiskArray", one).path
                raise TypeError(
                    f"numpy.{ufunc.__name__} writes into memory, not into {name!r} on disk; assign what "
                    "it gives (a[...] = a[...] + 1), or do it in blocks with outcore.map_blocks"
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
        """What NumPy's own function does with it; that calls `take` and the like, where they are."""
        if all(issubclass(kind, Operators | np.ndarray) for kind in types):
            return getattr(function, "_implementation", function)(*inputs, **options)
        # Arrays of another library are among them: let that decide.
        return function(*_read(inputs), **_read(dict(options)))

    def transpose(self, *axes: Any) -> NDArray[Any]:
        """
        Read it whole, with its axes in another order, as `numpy.ndarray.transpose`.

        Parameters
        ----------
        axes
            The axes of the result, as integers or one sequence of them; none: in reverse.

        Returns
        -------
        numpy.ndarray
            In memory, within the budget.

        Raises
        ------
        BudgetError
            It does not fit the budget; `outcore.transpose` makes it on disk.

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
        Read it whole, cast to another dtype, as `numpy.ndarray.astype`.

        Parameters
        ----------
        dtype
            The dtype of the result.
        options
            Those of `numpy.ndarray.astype`; there is always a copy.

        Returns
        -------
        numpy.ndarray
            In memory, within the budget.

        Raises
        ------
        BudgetError
            It does not fit the budget; `outcore.convert` with ``dtype=`` makes it on disk.

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
        What tells equal arrays from others to dask, without reading them.

        For one that was opened for reading, which file it is and its state; one that is open for writing
        equals none, not even itself a moment later.
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
    """Arguments of a function, with arrays in memory in place of those on disk."""
    if isinstance(value, Operators):
        return np.asarray(value)
    if isinstance(value, list | tuple):
        read = [_read(one) for one in value]
        return read if isinstance(value, list) else tuple(read)
    return {k: _read(v) for k, v in value.items()} if isinstance(value, dict) else value
