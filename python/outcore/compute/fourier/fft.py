"""
Fourier transforms with NumPy's names, arguments and meanings, of arrays larger than memory.

Problem. A transform uses every element of a line, along each of its axes.
Idea. `calls` makes a list of transforms along single axes from the arguments, in NumPy's order, and
`plan` makes passes over disk from that list.

References: PASSION, section 4.3.1 (2-D FFT); Bailey, "FFTs in external or hierarchical memory"
(1990).
"""

from __future__ import annotations

from typing import Any, SupportsIndex

from outcore.arrays.disk import DiskArray
from outcore.compute.fourier.calls import Axes, Lengths, Norm, transform_axes, transform_axis
from outcore.compute.jobs import Source, collective

__all__ = [
    "fft",
    "fft2",
    "fftn",
    "hfft",
    "ifft",
    "ifft2",
    "ifftn",
    "ihfft",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftn",
]


@collective
def fft(
    a: Source,
    n: SupportsIndex | None = None,
    axis: SupportsIndex = -1,
    norm: Norm = None,
    *,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Compute the one-dimensional discrete Fourier transform along an axis of any length.

    Parameters
    ----------
    a
        Real or complex array.
    n
        Number of points: `a` is cropped, or padded with zeros. Default: the length of `axis`.
    axis
        Axis to transform. Default: the last one.
    norm
        Which direction is divided: ``"forward"`` or ``"backward"`` (the default; the inverse) by
        `n`, ``"ortho"`` both by the square root of `n`.
    out, how
        See `outcore.compute.jobs.complete`.

    Returns
    -------
    DiskArray
        Complex array, open for reading and writing, with `n` elements along `axis`.

    Raises
    ------
    UsageError
        ``bad-value``: invalid `n` or `norm`. ``bad-dtype``: elements are not numbers of at most
        double precision. Otherwise see `outcore.compute.jobs.complete`.
    BudgetError
        The memory is not sufficient for a few times the square root of a line. ``needed`` is a
        sufficient budget.

    Notes
    -----
    Memory: a line along `axis`, or a few times its square root. A line that fits is read once and
    written once. A longer one is moved twice (Bailey's four-step transform), or three times if it
    is longer or shorter than `n`, is real with half a result, or is in chunks. If its length is a
    prime, or cannot be divided into two that fit, it is moved about seven times: it is transformed
    as a convolution of twice its length (Bluestein). Single precision stays single; integers are
    transformed in double precision. Collective with ``comm=``: ranks share lines.

    Bailey, "FFTs in external or hierarchical memory", J. Supercomputing 4 (1990). Bluestein, "A
    linear filtering approach to the computation of discrete Fourier transform", IEEE Trans. Audio
    Electroacoustics 18 (1970).

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("signal.npy", np.cos(np.arange(16) * np.pi / 4))
    >>> np.round(abs(outcore.fft.fft("signal.npy", out="spectrum.npy")[:5]), 6)
    array([0., 0., 8., 0., 0.])
    """
    return transform_axis("fft", "c2c", a, n, axis, norm, out, how)


@collective
def ifft(
    a: Source,
    n: SupportsIndex | None = None,
    axis: SupportsIndex = -1,
    norm: Norm = None,
    *,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Compute the inverse of `fft`.

    Parameters
    ----------
    a, n, axis, norm, out, how
        See `fft`.

    Returns
    -------
    DiskArray
        Complex array with `n` elements along `axis`.

    See Also
    --------
    fft : Errors, memory and sources.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> a = outcore.fft.fft(np.arange(4.0))
    >>> outcore.fft.ifft(a)[:].real
    array([0., 1., 2., 3.])
    """
    return transform_axis("ifft", "c2c", a, n, axis, norm, out, how, forward=False)


@collective
def rfft(
    a: Source,
    n: SupportsIndex | None = None,
    axis: SupportsIndex = -1,
    norm: Norm = None,
    *,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Compute the Fourier transform of real input: half of the spectrum, which determines the rest.

    Parameters
    ----------
    a, n, axis, norm, out, how
        See `fft`. `a` is real.

    Returns
    -------
    DiskArray
        Complex array with ``n // 2 + 1`` elements along `axis`.

    See Also
    --------
    fft : Errors, memory and sources.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.fft.rfft(np.array([1.0, 0, 0, 0]))[:]
    array([1.+0.j, 1.+0.j, 1.+0.j])
    """
    return transform_axis("rfft", "r2c", a, n, axis, norm, out, how)


@collective
def irfft(
    a: Source,
    n: SupportsIndex | None = None,
    axis: SupportsIndex = -1,
    norm: Norm = None,
    *,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Compute the inverse of `rfft`.

    Parameters
    ----------
    a, n, axis, norm, out, how
        See `fft`. `n` is the number of points of the result, for which ``n // 2 + 1`` elements of
        `a` are used. Default: 2 (m - 1) for m elements.

    Returns
    -------
    DiskArray
        Real array with `n` elements along `axis`.

    See Also
    --------
    fft : Errors, memory and sources.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> a = outcore.fft.rfft(np.arange(5.0))
    >>> np.round(outcore.fft.irfft(a, 5)[:], 6)
    array([0., 1., 2., 3., 4.])
    """
    return transform_axis("irfft", "c2r", a, n, axis, norm, out, how, forward=False)


@collective
def hfft(
    a: Source,
    n: SupportsIndex | None = None,
    axis: SupportsIndex = -1,
    norm: Norm = None,
    *,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Compute the Fourier transform of a signal with Hermitian symmetry, of which `a` is one half.

    Parameters
    ----------
    a, n, axis, norm, out, how
        See `fft`. `n` is the number of points of the result, for which ``n // 2 + 1`` elements of
        `a` are used. Default: 2 (m - 1) for m elements.

    Returns
    -------
    DiskArray
        Real array with `n` elements along `axis`.

    See Also
    --------
    fft : Errors, memory and sources.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.fft.hfft(np.array([1.0, 2, 3]))[:]
    array([ 8., -2.,  0., -2.])
    """
    return transform_axis("hfft", "c2r", a, n, axis, norm, out, how, forward=False, conj=True)


@collective
def ihfft(
    a: Source,
    n: SupportsIndex | None = None,
    axis: SupportsIndex = -1,
    norm: Norm = None,
    *,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Compute the inverse of `hfft`.

    Parameters
    ----------
    a, n, axis, norm, out, how
        See `fft`. `a` is real.

    Returns
    -------
    DiskArray
        Complex array with ``n // 2 + 1`` elements along `axis`.

    See Also
    --------
    fft : Errors, memory and sources.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.fft.ihfft(np.array([8.0, -2, 0, -2]))[:].real
    array([1., 2., 3.])
    """
    return transform_axis("ihfft", "r2c", a, n, axis, norm, out, how, conj=True)


@collective
def fft2(
    a: Source,
    s: Lengths = None,
    axes: Axes = (-2, -1),
    norm: Norm = None,
    *,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Compute the two-dimensional discrete Fourier transform.

    Parameters
    ----------
    a
        Real or complex array.
    s
        Number of points along each of the axes: `a` is cropped, or padded with zeros. -1: the
        length of the axis; None: as without `s`. Default: the lengths of `axes`.
    axes
        Axes to transform. Default: the last two.
    norm
        Which direction is divided: ``"forward"`` or ``"backward"`` (the default; the inverse) by
        the number of points, ``"ortho"`` both by its square root.
    out, how
        See `outcore.compute.jobs.complete`.

    Returns
    -------
    DiskArray
        Complex array, open for reading and writing, with `s` elements along `axes`.

    Raises
    ------
    UsageError
        ``bad-value``: invalid `s` or `norm`. ``bad-dtype``: elements are not numbers of at most
        double precision. Otherwise see `outcore.compute.jobs.complete`.
    BudgetError
        The memory is not sufficient for a few times the square root of a line. ``needed`` is a
        sufficient budget.

    Notes
    -----
    Memory: a line along each of the axes. Axes whose lines fit together are one pass, in which
    everything is read once and written once; a matrix that does not fit needs two passes. If its
    columns are short runs on the disk, they are divided into two parts, one for each pass (Bailey's
    four-step transform), which changes the last bits of the result. Single precision stays single;
    integers are transformed in double precision. Collective with ``comm=``: ranks share lines.

    PASSION, section 4.3.1, whose transform, transpose, transform are two passes here; Bailey, "FFTs
    in external or hierarchical memory", J. Supercomputing 4 (1990).

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("image.npy", np.ones((6, 8), "f4"))
    >>> b = outcore.fft.fft2("image.npy", out="spectrum2.npy")
    >>> b.dtype, complex(b[0, 0]), float(abs(b[1:]).max())
    (dtype('complex64'), (48+0j), 0.0)
    """
    return transform_axes("fft2", "c2c", a, s, axes, norm, out, how)


@collective
def ifft2(
    a: Source,
    s: Lengths = None,
    axes: Axes = (-2, -1),
    norm: Norm = None,
    *,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Compute the inverse of `fft2`.

    Parameters
    ----------
    a, s, axes, norm, out, how
        See `fft2`.

    Returns
    -------
    DiskArray
        Complex array with `s` elements along `axes`.

    See Also
    --------
    fft2 : Errors, memory and sources.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> a = outcore.fft.fft2(np.arange(6.0).reshape(2, 3))
    >>> np.round(outcore.fft.ifft2(a)[1].real, 6)
    array([3., 4., 5.])
    """
    return transform_axes("ifft2", "c2c", a, s, axes, norm, out, how, forward=False)


@collective
def rfft2(
    a: Source,
    s: Lengths = None,
    axes: Axes = (-2, -1),
    norm: Norm = None,
    *,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Compute the two-dimensional transform of real input: half of the spectrum along the last axis.

    Parameters
    ----------
    a, s, axes, norm, out, how
        See `fft2`. `a` is real; the result has half of the last of the axes.

    Returns
    -------
    DiskArray
        Complex array with `s` elements along `axes`, except ``s[-1] // 2 + 1`` along the last of
        them.

    See Also
    --------
    fft2 : Errors, memory and sources.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.fft.rfft2(np.ones((6, 8))).shape
    (6, 5)
    """
    return transform_axes("rfft2", "r2c", a, s, axes, norm, out, how)


@collective
def irfft2(
    a: Source,
    s: Lengths = None,
    axes: Axes = (-2, -1),
    norm: Norm = None,
    *,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Compute the inverse of `rfft2`.

    Parameters
    ----------
    a, s, axes, norm, out, how
        See `fft2`. `s` has the numbers of points of the result; along the last axis,
        ``s[-1] // 2 + 1`` elements of `a` are used. Default for that axis: 2 (m - 1) for m elements.

    Returns
    -------
    DiskArray
        Real array with `s` elements along `axes`.

    See Also
    --------
    fft2 : Errors, memory and sources.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> a = outcore.fft.rfft2(np.arange(6.0).reshape(2, 3))
    >>> np.round(outcore.fft.irfft2(a, (2, 3))[1], 6)
    array([3., 4., 5.])
    """
    return transform_axes("irfft2", "c2r", a, s, axes, norm, out, how, forward=False)


@collective
def fftn(
    a: Source,
    s: Lengths = None,
    axes: Axes = None,
    norm: Norm = None,
    *,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Compute the n-dimensional discrete Fourier transform.

    Parameters
    ----------
    a, s, axes, norm, out, how
        See `fft2`. Default of `axes`: all, or the last ``len(s)`` if `s` is given.

    Returns
    -------
    DiskArray
        Complex array with `s` elements along `axes`.

    See Also
    --------
    fft2 : Errors, memory and sources.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("image.npy", np.ones((6, 8), "f4"))
    >>> b = outcore.fft.fftn("image.npy", out="spectrumn.npy")
    >>> b.dtype, complex(b[0, 0]), float(abs(b[1:]).max())
    (dtype('complex64'), (48+0j), 0.0)
    """
    return transform_axes("fftn", "c2c", a, s, axes, norm, out, how)


@collective
def ifftn(
    a: Source,
    s: Lengths = None,
    axes: Axes = None,
    norm: Norm = None,
    *,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Compute the inverse of `fftn`.

    Parameters
    ----------
    a, s, axes, norm, out, how
        See `fftn`.

    Returns
    -------
    DiskArray
        Complex array with `s` elements along `axes`.

    See Also
    --------
    fftn : Errors, memory and sources.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> a = outcore.fft.fftn(np.arange(6.0).reshape(2, 3))
    >>> np.round(outcore.fft.ifftn(a)[1].real, 6)
    array([3., 4., 5.])
    """
    return transform_axes("ifftn", "c2c", a, s, axes, norm, out, how, forward=False)


@collective
def rfftn(
    a: Source,
    s: Lengths = None,
    axes: Axes = None,
    norm: Norm = None,
    *,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Compute the n-dimensional transform of real input: half of the spectrum along the last axis.

    Parameters
    ----------
    a, s, axes, norm, out, how
        See `fftn`. `a` is real; the result has half of the last of the axes.

    Returns
    -------
    DiskArray
        Complex array with `s` elements along `axes`, except ``s[-1] // 2 + 1`` along the last of
        them.

    See Also
    --------
    fftn : Errors, memory and sources.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.fft.rfftn(np.ones((6, 8))).shape
    (6, 5)
    """
    return transform_axes("rfftn", "r2c", a, s, axes, norm, out, how)


@collective
def irfftn(
    a: Source,
    s: Lengths = None,
    axes: Axes = None,
    norm: Norm = None,
    *,
    out: Any = None,
    **how: Any,
) -> DiskArray:
    """
    Compute the inverse of `rfftn`.

    Parameters
    ----------
    a, s, axes, norm, out, how
        See `fftn`. `s` has the numbers of points of the result; along the last axis,
        ``s[-1] // 2 + 1`` elements of `a` are used. Default for that axis: 2 (m - 1) for m elements.

    Returns
    -------
    DiskArray
        Real array with `s` elements along `axes`.

    See Also
    --------
    fftn : Errors, memory and sources.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> a = outcore.fft.rfftn(np.arange(6.0).reshape(2, 3))
    >>> np.round(outcore.fft.irfftn(a, (2, 3))[1], 6)
    array([3., 4., 5.])
    """
    return transform_axes("irfftn", "c2r", a, s, axes, norm, out, how, forward=False)
