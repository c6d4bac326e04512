"""Lines that guard partitions and loops over edges."""

from mutants import Mutant

FOLDER = "python/outcore/problems/unstructured/"
PARTITION = "tests/unit/test_unstructured_partition.py::"
LOCALIZE = "tests/unit/test_unstructured_localize.py::"
LOOP = "tests/unit/test_unstructured_edge_loop.py::"
RANKS = "tests/mpi/test_unstructured.py::"
KILLED = "tests/crash/test_edge_loops_killed.py::"

MUTANTS = [
    Mutant(
        file=FOLDER + "cuts.py",
        before="        np.add.at(self._before, group, heavy)\n",
        after="        pass\n",
        killed_by=PARTITION + "test_counting_goes_down_to_single_keys",
        why="equal elements of later slabs were all put before the cut: parts of unequal size",
    ),
    Mutant(
        file=FOLDER + "placing.py",
        before="        self._filled += counts\n",
        after="        pass\n",
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
        before="        check_not_shared(self.updates, [*self.reads, *self.edge_data])\n",
        after="",
        killed_by=LOOP + "test_bad_arguments",
        why="blocks read what blocks before had updated: the result depended on the budget",
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
        before="                forget_manifest(folder, _MANIFEST)\n",
        after="                pass\n",
        killed_by=LOOP + "test_a_schedule_that_is_made_again_is_not_half_of_each",
        why="after a crash the manifest of the old schedule promised the arrays of the new one",
    ),
    Mutant(
        file=FOLDER + "partition.py",
        before="        forget_manifest(out, _MANIFEST)\n",
        after="        pass\n",
        killed_by=PARTITION + "test_a_partition_that_is_made_again_is_not_half_of_each",
        why="after a crash the manifest of the old partition promised the parts of the new one",
    ),
    Mutant(
        file=FOLDER + "placing.py",
        before="        self._filled = self.begins[:-1] + before\n",
        after="        self._filled = self.begins[:-1] + 0 * before\n",
        killed_by=RANKS + "test_schedules_are_those_of_one_process",
        why="ranks wrote their edges over each other",
    ),
    Mutant(
        file=FOLDER + "cuts.py",
        before="            self._before += share.sums(mine)[0]\n",
        after="            pass\n",
        killed_by=RANKS + "test_partitions_are_those_of_one_process",
        why="equal points of later ranks were put before the cut: the parts depended on the ranks",
    ),
    Mutant(
        file=FOLDER + "cuts.py",
        before="        weights = self.share.total(weights)\n",
        after="        pass\n",
        killed_by=RANKS + "test_partitions_are_those_of_one_process",
        why="each rank cut where its own points wanted it, and some points had no part",
    ),
    Mutant(
        file=FOLDER + "edge_schedule.py",
        before="                one.flush()\n            share.barrier()\n",
        after="                one.flush()\n",
        killed_by=RANKS + "test_a_rank_that_cannot_flush_leaves_no_schedule",
        why="the manifest promised edges that another rank had not stored",
    ),
    Mutant(
        file=FOLDER + "edge_loop.py",
        before="            staged = [n for n, is_shared in enumerate(shared) if is_shared]\n",
        after="            staged = []\n",
        killed_by=RANKS + "test_ranks_encode_whole_chunks",
        why="ranks wrote parts of one chunk over each other",
    ),
    Mutant(
        file=FOLDER + "edge_loop.py",
        before="            ranks.run_on_all(lambda: check_not_interrupted(loop.updates))\n",
        after="",
        killed_by=KILLED + "test_loop_killed_while_replacing_rows_is_completed[npy]",
        why="a loop added to an array that was half old and half new",
    ),
    Mutant(
        file=FOLDER + "staging.py",
        before="        self.ranks.run_long_step(run_recorded)\n        self._mark(self.blocks)\n",
        after="        self.ranks.run_long_step(run_recorded)\n",
        killed_by=KILLED + "test_loop_killed_while_replacing_rows_is_completed[npy]",
        why="after a kill while rows were copied the loop added to new rows once more",
    ),
    Mutant(
        file=FOLDER + "staging.py",
        before='kept.get("before") != before:\n',
        after="False:\n",
        killed_by=KILLED + "test_loop_does_not_resume_on_changed_arrays[npy]",
        why="what another program wrote meanwhile was replaced by rows made of older ones",
    ),
    Mutant(
        file=FOLDER + "staging.py",
        before="                    one.table.flush()\n",
        after="                    pass\n",
        killed_by=KILLED + "test_rows_are_durable_before_they_are_forgotten",
        why="after a power cut the new rows were gone with the files that kept them",
    ),
    Mutant(
        file="python/outcore/compute/jobs/leftovers.py",
        before="        if is_half_replaced(journal):\n",
        after="        if False:\n",
        killed_by=KILLED + "test_loop_killed_while_replacing_rows_is_completed[npy]",
        why="the only copy of new rows was removed while their array had some of them",
    ),
    Mutant(
        file=FOLDER + "groups.py",
        before="        self._share.barrier()\n",
        after="",
        killed_by=RANKS + "test_nobody_reads_what_a_late_rank_has_not_written[2-groups]",
        why="a rank localized edges that another had not written yet",
    ),
    Mutant(
        file=FOLDER + "translation.py",
        before="        share.barrier()\n",
        after="",
        killed_by=RANKS + "test_nobody_reads_what_a_late_rank_has_not_written[2-translation]",
        why="a rank looked nodes up that another had not placed yet",
    ),
    Mutant(
        file=FOLDER + "bisection.py",
        before="    share.barrier()\n",
        after="",
        killed_by=RANKS + "test_nobody_reads_what_a_late_rank_has_not_written[2-bisection]",
        why="a rank divided points that another had not brought there yet",
    ),
]
