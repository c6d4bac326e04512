"""
BLAS and LAPACK on parts of blocks, in place.

Problem. Kernels of factorisations change a few columns of a panel, below some row. The functions of
NumPy and SciPy copy such parts first because their columns are not contiguous, and the memory of
such a copy is not counted.
Idea. SciPy publishes the routines themselves for compiled callers (`scipy.linalg.cython_blas` and
`cython_lapack`). They are called with the address of the first element and the stride of the
columns.

Invariants. Matrices are two-dimensional, of the routine's dtype, with elements of a column next to
each other. Nothing is copied. Empty matrices are not passed.

Reference: Anderson et al., "LAPACK Users' Guide", 3rd edition: names and arguments.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcore.compute.needs import read_capsule, scipy
from outcore.errors import InternalError

__all__ = [
    "Routines",
    "Threads",
    "find_threads",
    "load_routines",
    "real_dtype",
    "working_dtype",
]

Matrix = NDArray[Any]

_LETTERS = {"f": "s", "d": "d", "F": "c", "D": "z"}


def working_dtype(*dtypes: np.dtype[Any]) -> np.dtype[Any] | None:
    """Return the dtype in which `numpy.linalg` computes with these operands; None if it does not."""
    native = [one.newbyteorder("=") for one in dtypes]
    if any(
        one.kind not in "biufc" or (one.kind in "fc" and one.char not in "fdFD") for one in native
    ):
        return None
    found = [one if one.kind in "fc" else np.dtype(np.float64) for one in native]
    return np.result_type(*found)


def real_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of the real part of elements."""
    return np.empty(0, dtype).real.dtype


class _Address:
    """Address in memory, passed where a number would be an integer argument."""

    __slots__ = ("address",)

    def __init__(self, address: int) -> None:
        self.address = address


def _address(a: Matrix) -> tuple[_Address, int]:
    """Return the address of the first element, and the stride of columns in elements."""
    rows, columns = a.shape
    if rows > 1 and a.strides[0] != a.itemsize:
        raise InternalError(
            f"a block with strides {a.strides} is not a matrix stored by columns; please report this",
            code="broken-plan",
        )
    apart = a.strides[1] // a.itemsize if columns > 1 else rows
    return _Address(a.__array_interface__["data"][0]), max(apart, rows, 1)


