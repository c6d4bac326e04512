"""Lines that guard reads and writes by arrays of indices."""

from mutants import Mutant

INDEXING = "python/outcore/arrays/indices/keys.py"
POINTS = "python/outcore/arrays/indices/points.py"
MASKS = "python/outcore/arrays/indices/masks.py"
UNIT = "tests/unit/test_indexing.py::"
RANDOM = "tests/property/test_points.py::"

MUTANTS = [
    Mutant(
        file="python/outcore/arrays/indices/sieved_masks.py",
        before="    if left.size:\n",
        after="    if False:\n",
        killed_by=UNIT + "test_a_dense_mask_that_is_changed_meanwhile_is_told",
        why="elements of the result were what its memory held before, if a mask lost some meanwhile",
    ),
    Mutant(
        file=POINTS,
        before="                    points.check(_CHECKED)  # before any element is moved\n",
        after="                    pass\n",
        killed_by=UNIT + "test_values_are_cast_and_lists_converted_within_the_budget",
        why="of a list with a wrong index the parts before it were written",
    ),
    Mutant(
        file=POINTS,
        before="    (indices,) = points.lists\n    points.check(_CHECKED)\n",
        after="    (indices,) = points.lists\n",
        killed_by=UNIT + "test_values_that_repeat_are_not_written_if_an_index_is_wrong",
        why="put() wrote the first values before it met a wrong index",
    ),
    Mutant(
        file=POINTS,
        before="        if points.unsigned or ",
        after="        if ",
        killed_by=UNIT + "test_a_refusal_says_what_and_where_and_nothing_was_written",
        why="an unsigned index beyond int64 was taken for a negative one: another element was written",
    ),
    Mutant(
        file=POINTS,
        before="        elif not share_bytes(array.info, value.info):",
        after="        elif True:",
        killed_by=UNIT + "test_an_array_that_is_written_to_itself_is_read_first",
        why="elements that were already overwritten were copied",
    ),
    Mutant(
        file=POINTS,
        before="    elif out.size and not _is_nested(out):",
        after="    elif False:",
        killed_by=UNIT + "test_results_that_do_not_fit_are_refused",
        why="elements of a result that share memory were filled one over the other",
    ),
    Mutant(
        file=POINTS,
        before="    if any(outer[1] != inner[0] * inner[1] for",
        after="    if any(outer[1] == -1 for",
        killed_by=UNIT + "test_results_are_read_in_place",
        why="a copy of the result was filled instead of the result",
    ),
    Mutant(
        file=MASKS,
        before="        flat.sort()\n",
        after="        pass\n",
        killed_by=UNIT + "test_masks_larger_than_the_budget",
        why="values met other elements than those that the mask chooses, where it lies in chunks",
    ),
    Mutant(
        file=INDEXING,
        before="        if not own or own[0] <= last:\n",
        after="        if not own:\n",
        killed_by=RANDOM + "test_keys_with_arrays_on_every_format_equal_numpy",
        why="index arrays that belong together were taken for all combinations",
    ),
]
