"""Collectives within budgets from too small to plenty: right on all ranks, or refused on all."""

import random

import numpy as np

import outcore
from mpi.collective_cases import BUDGETS, Case
from mpi.test_collective import NODES, once
from outcore.errors import BudgetError, CollectiveError
from ranks import UNDER_MPI, ranks

HOW_MANY = 12 if UNDER_MPI else 6


def outcome(call):
    """What a call gives, or what it says if it finds no room."""
    try:
        return call()
    except (BudgetError, CollectiveError) as error:
        refusal = error
    assert refusal.code in ("budget-too-small", "rank-failed")
    # Who has room is told what is wrong with who has not.
    assert "budget-too-small" in str(refusal), str(refusal)
    return refusal


def same_everywhere(t, failed):
    """Whether it failed; on all ranks, or on none."""
    return set(t.allgather(np.array([int(failed)]))[:, 0].tolist()) == {int(failed)}


@ranks(1, 2, 3, 4, 8, per_node=NODES)
def test_random_budgets_give_the_result_or_an_error_everywhere(world, folder, agree_on):
    for number in range(HOW_MANY // (2 if world.size > 8 else 1)):
        case = Case(5000 + 31 * number + world.size, world.size)
        rng = random.Random(case.seed)
        # Of the process, which simulated ranks share; and of the array, on each rank.
        process = rng.choice([outcore.memory(), *BUDGETS])
        hinted = [rng.choice([None, *BUDGETS]) for _ in range(world.size)]
        agree_on(slot=case.slot, least=case.least)
        where = folder / f"{number}"

        def body(t, case=case, where=where, hinted=hinted, process=process):
            def make():
                where.mkdir(exist_ok=True)
                case.create(where)

            once(t, make)
            key, out, plenty = case.keys[t.rank], case.out(t.rank), outcore.memory()
            hints = {} if hinted[t.rank] is None else {"memory": hinted[t.rank]}
            with case.open(where, "r+", t, **hints) as a:
                t.barrier()
                outcore.memory(process)
                t.barrier()
                try:
                    got = outcome(lambda: a.read_all(key, out=out, method=case.method))
                    refusal = not case.refused and outcome(
                        lambda: a.write_all(key, case.values[t.rank], method=case.method)
                    )
                    t.barrier()
                finally:
                    outcore.memory(plenty)
            unread, unwritten = isinstance(got, Exception), isinstance(refusal, Exception)
            assert same_everywhere(t, unread), f"read by some ranks: {case}: {got!r}"
            assert same_everywhere(t, unwritten), f"written by some ranks: {case}: {refusal!r}"
            if not unread:
                np.testing.assert_array_equal(case.data[key], got, err_msg=str(case))
            # The ranks are in step, and nothing but what was given is in the file.
            with case.open(where, "r", t) as a:
                whole = a.read_all(..., method=case.method)
            new = case.data if case.refused else case.written
            if unwritten:
                assert ((whole == case.data) | (whole == new)).all(), str(case)
            else:
                np.testing.assert_array_equal(new, whole, err_msg=str(case))

        world.run(body)