class Routines:
    """
    Routines of BLAS and LAPACK for float32, float64, complex64 or complex128.

    `what` is the operation that needs them, for the message if SciPy is missing.
    """

    def __init__(self, dtype: np.dtype[Any], what: str) -> None:
        self.dtype, self.complex = dtype, dtype.kind == "c"
        self._blas, self._lapack = (
            scipy(f"linalg.cython_{one}", what) for one in ("blas", "lapack")
        )
        self._letter, self._ormqr = _LETTERS[dtype.char], "unmqr" if self.complex else "ormqr"
        self._found: dict[str, Any] = {}

    def _call(self, name: str, *arguments: Any) -> int:
        """Call a routine; return ``info`` of LAPACK, its last argument."""
        function = self._found.get(name)
        if function is None:
            home = self._lapack if name in _LAPACK else self._blas
            function = self._found[name] = _function(home, self._letter + name, len(arguments))
        info = ctypes.c_int(0)
        passed: list[Any] = []
        for one in arguments:
            if isinstance(one, str):
                passed.append(ctypes.c_char_p(one.encode()))
            elif one is _INFO:
                passed.append(ctypes.byref(info))
            elif isinstance(one, np.ndarray):
                passed.append(ctypes.c_void_p(one.__array_interface__["data"][0]))
            elif isinstance(one, _Address):
                passed.append(ctypes.c_void_p(one.address))
            else:
                passed.append(ctypes.byref(ctypes.c_int(one)))
        function(*passed)
        if info.value < 0:
            raise InternalError(
                f"LAPACK rejects argument {-info.value} of {self._letter}{name}; please report this",
                code="broken-plan",
            )
        return info.value

    def _scalar(self, value: float, *, real: bool = False) -> NDArray[Any]:
        return np.array([value], real_dtype(self.dtype) if real else self.dtype)

    def gemm(
        self, c: Matrix, a: Matrix, b: Matrix, ta: str = "N", tb: str = "N", *, add: bool = False
    ) -> None:
        """Compute ``c -= op(a) op(b)``, or ``+=``."""
        inner = a.shape[1 if ta == "N" else 0]
        if not c.size or not inner:
            return
        sign, one = self._scalar(1.0 if add else -1.0), self._scalar(1.0)
        factors = (*_address(a), *_address(b))
        self._call("gemm", ta, tb, *c.shape, inner, sign, *factors, one, *_address(c))

    def herk(self, c: Matrix, a: Matrix) -> None:
        """Compute ``c -= a a^H`` in the lower triangle of `c`."""
        if not c.size or not a.size:
            return
        sign, one = self._scalar(-1.0, real=True), self._scalar(1.0, real=True)
        name = "herk" if self.complex else "syrk"
        self._call(name, "L", "N", len(c), a.shape[1], sign, *_address(a), one, *_address(c))

    def trsm(
        self,
        a: Matrix,
        b: Matrix,
        side: str = "L",
        uplo: str = "L",
        trans: str = "N",
        diag: str = "N",
    ) -> None:
        """Compute ``b = op(a)^-1 b``, or ``b op(a)^-1`` with side ``"R"``, for a triangular `a`."""
        if not b.size:
            return
        n = b.shape[1]
        if (side, uplo) == ("R", "L") and trans != "N" and n > _HALVED:
            # Recursion by halves consists mostly of products, which are faster.
            half = n // 2
            left, right = b[:, :half], b[:, half:]
            self.trsm(a[:half, :half], left, side, uplo, trans, diag)
            self.gemm(right, left, a[half:, :half], tb=trans)
            self.trsm(a[half:, half:], right, side, uplo, trans, diag)
            return
        kind, matrices = (side, uplo, trans, diag), (*_address(a), *_address(b))
        self._call("trsm", *kind, *b.shape, self._scalar(1.0), *matrices)

    def potrf(self, a: Matrix) -> int:
        """
        Factor the lower triangle by Cholesky; return the order of the first minor that is not
        positive.
        """
        return self._call("potrf", "L", len(a), *_address(a), _INFO) if a.size else 0

    def getrf(self, a: Matrix, pivots: NDArray[np.int32]) -> int:
        """Compute LU factors and interchanged rows, from 0; return the first zero pivot, from 1."""
        if not a.size:
            return 0
        half = min(a.shape) // 2
        if half < _FACTORED:
            with _threads_for(a.shape[1]):
                zero = self._call("getrf", *a.shape, *_address(a), pivots, _INFO)
            pivots -= np.int32(1)
            return zero
        # Recursion by halves, as in LAPACK, but with LAPACK's routine only for narrow matrices: it
        # is slow if there are many more rows than columns.
        left, right = a[:, :half], a[:, half:]
        zero = self.getrf(left, pivots[:half])
        self.laswp(right, pivots[:half])
        self.eliminate(right, left)
        later = self.getrf(right[half:], pivots[half:])
        self.laswp(left[half:], pivots[half:])
        pivots[half:] += np.int32(half)
        return zero or (later and half + later)

    def eliminate(self, columns: Matrix, factor: Matrix) -> None:
        """Subtract from `columns` the contribution of columns of L, which begin with the diagonal."""
        count = min(factor.shape)
        self.trsm(factor[:count, :count], columns[:count], diag="U")
        self.gemm(columns[count:], factor[count:, :count], columns[:count])

    def laswp(self, a: Matrix, pivots: NDArray[np.int32], *, back: bool = False) -> None:
        """Interchange row `i` with row ``pivots[i]`` (from 0), one after the other; or undo that."""
        if not a.size or not pivots.size:
            return
        order = pivots + np.int32(1)
        self._call("laswp", a.shape[1], *_address(a), 1, pivots.size, order, -1 if back else 1)

    def geqrf(self, a: Matrix, tau: NDArray[Any], work: NDArray[Any]) -> None:
        """Compute Householder vectors below the diagonal, and R above it."""
        if a.size:
            with _threads_for(a.shape[1]):
                self._call("geqrf", *a.shape, *_address(a), tau, work, work.size, _INFO)

    def ormqr(self, a: Matrix, tau: NDArray[Any], c: Matrix, work: NDArray[Any]) -> None:
        """Compute ``c = Q c`` with the Q of `geqrf`."""
        if a.size and c.size:
            factor = (a.shape[1], *_address(a), tau)
            with _threads_for(max(a.shape[1], c.shape[1])):
                self._call(
                    self._ormqr, "L", "N", *c.shape, *factor, *_address(c), work, work.size, _INFO
                )

    def qr_work(self, columns: int) -> int:
        """Return the elements of `work` for blocked `geqrf` and `ormqr` of that many columns."""
        # Local to this call: other threads may query at the same time.
        block, answer = np.empty((1, 1), self.dtype, order="F"), np.zeros(1, self.dtype)
        if not columns:
            return 1
        n, at, most = columns, _address(block)[0], columns
        for call in (
            ("geqrf", n, n, at, n, answer, answer, -1, _INFO),
            (self._ormqr, "L", "N", n, n, n, at, n, answer, at, n, answer, -1, _INFO),
        ):
            self._call(*call)
            most = max(most, int(answer[0].real))
        return most


