"""`outcore.model.assign` on the paper's example, against SciPy's solvers, and what it refuses."""

import itertools

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import outcore

# Table 1 of Memik, Kandemir and Choudhary (FAST 2002), in tenths of megabytes.
TABLE_1 = np.array(
    [
        [100, 128, 128, 44, 0, 0, 0, 0],
        [100, 128, 128, 44, 0, 0, 0, 0],
        [25, 32, 32, 11, 75, 96, 96, 33],
        [0, 0, 0, 0, 100, 128, 128, 44],
    ]
)
# The coefficients of constraint c13 in its appendix A. They are table 1 rounded, not always to the
# nearest (12.8 to 12, 1.1 to 2).
APPENDIX = np.array(
    [
        [10, 12, 12, 5, 0, 0, 0, 0],
        [10, 12, 12, 5, 0, 0, 0, 0],
        [2, 3, 3, 2, 7, 9, 9, 3],
        [0, 0, 0, 0, 10, 12, 12, 5],
    ]
)
METHODS = ["balanced", "greedy", "matching", "exact"]


def matrices(ranks=6, files=8, most=2000):
    shapes = st.tuples(st.integers(1, ranks), st.integers(1, files))
    numbers = st.one_of(st.just(0), st.integers(0, 9), st.integers(0, most))
    return hnp.arrays(np.int64, shapes, elements=numbers)


def single(answer):
    """The only owner of each file."""
    return [owner for (owner,) in answer.owner]


def traffic(requests, owner):
    return int(requests.sum() - requests[owner, range(len(owner))].sum())


def check(requests, answer):
    """What holds for every answer: all bytes are read once, and the sums are what they say."""
    p, n = requests.shape
    read = np.zeros((p, n), np.int64)
    for file, shares in enumerate(answer.shares):
        assert answer.owner[file] == tuple(rank for rank, _ in shares)
        assert len(shares) >= 1
        for rank, count in shares:
            read[rank, file] += count
    assert read.sum(0).tolist() == requests.sum(0).tolist()
    assert answer.load == tuple(read.sum(1))
    assert answer.comm == tuple(np.abs(requests - read).sum(1))
    assert answer.traffic == np.maximum(requests - read, 0).sum()
    assert answer.cost == (read.sum(1) + np.abs(requests - read).sum(1)).max()


# ------------------------------------------------------------------------------------ the paper


def test_greedy_gives_figure_6():
    """
    "File 1 and file 4 are assigned to processor 2, file 2 and file 3 to processor 1, file 5 and
    file 8 to processor 3, and file 6 and file 7 to processor 4."

    Processors 1 and 2 want the same, so this follows from the order of equal requests alone. In the
    paper's list (table 2) equals stand by processor, then by file; ours do, and the figure comes out.
    """
    answer = outcore.model.assign(TABLE_1, "greedy")
    assert single(answer) == [1, 0, 0, 1, 2, 3, 3, 2]
    assert answer.load == (576, 324, 252, 448)
    check(TABLE_1, answer)
    assert single(outcore.model.assign(APPENDIX, "greedy")) == [1, 0, 0, 1, 2, 3, 3, 2]


def test_figure_7_is_one_of_several_optima():
    """
    The appendix's solution (which is figure 7) gives files 1 and 2 to processor 2, 3 and 4 to
    processor 1. Its traffic is that of figure 6; ours need not be the same optimum.
    """
    figure_7 = [1, 1, 0, 0, 2, 3, 3, 2]
    assert traffic(APPENDIX, figure_7) == 82
    assert traffic(APPENDIX, [1, 0, 0, 1, 2, 3, 3, 2]) == 82
    assert outcore.model.assign(APPENDIX, "matching").traffic == 82


@pytest.mark.parametrize("method", ["greedy", "matching", "exact"])
def test_the_optimum_of_the_appendix_is_82(method):
    answer = outcore.model.assign(APPENDIX, method)
    assert APPENDIX.sum() == 155  # the right side of c13
    assert answer.traffic == 82
    assert traffic(APPENDIX, single(answer)) == 82
    assert sorted(single(answer)) == [0, 0, 1, 1, 2, 2, 3, 3]
    check(APPENDIX, answer)


