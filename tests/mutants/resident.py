"""Lines that guard the elements, and the ends, of disk resident arrays."""

from mutants import Mutant

RESIDENT = "python/outcore/ranks/resident"
TESTS = "tests/mpi/test_resident.py::"
GUARDS = "tests/mpi/test_resident_guards.py::"
RANDOM = TESTS + "test_random_sections_equal_numpy"

MUTANTS = [
    Mutant(
        file=f"{RESIDENT}/movement.py",
        before="        self._check_cast(partner)\n",
        after="        pass\n",
        killed_by=GUARDS + "test_a_cast_that_cannot_be_is_refused_before_anything_is_moved",
        why="a section would be moved before its cast is refused",
    ),
    Mutant(
        file=f"{RESIDENT}/movement.py",
        before="        ranks.finish_started()\n",
        after="",
        killed_by=GUARDS + "test_calls_in_flight_end_before_a_cast_reserves_memory",
        why="a cast would be refused memory that a started call is about to release",
    ),
    Mutant(
        file=f"{RESIDENT}/temporary.py",
        before="            left = True\n",
        after="            left = False\n",
        killed_by=GUARDS + "test_files_that_cannot_be_removed_are_removed_with_the_next_array",
        why="files that could not be removed once would never be",
    ),
    Mutant(
        file="crates/plan/src/distribution/patches.rs",
        before="    let start = strip.local.index(numbers.start);\n",
        after="    let start = strip.local.start + numbers.start;\n",
        killed_by="cargo outcore-plan distribution::patches::tests::patches_are_the_members_that_a_rank_has",
        why="elements of strips with a step would come from, and go to, the wrong places",
    ),
    Mutant(
        file=f"{RESIDENT}/partner.py",
        before="low = count - 1 - (first + (number - 1) * every) if flipped else first",
        after="low = count - 1 - first if flipped else first",
        killed_by=RANDOM,
        why="a section that runs the other way would be written somewhere else",
    ),
    Mutant(
        file=f"{RESIDENT}/partner.py",
        before="found[there[0]] = (here[0], here[1] != there[1])",
        after="found[there[0]] = (here[0], there[1])",
        killed_by=RANDOM,
        why="of sections that both run downwards the elements would be in the wrong order",
    ),
    Mutant(
        file=f"{RESIDENT}/movement.py",
        before="        if wanted.write and not partner.distribution.core.is_owner(partner.rank):\n",
        after="        if wanted.write and not partner.distribution:\n",
        killed_by=TESTS + "test_of_copies_that_of_the_owner_is_written",
        why="what a rank has as a copy would be written over what the owner has",
    ),
    Mutant(
        file=f"{RESIDENT}/movement.py",
        before="            self._take_over()\n            self._at = 0\n",
        after="            self._at = 0\n",
        killed_by=TESTS + "test_all_ranks_make_the_passes_of_the_one_that_needs_most",
        why="of what is cast in several passes the buffer would be filled anew before it was taken over",
    ),
    Mutant(
        file=f"{RESIDENT}/movement.py",
        before="return self._told, self._linked, get_array_id(self._array)",
        after="return None",
        killed_by=TESTS + "test_ranks_that_mean_different_sections_all_raise",
        why="ranks would write parts of different sections",
    ),
    Mutant(
        file=f"{RESIDENT}/temporary.py",
        before="            if found.st_nlink:\n",
        after="            if True:\n",
        killed_by=TESTS + "test_a_lock_file_that_is_swept_before_it_is_locked_is_made_anew",
        why="the files of an array whose lock file is gone would never be removed",
    ),
    Mutant(
        file=f"{RESIDENT}/temporary.py",
        before="    try:\n        if _is_last(fd):\n            _remove(lock)\n",
        after="    try:\n        if fd:\n            _remove(lock)\n",
        killed_by=TESTS + "test_files_of_killed_processes_go_with_the_next_creation",
        why="a new temporary array would take the files of those that are in use",
    ),
    Mutant(
        file=f"{RESIDENT}/temporary.py",
        before="            if stays or _is_last(fd):\n",
        after="            if True:\n",
        killed_by=TESTS + "test_temporary_arrays_go_with_the_last_rank",
        why="the first rank that closes a temporary array would remove it from under the others",
    ),
    Mutant(
        file=f"{RESIDENT}/temporary.py",
        before="        if fd < 0 or os.getpid() != self._pid:\n",
        after="        if fd < 0:\n",
        killed_by=TESTS + "test_a_forked_child_keeps_and_removes_nothing",
        why="a child that ends would remove an array that its parent uses",
    ),
    Mutant(
        file=f"{RESIDENT}/naming.py",
        before="    if number > 1:\n",
        after="    if number > 2:\n",
        killed_by=TESTS + "test_the_other_arrays_of_a_file_stay",
        why="the other arrays of a file would be removed with one of them",
    ),
    Mutant(
        file=f"{RESIDENT}/naming.py",
        before="meaning=lambda new: (new, overwrite, get_array_id(array))",
        after="meaning=lambda new: None",
        killed_by=TESTS + "test_ranks_that_mean_different_names_all_raise_and_no_file_moves",
        why="the first rank would rename a file that the others look for under another name",
    ),
    Mutant(
        file=f"{RESIDENT}/array.py",
        before="        new = resolve_new_name(self._group, self._array, name, overwrite=overwrite)\n        self.flush()\n",
        after="        new = resolve_new_name(self._group, self._array, name, overwrite=overwrite)\n",
        killed_by=TESTS + "test_named_arrays_are_flushed_before_the_rename",
        why="after a crash there would be half an array under a name that had another one before",
    ),
    Mutant(
        file=f"{RESIDENT}/naming.py",
        before="    if failure is not None and ranks.broadcast_from_first(lambda: os.path.lexists(old)):\n",
        after="    if failure is not None:\n",
        killed_by="tests/mpi/test_each_step_fails.py"
        "::test_an_array_whose_name_changed_before_a_sync_failed_has_the_new_one",
        why="ranks would be left without the array whose new name may not be on the disk yet",
    ),
]
