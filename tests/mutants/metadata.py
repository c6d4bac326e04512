"""What arrays and groups say beside their elements: fill values, attributes, members."""

from mutants import Mutant

FILLS = "tests/unit/test_fill_values.py::test_"

MUTANTS = [
    Mutant(
        file="python/outcore/formats/fill_values.py",
        before="                if given.dtype == dtype or np.all(_same(filled, given)):\n",
        after="                if True:\n",
        killed_by=(
            f"{FILLS}what_does_not_fit_is_refused",
            f"{FILLS}every_format_refuses_it",
            f"{FILLS}the_command_line_refuses_it",
        ),
        why="elements that were never written would read as a number that nobody has said",
    ),
    Mutant(
        file="python/outcore/formats/fill_values.py",
        before="    return ~np.isinf(filled) | _equal(filled, given)\n",
        after="    return True\n",
        killed_by=f"{FILLS}what_does_not_fit_is_refused",
        why="a fill value that is too large for its dtype would be stored as infinity",
    ),
]
