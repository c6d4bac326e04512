"""Lines that guard partitions and loops over edges."""

from mutants import Mutant

FOLDER = "python/outcore/unstructured/"
PARTITION = "tests/unit/test_unstructured_partition.py::"
LOCALIZE = "tests/unit/test_unstructured_localize.py::"
LOOP = "tests/unit/test_unstructured_edge_loop.py::"

MUTANTS = [
    Mutant(
        file=FOLDER + "cuts.py",
        before="        np.add.at(self._before, group, heavy)\n",
        after="        pass\n",
        killed_by=PARTITION + "test_counting_goes_down_to_single_keys",
        why="equal elements of later slabs were all put before the cut: parts of unequal size",
    ),
    Mutant(
        file=FOLDER + "groups.py",
        before="            filled += counts\n",
        after="            pass\n",
        killed_by=LOOP + "test_bits_are_those_of_the_loop_in_memory",
        why="edges of a later slab were stored over those of an earlier one",
    ),
    Mutant(
        file=FOLDER + "groups.py",
        before='            check_indices(slab, self._elements, low, "edges")\n',
        after="",
        killed_by=LOOP + "test_edges_out_of_range_change_nothing",
        why="an edge that names no node was taken for one of another node",
    ),
    Mutant(
        file=FOLDER + "edge_loop.py",
        before="        _refuse_shared(self.updates, [*self.reads, *self.edge_data])\n",
        after="",
        killed_by=LOOP + "test_bad_arguments",
        why="blocks read what blocks before had updated: the result depended on the budget",
    ),
    Mutant(
        file=FOLDER + "edge_loop.py",
        before="            loop.refuse_ranks()\n",
        after="            pass\n",
        killed_by=LOOP + "test_ranks_update_only_what_is_stored_whole",
        why="ranks wrote parts of one chunk over each other",
    ),
    Mutant(
        file=FOLDER + "indirect.py",
        before="        if found.size and not (int(found.min()) >= 0 and int(found.max()) < rows):\n",
        after="        if False:\n",
        killed_by=LOOP + "test_numbers_of_a_damaged_schedule_are_not_believed",
        why="a negative number in a damaged file was taken for a row counted from the end",
    ),
    Mutant(
        file=FOLDER + "edge_schedule.py",
        before="            forget_manifest(out, _KIND)\n",
        after="            pass\n",
        killed_by=LOOP + "test_a_schedule_that_is_made_again_is_not_half_of_each",
        why="after a crash the manifest of the old schedule promised the arrays of the new one",
    ),
    Mutant(
        file=FOLDER + "partition.py",
        before='    path = in_folder(out, "part")\n    forget_manifest(out, _KIND)\n',
        after='    path = in_folder(out, "part")\n',
        killed_by=PARTITION + "test_a_partition_that_is_made_again_is_not_half_of_each",
        why="after a crash the manifest of the old partition promised the parts of the new one",
    ),
]
