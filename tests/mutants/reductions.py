"""Reductions, scans, stencils and filters: order of sums, states between tiles, edges."""

from mutants import Mutant

KERNEL = "python/outcore/compute/reduce/kernel.py"
TILES = "python/outcore/compute/reduce/tiles.py"
COUNTING = "python/outcore/compute/reduce/counting.py"
BLOCKWISE = "python/outcore/compute/blocks/blockwise.py"
STENCIL = "python/outcore/compute/stencils/plan.py"
WINDOWS = "python/outcore/compute/stencils/windows.py"
REDUCTIONS = "tests/unit/test_reductions.py"
CHOSEN = "tests/unit/test_where.py"
ON_RANKS = "tests/mpi/test_reductions.py"
FILTERS = "tests/unit/test_filters.py"
ARGUMENTS = "tests/unit/test_filter_arguments.py"

MUTANTS = [
    Mutant(
        file=KERNEL,
        before="outputs * stage.state_bytes if cut else 0",
        after="0",
        killed_by=f"{REDUCTIONS}::test_bits_do_not_depend_on_how_it_is_cut",
        why="what is kept between tiles would be where intermediate results are",
    ),
    Mutant(
        file=KERNEL,
        before="                if last < end:\n                    return None\n",
        after="",
        killed_by=f"{REDUCTIONS}::test_bits_do_not_depend_on_how_it_is_cut",
        why="a sum would be closed before all of it was added",
    ),
    Mutant(
        file=KERNEL,
        before="                base = first // self.segment * self.segment\n",
        after="                base = 0\n",
        killed_by=f"{ON_RANKS}::test_bits_are_those_of_one_process",
        why="a segment would begin with what memory holds by chance",
    ),
    Mutant(
        file=KERNEL,
        before="            np.copyto(out, other, where=~where)\n",
        after="",
        killed_by=f"{CHOSEN}::test_it_is_numpys",
        why="elements would count that where= leaves out",
    ),
    Mutant(
        file=KERNEL,
        before="few.T if turned else few",
        after="few",
        killed_by=f"{CHOSEN}::test_it_is_numpys",
        why="truth values would be those of other elements, in a file in order F",
    ),
    Mutant(
        file="python/outcore/compute/reduce/quantities.py",
        before='        named = ("where",) if choices else names\n',
        after="        named = names\n",
        killed_by=f"{CHOSEN}::test_an_interrupted_one_goes_on_from_its_journal",
        why="the call that is made again would take truth values for its axis",
    ),
    Mutant(
        file=TILES,
        before="                first = piece == self.before[n] * self.each\n",
        after="",
        killed_by=f"{ON_RANKS}::test_each_rank_reads_its_part",
        why="one rank would have all segments, as steps that continue each other",
    ),
    Mutant(
        file="crates/compute/src/reduce/mod.rs",
        before="let at = piece.first - piece.base + begin + k * segment;\n",
        after="let at = piece.first + begin + k * segment;\n",
        killed_by="cargo outcore-compute reduce::tests::nodes_of_segments_join_to_the_bits_of_the_whole",
        why="nodes that threads made would take other places of the tree",
    ),
    Mutant(
        file=COUNTING,
        before="continues=not first,",
        after="",
        killed_by=f"{ON_RANKS}::test_counts_are_those_of_one_process[3]",
        why="ranks would count on with what others have counted",
    ),
    Mutant(
        file="python/outcore/compute/reduce/selection.py",
        before=" + begins[row, target]",
        after="",
        killed_by=f"{ON_RANKS}::test_quantiles_of_more_than_fits",
        why="elements of one bin would be stored over those of another one",
    ),
    Mutant(
        file="python/outcore/compute/reduce/scans.py",
        before="            if before or not first:\n",
        after="            if not first:\n",
        killed_by=f"{ON_RANKS}::test_scans_have_the_bits_of_one_process",
        why="a part would begin without what comes before it",
    ),
    Mutant(
        file="python/outcore/compute/reduce/scans.py",
        before='    exact = all(d.kind in "biu" for d in dtypes) and',
        after="    exact =",
        killed_by=f"{ON_RANKS}::test_scans_have_the_bits_of_one_process",
        why="floating sums would be rounded otherwise on more ranks",
    ),
    Mutant(
        file=BLOCKWISE,
        before='        if self.around.find_boundary(axis + len(self.shape) - len(now)) == "wrap":\n',
        after="        if False:\n",
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
        before="        self.check_shifts(origin, sizes, origins)\n",
        after="",
        killed_by=f"{FILTERS}::test_a_window_beside_its_element_is_refused_by_every_filter",
        why="windows would be moved beside what was loaded for them",
    ),
    Mutant(
        file=WINDOWS,
        before="        self.check_shifts(origin, window, places)\n",
        after="",
        killed_by=f"{FILTERS}::test_a_window_beside_its_element_is_refused_by_every_filter",
        why="windows over all axes would be moved beside what was loaded for them",
    ),
    Mutant(
        file=WINDOWS,
        before="            fill_halo(work, constant, modes, cval)\n",
        after="            pass\n",
        killed_by=f"{ARGUMENTS}::test_beyond_an_end_is_the_constant_for_each_axis_anew",
        why="the second axis of a filter would find other elements beyond an end than SciPy does",
    ),
    Mutant(
        file=WINDOWS,
        before="zip(self.axes if listed else sorted(self.axes), window.shape, strict=True)",
        after="zip(self.axes, window.shape, strict=True)",
        killed_by="tests/unit/test_like_numpy.py::test_axes_of_filters_in_any_order",
        why="a window would lie along other axes than SciPy's",
    ),
    Mutant(
        file=BLOCKWISE,
        before="                if _keeps_chunks(larger, sides):\n",
        after="                if False:\n",
        killed_by="tests/unit/test_map_blocks.py"
        "::test_chunks_are_not_cut_where_a_block_of_one_copy_holds_them",
        why="chunks would be decoded and encoded several times",
    ),
]
