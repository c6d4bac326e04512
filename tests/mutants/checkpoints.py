"""Lines that keep a checkpoint whole: what is on the disk before it counts, and what may be removed."""

from mutants import Mutant

FOLDER = "python/outcore/ranks/restart/folder.py"
CALLS = "python/outcore/ranks/restart/calls.py"
PREFIXES = "tests/crash/test_checkpoint_prefixes.py"
MEANWHILE = "tests/crash/test_removed_meanwhile.py"
RANKS = "tests/mpi/test_checkpoint.py"

MUTANTS = [
    Mutant(
        file=CALLS,
        before='hints=replace(Hints.of(hints), missing="error")) as array:\n',
        after="hints=hints) as array:\n",
        killed_by="tests/unit/test_lost_chunks.py::test_checkpoint_with_a_lost_chunk_is_refused",
        why="a checkpoint that lost a chunk would be restored as zeros",
    ),
    Mutant(
        file=FOLDER,
        before="                    if named is None or named.generation != number:\n",
        after="                    if True:\n",
        killed_by=f"{MEANWHILE}::test_generation_that_counts_by_then_stays",
        why="of two programs that checkpoint under one name, one removes what the manifest names",
    ),
    Mutant(
        file=FOLDER,
        before="        return (self.generation, self.id) == (other.generation, other.id)\n",
        after="        return self.generation == other.generation\n",
        killed_by=f"{MEANWHILE}::test_reader_notices_a_number_that_is_used_again",
        why="a reader beside two programs that checkpoint could get a mixture",
    ),
    Mutant(
        file=CALLS,
        before="                array.flush_all()\n",
        after="                pass\n",
        killed_by=f"{PREFIXES}::test_each_prefix",
        why="the manifest would name arrays whose elements are not on the disk",
    ),
    Mutant(
        file=FOLDER,
        before="        self._begun = None\n        with contextlib.suppress(OSError):\n",
        after="        self._begun = None\n        if False:\n",
        killed_by=f"{PREFIXES}::test_killed_at_each_step_and_then_again",
        why="each checkpoint would stay on the disk for ever",
    ),
    Mutant(
        file=FOLDER,
        before="                if named is None or named.generation != begun:\n",
        after="                if True:\n",
        killed_by=f"{PREFIXES}::test_each_call_fails",
        why="a sync that failed behind the rename would cost the checkpoint that counts",
    ),
    Mutant(
        file=FOLDER,
        before="            if not _is_plain(file):\n",
        after="            if False:\n",
        killed_by=f"{RANKS}::test_manifests_that_lie",
        why="a manifest from elsewhere could have any file read",
    ),
    Mutant(
        file=CALLS,
        before=".is_same(manifest) or turn",
        after=".is_same(manifest) or True or turn",
        killed_by=f"{RANKS}::test_a_checkpoint_that_is_replaced_while_it_is_read",
        why="a checkpoint that is replaced while it is read would be a mixture, or missing",
    ),
    Mutant(
        file=CALLS,
        before='                memory = local.copy(order="K")\n',
        after="                memory = local\n",
        killed_by=f"{RANKS}::test_started_checkpoints_keep_what_was_there_then",
        why="a started checkpoint would hold elements of later steps",
    ),
    Mutant(
        file=FOLDER,
        before="            if named is None:\n                self._check_no_others()\n",
        after="",
        killed_by=f"{RANKS}::test_folders_without_a_checkpoint_are_refused",
        why="a folder of somebody else would become a checkpoint",
    ),
    Mutant(
        file=CALLS,
        before="    return ranks.raise_on_all() if ranks.size > 1 else ranks.raise_cause_if_alone()\n",
        after="    return ranks.raise_cause_if_alone()\n",
        killed_by="tests/mpi/test_each_step_fails.py::test_checkpoints[3]",
        why="without comm= ranks would wait for one that has no memory for what it reads",
    ),
]
