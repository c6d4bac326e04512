"""Pictures of collectives: what is drawn is what is planned."""

import random
import re
import xml.etree.ElementTree as xml
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import outcore
from outcore.errors import UsageError
from outcore.model.picture import draw
from outcore.model.picture.array import choose_axes
from outcore.model.picture.geometry import File, make_intervals
from outcore.model.picture.scene import MOST_RANKS, Scene, choose_colour
from outcore.ranks.collective import planning
from outcore.ranks.collective.dry_run import DiskTransfers, dry_run

NAME = "{http://www.w3.org/2000/svg}"
COLD = {"cache": "bypass"}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def square(n=512, **more):
    outcore.create("a.npy", data=np.zeros((n, n)), overwrite=True, **more).close()
    return "a.npy"


def chunked():
    data = np.arange(256 * 256, dtype="i4").reshape(256, 256)
    outcore.create("a.h5::/x", data=data, chunks=(32, 32), compression="gzip").close()
    return "a.h5::/x"


def cube():
    outcore.create("c.npy", data=np.zeros((8, 64, 32))).close()
    return "c.npy"


def line():
    outcore.create("l.npy", data=np.zeros(100_000)).close()
    return "l.npy"


# Array, number of ranks, what each wants, and how many sections differ.
CASES = {
    "columns": (square, 4, lambda r, p: np.s_[:, 128 * r : 128 * r + 128], 4),
    "rows": (square, 4, lambda r, p: np.s_[128 * r : 128 * r + 128], 4),
    "column-major": (lambda: square(order="F"), 4, lambda r, p: np.s_[:, r::p], 4),
    "blocks": (square, 4, lambda r, p: np.s_[256 * (r // 2) :, 256 * (r % 2) :][:2], 4),
    "cyclic": (square, 3, lambda r, p: np.s_[:, r::p], 3),
    "both strided": (square, 16, lambda r, p: np.s_[r::p, r::p], 16),
    "backwards": (square, 2, lambda r, p: np.s_[::-1, r - 2 :: -2], 2),
    "common": (square, 5, lambda r, p: np.s_[:100, :100], 1),
    "overlapping": (square, 16, lambda r, p: np.s_[20 * r : 20 * r + 100, 100:200], 16),
    "some want nothing": (square, 4, lambda r, p: np.s_[:, 0 : 9 * (r % 2)], 1),
    "one element": (square, 2, lambda r, p: np.s_[7, 9 + r], 2),
    "one rank": (square, 1, lambda r, p: np.s_[:, ::7], 1),
    "many ranks": (square, MOST_RANKS, lambda r, p: np.s_[:, 8 * r : 8 * r + 8], MOST_RANKS),
    "chunks": (chunked, 4, lambda r, p: np.s_[:, 64 * r : 64 * r + 80], 4),
    "three axes": (cube, 8, lambda r, p: np.s_[:, 8 * r : 8 * r + 8, ::2], 8),
    "one axis": (line, 4, lambda r, p: np.s_[r::p], 4),
}


def seen(name, ranks=None, **more):
    make, size, key, _ = CASES[name]
    size = ranks or size
    array = outcore.open(make(), more.pop("mode", "r"), hints=COLD)
    return dry_run(array, [key(r, size) for r in range(size)], cold=True, **more)


def of_kind(root, kind):
    return [element for element in root.iter() if element.get("class") == kind]


def total(elements, name="data-bytes"):
    return sum(int(element.get(name)) for element in elements)


@pytest.mark.parametrize("write", [False, True], ids=["read", "write"])
@pytest.mark.parametrize("name", CASES)
def test_what_is_drawn_is_what_is_planned(name, write):
    told = seen(name, write=write, mode="r+" if write else "r")
    root = xml.fromstring(draw(told, name))
    plan, (together, exact) = told.plan, told.count_together()
    assert exact
    assert len(of_kind(root, "section")) == CASES[name][3]
    domains = of_kind(root, "domain")
    assert [int(d.get("data-owner")) for d in domains] == plan.owners()
    assert all(len(domain) for domain in domains), "each domain can be seen"
    assert (together.nbytes, together.requests) == (total(domains), total(domains, "data-requests"))
    alone = of_kind(root, "alone")
    each = sum((told.count_alone(rank) for rank in range(told.ranks)), DiskTransfers())
    assert (each.nbytes, each.requests) == (total(alone), total(alone, "data-requests"))
    assert plan.given_bytes == total(of_kind(root, "row"))
    assert plan.rounds < 8, "else not all are drawn"
    tiles = sum(plan.tiles(owner) for owner in plan.owners())
    assert tiles == len(of_kind(root, "exchange"))
    assert plan.given_bytes == total(of_kind(root, "exchange"))
    assert together.nbytes == total(of_kind(root, "disk"))
    assert len(of_kind(root, "legend")) == told.ranks


@pytest.mark.parametrize("name", CASES)
def test_everything_is_on_the_page(name):
    root = xml.fromstring(draw(seen(name), name))
    wide, high = float(root.get("width")), float(root.get("height"))
    assert high < 2000
    for element in root.iter(NAME + "rect"):
        if element.get("width") != "100%":
            x, y, w, h = (float(element.get(key)) for key in ("x", "y", "width", "height"))
            assert w >= 0 and h >= 0 and x >= 0 and y >= 0
            assert x + w <= wide + 0.2 and y + h <= high + 0.2
    for element in root.iter(NAME + "text"):
        assert 0 <= float(element.get("x")) <= wide and 0 <= float(element.get("y")) <= high
        assert element.text


def test_equal_plans_give_equal_pictures():
    told = seen("both strided")
    assert draw(told, "x") == draw(told, "x")
    assert draw(seen("both strided"), "x") == draw(told, "x")


def test_names_are_text_not_markup():
    data = np.zeros((8, 8))
    outcore.create("a<b>&'c'.npy", data=data).close()
    with outcore.open("a<b>&'c'.npy") as array:
        root = xml.fromstring(draw(dry_run(array, [np.s_[:4], np.s_[4:]]), "<&'\">"))
    assert "a<b>&'c'.npy <&'\">" in root.find(NAME + "title").text


def test_many_rounds_are_left_out_and_said_so(monkeypatch):
    monkeypatch.setattr(planning, "AGREED", replace(planning.AGREED, slot=1 << 14))
    told = seen("columns", method="two-phase")
    root = xml.fromstring(draw(told))
    assert told.plan.rounds > 8
    drawn = {int(e.get("data-round")) for e in of_kind(root, "disk")}
    assert drawn == {0, 1, 2, 3, 4, told.plan.rounds - 1}
    hidden = told.plan.rounds - len(drawn)
    assert f"... {hidden} more ..." in [e.text for e in root.iter(NAME + "text")]
    assert told.count_together()[0].nbytes == total(of_kind(root, "domain"))


def test_a_budget_below_the_least_tile():
    with outcore.memory("512 KiB"):
        told = seen("columns", method="two-phase")
    assert told.report.slot_bytes <= 128 << 10
    assert told.plan.wanted_bytes == total(of_kind(xml.fromstring(draw(told)), "exchange"))


def test_what_cannot_be_drawn():
    told = seen("columns", ranks=MOST_RANKS + 1)
    with pytest.raises(UsageError, match=f"at most {MOST_RANKS} ranks, not {MOST_RANKS + 1}"):
        draw(told)
    with pytest.raises(UsageError, match="nothing to draw"):
        draw(dry_run(told.array, [np.s_[:0], np.s_[:0]]))
    outcore.create("s.npy", data=np.float64(1)).close()
    with pytest.raises(UsageError, match="nothing to draw"):
        draw(dry_run(outcore.open("s.npy"), [()]))


def test_colours_differ():
    assert len({choose_colour(rank) for rank in range(MOST_RANKS)}) == MOST_RANKS


def test_the_two_ways_and_the_reason():
    cyclic, rows = Scene(seen("cyclic"), ""), Scene(seen("rows", method="direct"), "")
    assert cyclic.report.method == "two-phase"
    assert cyclic.alone_all.nbytes > 2.5 * cyclic.together[0].nbytes, "gaps are read by all"
    assert cyclic.verdict().startswith("Two-phase:") and "the gaps between" in cyclic.reason()
    assert rows.exchanged == 0 and rows.verdict().startswith("Direct:")
    common = seen("common", method="two-phase")
    assert "All ranks need the same" in Scene(common, "").reason()
    over = Scene(seen("overlapping", method="two-phase"), "")
    assert re.search("sections of ranks overlap|the gaps between", over.reason())
    chunks = seen("chunks", method="two-phase")
    assert "same chunks" in Scene(chunks, "").reason()


def descriptor(shape, order, grain):
    return [8, 0, len(shape), *order, *shape, *grain, -1]


@pytest.mark.parametrize("seed", range(60))
def test_pieces_of_a_file_are_where_the_elements_are(seed):
    rng = random.Random(seed)
    ndim = rng.randint(1, 3)
    shape = [rng.randint(1, 9) for _ in range(ndim)]
    order = rng.sample(range(ndim), ndim)
    grain = [rng.choice([1, 1, rng.randint(1, 4)]) for _ in range(ndim)]
    section = []
    for n in shape:
        start, step = rng.randrange(n), rng.randint(1, 4)
        section.append((start, rng.randint(1, (n - 1 - start) // step + 1), step))
    file = File(descriptor(shape, order, grain))
    # The chunks that hold an element, in the order of the file; elements, if there are none.
    cells = [-(-n // g) for n, g in zip(shape, grain, strict=True)]
    mark = np.zeros(cells)
    index = [
        np.unique((a + s * np.arange(n)) // g) for (a, n, s), g in zip(section, grain, strict=True)
    ]
    mark[np.ix_(*index)] = 1
    expected = np.repeat(mark.transpose(order).ravel(), int(np.prod(grain)))
    edges = np.arange(file.length + 1.0)
    exact = file.pieces(section, 10_000)
    # Of steps that leap over some chunks but not evenly, all between are drawn.
    even = all(s % g == 0 or s <= g or n == 1 for (_, n, s), g in zip(section, grain, strict=True))
    if even:
        np.testing.assert_allclose(exact.cover(edges), expected)
        runs = int((np.diff(np.concatenate([[0], expected])) > 0).sum())
        assert runs <= file.count(section) <= int(mark.sum())
    for most in (1, 3, 10):
        coarse = file.pieces(section, most)
        assert len(coarse.starts) <= max(most, 1)
        assert coarse.cover(edges).sum() == pytest.approx(exact.cover(edges).sum())
        assert (np.diff(coarse.starts) > 0).all()


def test_bars_keep_the_pattern():
    for merged in (1, 4, 64):
        drawn = [make_intervals((rank, 250, 4), 0, merged) for rank in range(4)]
        ends = sorted(bar for one in drawn for bar in one)
        assert all(a[1] <= b[0] for a, b in pairwise(ends)), "none hides another"
        assert ends[0][0] == 0 and ends[-1][1] <= 1000


def test_the_axes_along_which_ranks_differ_are_drawn():
    sections = [[(0, 4, 1), (0, 9, 1), (r, 5, 2), (4 * r, 4, 1)] for r in range(2)]
    assert choose_axes(sections, [0, 1, 2, 3]) == [2, 3]
    assert choose_axes(sections[:1], [0, 1, 2, 3]) == [0, 2]
    assert choose_axes([[(0, 4, 1)]], [0]) == [0]
