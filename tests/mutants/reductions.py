"""Reductions, scans, stencils and filters: order of sums, states between tiles, edges."""

from mutants import Mutant

REDUCING = "python/outcore/ooc/reduce/reducing.py"
BLOCKWISE = "python/outcore/ooc/blocks/blockwise.py"
STENCIL = "python/outcore/ooc/stencils/plan.py"
WINDOWS = "python/outcore/ooc/stencils/windows.py"
REDUCTIONS = "tests/unit/test_reductions.py"
FILTERS = "tests/unit/test_filters.py"

MUTANTS = [
    Mutant(
        file=REDUCING,
        before="outputs * state if cut else 0",
        after="0",
        killed_by=f"{REDUCTIONS}::test_bits_do_not_depend_on_how_it_is_cut",
        why="what is kept between tiles would be where intermediate results are",
    ),
    Mutant(
        file=REDUCING,
        before="                if last < self.shape[axis]:\n                    return None\n",
        after="",
        killed_by=f"{REDUCTIONS}::test_bits_do_not_depend_on_how_it_is_cut",
        why="a sum would be closed before all of it was added",
    ),
    Mutant(
        file=BLOCKWISE,
        before='        if len(moved) != 1 or self.around.boundary == "wrap":\n',
        after="        if len(moved) != 1:\n",
        killed_by="tests/unit/test_map_blocks.py::test_what_lies_around_a_block",
        why="around a block at an end would be what was around the block before",
    ),
    Mutant(
        file=STENCIL,
        before="        targets = [between[(passes - 1 - k) % 2] for k in range(passes)]\n",
        after="        targets = [between[0] for k in range(passes)]\n",
        killed_by="tests/unit/test_stencil.py::test_any_budget_has_the_bits_of_one_step_after_the_other",
        why="a pass would store over the neighbours that it has still to load",
    ),
    Mutant(
        file=WINDOWS,
        before="    if any(not 0 <= n // 2 + o < n for n, o in zip(sizes, origins, strict=True)):\n",
        after="    if False:\n",
        killed_by=f"{FILTERS}::test_what_makes_no_sense_is_refused",
        why="windows would be moved beside what was loaded for them",
    ),
    Mutant(
        file=WINDOWS,
        before='            if boundary == "constant":\n',
        after="            if False:\n",
        killed_by=f"{FILTERS}::test_gaussian_filter_has_the_bits_of_scipy",
        why="the second axis of a filter would find other elements beyond an end than SciPy does",
    ),
]