# Number of columns up to which a factorisation consists of many small operations: threads would
# wait for each other longer than they compute.
_NARROW = 512


class Threads:
    """Threads of SciPy's OpenBLAS; other libraries are left unchanged."""

    def __init__(self) -> None:
        self._lock, self._calls, self._before = threading.Lock(), 0, 0
        library = ctypes.CDLL(scipy("linalg.cython_blas", "a factorisation").__file__)
        names = ("scipy_openblas_{}_num_threads{}", "openblas_{}_num_threads{}")
        both = (
            tuple(getattr(library, name.format(verb, end), None) for verb in ("get", "set"))
            for name in names
            for end in ("", "64_", "_64")
        )
        self._get, self._set = next((two for two in both if None not in two), (None, None))

    @property
    def count(self) -> int:
        """Number of threads; 0 if unknown."""
        return int(self._get()) if self._get is not None else 0

    @contextlib.contextmanager
    def use_one(self) -> Iterator[None]:
        """Use one thread; restore the number when the last call of any thread ends."""
        if self._get is None or self._set is None:
            yield
            return
        with self._lock:
            if not self._calls:
                self._before = int(self._get())
                self._set(1)
            self._calls += 1
        try:
            yield
        finally:
            with self._lock:
                self._calls -= 1
                if not self._calls:
                    self._set(self._before)


@functools.cache
def find_threads() -> Threads:
    """Return the threads of the library, looked up once."""
    return Threads()


def _threads_for(columns: int) -> contextlib.AbstractContextManager[None]:
    return find_threads().use_one() if columns <= _NARROW else contextlib.nullcontext()


# Number of columns up to which a routine of BLAS, and of LAPACK, is faster than recursion by
# halves.
_HALVED, _FACTORED = 64, 16

_INFO = object()
_LAPACK = {"potrf", "getrf", "laswp", "geqrf", "ormqr", "unmqr"}


def _function(home: Any, name: str, arguments: int) -> Any:
    signature, address = read_capsule(home.__pyx_capi__[name])
    if signature.count(b"*") != arguments or b" int *" not in signature:
        raise InternalError(
            f"SciPy's {name} has the signature {signature.decode()!r}, which this version of "
            "outcore does not know; install another version of SciPy",
            code="broken-plan",
        )
    # The call releases the interpreter's lock.
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * arguments)(address)


@functools.cache
def load_routines(dtype: np.dtype[Any], what: str) -> Routines:
    """Return the routines for a native dtype, which the operation `what` needs."""
    return Routines(dtype, what)
