"""Lines of jobs on several ranks that guard data."""

from mutants import Mutant

ALGORITHMS = "tests/mpi/test_algorithms.py"
DIVIDE = "tests/unit/test_divide.py"

MUTANTS = [
    Mutant(
        file="python/outcore/arrays/schedule/divide.py",
        before="            if begins and min(waits, begin) > begins[0]:\n",
        after="            if False:\n",
        killed_by=f"{DIVIDE}::test_each_step_is_done_once_in_its_chain_after_what_it_waits_for",
        why="a rank would load what another one has not stored yet",
    ),
    Mutant(
        file="python/outcore/arrays/schedule/divide.py",
        before="not step.is_chained",
        after="True",
        killed_by=f"{DIVIDE}::test_each_step_is_done_once_in_its_chain_after_what_it_waits_for",
        why="a rank would add to sums that another one has in memory",
    ),
    Mutant(
        file="python/outcore/compute/jobs/job.py",
        before="        for path in find_rank_journals(journal.path):\n            os.unlink(path)\n        if not state",
        after="        if not state",
        killed_by=f"{ALGORITHMS}::test_rank_journals_without_a_main_journal_are_ignored",
        why="steps of a job that was given up would count for the next one: elements never computed",
    ),
    Mutant(
        file="python/outcore/compute/jobs/journal.py",
        before="            if journal.job == other.job and _read_program(journal) == _read_program(other):\n",
        after="            if True:\n",
        killed_by=f"{ALGORITHMS}::test_rank_journals_of_another_job_are_ignored",
        why="steps of another job would count for this one",
    ),
    Mutant(
        file="python/outcore/compute/jobs/state.py",
        before='{} if task.ranks.size == 1 else {"exclusive": False, "threads": task.cores}',
        after="{}",
        killed_by=f"{ALGORITHMS}::test_ranks_write_as_those_who_are_not_alone",
        why="ranks that write parts of one block would write over each other",
    ),
    Mutant(
        file="python/outcore/ranks/transport/group.py",
        before="    bad = parent.agree(0 if failure is None else 1)\n",
        after="",
        killed_by="tests/mpi/test_dead_ranks.py::test_death_right_after_a_split_is_noticed",
        why="a rank that dies at once would be waited for for ever",
    ),
    Mutant(
        file="python/outcore/ranks/transport/nodememory.py",
        before="                if os.fstat(fd).st_nlink:\n",
        after="                if True:\n",
        killed_by="tests/unit/test_ranks.py"
        "::test_node_memory_that_is_swept_before_it_is_locked_is_made_anew",
        why="ranks would look for memory whose name is gone",
    ),
    Mutant(
        file="python/outcore/ranks/transport/nodememory.py",
        before="        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)\n        os.unlink(path)\n",
        after="        os.unlink(path)\n",
        killed_by="tests/unit/test_ranks.py"
        "::test_node_memory_of_a_killed_maker_goes_with_the_next_one_made",
        why="memory that ranks are just about to map would be taken from them",
    ),
    Mutant(
        file="python/outcore/ranks/transport/nodememory.py",
        before="            MappedMemory._swept = True\n            sweep()\n",
        after="            MappedMemory._swept = True\n",
        killed_by="tests/unit/test_ranks.py"
        "::test_node_memory_of_a_killed_maker_goes_with_the_next_one_made",
        why="memory of killed ranks would be taken for as long as the machine runs",
    ),
    Mutant(
        file="python/outcore/compute/jobs/temporaries.py",
        before="    locks.lock_file(lock, fcntl.LOCK_SH, wait=True)\n",
        after="",
        killed_by=f"{ALGORITHMS}::test_a_result_without_a_name_stays_until_the_last_rank_lets_go",
        why="a result would be removed while other ranks read it",
    ),
    Mutant(
        file="python/outcore/compute/jobs/journal.py",
        before="Journal(path, look=True) as other:\n",
        after="Journal(path) as other:\n",
        killed_by="tests/unit/test_journal.py"
        "::test_what_another_rank_has_noted_counts_while_it_is_at_work",
        why="what other ranks had done would be lost if they release it after the first one",
    ),
    Mutant(
        file="python/outcore/compute/jobs/journal.py",
        before="                Journal(one, patience=patience).close()\n",
        after="                pass\n",
        killed_by="tests/unit/test_journal.py::test_a_job_on_which_a_rank_is_at_work_is_held",
        why="a rank that outlives the first one would write into files that others go on with",
    ),
]