@pytest.mark.parametrize("binary", ["as printed", "as meant"])
def test_the_program_of_the_appendix_as_printed(binary):
    """
    Its list of binary variables ends in x1_8 where x4_8 is meant, so that x4_8 may be any fraction.
    The optimum is 82 all the same: the constraints are totally unimodular.
    """
    optimize = pytest.importorskip("scipy.optimize")
    p, n = APPENDIX.shape
    whole = np.ones((p, n))
    whole[3, 7] = binary == "as meant"
    files = np.tile(np.eye(n), p)
    ranks = np.repeat(np.eye(p), n, axis=1)
    rules = [
        optimize.LinearConstraint(files, 1, 1),
        optimize.LinearConstraint(ranks, n // p, n // p),
    ]
    found = optimize.milp(-APPENDIX.ravel(), constraints=rules, integrality=whole.ravel())
    assert APPENDIX.sum() + round(found.fun) == 82


def test_balanced_beats_the_paper_where_sizes_differ():
    paper, ours = outcore.model.assign(TABLE_1, "matching"), outcore.model.assign(TABLE_1)
    check(TABLE_1, ours)
    assert ours.method == "balanced"
    assert max(ours.load) == 448 < max(paper.load)
    exact = outcore.model.assign(TABLE_1, "exact", max_load=448)
    assert ours.traffic == exact.traffic
    with pytest.raises(outcore.errors.UsageError, match="assignment-impossible"):
        outcore.model.assign(TABLE_1, "exact", max_load=447)


# ------------------------------------------------------------------------------- other solvers


@given(matrices())
def test_matching_is_scipys(requests):
    optimize = pytest.importorskip("scipy.optimize")
    p, n = requests.shape
    answer = outcore.model.assign(requests, "matching")
    check(requests, answer)
    if p <= n and n % p == 0:
        # The paper's way: every rank as often as it gets files.
        weights = np.repeat(requests, n // p, axis=0)
    elif p > n:
        # Every file as often as it gets readers, by the bytes of their shares.
        copies = [(file, count) for file, shares in enumerate(answer.shares) for _, count in shares]
        weights = np.array([np.minimum(requests[:, file], count) for file, count in copies]).T
    else:
        return
    rows, columns = optimize.linear_sum_assignment(weights, maximize=True)
    assert requests.sum() - weights[rows, columns].sum() == answer.traffic


def program(requests, rules):
    """Least traffic of whole files under rules on the files of ranks, by SciPy; None: none is."""
    optimize = pytest.importorskip("scipy.optimize")
    p, n = requests.shape
    rules = [optimize.LinearConstraint(np.tile(np.eye(n), p), 1, 1), *rules(optimize)]
    bounds = optimize.Bounds(0, 1)
    found = optimize.milp(
        -requests.ravel(), constraints=rules, integrality=np.ones(p * n), bounds=bounds
    )
    return None if found.x is None else int(requests.sum()) + round(found.fun)


@given(matrices())
def test_exact_is_scipys_program(requests):
    p, n = requests.shape
    if p > n:
        return
    ranks = np.repeat(np.eye(p), n, axis=1)
    least = program(requests, lambda o: [o.LinearConstraint(ranks, n // p, -(-n // p))])
    assert least == outcore.model.assign(requests, "exact").traffic


@given(matrices(4, 6, 50), st.integers(20, 40))
def test_exact_under_a_bound_is_scipys_program(requests, tenths):
    p, n = requests.shape
    if p > n:
        return
    loads = np.kron(np.eye(p), requests.sum(0))
    most = int(requests.sum()) * tenths // (10 * p)
    least = program(requests, lambda o: [o.LinearConstraint(loads, 0, most)])
    if least is None:
        with pytest.raises(outcore.errors.UsageError, match="assignment-impossible"):
            outcore.model.assign(requests, "exact", max_load=most)
        return
    found = outcore.model.assign(requests, "exact", max_load=most).traffic
    assert least == found


@given(matrices(3, 5), st.integers(0, 5), st.integers(0, 5))
def test_exact_cost_is_the_least_of_all(requests, alpha, beta):
    p, n = requests.shape
    if p > n:
        return

    def cost(owner):
        read = np.zeros_like(requests)
        read[owner, range(n)] = requests.sum(0)
        return (alpha * read.sum(1) + beta * np.abs(requests - read).sum(1)).max()

    found = outcore.model.assign(requests, "exact", objective="cost", alpha=alpha, beta=beta)
    least = min(cost(list(owner)) for owner in itertools.product(range(p), repeat=n))
    assert found.cost == least == cost(single(found))


@given(matrices(9, 9))
def test_every_method_reads_every_byte_once(requests):
    for method in METHODS[:3]:
        check(requests, outcore.model.assign(requests, method))


@given(matrices(9, 9))
def test_balanced_never_reads_more_than_the_matching(requests):
    ours, paper = outcore.model.assign(requests), outcore.model.assign(requests, "matching")
    fair = -(-int(requests.sum()) // len(requests))
    assert max(ours.load) <= max(paper.load) + fair // 16


# ---------------------------------------------------------------------------------- arguments


def test_more_ranks_than_files():
    """F_j by bytes: 300 of 400 bytes are file 0, so six of eight ranks read it."""
    requests = np.tile([[75, 25]], (8, 1))
    for method in METHODS:
        answer = outcore.model.assign(requests, method)
        check(requests, answer)
        assert [len(ranks) for ranks in answer.owner] == [6, 2]
        assert answer.load == (100,) * 8


def test_a_large_file_is_cut():
    requests = np.diag([1000, 10, 10, 10])
    answer = outcore.model.assign(requests)
    assert len(answer.owner[0]) == 4
    assert max(answer.load) <= 258 + 258 // 16
    assert "1 larger file is cut" in answer.why
    assert "0*" in str(answer)
    assert max(outcore.model.assign(requests, "matching").load) == 1000


def test_arrays_of_one_file_have_one_owner():
    """Six variables in each of four files: each file is read by one rank, in order."""
    rng = np.random.default_rng(7)
    requests = rng.integers(100, 120, (4, 24))
    groups = np.repeat(np.arange(4), 6)
    owner = np.array(single(outcore.model.assign(requests, "matching", groups=groups)))
    assert (owner.reshape(4, 6) == owner[::6, None]).all()
    assert sorted(owner[::6]) == [0, 1, 2, 3]
    # One file, as in astro3d: more than a fair share, so its variables are assigned.
    owner = single(outcore.model.assign(requests, groups=np.zeros(24, int)))
    assert set(owner) == {0, 1, 2, 3}


def test_sizes_of_requests_that_overlap():
    """Two ranks want all of file 0: 100 bytes are read, 100 sent."""
    requests = np.array([[100, 0, 50], [100, 50, 0]])
    answer = outcore.model.assign(requests, "matching", sizes=[100, 50, 50])
    assert sum(answer.load) == 200
    assert answer.traffic == 100
    assert sum(answer.comm) == 200


def test_only_eligible_ranks_read():
    eligible = np.zeros((4, 8), bool)
    eligible[[0, 2]] = True
    for method in METHODS:
        answer = outcore.model.assign(TABLE_1, method, eligible=eligible)
        check(TABLE_1, answer)
        assert answer.load[1] == answer.load[3] == 0
    with pytest.raises(outcore.errors.UsageError, match="no rank is eligible to read file 0"):
        outcore.model.assign(TABLE_1, eligible=np.zeros((4, 8), bool))


def test_prices():
    """With dear communication the exact cost keeps files where they are wanted."""
    requests = np.array([[90, 90, 90], [10, 0, 0]])
    cheap = outcore.model.assign(requests, "exact", objective="cost", alpha=10, beta=1)
    dear = outcore.model.assign(requests, "exact", objective="cost", alpha=0, beta=1)
    assert max(cheap.load) < max(dear.load)
    assert single(dear) == [0, 0, 0]
    assert dear.cost == 10


def test_the_answer_is_a_value():
    one, two = (outcore.model.assign(APPENDIX.tolist()) for _ in range(2))
    assert one == two
    assert hash(one) == hash(two)
    with pytest.raises(AttributeError):
        one.traffic = 0
    assert outcore.model.assign(np.asfortranarray(APPENDIX), "greedy") == outcore.model.assign(
        APPENDIX.astype("f4"), "greedy"
    )


@pytest.mark.parametrize(
    ("requests", "words", "code", "says"),
    [
        ([1, 2], {}, "bad-requests", "a row for each rank"),
        ([[]] * 0, {}, "bad-requests", "a row for each rank"),
        ([[1.5]], {}, "bad-requests", "whole numbers"),
        ([[np.nan]], {}, "bad-requests", "whole numbers"),
        ([["a"]], {}, "bad-requests", "whole numbers"),
        ([[2**63]], {}, "bad-requests", "whole numbers"),
        ([[1], [2, 3]], {}, "bad-requests", "whole numbers"),
        ([[1, -1]], {}, "bad-requests", "requests -1 bytes of file 1"),
        ([[1]], {"method": "best"}, "bad-requests", '"matching"'),
        ([[1]], {"method": "exact", "objective": "time"}, "bad-requests", '"cost"'),
        ([[1]], {"objective": "cost"}, "bad-requests", 'method="exact"'),
        ([[1]], {"method": "exact", "objective": "cost", "max_load": 1}, "bad-requests", "omit"),
        ([[1]], {"alpha": -1}, "bad-requests", "alpha=-1"),
        ([[1]], {"beta": 0.5}, "bad-requests", "beta=0.5"),
        ([[1]], {"sizes": [0]}, "bad-requests", "0 bytes to be read"),
        ([[1]], {"sizes": [1, 2]}, "bad-requests", "2 sizes for 1 files"),
        ([[1]], {"groups": [[1]]}, "bad-requests", "one number for each file"),
        ([[1]], {"groups": [1, 1]}, "bad-requests", "2 groups for 1 files"),
        ([[1]], {"eligible": [[1]]}, "bad-requests", "booleans"),
        ([[1]], {"eligible": [[True, True]]}, "bad-requests", "equal shapes"),
        (np.ones((33, 33), int), {"method": "exact"}, "assignment-too-large", '"matching"'),
    ],
)
def test_assign_refuses_invalid_requests(requests, words, code, says):
    with pytest.raises(outcore.errors.UsageError) as caught:
        outcore.model.assign(requests, **words)
    assert caught.value.code == code
    assert says in str(caught.value)


def test_bytes_beyond_63_bits():
    with pytest.raises(outcore.errors.SectionError, match="too-large"):
        outcore.model.assign([[2**62, 2**62]])
    with pytest.raises(outcore.errors.SectionError, match="too-large"):
        outcore.model.assign([[2**40]], alpha=2**40)


def test_nothing_to_assign():
    for method in METHODS:
        assert outcore.model.assign(np.zeros((3, 0), int), method).owner == ()
        empty = outcore.model.assign(np.zeros((3, 2), int), method)
        assert [len(ranks) for ranks in empty.owner] == [1, 1]
        assert (empty.traffic, empty.cost) == (0, 0)
