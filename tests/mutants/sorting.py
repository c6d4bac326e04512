"""Sorting: cuts of runs that are known by their samples, what is a word and what an element."""

from mutants import Mutant

RUNS = "python/outcore/compute/sort/runs.py"
SORTING = "python/outcore/compute/sort/sorting.py"
TESTS = "tests/unit/test_sorting.py"

MUTANTS = [
    Mutant(
        file=RUNS,
        before="    surely = [max(rank - (distance - 1) * (number - 1), 0) // distance for rank in ranks]\n",
        after="    surely = [rank // distance for rank in ranks]\n",
        killed_by=f"{TESTS}::test_cuts_lie_where_samples_say",
        why="elements of a section would not be loaded with it",
    ),
    Mutant(
        file=RUNS,
        before="    most += distance - 1\n",
        after="",
        killed_by=f"{TESTS}::test_cuts_lie_where_samples_say",
        why="elements behind the last sample of a section would not be loaded with it",
    ),
    Mutant(
        file=RUNS,
        before="sections[len(rows)] - int(begin.sum())",
        after="0",
        killed_by=f"{TESTS}::test_long_lines_are_read_twice_and_written_twice",
        why="sections would begin with elements of the one before",
    ),
    Mutant(
        file=RUNS,
        before="                merge.is_last and not merge.places,\n",
        after="                True,\n",
        killed_by=f"{TESTS}::test_many_passes",
        why="runs would hold elements, which are not in the order of words",
    ),
    Mutant(
        file=SORTING,
        before="section=merge.section // target.distance * target.distance",
        after="section=merge.section",
        killed_by=f"{TESTS}::test_many_passes",
        why="samples of a merged run would not be where the next pass takes them to be",
    ),
    Mutant(
        file=RUNS,
        before='        return cls(word, "w", width, (width,))\n',
        after='        return cls(word, "w", width - 1, (width - 1,))\n',
        killed_by=f"{TESTS}::test_places_of_equal_elements_ascend",
        why="places would not be stored with their elements",
    ),
]
