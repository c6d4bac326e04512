"""Figure 8 of the paper on disk resident arrays in the machine model: its program, and its sentences."""

import dataclasses
import json

import numpy as np
import pytest

from outcore import cli
from outcore.model.machines.machine import machine
from outcore.model.simulate import disk_products
from outcore.model.simulate.disk_products import EDGE, Times, compute_seconds


def test_the_program_of_the_paper_waits_for_a_and_c_and_hides_b():
    rng = np.random.default_rng(0)
    for _ in range(100):
        chunks = int(rng.integers(1, 6))
        times = Times(*rng.uniform(0, 3, 4).tolist())
        steps = chunks * chunks
        # Of each step the longer one: the product, or the next section of B. The last has none.
        longer = (steps - 1) * max(times.multiply, times.read_b) + times.multiply
        rest = times.read_b + chunks * times.read_a + steps * times.write_c
        assert compute_seconds(times, chunks, behind=False) == pytest.approx(longer + rest)


def test_a_program_that_writes_c_behind_hides_it_as_well():
    # Waited for: each A, the first section of B, and of C the last one before an A and at the end.
    times = Times(10.0, 1.0, 2.0, 0.5)
    assert compute_seconds(times, 4, behind=True) == pytest.approx(16 * 10 + 4 * 1 + 2 + 4 * 0.5)
    rng = np.random.default_rng(1)
    for _ in range(100):
        chunks, times = int(rng.integers(1, 6)), Times(*rng.uniform(0, 3, 4).tolist())
        found = compute_seconds(times, chunks, behind=True)
        assert found <= compute_seconds(times, chunks, behind=False) + 1e-9
        steps = chunks * chunks
        moved = chunks * times.read_a + steps * (times.read_b + times.write_c)
        assert found >= max(moved, steps * times.multiply) - 1e-9


def test_all_that_the_text_says_of_the_figure_is_so():
    found = disk_products.PAPER_FIGURES.claims(8)
    assert len(found) == 6
    for claim in found:
        assert claim.holds, (claim.said, claim.ours)


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"disk_rate": 200_000}, "fully overlapped"),
        ({"disk_rate": 200_000}, "good overall performance"),
        ({"servers": 2000, "client_ns": 0, "message_rate": 1 << 39, "call_ns": 0}, "significant"),
    ],
)
def test_on_other_machines_it_is_not(changes, wrong):
    (claim,) = (
        c
        for c in disk_products.PAPER_FIGURES.claims(8, machine("paragon", **changes))
        if wrong in c.said
    )
    assert not claim.holds


def test_points_are_what_they_are_made_of():
    for one in disk_products.PAPER_FIGURES.points(8):
        chunks = EDGE // one.section
        assert one.in_core == pytest.approx(chunks**2 * one.times.multiply)
        assert one.efficiency == pytest.approx(one.rate / one.in_core_rate)
        # Equation (1): all of B comes again for each section of A, while the processors multiply.
        assert one.needed == pytest.approx(8e-6 * EDGE**2 * chunks / one.in_core)
        assert one.times.read_a == one.times.read_b > one.times.write_c
        alone = 2e-6 * EDGE**3 / one.ranks / disk_products.PROCESSOR
        assert alone < one.in_core < 1.2 * alone


def test_the_figure_as_a_command(capsys):
    assert cli.main(["simulate", "--paper", "dra 8"]) == 0
    said = capsys.readouterr().out
    assert "Disk Resident Arrays, figure 8: " in said
    for claim in disk_products.PAPER_FIGURES.claims(8):
        assert f"theirs: “{claim.said}”\nours:   so; {claim.ours}" in said
    assert "paragon was calibrated on one value" in said
    assert cli.main(["simulate", "--paper", "dra 8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    points = disk_products.PAPER_FIGURES.points(8)
    assert found["points"][0] == {**dataclasses.asdict(points[0]), "rate": points[0].rate}
    assert len(found["points"]) == len(points)
    assert [one["name"] for one in found["machines"]] == ["paragon"]
