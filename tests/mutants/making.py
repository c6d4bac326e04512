"""Making arrays, walking through parts of them, and ghosts that go round."""

from mutants import Mutant

MAKING = "tests/unit/test_making.py"
SECTIONS = "tests/unit/test_selected_sections.py"
PERIODIC = "tests/mpi/test_periodic.py"

MUTANTS = [
    Mutant(
        file="python/outcore/arrays/opening.py",
        before='            made = _create_by_mode(path, "x", hints, options)\n',
        after='            made = _create_by_mode(path, "w", hints, options)\n',
        killed_by=f"{MAKING}::test_one_of_many_makes_it",
        why="of several processes that open or make an array one would replace what another has written",
    ),
    Mutant(
        file="python/outcore/arrays/opening.py",
        before="                _check_matches(found, options)\n",
        after="                pass\n",
        killed_by=f"{MAKING}::test_other_arrays_are_refused_and_stay",
        why="a program would write into an array of another shape or dtype than it has asked for",
    ),
    Mutant(
        file="python/outcore/compute/copies/convert.py",
        before='            arguments["section"] = selected.key\n',
        after="            pass\n",
        killed_by=f"{SECTIONS}::test_an_interrupted_section_goes_on_and_is_no_other",
        why="tiles of two sections would be mixed in one array",
    ),
    Mutant(
        file="python/outcore/base/sections.py",
        before="    high, low = start + (count - 1 - first) * step, start + (count - stop) * step\n",
        after="    high, low = start + (count - 1 - first) * step, start + (count - first) * step\n",
        killed_by=f"{SECTIONS}::test_a_part_of_a_section_is_a_section_of_the_array",
        why="blocks would have elements of another place than they say",
    ),
    Mutant(
        file="python/outcore/ranks/dist/periodic.py",
        before="            own = turn == 0 and owner == c\n",
        after="            own = owner == c\n",
        killed_by=(
            f"{PERIODIC}::test_on_a_ring",
            "tests/mpi/test_any_periodic_ghosts.py::test_they_are_what_numpy_wraps",
        ),
        why="ghosts that are copies of a rank's own elements would stay as they were",
    ),
    Mutant(
        file="python/outcore/ranks/dist/redistribution.py",
        before="        return (*words, self.periodic) if any(self.periodic) else words\n",
        after="        return words\n",
        killed_by=f"{PERIODIC}::test_ranks_that_disagree_all_raise",
        why="ranks that mean different ghosts would wait for messages that nobody sends",
    ),
]
