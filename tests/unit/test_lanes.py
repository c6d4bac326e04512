"""Lanes and parts of the tests: which tests are in them."""

import subprocess
import sys
from pathlib import Path

import pytest

import lanes

ROOT = Path(__file__).resolve().parents[2]


def collect(*options):
    """The names of the tests that pytest would run."""
    words = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    # Under mpiexec or xdist this process has other settings than its child is to have.
    done = subprocess.run(
        [*words, *options], cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return [line for line in done.stdout.splitlines() if "::" in line]


def test_every_test_is_in_a_part_and_every_test_that_kills_a_mutant_exists(pytestconfig):
    """An entry that names a variant names one that pytest has."""
    everything = lanes.collected(pytestconfig) or collect()
    parts = [lanes.choose_part(everything, str, k, 8) for k in range(1, 9)]
    assert sorted(everything) == sorted(name for part in parts for name in part)
    assert min(map(len, parts)) > 0.1 * len(everything)
    functions = {lanes.function_of(name) for name in everything}
    missing = lanes.killers() - functions - set(everything)
    # pytest takes these away where there is no mpiexec.
    assert {name for name in missing if not is_for_mpiexec(name)} == set()
    assert {name for name in lanes.killers() if "_slow" in name} == set()


def is_for_mpiexec(name):
    file, _, function = lanes.function_of(name).partition("::")
    return f"@pytest.mark.real_mpi\ndef {function}(" in (ROOT / file).read_text()


def test_pytest_runs_the_fast_lane_and_a_part():
    path = "tests/mutants/test_mutants.py"
    name = "test_an_entry_that_does_not_fit_is_named["
    everything, part = collect(path), collect(path, "--part", "2/3")
    assert len([one for one in everything if name in one]) > 1
    assert len([one for one in collect(path, "--lane", "fast") if name in one]) == 1
    assert part and part == lanes.choose_part(everything, lambda name: f"{name} ", 2, 3)


def test_the_fast_lane_has_one_variant_of_each_test_and_two_ranks():
    ranks = {"a[1]": 1, "a[2]": 2, "a[5]": 5, "b[3]": 3}
    names = ["a[1]", "a[2]", "a[5]", "b[3]", "c[x]", "c[y]", "d_slow", "e[x_slow]", "e[y]"]
    names += ["tests/docs/test_a.py::test[x]", "tests/docs/test_a.py::test[y]"]
    ranks |= {f"kills{n}[{k}]": k for n in ("", "_one") for k in (1, 2, 3)}
    names += ["kills[1]", "kills[2]", "kills[2by1]", "kills_one[1]", "kills_one[2]", "kills_one[3]"]
    chosen = frozenset({"kills", "kills_one[3]"})

    def choose(**more):
        return lanes.choose_fast(names, str, lambda name: ranks.get(name, 0), chosen, **more)

    expected = ["a[2]", "b[3]", "c[x]", "e[y]"]
    expected += ["tests/docs/test_a.py::test[x]", "tests/docs/test_a.py::test[y]"]
    expected += ["kills[2]", "kills_one[2]"]
    assert choose(keep_variants=lambda name: False) == expected
    assert choose() == [*expected[:-1], "kills[2by1]", *expected[-1:], "kills_one[3]"]


@pytest.mark.parametrize("text", ["", "1", "0/3", "4/3", "1/0", "a/b", "1/2/3", "-1/2", " 1/2"])
def test_parts_that_do_not_exist_are_refused(text):
    with pytest.raises(ValueError, match="give K/N"):
        lanes.read_part(text)


def test_the_fast_lane_limits_the_examples_of_properties(tmp_path):
    """In this process nothing else changes: the settings belong to one function."""
    import hypothesis
    from hypothesis import strategies as st

    seen = []

    @hypothesis.settings(max_examples=60, database=None)
    @hypothesis.given(st.integers())
    def prop(n):
        seen.append(n)

    lanes._limit_examples(prop)
    prop()
    assert 0 < len(seen) <= lanes.FAST_EXAMPLES
