"""Fourier transforms: what is beyond the input, and which part of a divided line goes where."""

from mutants import Mutant

TESTS = "tests/unit/test_fft.py"
DIVIDED = (
    f"{TESTS}::test_lines_that_fit_and_are_divided"
    "[('fft2', (1400, 60), 'f8', {'s': (1536, 70)}, 'C')]"
)

MUTANTS = [
    Mutant(
        file="python/outcore/compute/fourier/kernels.py",
        before="            np.moveaxis(x, axis, 0)[max(stage.length - starts[axis], 0) :] = 0\n",
        after="            pass\n",
        killed_by=DIVIDED,
        why="lines would be padded with what memory holds by chance",
    ),
    Mutant(
        file="python/outcore/compute/fourier/kernels.py",
        before="    angles = (exponents % n) * ",
        after="    angles = exponents * ",
        killed_by=f"{TESTS}::test_twiddle_factors",
        why="factors of long lines would lose the digits that their angles need",
    ),
    Mutant(
        file="python/outcore/compute/fourier/plan.py",
        before="            along, sizes = (parts[::-1], sizes[::-1]) if back else (parts, sizes)\n",
        after="            along = parts\n",
        killed_by=DIVIDED,
        why="columns of a divided line would be stored where its rows belong",
    ),
    Mutant(
        file="python/outcore/compute/fourier/plan.py",
        before='            if split and (one.kind == "c2r" or _is_padded(one, split)):\n                end()\n',
        after="",
        killed_by=f"{TESTS}::test_a_line_that_does_not_fit[('irfftn', (3, 4501), 'c16', {{}}, 'C')]",
        why="half of a spectrum would be read as the whole of it, before it is completed",
    ),
    Mutant(
        file="python/outcore/compute/fourier/kernels.py",
        before="            part[..., beyond] = 0\n",
        after="            pass\n",
        killed_by=f"{TESTS}::test_a_line_that_cannot_be_divided[('fft', (10007,), 'c16', {{}}, 'C')]",
        why="a line of prime length would be padded with what memory holds by chance",
    ),
    Mutant(
        file="python/outcore/compute/fourier/kernels.py",
        before="    base = np.array([k * k % (2 * n) for k in first])[:, None]\n",
        after="    base = np.array(first)[:, None] ** 2 % (2 * n)\n",
        killed_by=f"{TESTS}::test_angles_of_chirps_are_exact",
        why="squares of indices of very long lines would overflow",
    ),
    Mutant(
        file="python/outcore/compute/jobs/views.py",
        before="    view.handle.core = array.handle.core.view(info, view.handle.own_hints)\n",
        after="",
        killed_by="tests/unit/test_views.py::test_writes_of_views_through_windows_wait_for_each_other",
        why="what one view writes back through a window would undo what another one writes into it",
    ),
]
