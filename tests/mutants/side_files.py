"""Lines that decide whether files beside data, and manifests, are believed; and their syncs."""

from mutants import Mutant

FORMATS = "python/outcore/formats"
FORGED = "tests/crash/test_forged_files.py"
MEANWHILE = "tests/crash/test_removed_meanwhile.py"
SCHEDULES = "tests/unit/test_index_schedule.py::test_damaged_lists_of_a_schedule_file_are_refused"
RECEIVED = "tests/crash/test_received_folders.py"
TRUSTED = f"{FORGED}::test_untrusted_side_files_are_reported_and_not_changed"
PARTS_OF_OTHERS = f"{FORGED}::test_notes_of_parts_name_parts_of_their_array_alone"
JOURNALS = f"{FORGED}::test_journals_make_nothing_outside_of_their_folder"

MUTANTS = [
    Mutant(
        file=f"{FORMATS}/side_files.py",
        before="    if found.st_uid not in owners:\n",
        after="    if False:\n",
        killed_by=TRUSTED,
        why="whoever may write into a folder could have files of others changed",
    ),
    Mutant(
        file=f"{FORMATS}/side_files.py",
        before="    if found.st_mode & _OTHERS:\n",
        after="    if False:\n",
        killed_by=TRUSTED,
        why="a file that a group may write could say what is to be changed in files of its owner",
    ),
    Mutant(
        file=f"{FORMATS}/side_files.py",
        before="_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK\n",
        after="_FLAGS = os.O_CLOEXEC | os.O_NONBLOCK\n",
        killed_by=TRUSTED,
        why="a link to a file of the user, which says something else, would be believed",
    ),
    Mutant(
        file=f"{FORMATS}/side_files.py",
        before="    old = open_side_file(path, data)\n",
        after="    old = os.open(path, os.O_RDONLY) if os.path.exists(path) else None\n",
        killed_by=f"{FORGED}::test_a_side_file_that_is_made_is_not_somebody_elses",
        why="a file that somebody else put there would be removed",
    ),
    Mutant(
        file=f"{FORMATS}/homes.py",
        before="not _is_below(folder, home) and not _is_marked(folder, array_id, home, real)",
        after="False",
        killed_by=f"{RECEIVED}::test_parts_name_parts_of_their_own",
        why="a received manifest could have any file read, written and removed",
    ),
    Mutant(
        file=f"{FORMATS}/parts/files.py",
        before="            if odd is not None or not all(is_part(part, array_id) for part in parts):\n",
        after="            if False:\n",
        killed_by=PARTS_OF_OTHERS,
        why="a note could have the parts of another array removed",
    ),
    Mutant(
        file=f"{FORMATS}/parts/files.py",
        before="        if check == _compute_checksum(said) and",
        after="        if",
        killed_by=PARTS_OF_OTHERS,
        why="a damaged note would be believed",
    ),
    Mutant(
        file=f"{FORMATS}/hdf5/redo.py",
        before="    if _CHECK.pack(zlib.crc32(footer)) != _read_exactly(log, _CHECK.size, size):\n",
        after="    if False:\n",
        killed_by="tests/crash/test_hdf5_killed.py::test_logs_that_are_not_to_be_trusted",
        why="a damaged size in a log would cut the file off",
    ),
    Mutant(
        file="python/outcore/problems/placement/files.py",
        before="            if file != make_file_name(rank) and not _is_file_of(file, array_id, rank):\n",
        after="            if False:\n",
        killed_by=f"{RECEIVED}::test_placements_name_files_of_their_own",
        why="a manifest could name files that are not of its array",
    ),
    Mutant(
        file="python/outcore/ranks/restart/calls.py",
        before='        if homes.find_outside([file], "", place.path) is not None:\n',
        after="        if False:\n",
        killed_by=f"{RECEIVED}::test_checkpoints_name_files_of_their_own",
        why="a link in a checkpoint could have any array restored",
    ),
    Mutant(
        file="python/outcore/compute/jobs/left.py",
        before="    if odd is not None:\n",
        after="    if False:\n",
        killed_by=f"{FORGED}::test_journals_remove_nothing_outside_of_their_folder",
        why="a journal could have arrays elsewhere removed",
    ),
    Mutant(
        file="python/outcore/compute/jobs/leftovers.py",
        before='            and call["out_name"] == target\n',
        after="",
        killed_by=JOURNALS,
        why="a journal could have an array elsewhere replaced, by another name for the result",
    ),
    Mutant(
        file="python/outcore/compute/jobs/journal.py",
        before="        os.fdatasync(self._fd)\n",
        after="",
        killed_by="tests/unit/test_journal.py::test_lines_are_on_the_disk_before_they_count",
        why="after a power cut a journal could lack lines of what was done in place since",
    ),
    Mutant(
        file="python/outcore/compute/jobs/journal.py",
        before="            if journal.job == other.job and _read_program(journal) == _read_program(other):\n",
        after="            if journal.job == other.job:\n",
        killed_by="tests/unit/test_journal.py"
        "::test_what_another_rank_has_noted_of_other_steps_does_not_count",
        why="steps that another rank did of another cut of the job would count, and never be done",
    ),
    Mutant(
        file="python/outcore/compute/jobs/journal.py",
        before="                    if type(self.job) is not dict or",
        after="                    if",
        killed_by="tests/unit/test_journal.py::test_what_is_no_journal_is_refused",
        why="a damaged journal would end jobs.unfinished for the whole folder",
    ),
    Mutant(
        file=f"{FORMATS}/parts/files.py",
        before="                os.fsync(fd)\n",
        after="                pass\n",
        killed_by=f"{MEANWHILE}::test_note_of_parts_is_durable_before_a_part_is_made",
        why="after a power cut nothing would say which parts are nobody's",
    ),
    Mutant(
        file=f"{FORMATS}/parts/files.py",
        before="            return  # it may be damaged, and name some of them\n",
        after="            named = None\n",
        killed_by=f"{MEANWHILE}::test_damaged_manifest_of_parts_is_not_taken_for_none",
        why="the parts of an array whose manifest is damaged would be removed",
    ),
    Mutant(
        file="python/outcore/ranks/restart/folder.py",
        before="            _core.fsync_folder(self.get_path(manifest.generation, MANIFEST))\n",
        after="            pass\n",
        killed_by=f"{MEANWHILE}::test_names_of_a_checkpoint_are_durable_before_its_manifest",
        why="after a power cut a manifest could name files that are not there",
    ),
    Mutant(
        file="python/outcore/ranks/restart/folder.py",
        before="            return os.path.getsize(file) == 0 or bool(self._list_generations(None))\n",
        after="            return True\n",
        killed_by=f"{MEANWHILE}::test_checkpoint_over_a_damaged_manifest_is_written",
        why="a file of somebody else that is called checkpoint.json would be replaced",
    ),
    Mutant(
        file="python/outcore/arrays/indices/schedule_files.py",
        before="            if number != same:\n",
        after="            if False:\n",
        killed_by=SCHEDULES,
        why="indices of a damaged file would be whatever the memory held",
    ),
    Mutant(
        file="python/outcore/arrays/indices/schedule_files.py",
        before="            or (not outer and len(set(lengths)) > 1)\n",
        after="",
        killed_by=SCHEDULES,
        why="lists of different lengths in a damaged file would be paired",
    ),
    Mutant(
        file=f"{FORMATS}/unfinished.py",
        before="        if record is None and os.stat(path).st_size == before:\n",
        after="        if record is None:\n",
        killed_by=f"{MEANWHILE}::test_size_that_was_taken_within_an_append_is_taken_again",
        why="who opens a raw file just when an append ends would find a row that nobody wrote",
    ),
]
