"""Steps of a schedule, divided among ranks."""

from hypothesis import given
from hypothesis import strategies as st

from outcore.arrays.schedule import Schedule, ScheduleStep, divide_steps


@st.composite
def schedules(draw):
    """Steps that continue others, wait for others, and weigh something or nothing."""
    steps = []
    for number in range(draw(st.integers(0, 40))):
        continues = number > 0 and draw(st.booleans())
        after = draw(st.one_of(st.just(0), st.integers(0, number)))
        weight = draw(st.sampled_from([0, 1, 5]))
        steps.append(ScheduleStep((), continues=continues, after=after, work=weight))
    return Schedule("drawn", (), (), len(steps), steps.__getitem__)


def chains(schedule):
    """Where each chain begins and ends."""
    begins = [k for k in range(schedule.steps) if not schedule.step(k).continues]
    return list(zip(begins, [*begins[1:], schedule.steps], strict=True)) if begins else []


@given(schedules(), st.integers(1, 9))
def test_each_step_is_done_once_in_its_chain_after_what_it_waits_for(schedule, ranks):
    owner, round_of = {}, {}
    for number, parts in enumerate(divide_steps(schedule, ranks, lambda step: step.work)):
        assert len(parts) == ranks
        for rank, part in enumerate(parts):
            for step in part:
                assert step not in owner
                owner[step], round_of[step] = rank, number
    assert set(owner) == set(range(schedule.steps))
    for begin, end in chains(schedule):
        assert len({(owner[k], round_of[k]) for k in range(begin, end)}) == 1
        for k in range(begin, end):
            for other in range(min(schedule.step(k).after, begin)):
                assert round_of[other] < round_of[k]


@given(schedules(), st.integers(1, 9))
def test_steps_that_wait_for_none_are_one_round(schedule, ranks):
    plain = Schedule(
        "plain",
        (),
        (),
        schedule.steps,
        lambda k: ScheduleStep((), continues=schedule.step(k).continues),
    )
    assert len(list(divide_steps(plain, ranks, lambda step: 1.0))) == min(schedule.steps, 1)


def test_ranks_have_about_as_much_each():
    weights = [1] * 600 + [10] * 40
    schedule = Schedule("steps", (), (), len(weights), lambda k: ScheduleStep((), work=weights[k]))
    (parts,) = divide_steps(schedule, 5, lambda step: step.work)
    shares = [sum(weights[k] for k in part) for part in parts]
    assert max(shares) - min(shares) <= 20


def test_of_many_ranks_some_have_nothing_to_do():
    schedule = Schedule("steps", (), (), 1000, lambda k: ScheduleStep(()))
    (parts,) = divide_steps(schedule, 100_000, lambda step: 1.0)
    assert sum(map(len, parts)) == 1000
    assert max(map(len, parts)) == 1
