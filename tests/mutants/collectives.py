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
        file="python/outcore/collective/traffic.py",
        before="self.group.agree(_FAILED if self._failures.first is not None else said)",
        after="self.group.agree(said)",
        killed_by=(
            "tests/mpi/test_faults_of_planning.py::test_copies_of_a_redistribution_fail_on_all_ranks"
        ),
        why="what a rank could not copy would be missing, and nobody would be told",
    ),
    Mutant(
        file="python/outcore/collective/traffic.py",
        before="        self.group.in_flight.finish(self.group)\n",
        after="",
        killed_by="tests/mpi/test_traffic.py::test_calls_in_flight",
        why="elements would be packed before a call that was started earlier has changed them",
    ),
    Mutant(
        file="python/outcore/collective/holes.py",
        before="if whole or (useful == elements and not work.plan.in_order):",
        after="if whole or useful == elements:",
        killed_by="tests/mpi/test_holes.py::test_as_many_elements_as_a_tile_has_are_not_all_of_it",
        why="where the order of ranks counts elements are counted twice: holes are overwritten",
    ),
    Mutant(
        file="python/outcore/collective/holes.py",
        before="    if not is_dense(array, held, given):\n        return False\n",
        after="",
        killed_by="tests/mpi/test_holes.py::test_only_who_may_rewrites_and_only_where_it_is_cheaper",
        why="what other programs write between sparse pieces would be undone",
    ),
    Mutant(
        file="python/outcore/collective/rounds.py",
        before="last = not left",
        after="last = left <= 1",
        killed_by="tests/unit/test_rounds.py::test_holes_are_read_into_a_slot_when_its_last_write_has_ended",
        why="holes of a later round would be read into a slot that is still being written",
    ),
    Mutant(
        file="python/outcore/collective/rounds.py",
        before="_FAILED if failures.code else number",
        after="number",
        killed_by="tests/mpi/test_collective_faults.py::test_a_failure_at_any_step_is_raised_by_all",
        why="ranks would write on after one of them failed to give its elements",
    ),
    Mutant(
        file="python/outcore/collective/rounds.py",
        before="    if step.mine:\n        failures.finish(started)\n",
        after="",
        killed_by="tests/unit/test_rounds.py::test_what_goes_on_in_a_slot_is_waited_for",
        why="ranks would copy out of a slot that is still being read, or into one that is being written",
    ),
    Mutant(
        file="python/outcore/collective/rounds.py",
        before="""        if work.synchronise(failures):
            return True
        with failures.caught():
            if step.mine:
                turn.go_on""",
        after="""        with failures.caught():
            if step.mine:
                turn.go_on""",
        killed_by="tests/mpi/test_collective.py::test_ranks_meet_once_a_round_and_at_both_ends",
        why="an owner would write its tile before the other ranks have put their elements there",
    ),
    Mutant(
        file="python/outcore/collective/rounds.py",
        before="        for one in started:\n            failures.finish(one)\n    if not failed:",
        after="        pass\n    if not failed:",
        killed_by="tests/unit/test_rounds.py::test_what_goes_on_in_a_slot_is_waited_for",
        why="a write that fails at the end would not be told, and slots would be used while it runs",
    ),
    Mutant(
        file="python/outcore/collective/slots.py",
        before="whole = kept is not None and kept.mishaps == transport.mishaps",
        after="whole = kept is not None",
        killed_by="tests/unit/test_rounds.py::test_slots_are_not_used_again_after_a_mishap",
        why="ranks would copy through different memory after one of them lost its slots",
    ),
    Mutant(
        file="python/outcore/collective/packets.py",
        before="self._place = place if work.plan.in_order else place % self.size",
        after="self._place = place % self.size",
        killed_by=(
            "tests/mpi/test_packets.py::test_what_is_written_in_order_comes_in_parts_in_order",
        ),
        why="messages would be unpacked in another order than that of the ranks: the highest wins",
    ),
    Mutant(
        file="python/outcore/collective/call.py",
        before="reads = since.quiet(written) and answer is None",
        after="reads = answer is None",
        killed_by="tests/mpi/test_cached_reads.py::test_what_a_rank_wrote_before_the_call_is_seen_by_all",
        why="a rank would read before another one, that wrote, has come to the call",
    ),
    Mutant(
        file="python/outcore/collective/cached_read.py",
        before="if self._since.quiet(written) else None",
        after="if True else None",
        killed_by="tests/mpi/test_cached_reads.py::test_what_a_rank_wrote_before_the_call_is_seen_by_all",
        why="a rank would read before another one, that wrote, has come to the call",
    ),
    Mutant(
        file="python/outcore/collective/call.py",
        before="planning.compare(records, one=one)",
        after="pass",
        killed_by=(
            "tests/mpi/test_collective.py::test_different_calls_are_named",
            "tests/mpi/test_cached_reads.py::test_what_is_cached_is_compared_all_the_same",
        ),
        why="ranks would write to different arrays as if they were one",
    ),
    Mutant(
        file="python/outcore/collective/durable.py",
        before="        if group.agree(int(failure is not None)):\n            return failure or Elsewhere()\n",
        after="",
        killed_by="tests/mpi/test_durable.py::test_a_flush_that_fails_on_one_rank_fails_on_all",
        why="ranks would take for durable what one rank could not flush",
    ),
    Mutant(
        file="python/outcore/collective/durable.py",
        before="array._core.flushed_by_another(one.written)",
        after="array._core.flushed_by_another(1 << 60)",
        killed_by="tests/mpi/test_durable.py::test_a_write_during_the_flush_of_another_rank_is_not_covered_by_it",
        why="writes that ended after another rank's flush began would count as durable",
    ),
]
