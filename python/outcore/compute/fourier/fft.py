"""
Fourier transforms with NumPy's names, arguments and meanings, of arrays larger than memory.

Problem. A transform takes part of every element of a line, along every axis in turn.
Idea. What a call means is a list of transforms along single axes, in NumPy's order; `calls` reads it,
and `plan` makes passes over disk of it.

References: PASSION, section 4.3.1 (2-D FFT); Bailey, "FFTs in external or hierarchical memory" (1990).
"""

from __future__ import annotations

from typing import Any, SupportsIndex

from outcore.arrays.disk import DiskArray
from outcore.compute.fourier.calls import Axes, Lengths, Norm, along_one, along_some
from outcore.compute.jobs import Source, collective, opened

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
    One-dimensional discrete Fourier transform, of an axis of any length.

    Parameters
    ----------
    a
        A path, an open array, or a NumPy array; real or complex.
    n
        Points: `a` is cropped, or padded with zeros. By default as many as there are.
    axis
        Along which; the last one by default.
    norm
        ``"backward"`` (by default), ``"ortho"`` or ``"forward"``: which direction is divided by `n`, or
        both by its square root.
    out
        Where the result goes: a path, or an open array. By default a temporary array on disk, which
        goes away with its handle.
    how
        ``memory``, ``progress``, ``resume``, ``overwrite``, ``explain`` and options of the new array;
        see `outcore.compute.jobs.complete`.

    Returns
    -------
    DiskArray
        Complex, open for reading and writing.

    Raises
    ------
    UsageError
        ``bad-axis``: there is no such axis; ``bad-value``: `n` or `norm`; ``bad-dtype``; or `out`
        does not fit, or is `a`.
    BudgetError
        Not even some of the square root of a line fits; ``needed`` says what would do.

    Notes
    -----
    Memory: a line along `axis`, or some of its square root. A line that fits is read once and written
    once; one that does not is moved twice (Bailey's four-step transform), or three times if it is longer
    or shorter than `n`, real with half a result, or in chunks. If its length is a prime, or cannot be
    divided into two that fit, it is moved about seven times: it is transformed as a convolution of twice
    its length (Bluestein). Single precision stays single; integers are transformed in double precision.
    Collective with ``comm=``: ranks share lines.

    Bailey, "FFTs in external or hierarchical memory", J. Supercomputing 4 (1990). Bluestein, "A linear
    filtering approach to the computation of discrete Fourier transform", IEEE Trans. Audio
    Electroacoustics 18 (1970).

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("signal.npy", np.cos(np.arange(16) * np.pi / 4))
    >>> np.round(abs(outcore.fft("signal.npy", out="spectrum.npy")[:5]), 6)
    array([0., 0., 8., 0., 0.])
    """
    with opened(a) as (source,):
        return along_one("fft", "c2c", source, n, axis, norm, out, how)


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
    Inverse of `fft`.

    Parameters
    ----------
    a, n, axis, norm, out, how
        As for `fft`.

    Returns
    -------
    DiskArray
        Complex, with `n` elements along `axis`.

    See Also
    --------
    fft : Errors, memory and sources.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> a = outcore.fft(np.arange(4.0))
    >>> outcore.ifft(a)[:].real
    array([0., 1., 2., 3.])
    """
    with opened(a) as (source,):
        return along_one("ifft", "c2c", source, n, axis, norm, out, how, forward=False)


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
    Fourier transform of real input: the half of the spectrum that says all.

    Parameters
    ----------
    a, n, axis, norm, out, how
        As for `fft`. `a` is real.

    Returns
    -------
    DiskArray
        Complex, with ``n // 2 + 1`` elements along `axis`.

    See Also
    --------
    fft : Errors, memory and sources.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.rfft(np.array([1.0, 0, 0, 0]))[:]
    array([1.+0.j, 1.+0.j, 1.+0.j])
    """
    with opened(a) as (source,):
        return along_one("rfft", "r2c", source, n, axis, norm, out, how)


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
    Inverse of `rfft`.

    Parameters
    ----------
    a, n, axis, norm, out, how
        As for `fft`. `n` are points of the result, of which ``n // 2 + 1`` elements of
        `a` count; by default 2 (m - 1) for m elements.

    Returns
    -------
    DiskArray
        Real, with `n` elements along `axis`.

    See Also
    --------
    fft : Errors, memory and sources.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> a = outcore.rfft(np.arange(5.0))
    >>> np.round(outcore.irfft(a, 5)[:], 6)
    array([0., 1., 2., 3., 4.])
    """
    with opened(a) as (source,):
        return along_one("irfft", "c2r", source, n, axis, norm, out, how, forward=False)


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
    Fourier transform of a signal with Hermitian symmetry, of which `a` is one half.

    Parameters
    ----------
    a, n, axis, norm, out, how
        As for `fft`. `n` are points of the result, of which ``n // 2 + 1`` elements of
        `a` count; by default 2 (m - 1) for m elements.

    Returns
    -------
    DiskArray
        Real, with `n` elements along `axis`.

    See Also
    --------
    fft : Errors, memory and sources.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.hfft(np.array([1.0, 2, 3]))[:]
    array([ 8., -2.,  0., -2.])
    """
    with opened(a) as (source,):
        return along_one("hfft", "c2r", source, n, axis, norm, out, how, forward=False, conj=True)


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
    Inverse of `hfft`.

    Parameters
    ----------
    a, n, axis, norm, out, how
        As for `fft`. `a` is real.

    Returns
    -------
    DiskArray
        Complex, with ``n // 2 + 1`` elements along `axis`.

    See Also
    --------
    fft : Errors, memory and sources.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.ihfft(np.array([8.0, -2, 0, -2]))[:].real
    array([1., 2., 3.])
    """
    with opened(a) as (source,):
        return along_one("ihfft", "r2c", source, n, axis, norm, out, how, conj=True)


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
    Two-dimensional discrete Fourier transform.

    Parameters
    ----------
    a
        A path, an open array, or a NumPy array; real or complex.
    s
        Points along each of the axes (-1: as many as `a` has; None: as without `s`): `a` is cropped, or
        padded with zeros. By default as it is.
    axes
        Along which; the last two by default.
    norm
        ``"backward"`` (by default), ``"ortho"`` or ``"forward"``: which direction is divided by the
        number of points, or both by its square root.
    out
        Where the result goes: a path, or an open array. By default a temporary array on disk, which
        goes away with its handle.
    how
        ``memory``, ``progress``, ``resume``, ``overwrite``, ``explain`` and options of the new array;
        see `outcore.compute.jobs.complete`.

    Returns
    -------
    DiskArray
        Complex, open for reading and writing.

    Raises
    ------
    UsageError
        ``bad-axis``: there is no such axis; ``bad-value``: `s` or `norm`; ``bad-dtype``; or `out`
        does not fit, or is `a`.
    BudgetError
        Not even some of the square root of a line fits; ``needed`` says what would do.

    Notes
    -----
    Memory: a line along each of the axes. Axes whose lines fit together are one pass, in which
    everything is read once and written once; there are two passes for a matrix that does not fit. Where
    its columns would be short runs on the disk, they are divided into two parts, one for each pass
    (Bailey's four-step transform), which changes the last bits of the result. Single precision stays
    single; integers are transformed in double precision. Collective with ``comm=``: ranks share lines.

    PASSION, section 4.3.1, whose transform, transpose, transform are two passes here; Bailey, "FFTs in
    external or hierarchical memory", J. Supercomputing 4 (1990).

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("image.npy", np.ones((6, 8), "f4"))
    >>> b = outcore.fft2("image.npy", out="spectrum2.npy")
    >>> b.dtype, complex(b[0, 0]), float(abs(b[1:]).max())
    (dtype('complex64'), (48+0j), 0.0)
    """
    with opened(a) as (source,):
        return along_some("fft2", "c2c", source, s, axes, norm, out, how)


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
    Inverse of `fft2`.

    Parameters
    ----------
    a, s, axes, norm, out, how
        As for `fft2`.

    Returns
    -------
    DiskArray
        Complex, with `s` elements along `axes`.

    See Also
    --------
    fft2 : Errors, memory and sources.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> a = outcore.fft2(np.arange(6.0).reshape(2, 3))
    >>> np.round(outcore.ifft2(a)[1].real, 6)
    array([3., 4., 5.])
    """
    with opened(a) as (source,):
        return along_some("ifft2", "c2c", source, s, axes, norm, out, how, forward=False)


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
    Two-dimensional transform of real input: half of the spectrum along the last of the axes.

    Parameters
    ----------
    a, s, axes, norm, out, how
        As for `fft2`. `a` is real; the last one of the axes is halved.

    Returns
    -------
    DiskArray
        Complex, with `s` elements along `axes`, and ``s[-1] // 2 + 1`` along the last one of them.

    See Also
    --------
    fft2 : Errors, memory and sources.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.rfft2(np.ones((6, 8))).shape
    (6, 5)
    """
    with opened(a) as (source,):
        return along_some("rfft2", "r2c", source, s, axes, norm, out, how)


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
    Inverse of `rfft2`.

    Parameters
    ----------
    a, s, axes, norm, out, how
        As for `fft2`. `s` are points of the result: of the last axis, ``s[-1] // 2 + 1``
        elements of `a` count, and by default 2 (m - 1) for m elements.

    Returns
    -------
    DiskArray
        Real, with `s` elements along `axes`.

    See Also
    --------
    fft2 : Errors, memory and sources.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> a = outcore.rfft2(np.arange(6.0).reshape(2, 3))
    >>> np.round(outcore.irfft2(a, (2, 3))[1], 6)
    array([3., 4., 5.])
    """
    with opened(a) as (source,):
        return along_some("irfft2", "c2r", source, s, axes, norm, out, how, forward=False)


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
    n-dimensional discrete Fourier transform.

    Parameters
    ----------
    a, s, axes, norm, out, how
        As for `fft2`. `axes` are all, or the last ``len(s)`` if `s` is given.

    Returns
    -------
    DiskArray
        Complex, with `s` elements along `axes`.

    See Also
    --------
    fft2 : Errors, memory and sources.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> np.save("image.npy", np.ones((6, 8), "f4"))
    >>> b = outcore.fftn("image.npy", out="spectrumn.npy")
    >>> b.dtype, complex(b[0, 0]), float(abs(b[1:]).max())
    (dtype('complex64'), (48+0j), 0.0)
    """
    with opened(a) as (source,):
        return along_some("fftn", "c2c", source, s, axes, norm, out, how)


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
    Inverse of `fftn`.

    Parameters
    ----------
    a, s, axes, norm, out, how
        As for `fftn`.

    Returns
    -------
    DiskArray
        Complex, with `s` elements along `axes`.

    See Also
    --------
    fftn : Errors, memory and sources.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> a = outcore.fftn(np.arange(6.0).reshape(2, 3))
    >>> np.round(outcore.ifftn(a)[1].real, 6)
    array([3., 4., 5.])
    """
    with opened(a) as (source,):
        return along_some("ifftn", "c2c", source, s, axes, norm, out, how, forward=False)


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
    n-dimensional transform of real input: half of the spectrum along the last of the axes.

    Parameters
    ----------
    a, s, axes, norm, out, how
        As for `fftn`. `a` is real; the last one of the axes is halved.

    Returns
    -------
    DiskArray
        Complex, with `s` elements along `axes`, and ``s[-1] // 2 + 1`` along the last one of them.

    See Also
    --------
    fftn : Errors, memory and sources.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> outcore.rfftn(np.ones((6, 8))).shape
    (6, 5)
    """
    with opened(a) as (source,):
        return along_some("rfftn", "r2c", source, s, axes, norm, out, how)


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
    Inverse of `rfftn`.

    Parameters
    ----------
    a, s, axes, norm, out, how
        As for `fftn`. `s` are points of the result: of the last axis, ``s[-1] // 2 + 1``
        elements of `a` count, and by default 2 (m - 1) for m elements.

    Returns
    -------
    DiskArray
        Real, with `s` elements along `axes`.

    See Also
    --------
    fftn : Errors, memory and sources.

    Examples
    --------
    >>> import numpy as np, outcore
    >>> a = outcore.rfftn(np.arange(6.0).reshape(2, 3))
    >>> np.round(outcore.irfftn(a, (2, 3))[1], 6)
    array([3., 4., 5.])
    """
    with opened(a) as (source,):
        return along_some("irfftn", "c2r", source, s, axes, norm, out, how, forward=False)
