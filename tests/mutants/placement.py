"""Lines that guard arrays in one of the placements."""

from mutants import Mutant

FOLDER = "python/outcore/problems/placement/"
MEANWHILE = "tests/crash/test_removed_meanwhile.py::"
TESTS = "tests/mpi/test_placement.py::"
STEPS = "tests/mpi/test_each_step_fails.py::test_placed_arrays[3]"

MUTANTS = [
    Mutant(
        file=FOLDER + "making.py",
        before="            _remove_file(manifest.get_file(ranks.rank))\n",
        after="            pass\n",
        killed_by="tests/mpi/test_placed_full_disk.py::test_a_full_disk_leaves_no_files[3-nothing]",
        why="an array that one rank could not make would leave the files of the others",
    ),
    Mutant(
        file=FOLDER + "making.py",
        before="        ranks.gather_numbers(made.close)\n",
        after="        made.close()\n",
        killed_by=TESTS + "test_a_copy_has_its_name_when_all_ranks_have_written",
        why="a copy got its name while other ranks still had it open, or had failed to flush it",
    ),
    Mutant(
        file=FOLDER + "making.py",
        before='            made.flush_all()\n            if placement == "local":\n',
        after='            if placement == "local":\n',
        killed_by=TESTS + "test_a_copy_has_its_name_when_all_ranks_have_written",
        why="after a crash a copy had its name, but not its elements",
    ),
    Mutant(
        file=FOLDER + "making.py",
        before="            old.remove()\n",
        after="            pass\n",
        killed_by=TESTS + "test_a_folder_without_manifest_holds_no_array",
        why="after a kill the old manifest promised files of which some were new",
    ),
    Mutant(
        file=FOLDER + "making.py",
        before="        disk.shape != shape\n        or disk.dtype != manifest.dtype\n        or disk.order",
        after="        False\n        and disk.order",
        killed_by=TESTS + "test_files_that_are_missing_short_or_foreign_are_named",
        why="the file of another array was taken for that of a rank",
    ),
    Mutant(
        file=FOLDER + "making.py",
        before="            old.remove()\n        for file",
        after="            os.unlink(note)\n            old.remove()\n        for file",
        killed_by=TESTS + "test_an_array_that_was_removed_in_part_can_be_replaced[rank-0000.npy]",
        why="what is left of an array whose removal failed would be refused as somebody else's",
    ),
    Mutant(
        file=FOLDER + "making.py",
        before="    if there and UNFINISHED not in there:\n",
        after="    if False:\n",
        killed_by=TESTS + "test_a_folder_without_manifest_holds_no_array",
        why="files of somebody else that have the names of ours were removed",
    ),
    Mutant(
        file=FOLDER + "making.py",
        before="        fd = durable.hold(note)\n",
        after="        fd = os.open(note, os.O_RDONLY)\n",
        killed_by=MEANWHILE + "test_placement_that_another_process_makes_is_refused",
        why="two that make an array under one name would remove each other's files",
    ),
    Mutant(
        file=FOLDER + "making.py",
        before="                held.enter_context(_hold_journal(place))\n",
        after="",
        killed_by=MEANWHILE + "test_copy_that_another_process_makes_is_refused",
        why="a copy would take the file that another copy is still filling, and give it its name",
    ),
    Mutant(
        file=FOLDER + "making.py",
        before="    ranks.gather_numbers(check, describe, equal=1)\n",
        after="    ranks.gather_numbers(check, describe, equal=0)\n",
        killed_by=TESTS + "test_ranks_that_mean_different_arrays_all_raise_and_what_is_there_stays",
        why="the first rank would replace an array, and the others write to one that is divided otherwise",
    ),
    Mutant(
        file=FOLDER + "shift.py",
        before="        array.requests.finish_writes()\n        mine.extend(array.list_overlaps())\n",
        after="        mine.extend(array.list_overlaps())\n",
        killed_by=TESTS + "test_a_shift_waits_for_writes_that_were_started",
        why="neighbours got elements from before a write that had been started",
    ),
    Mutant(
        file=FOLDER + "partitions.py",
        before="make_slab, take)\n",
        after="make_slab)\n",
        killed_by=STEPS,
        why="ranks waited for ever for one that had no memory for its part of partitions",
    ),
]
