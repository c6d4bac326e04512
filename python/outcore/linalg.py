"""
Linear algebra with arrays larger than memory, as in `numpy.linalg` and `scipy.linalg`.

Products are at the top level, as in NumPy: `outcore.matmul`, `outcore.tensordot`, `outcore.dot`.
"""

from outcore.compute.factors.cholesky import cholesky
from outcore.compute.factors.lu import lu_factor
from outcore.compute.factors.qr import lstsq, qr, svd
from outcore.compute.factors.separate import lu
from outcore.compute.factors.solve import cho_solve, lu_solve, solve
from outcore.compute.reduce.norms import norm

__all__ = [
    "cho_solve",
    "cholesky",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_solve",
    "norm",
    "qr",
    "solve",
    "svd",
]
