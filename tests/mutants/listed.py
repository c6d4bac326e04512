"""Lines that guard elements of lists: the core's plans and accesses, schedules."""

from mutants import Mutant

PLAN = "crates/plan/src/points"
RANDOM = "cargo outcore-plan points lists_are_read_and_written_element_by_element"
ORDERED = "cargo outcore-plan points points_are_put_in_order_while_they_are_computed"
ACCESS = "cargo outcore-access indexed::tests::"
IRREGULAR = "python/outcore/ranks/collective/lists/schedule.py"
RANKS = "tests/mpi/test_irregular.py::"
SCHEDULES = "tests/unit/test_index_schedule.py::"
EQUAL = "tests/mpi/test_different_arguments.py::test_each_argument_that_must_be_equal_is_compared"
PASSES = "tests/mpi/test_element_passes.py::"
STORED = "python/outcore/arrays/indices/lists/stored.py"
PARTS = "python/outcore/arrays/indices/lists/parts.py"
COLLECTIVE = "python/outcore/ranks/collective/lists/passes.py"

MUTANTS = [
    Mutant(
        file="python/outcore/ranks/collective/lists/owners.py",
        before="            place.fill_beside(low, high, fill, stretch)\n",
        after="",
        killed_by="tests/mpi/test_fill.py::test_elements_beside_slices_are_filled[3]",
        why="elements beside the slices of a key would keep their value where others are filled",
    ),
    Mutant(
        file=COLLECTIVE,
        before="            place.fill_beside(one.low, one.high, fill, stretch)\n",
        after="            pass\n",
        killed_by="tests/mpi/test_fill.py::test_elements_beside_slices_are_filled[3]",
        why="elements beside the slices of a key would keep their value in passes",
    ),
    Mutant(
        file=IRREGULAR,
        before="return (self._serial, get_array_id(array), array.dtype, *more)",
        after="return (self._serial, array.dtype, *more)",
        killed_by=EQUAL,
        why="ranks that give different arrays would write values of one into the other",
    ),
    Mutant(
        file=IRREGULAR,
        before="return (self._serial, get_array_id(array), array.dtype, *more)",
        after="return (get_array_id(array), array.dtype, *more)",
        killed_by=EQUAL,
        why="ranks that use different schedules would exchange elements of other indices",
    ),
    Mutant(
        file="python/outcore/ranks/agreement.py",
        before="    word = hash_text(repr(meaning)) << _NUMBER_BITS | number\n",
        after="    word = number\n",
        killed_by=EQUAL,
        why="arguments that must be equal on all ranks would not be compared",
    ),
    Mutant(
        file="python/outcore/base/casting.py",
        before="    return np.asarray(values, dtype)\n",
        after="    return np.asarray(values)\n",
        killed_by="tests/mpi/test_values_that_do_not_fit.py::"
        "test_calls_of_ranks_refuse_integers_that_do_not_fit[2]",
        why="integers that an element cannot hold would wrap, 300 to 44",
    ),
    Mutant(
        file=COLLECTIVE,
        before="rows, at = place.new(positions.size), 0",
        after='rows, at = place.new(positions.size).astype(place.array.dtype.newbyteorder("=")), 0',
        killed_by="tests/mpi/test_byte_order.py::test_lists_keep_byte_order[3]",
        why="values of another byte order would be written with their bytes swapped",
    ),
    Mutant(
        file=f"{PLAN}/order.rs",
        before="(0..number).for_each(|k| put(",
        after="(0..number).rev().for_each(|k| put(",
        killed_by=RANDOM,
        why="of several values for one element the first one would win",
    ),
    Mutant(
        file=f"{PLAN}/last.rs",
        before="match direction == Direction::Read || all",
        after="match direction != Direction::Read || all",
        killed_by=RANDOM,
        why="of several values for one element the one won whose request was served last",
    ),
    Mutant(
        file=f"{PLAN}/place.rs",
        before="for (address, memory) in block.iter().zip(own) {",
        after="for (address, memory) in block.iter().zip(own).rev() {",
        killed_by=ORDERED,
        why="of several values for one element the first one would win, in long lists",
    ),
    Mutant(
        file=f"{PLAN}/place.rs",
        before="window.min(of.chunk - inside / step.max(1)).clamp(",
        after="window.clamp(",
        killed_by="cargo outcore-plan points runs_end_with_their_chunks",
        why="a run would go on behind the end of its chunk: in another chunk, or in none",
    ),
    Mutant(
        file=f"{PLAN}/place.rs",
        before="        Ok(below) if first < 0 => list.len().min(below),\n",
        after="",
        killed_by=ORDERED,
        why="the last element of an axis and the first would count as neighbours: elements behind the array",
    ),
    Mutant(
        file="crates/plan/src/check.rs",
        before="Some(runs) => points.hold(runs, m.item, low, high),",
        after="Some(_) => points.within(m.points, low, high),",
        killed_by="cargo outcore-plan points corrupted_lists_do_no_harm",
        why="the end of a run could lie outside of the file, or of the caller's array",
    ),
    Mutant(
        file=f"{PLAN}/strided.rs",
        before="by_windows: reach.way != Way::Mapped || means.direction == Direction::Write,",
        after="by_windows: reach.way != Way::Mapped,",
        killed_by=RANDOM,
        why="two threads would write values for one element, and whichever is late would win",
    ),
    Mutant(
        file="crates/plan/src/check.rs",
        before="if !sane || !within {",
        after="if !sane {",
        killed_by="cargo outcore-plan points corrupted_lists_do_no_harm",
        why="a list that another thread changes would lead out of the file, or of the caller's array",
    ),
    Mutant(
        file="crates/plan/src/chunks.rs",
        before="                window.distinct as i64 != listed || ",
        after="                ",
        killed_by=RANDOM,
        why="elements of a chunk that no list names would be lost",
    ),
    Mutant(
        file="crates/access/src/part.rs",
        before="            matches!(listed.inside(cell), [window] if window.distinct as i64 == all)",
        after="            all > 0 && !listed.inside(cell).is_empty()",
        killed_by=SCHEDULES + "test_schedules_read_and_write_what_keys_mean",
        why="a chunk would count as replaced as a whole, and its other elements would be lost",
    ),
    Mutant(
        file="crates/access/src/indexed.rs",
        before="hints } = *asked;\n        index.check(self.shape())?;\n",
        after="hints } = *asked;\n",
        killed_by=ACCESS + "nothing_is_written_if_one_index_is_outside",
        why="what comes before a wrong index would be written",
    ),
    Mutant(
        file=IRREGULAR,
        before="            with failures.catch():\n                background.wait()\n",
        after="            with Failures().catch():\n                background.wait()\n",
        killed_by=RANKS + "test_an_owner_that_cannot_write_fails_on_all[3-1048576]",
        why="what an owner could not write in the last step would count as written",
    ),
    Mutant(
        file=IRREGULAR,
        before="                # An owner writes only after the values of all ranks have arrived.\n"
        "                ranks.agree(failures)\n",
        after="",
        killed_by=RANKS + "test_owners_write_when_all_ranks_have_brought_theirs",
        why="an owner would write what a rank has not put into its slot yet, or could not",
    ),
    Mutant(
        file=IRREGULAR,
        before="                # All owners have read, and no rank accesses the slots of the previous step any more.\n"
        "                ranks.agree(failures)\n",
        after="",
        killed_by=RANKS + "test_ranks_take_what_owners_have_read",
        why="a rank would take what the owner has not read yet",
    ),
    Mutant(
        file="python/outcore/ranks/collective/lists/owners.py",
        before="            # An owner processes the requests after all have arrived.\n"
        "            ranks.agree(failures)\n",
        after="",
        killed_by=RANKS + "test_owners_take_indices_when_all_ranks_have_told_theirs",
        why="an owner would read, and write, elements that nobody named",
    ),
    Mutant(
        file="python/outcore/ranks/collective/lists/owners.py",
        before="    lower = np.cumsum(theirs, axis=0) - theirs\n",
        after="    lower = theirs.sum(axis=0) - np.cumsum(theirs, axis=0)\n",
        killed_by=RANKS + "test_many_windows_and_steps_keep_the_order_of_lists",
        why="of several values for one element that of the lowest rank would win, and sums have other bits",
    ),
    Mutant(
        file=PARTS,
        before="            free[told[inside] - first] = False\n",
        after="",
        killed_by=RANKS + "test_elements_are_filled_before_values_come",
        why="elements that ranks write would be filled, and lost where a write fails later",
    ),
    Mutant(
        file="crates/plan/src/points/divide.rs",
        before="        *place - 1\n    };\n    Ok((of.into_iter()",
        after="        *place - 1\n    };\n    Ok((of.into_iter().rev()",
        killed_by="cargo outcore-plan points::divide::tests::elements_go_in_the_order_of_their_parts_and_keep_their_own",
        why="of several values of one rank for one element the first one would win",
    ),
    Mutant(
        file="python/outcore/ranks/collective/many.py",
        before="        ranks.gather_numbers(check_values)\n",
        after="",
        killed_by="tests/mpi/test_many_indices.py::test_nothing_is_written_if_any_list_is_wrong_on_any_rank",
        why="arrays before one whose values do not fit would be written",
    ),
    Mutant(
        file=STORED,
        before="            if end > self.number or not _is_inside(slab, self.elements):\n",
        after="            if end > self.number:\n",
        killed_by=SCHEDULES + "test_a_list_that_changes_while_it_is_read_is_refused",
        why="an index that was changed after the check would lead to an element of another range",
    ),
    Mutant(
        file=STORED,
        before="                break  # indices of later ranks come later\n",
        after="                continue\n",
        killed_by=SCHEDULES + "test_ranges_cover_all_and_fit",
        why="of several ranks that write an element the last value would depend on budgets",
    ),
    Mutant(
        file=STORED,
        before="    borders = np.flatnonzero(edges[:-1] % cuts.unit == 0)\n",
        after="    borders = np.arange(number)\n",
        killed_by=SCHEDULES + "test_ranges_cover_all_and_fit",
        why="two owners would change one chunk at the same time, and one of both changes would be lost",
    ),
    Mutant(
        file=STORED,
        before="""np.argsort(part, kind="stable")""",
        after="np.lexsort((-np.arange(part.size), part))",
        killed_by=SCHEDULES + "test_lists_larger_than_memory_have_the_bits_of_numpy",
        why="of several values for one element the first one would win",
    ),
    Mutant(
        file=PARTS,
        before="            self._place.write(self._numbers[self._written], self._elements[self._written])\n",
        after="            self._place.write(self._numbers, self._elements)\n",
        killed_by=SCHEDULES + "test_lists_larger_than_memory_have_the_bits_of_numpy",
        why="elements that no index names would be overwritten with what is in memory",
    ),
    Mutant(
        file=COLLECTIVE,
        before="            plan.told = 0  # the files of the owners may be incomplete\n",
        after="            pass\n",
        killed_by=PASSES
        + "test_a_rank_that_fails_in_the_midst_fails_on_all_and_they_go_on[3-_receive_indices]",
        why="an owner would take what an interrupted call left in its file for indices",
    ),
    Mutant(
        file="python/outcore/arrays/indices/keys.py",
        before="one.copy() if negative or (own and alone) else one",
        after="one.copy() if negative else one",
        killed_by=RANKS + "test_a_list_that_is_changed_later_changes_no_schedule",
        why="who changes his array after schedule_all would read and write other elements",
    ),
    Mutant(
        file="python/outcore/arrays/indices/keys.py",
        before="one.copy() if negative or (own and alone) else one",
        after="one.copy() if own and alone else one",
        killed_by=RANKS + "test_a_list_that_is_written_once_is_left_as_it_is",
        why="write_all would change the caller's list of indices",
    ),
    Mutant(
        file="python/outcore/ranks/collective/lists/irregular.py",
        before="    if share_bytes(array.info, other.info):\n",
        after="    if False:\n",
        killed_by=PASSES + "test_a_bad_index_is_told_on_all_ranks_and_nothing_is_written",
        why="ranks would read elements that others have overwritten already",
    ),
    Mutant(
        file="python/outcore/arrays/indices/schedule_files.py",
        before='        raise ValueError("its shape, axes and ranges contradict each other")\n',
        after="        pass\n",
        killed_by=SCHEDULES + "test_what_a_schedule_file_says_is_checked_before_it_is_believed",
        why="a damaged file would choose other elements than were saved, or fail when some were written",
    ),
    Mutant(
        file="python/outcore/arrays/indices/schedule_files.py",
        before="                    self._check_sums()\n",
        after="                    pass\n",
        killed_by=SCHEDULES + "test_schedules_that_do_not_fit_are_saved_and_opened",
        why="a damaged file would be taken for one with wrong indices",
    ),
]
