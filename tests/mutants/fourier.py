"""Fourier transforms: what is beyond the input, and which part of a divided line goes where."""

from mutants import Mutant

TESTS = "tests/unit/test_fft.py"

MUTANTS = [
    Mutant(
        file="python/outcore/ooc/fourier/kernels.py",
        before="            np.moveaxis(x, axis, 0)[max(stage.length - starts[axis], 0) :] = 0\n",
        after="            pass\n",
        killed_by=f"{TESTS}::test_lines_that_fit_and_are_divided",
        why="lines would be padded with what memory holds by chance",
    ),
    Mutant(
        file="python/outcore/ooc/fourier/kernels.py",
        before="    angles = (exponents % n) * ",
        after="    angles = exponents * ",
        killed_by=f"{TESTS}::test_twiddle_factors",
        why="factors of long lines would lose the digits that their angles need",
    ),
    Mutant(
        file="python/outcore/ooc/fourier/plan.py",
        before="                (parts[::-1], axes.long[axis][::-1]) if back else (parts, axes.long[axis])\n",
        after="                (parts, axes.long[axis])\n",
        killed_by=f"{TESTS}::test_lines_that_fit_and_are_divided",
        why="columns of a divided line would be stored where its rows belong",
    ),
    Mutant(
        file="python/outcore/ooc/fourier/plan.py",
        before='            if split and one.kind == "c2r":\n                end()\n',
        after="",
        killed_by=f"{TESTS}::test_a_line_that_does_not_fit",
        why="half of a spectrum would be read as the whole of it, before it is completed",
    ),
]
