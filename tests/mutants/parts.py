"""Lines that keep arrays in parts whole, and the files of others where they are."""

from mutants import Mutant

FILES = "python/outcore/formats/part_files.py"
PARTS = "python/outcore/formats/parts.py"
TESTS = "tests/conformance/test_parts.py"
PREFIXES = "tests/crash/test_prefixes.py"

MUTANTS = [
    Mutant(
        file=PARTS,
        before="        change.note(name, files)\n",
        after="",
        killed_by=f"{TESTS}::test_killed_at_each_step_of_create",
        why="parts of an array that was not completed would be on their disks for ever",
    ),
    Mutant(
        file=FILES,
        before="        if old is not None:\n            self.note(*old)\n",
        after="        pass\n",
        killed_by=f"{TESTS}::test_killed_at_each_step_of_rm",
        why="parts of an array that was removed or replaced would be on their disks for ever",
    ),
    Mutant(
        file=FILES,
        before="            if named != id:\n",
        after="            if True:\n",
        killed_by=f"{TESTS}::test_numpy_reads_what_outcore_writes",
        why="the parts of the array itself would be removed",
    ),
    Mutant(
        file=FILES,
        before="                fcntl.flock(fd, fcntl.LOCK_EX)\n",
        after="                pass\n",
        killed_by=f"{TESTS}::test_many_make_the_same_array_at_once",
        why="who makes an array would remove the parts that another is making",
    ),
    Mutant(
        file=PARTS,
        before="not part_files.is_part(text, name, number)",
        after="False",
        killed_by=f"{TESTS}::test_damaged_manifests",
        why="a manifest from elsewhere could have any file read, written and removed",
    ),
    Mutant(
        file=PARTS,
        before="    if info.shape != shape or info.dtype != manifest.dtype or not same:\n",
        after="    if False:\n",
        killed_by=f"{TESTS}::test_a_foreign_part_is_named",
        why="elements of another array would be read, and written over",
    ),
    Mutant(
        file=PARTS,
        before="            change.publish(manifest.document(absolute=True), exclusive=False)\n",
        after="            pass\n",
        killed_by=f"{TESTS}::test_killed_at_each_step_of_mv",
        why="after a kill the manifest would not find its parts from its new folder",
    ),
    Mutant(
        file="python/outcore/jobs/target.py",
        before="            formats.remove(outer)\n",
        after="            os.unlink(outer)\n",
        killed_by="tests/conformance/test_parts.py::test_an_interrupted_job_leaves_nothing_when_it_is_discarded",
        why="parts of an unfinished result would be on their disks for ever",
    ),
]
