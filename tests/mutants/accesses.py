"""Reads and writes of one array: what is flushed, counted, waited for."""

from mutants import Mutant

ACCESS = "crates/access/src/open/run.rs"
ARRAY = "crates/py/src/array/handle.rs"
HAZARDS = "tests/unit/test_disk_hazards.py"
WHOLE = "tests/unit/test_whole_or_refused.py::test_"
ALONE = "tests/conformance/test_alone.py"
PAST = "tests/unit/test_past_cache.py"
SMALL = "tests/memory/test_page_cache.py"
NESTED = "tests/unit/test_nested_calls.py"
TERMS = "cargo outcore-access terms::tests"
OPEN = "cargo outcore-access open::tests"
AT_EXIT = "tests/unit/test_requests_at_exit.py"
REQUESTS = "python/outcore/base/requests.py"

MUTANTS = [
    Mutant(
        file="crates/access/src/two_phase.rs",
        before="held.way(in_order, array.exclusive, |",
        after="held.way(in_order, array.hints.exclusive, |",
        killed_by="tests/mpi/test_holes.py::test_sparse_tiles_where_requests_take_long[2]",
        why="tiles with holes go in parts on a slow disk, whatever the hint exclusive says",
    ),
    Mutant(
        file="python/outcore/ranks/collective/array.py",
        before="if hints.exclusive and transport.size > 1:",
        after="if False:",
        killed_by="tests/mpi/test_holes.py::test_exclusive_means_nobody_but_these_ranks[2]",
        why="a rank could read and write back what another rank writes meanwhile",
    ),
    Mutant(
        file="crates/access/src/two_phase.rs",
        before="slot.shifted(place.at.saturating_add(at)).within(low, high)?;",
        after="slot.shifted(place.at.saturating_add(at));\n        let _ = (low, high);",
        killed_by="cargo outcore-access two_phase::tests::"
        "a_part_has_its_bytes_of_the_slot_and_no_others",
        why="a part of a tile could be read over what other ranks have in the same slot",
    ),
    Mutant(
        file="crates/io/src/exec/mod.rs",
        before="        if low < self.low || high > self.high {\n            let (all, some)",
        after="        if false {\n            let (all, some)",
        killed_by="cargo outcore-access two_phase::tests::"
        "a_part_has_its_bytes_of_the_slot_and_no_others",
        why="memory behind a slot would be written to",
    ),
    Mutant(
        file="crates/py/src/background.rs",
        before="        if !self.done() {\n            Python::attach",
        after="        if false {\n            Python::attach",
        killed_by="tests/unit/test_rounds.py"
        "::test_who_forgets_an_access_in_the_background_waits_for_it",
        why="memory that nobody refers to any more would be read into, or written from",
    ),
    Mutant(
        file=ARRAY,
        before="            result = result.and(open.flush(py, durable));",
        after="            let _ = open;",
        killed_by=f"{HAZARDS}::test_a_flush_covers_a_write_that_ended_while_the_shape_changed",
        why="what was written to files as they were before an append or resize would not be flushed",
    ),
    Mutant(
        file=ARRAY,
        before="            if !self.owes() {\n                gone",
        after="            {\n                gone",
        killed_by=f"{HAZARDS}::test_a_flush_covers_a_write_that_ended_while_the_shape_changed",
        why="what was written before an append or resize would be forgotten before it is flushed",
    ),
    Mutant(
        file=ARRAY,
        before="        let written = self.written.load(Ordering::SeqCst);\n        let file =",
        after="        let written = u64::MAX;\n        let file =",
        killed_by="tests/mpi/test_durable.py::test_a_write_during_the_flush_of_another_rank_is_not_covered_by_it",
        why="what is written while another rank flushes would count as durable",
    ),
    Mutant(
        file="crates/py/src/array/sections.rs",
        before="        self.written.fetch_add(1, Ordering::SeqCst);\n        Ok(written?)",
        after="        Ok(written?)",
        killed_by="tests/crash/test_swapped.py::test_a_write_that_ends_after_another_thread_closed_the_array_is_owed",
        why="a flush after close would say safe of what is not",
    ),
    Mutant(
        file=ACCESS,
        before="""        WRITES.fetch_add(1, Ordering::SeqCst);
        let result""",
        after="        let result",
        killed_by=f"{HAZARDS}::test_a_write_counts_from_its_beginning",
        why="ranks that synchronise during a write of another thread would read what was there before",
    ),
    Mutant(
        file=ACCESS,
        before="        WRITES.fetch_add(1, Ordering::SeqCst);\n        let result = work();",
        after="        let result = work();",
        killed_by=f"{HAZARDS}::test_a_write_counts_from_its_beginning",
        why="the same for writes that are cast",
    ),
    Mutant(
        file=ACCESS,
        before="let wanted = || claim.is_wanted();",
        after="let wanted = || false;",
        killed_by=f"{ALONE}::test_a_write_gives_the_file_to_who_asks_for_it",
        why="another program would wait until the write is over, or the kernel takes the lease away",
    ),
    Mutant(
        file=ACCESS,
        before="            step.plan = otherwise;",
        after="            let _ = otherwise;",
        killed_by=f"{ALONE}::test_a_write_gives_the_file_to_who_asks_for_it",
        why="windows would be rewritten over what the program writes that was let in",
    ),
    Mutant(
        file=ACCESS,
        before="let alone = step.plan.writes_back() || step.plan.past_cache().is_some();",
        after="let alone = step.plan.past_cache().is_some();",
        killed_by=(
            "tests/unit/test_access.py::test_two_threads_write_between_each_other_in_an_exclusive_array",
            f"{OPEN}::windows_are_written_back_by_one_at_a_time",
        ),
        why="a window that is written back would undo what another thread wrote into its holes",
    ),
    Mutant(
        file="crates/access/src/chunks.rs",
        before="let _guard = batch.patiently(|patience| match &self.store {",
        after="let _ = batch.patiently(|patience| match &self.store {",
        killed_by="tests/conformance/test_two_processes.py::test_two_writers_of_one_compressed_zarr_chunk_lose_nothing",
        why="of two processes that change a part of the same encoded chunk one would lose it",
    ),
    Mutant(
        file="crates/access/src/chunks.rs",
        before="            (Mode::Run, Direction::Write) => self.assure(&each)?,",
        after="            (Mode::Run, Direction::Write) => None::<Promise>,",
        killed_by=f"{WHOLE}a_write_is_refused_before_it_changes_anything[zstd-True]",
        why="a write could be refused memory after it changed most of its section",
    ),
    Mutant(
        file="crates/access/src/cast.rs",
        before="            return self.admits(&hints, terms::pages(bytes));",
        after="            return Ok(());",
        killed_by=f"{WHOLE}a_cast_that_cuts_chunks_is_refused_before_it_changes_anything[options0]",
        why="a value of another type could be refused memory after most of it was written",
    ),
    Mutant(
        file="crates/access/src/part.rs",
        before="is_none_or(listed) && self.all_axes(cell, |held, has| held == has)",
        after="is_none_or(listed) && self.all_axes(cell, |held, _| held > 0)",
        killed_by=(
            "tests/property/test_equality.py::test_sections_of_every_format_equal_numpy",
            "cargo outcore-access part::tests::a_chunk_is_covered_if_the_section_has_all_that_the_array_has_of_it",
        ),
        why="the rest of a chunk that is written in part would be replaced by the fill value",
    ),
    Mutant(
        file="crates/access/src/table.rs",
        before="            let held = self.hold()?;\n            let now",
        after="            let held: Option<Held> = None;\n            let now",
        killed_by="tests/conformance/test_hdf5_writers.py::test_a_chunk_that_another_program_makes_meanwhile_is_not_made_again",
        why="the fill value would be written over a chunk that another program has just made",
    ),
    # HDF5: programs that have the file open in the library
    Mutant(
        file="crates/access/src/open/steps.rs",
        before="                let guard = self.keep_out(files, access, mode, interrupts)?;\n",
        after="                let guard: Option<FileLock> = None;\n                let _ = Open::keep_out;\n",
        killed_by="tests/conformance/test_hdf5_writers.py::test_elements_of_which_the_library_keeps_a_copy_are_not_written",
        why="what is written into a contiguous HDF5 dataset would be undone by a program that has it open",
    ),
    Mutant(
        file="python/outcore/formats/hdf5/chunks.py",
        before="            self._check_duplicates(keys, rows)\n",
        after="",
        killed_by="tests/conformance/test_hdf5_tables.py::test_two_chunks_for_one_place_are_damage",
        why="of two chunks for one place either would be read, and half of the elements written to the other",
    ),
    # Calls inside calls of the same thread
    Mutant(
        file="python/outcore/formats/hdf5/access.py",
        before="    if _changing_threads.get(key) == threading.get_ident():\n",
        after="    if False:\n",
        killed_by=f"{NESTED}::test_an_hdf5_file_is_not_changed_while_its_thread_changes_it",
        why="a handler would change an HDF5 file in the middle of another change: one of both is lost",
    ),
    Mutant(
        file="python/outcore/formats/locks.py",
        before="    if what in _changes_of_thread.changes:\n",
        after="    if False:\n",
        killed_by=f"{NESTED}::test_an_array_that_is_appended_to_while_it_is_appended_to_refuses",
        why="an append inside an append would wait for itself, or take its place",
    ),
    Mutant(
        file="crates/access/src/windows.rs",
        before="            if nesting::is_nested() || self.holders()",
        after="            if false && self.holders()",
        killed_by=f"{NESTED}::test_a_handler_writes_into_windows_that_are_being_written",
        why="a write inside a write would wait for itself for ever",
    ),
    Mutant(
        file=ACCESS,
        before="let alone = step.plan.writes_back() || step.plan.past_cache().is_some();",
        after="let alone = step.plan.writes_back();",
        killed_by=f"{PAST}::test_nobody_else_writes_meanwhile",
        why="pages that are made dirty beside direct writes may reach into these: the flush fails",
    ),
    Mutant(
        file="crates/access/src/terms.rs",
        before="    if !terms.direct || !hints.exclusive {\n",
        after="    if !terms.direct {\n",
        killed_by=(
            f"{SMALL}::test_writes_pass_a_page_cache_that_is_too_small_and_wait_in_one_that_is_not",
            f"{TERMS}::only_who_has_the_file_to_himself_passes_the_page_cache",
        ),
        why="direct writes beside those of other programs may make a flush fail",
    ),
    Mutant(
        file="crates/access/src/terms.rs",
        before="    let block = if pages { terms.block.max(probe::page_size()) } else { terms.block };\n",
        after="    let block = terms.block;\n",
        killed_by=(
            f"{SMALL}::test_writes_pass_a_page_cache_that_is_too_small_and_wait_in_one_that_is_not",
            f"{TERMS}::only_who_has_the_file_to_himself_passes_the_page_cache",
        ),
        why="a page would be written past the page cache and through it",
    ),
    Mutant(
        file="crates/access/src/guard.rs",
        before="    let nested = nesting::is_nested();\n",
        after="    let nested = false;\n",
        killed_by=(
            f"{NESTED}::test_a_handler_changes_the_file_whose_chunks_are_read",
            "cargo outcore-access guard::tests::a_nested_call_does_not_wait_at_all",
        ),
        why="a call inside a call would wait for a lock on chunks that its own thread holds",
    ),
    # Requests at the end of the process
    Mutant(
        file=REQUESTS,
        before="        while writes := _pool.writes():\n            _finish(writes)\n",
        after="        pass\n",
        killed_by=f"{AT_EXIT}::test_writes_are_finished_and_said",
        why="writes that were started would be cut where they are when the process ends",
    ),
    Mutant(
        file=REQUESTS,
        before="        _stop_reads()\n    _finish_writes()\n\n\ndef _finish_at_exit",
        after="        _stop_reads()\n\n\ndef _finish_at_exit",
        killed_by=f"{AT_EXIT}::test_writes_of_a_process_of_multiprocessing_are_finished",
        why="writes of a process of multiprocessing would be cut where they are when it ends",
    ),
    Mutant(
        file=REQUESTS,
        before="reads and (parent is None or parent.reads)",
        after="reads",
        killed_by=f"{AT_EXIT}::test_what_a_copy_reads_is_a_part_of_its_write",
        why="a copy would be half done: what it reads would be stopped, and so the write",
    ),
    Mutant(
        file=REQUESTS,
        before="self.task.cancel(running=self.task.reads)",
        after="self.task.cancel(running=True)",
        killed_by=f"{AT_EXIT}::test_a_read_is_cancelled_and_a_write_goes_on",
        why="a write that is under way would be cut in the middle by who cancels it",
    ),
    Mutant(
        file="crates/access/src/learning.rs",
        before="(part.start - all.start) / all.step * stride",
        after="(part.start - all.start) * stride",
        killed_by=(
            "tests/unit/test_learning.py::test_parts_of_a_read_are_in_their_places",
            "cargo outcore-access learning::tests::a_trial_comes_first_and_the_rest_follows",
        ),
        why="what is read after a trial would be stored beside its place",
    ),
    Mutant(
        file="crates/plan/src/trial.rs",
        before="        rest.push(others);\n",
        after="",
        killed_by="cargo outcore-plan trial::tests::parts_are_the_section_and_do_not_overlap",
        why="what a trial leaves of a read would not be read",
    ),
    Mutant(
        file=ACCESS,
        before="        let user = step.data.within(low, high)?;\n",
        after="        let user = step.data;\n",
        killed_by=f"{OPEN}::memory_that_is_not_the_callers_is_not_touched",
        why="a section that is larger than the caller's array would be read over what lies behind it",
    ),
    Mutant(
        file="crates/access/src/cast.rs",
        before="            if number <= written.pieces {\n                return Ok(());\n            }\n",
        after="",
        killed_by="cargo outcore-access cast::tests::a_part_whose_turn_begins_again_goes_on_behind_what_is_written",
        why="a part whose turn begins again would write over what others wrote since",
    ),
]
