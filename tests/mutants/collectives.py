"""Collectives: what ranks agree on before anything moves, and whose the slots are."""

from mutants import Mutant

MUTANTS = [
    Mutant(
        file="crates/plan/src/distribution/exchange.rs",
        before="            found.retain(|message| message.peer != owner);\n",
        after="",
        killed_by="cargo outcore-plan distribution::tests::ghosts_are_the_neighbours",
        why="both ends of a message would cut it in different rounds, and take each other's elements",
    ),
    Mutant(
        file="python/outcore/ranks/collective/traffic.py",
        before="self.group.agree(_FAILED if self._failures.first is not None else said)",
        after="self.group.agree(said)",
        killed_by=(
            "tests/mpi/test_faults_of_planning.py::test_copies_of_a_redistribution_fail_on_all_ranks"
        ),
        why="what a rank could not copy would be missing, and nobody would be told",
    ),
    Mutant(
        file="python/outcore/ranks/collective/traffic.py",
        before="            self.group.in_flight.finish(self.group)\n",
        after="            pass\n",
        killed_by="tests/mpi/test_traffic.py::test_calls_in_flight",
        why="elements would be packed before a call that was started earlier has changed them",
    ),
    Mutant(
        file="crates/plan/src/collective/settings.rs",
        before="if (gap(&one), one.latency_ns) > (gap(kept), kept.latency_ns) {",
        after="if (gap(&one), one.latency_ns) < (gap(kept), kept.latency_ns) {",
        killed_by=(
            "cargo outcore-plan collective::settings::tests::"
            "of_what_ranks_of_a_node_timed_the_largest_gap_counts"
        ),
        why="what a throttled device served at once to one rank would decide how all read it",
    ),
    Mutant(
        file="crates/plan/src/collective/settings.rs",
        before="if one.is_timed() { i64::MIN } else { sum.saturating_add(untried) }",
        after="sum.saturating_add(untried)",
        killed_by=(
            "cargo outcore-plan collective::settings::tests::"
            "one_rank_of_a_node_tries_a_disk_that_none_of_them_knows"
        ),
        why="a disk that one rank knows would be tried again in each call",
    ),
    Mutant(
        file="crates/plan/src/collective/holes.rs",
        before="(self.useful == self.elements && !in_order)",
        after="(self.useful == self.elements)",
        killed_by="cargo outcore-plan collective::holes::tests::what_is_given_whole_is_written_whole",
        why="where the order of ranks counts elements are counted twice: holes are overwritten",
    ),
    Mutant(
        file="crates/plan/src/collective/holes.rs",
        before="if !is_dense(self.elements, self.useful, exclusive) {",
        after="if false {",
        killed_by=(
            "cargo outcore-plan "
            "collective::holes::tests::only_who_may_rewrites_and_only_where_it_is_cheaper"
        ),
        why="what other programs write between sparse pieces would be undone",
    ),
    Mutant(
        file="python/outcore/ranks/collective/rounds.py",
        before="number if failures.first is None else _FAILED",
        after="number",
        killed_by="tests/mpi/test_collective_faults.py::test_a_failure_at_any_step_is_raised_by_all",
        why="ranks would write on after one of them failed to give its elements",
    ),
    Mutant(
        file="python/outcore/ranks/collective/rounds.py",
        before="            work.finish(places[number % ahead], failures)\n",
        after="            pass\n",
        killed_by="tests/unit/test_rounds.py::test_what_goes_on_in_a_slot_is_waited_for",
        why="ranks would copy out of a slot that is still being read, or into one that is being written",
    ),
    Mutant(
        file="python/outcore/ranks/collective/rounds.py",
        before="""        if work.synchronise(failures):
            return True
        with failures.catch():
            if step.mine:
                place.write""",
        after="""        with failures.catch():
            if step.mine:
                place.write""",
        killed_by="tests/mpi/test_collective.py::test_ranks_meet_once_a_round_and_at_both_ends",
        why="an owner would write its tile before the other ranks have put their elements there",
    ),
    Mutant(
        file="python/outcore/ranks/collective/rounds.py",
        before="        for place in places:\n            work.finish(place, failures)\n    if not failed:",
        after="        pass\n    if not failed:",
        killed_by="tests/unit/test_rounds.py::test_what_goes_on_in_a_slot_is_waited_for",
        why="a write that fails at the end would not be told, and slots would be used while it runs",
    ),
    Mutant(
        file="python/outcore/ranks/transport/sharing.py",
        before="whole = kept is not None and kept.abort_count == transport.abort_count",
        after="whole = kept is not None",
        killed_by="tests/unit/test_rounds.py::test_slots_are_not_used_again_after_a_mishap",
        why="ranks would copy through different memory after one of them lost its slots",
    ),
    Mutant(
        file="crates/plan/src/collective/messages.rs",
        before="            if plan.in_order() {\n                sum\n",
        after="            if false {\n                sum\n",
        killed_by="cargo outcore-plan collective::messages::tests::where_the_order_counts_lower_ranks_come_first",
        why="messages would be unpacked in another order than that of the ranks: the highest wins",
    ),
    Mutant(
        file="python/outcore/ranks/collective/call.py",
        before="is_read and _has_no_new_writes(self.group, self.written)",
        after="is_read",
        killed_by="tests/mpi/test_cached_reads.py::test_reads_see_writes_made_before_the_call",
        why="a rank would read before another one, that wrote, has come to the call",
    ),
    Mutant(
        file="python/outcore/ranks/collective/call.py",
        before="if _has_no_new_writes(self._group, written) else None",
        after="if True else None",
        killed_by="tests/mpi/test_cached_reads.py::test_reads_see_writes_made_before_the_call",
        why="a rank would read before another one, that wrote, has come to the call",
    ),
    Mutant(
        file="python/outcore/ranks/collective/call.py",
        before="if (odd := records.compare(self.one)) is not None:",
        after="if (odd := records.compare(self.one)) is not None and False:",
        killed_by=(
            "tests/mpi/test_collective.py::test_different_calls_are_named",
            "tests/mpi/test_cached_reads.py::test_different_calls_raise_even_if_all_is_cached",
        ),
        why="ranks would write to different arrays as if they were one",
    ),
    Mutant(
        file="python/outcore/ranks/collective/durable.py",
        before="        if group.agree(int(failure is not None)):\n            return failure or OtherRankError()\n",
        after="",
        killed_by="tests/mpi/test_durable.py::test_a_flush_that_fails_on_one_rank_fails_on_all",
        why="ranks would take for durable what one rank could not flush",
    ),
    Mutant(
        file="python/outcore/ranks/collective/durable.py",
        before="array.handle.core.flushed_by_another(one.written)",
        after="array.handle.core.flushed_by_another(1 << 60)",
        killed_by="tests/mpi/test_durable.py::test_a_write_during_the_flush_of_another_rank_is_not_covered_by_it",
        why="writes that ended after another rank's flush began would count as durable",
    ),
]
