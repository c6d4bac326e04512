"""Lines that keep arrays in parts whole, and the files of others where they are."""

from mutants import Mutant

FILES = "python/outcore/formats/parts/files.py"
PARTS = "python/outcore/formats/parts/format.py"
MANIFEST = "python/outcore/formats/parts/manifest.py"
TESTS = "tests/conformance/test_parts.py"
LENGTHS = "tests/conformance/test_parts_lengths.py"

MUTANTS = [
    Mutant(
        file=PARTS,
        before="            change.note(name, files)\n",
        after="",
        killed_by=f"{TESTS}::test_killed_at_each_step_of_create",
        why="parts of an array that was not completed would be on their disks for ever",
    ),
    Mutant(
        file=FILES,
        before="        if old is not None and old[0] != fresh:\n            self.note(*old)\n",
        after="        pass\n",
        killed_by=f"{TESTS}::test_killed_at_each_step_of_rm",
        why="parts of an array that was removed or replaced would be on their disks for ever",
    ),
    Mutant(
        file=FILES,
        before="            if named != array_id:\n",
        after="            if True:\n",
        killed_by=f"{TESTS}::test_numpy_reads_what_outcore_writes",
        why="the parts of the array itself would be removed",
    ),
    Mutant(
        file=FILES,
        before="                locks.lock_file(fd, wait=True)\n",
        after="                pass\n",
        killed_by=f"{TESTS}::test_many_make_the_same_array_at_once",
        why="who makes an array would remove the parts that another is making",
    ),
    Mutant(
        file=MANIFEST,
        before="not is_part(text, name, number)",
        after="False",
        killed_by=f"{TESTS}::test_damaged_manifests",
        why="a manifest from elsewhere could have any file read, written and removed",
    ),
    Mutant(
        file=PARTS,
        before="    if not _has_rows(info.shape, shape, manifest.axis) or info.dtype != manifest.dtype or not same:\n",
        after="    if False:\n",
        killed_by=f"{TESTS}::test_a_foreign_part_is_named",
        why="elements of another array would be read, and written over",
    ),
    Mutant(
        file=PARTS,
        before="            held[here].publish(manifest.document(absolute=True), exclusive=False)\n",
        after="            pass\n",
        killed_by=f"{TESTS}::test_killed_at_each_step_of_mv[False-there/b.parts]",
        why="after a kill the manifest would not find its parts from its new folder",
    ),
    Mutant(
        file="python/outcore/compute/jobs/target.py",
        before="            formats.remove(outer)\n",
        after="            os.unlink(outer)\n",
        killed_by="tests/conformance/test_parts.py::test_an_interrupted_job_leaves_nothing_when_it_is_discarded",
        why="parts of an unfinished result would be on their disks for ever",
    ),
    # Other lengths
    Mutant(
        file=FILES,
        before="        if old is not None and old[0] != fresh:\n",
        after="        if old is not None:\n",
        killed_by=f"{TESTS}::test_killed_at_each_step_of_mv[False-there/b.parts]",
        why="after a kill, what is made under the old name would remove the parts of what was moved",
    ),
    Mutant(
        file=PARTS,
        before="enumerate(_cut_parts(info))",
        after="enumerate(_get_parts(info))",
        killed_by=(
            f"{LENGTHS}::test_parts_may_have_more_rows_than_the_manifest_says",
            f"{LENGTHS}::test_killed_at_each_step",
        ),
        why="rows of an append that was killed would be seen where the array becomes longer",
    ),
    Mutant(
        file=PARTS,
        before=(
            "            held = _write_headers(_get_parts(room), told, new, operator.gt)\n"
            "            part_files.rewrite(new.path, new.document())\n"
        ),
        after=(
            "            part_files.rewrite(new.path, new.document())\n"
            "            held = _write_headers(_get_parts(room), told, new, operator.gt)\n"
        ),
        killed_by=f"{LENGTHS}::test_killed_at_each_step",
        why="after a kill the manifest would name rows that its parts do not have",
    ),
    Mutant(
        file=PARTS,
        before="        held = _write_headers(_get_parts(room), told, new, operator.gt)\n",
        after="        held = _write_headers(_get_parts(room), told, new, operator.ne)\n",
        killed_by=f"{LENGTHS}::test_killed_at_each_step",
        why="rows would be cut off that the manifest names still, and the array not be opened any more",
    ),
    Mutant(
        file=PARTS,
        before="        if _get_manifest(now).id != known.id:\n",
        after="        if False:\n",
        killed_by=f"{LENGTHS}::test_another_array_under_the_name_is_not_appended_to",
        why="rows would be appended to, or cut off from, another array that took the name",
    ),
    Mutant(
        file=PARTS,
        before="            if read_manifest(path, allowed) == manifest:",
        after="            if read_manifest(path).id == manifest.id:",
        killed_by=f"{LENGTHS}::test_a_length_that_changes_while_the_array_is_opened",
        why="an array would seem damaged to who opens it while it becomes shorter",
    ),
    Mutant(
        file=PARTS,
        before="        if read_manifest(source) != manifest:",
        after="        if False:",
        killed_by=f"{LENGTHS}::test_a_copy_of_what_becomes_shorter_is_none",
        why="a copy would be there whose parts are shorter than its manifest says",
    ),
    Mutant(
        file=PARTS,
        before="        names = sorted([(here, source), (place, target)])\n",
        after="        names = sorted([(place, target)])\n",
        killed_by=f"{LENGTHS}::test_an_append_waits_for_a_move",
        why="an append would put a manifest in the old place, or one that finds no parts in the new one",
    ),
    Mutant(
        file=PARTS,
        before="        names = sorted([(here, source), (place, target)])\n",
        after="        names = [(here, source), (place, target)]\n",
        killed_by=f"{LENGTHS}::test_moves_to_each_others_name_do_not_wait_for_each_other",
        why="two that move arrays to each other's name would wait for each other for ever",
    ),
    Mutant(
        file=PARTS,
        before="    return across and len(found) == len(shape) and found[axis:] >= shape[axis:]\n",
        after="    return across and len(found) == len(shape)\n",
        killed_by=f"{LENGTHS}::test_a_part_with_fewer_rows_or_other_ones_is_named",
        why="bytes behind the end of a part, or none, would be read for its rows",
    ),
    Mutant(
        file=PARTS,
        before="        for one in _cut_parts(self.describe(known.path, None, True, folders=known.folders or None)):\n",
        after="        for one in _cut_parts(info):\n",
        killed_by=f"{LENGTHS}::test_failed_append_to_parts_is_undone",
        why="parts would keep rows, and their place on a disk that is full, of an append that failed",
    ),
]
