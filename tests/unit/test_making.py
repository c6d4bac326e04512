"""Arrays made like others, opened or made, with chunks by price; and what they say of themselves."""

import math
import os
import re
import threading
import warnings
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import h5py
import numpy as np
import pytest
import zarr

import outcore
from outcore.arrays import layouts
from outcore.arrays.likeness import adapt_options, get_options
from outcore.formats import registry

FULL = {
    "chunks": (10, 20),
    "shards": (50, 40),
    "compression": ["zstd:3", "crc32c"],
    "fill_value": 7,
    "dims": ("y", "x"),
    "attrs": {"units": "K", "n": 3},
}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def told(a):
    return (
        a.shape,
        a.dtype,
        a.order,
        a.chunks,
        a.shards,
        a.codecs,
        a.fill_value,
        a.dims,
        dict(a.attrs),
    )


def full(path="full.zarr"):
    return outcore.create(path, (100, 80), "f4", **FULL)


# ------------------------------------------------------------------------------------- like


def test_an_array_is_made_like_another_one():
    with full() as a:
        a[...] = 1.0
        with outcore.create("same.zarr", like=a) as b:
            assert told(a) == told(b)
            assert (b[...] == 7).all()  # no elements
    z, made = zarr.open_array("full.zarr"), zarr.open_array("same.zarr")
    assert (z.chunks, z.shards, z.attrs.asdict()) == (made.chunks, made.shards, made.attrs.asdict())
    assert z.metadata.to_dict()["codecs"] == made.metadata.to_dict()["codecs"]


def test_like_an_array_of_zarr():
    z = zarr.create_array(
        "z.zarr", shape=(60, 40), chunks=(10, 10), shards=(30, 20), dtype="i2", fill_value=-3,
        dimension_names=["t", "u"], attributes={"who": "zarr"},
    )  # fmt: skip
    with outcore.create("b.zarr", like=z) as b:
        assert (b.shape, b.dtype, b.chunks, b.shards) == ((60, 40), np.int16, (10, 10), (30, 20))
        assert (b.fill_value, b.dims, dict(b.attrs)) == (-3, ("t", "u"), {"who": "zarr"})
    again = zarr.open_array("b.zarr")
    assert z.metadata.to_dict()["codecs"] == again.metadata.to_dict()["codecs"]
    memory = zarr.create_array(zarr.storage.MemoryStore(), shape=(6, 4), dtype="f8", chunks=(3, 2))
    with outcore.create("c.zarr", like=memory) as c:  # nothing of ours reads that: shape and dtype
        assert (c.shape, c.dtype) == ((6, 4), np.float64)


def test_like_a_dataset_that_h5py_is_writing():
    with h5py.File("h.h5", "w") as file:
        s = file.create_dataset(
            "s", (30, 40), "i4", chunks=(10, 10), maxshape=(None, 40), compression="gzip",
            shuffle=True, fillvalue=5,
        )  # fmt: skip
        s.attrs["units"] = "m"
        s.dims[0].label = "t"
        with outcore.create("k.h5::/s", like=s) as k, outcore.create("k.zarr", like=s) as z:
            for one in (k, z):
                assert (one.shape, one.dtype, one.chunks) == ((30, 40), np.int32, (10, 10))
                assert (one.fill_value, one.dims, dict(one.attrs)) == (
                    5,
                    ("t", None),
                    {"units": "m"},
                )
            assert k.maxshape == (None, 40)
    with h5py.File("k.h5") as file:
        s = file["s"]
        assert (s.chunks, s.maxshape, s.compression, s.shuffle) == (
            (10, 10),
            (None, 40),
            "gzip",
            True,
        )
        assert (s.fillvalue, s.attrs["units"], s.dims[0].label) == (5, "m", "t")


@pytest.mark.parametrize("order", "CF")
def test_like_an_array_of_numpy(order):
    x = np.zeros((3, 4), "i2", order=order)
    with outcore.create("x.npy", like=x) as a:
        assert (a.shape, a.dtype, a.order) == (x.shape, x.dtype, order)
    assert np.load("x.npy").flags.fnc == np.empty_like(x).flags.fnc


def test_what_is_said_goes_before():
    with full() as a:
        with outcore.create("e.zarr", like=a, dtype="i2", chunks=20, fill_value=-1, attrs={}) as e:
            assert (e.shape, e.dtype, e.chunks, e.shards) == ((100, 80), np.int16, (20, 20), None)
            assert (e.fill_value, e.dims, dict(e.attrs), e.codecs) == (-1, ("y", "x"), {}, a.codecs)
        with outcore.create("s.zarr", like=a, shape=(30, 80)) as s:
            assert (s.shape, s.chunks, s.shards, s.dims) == ((30, 80), (10, 20), None, ("y", "x"))
        with outcore.create("t.zarr", like=a, shape=5, compression=()) as t:
            assert (t.shape, t.dims, t.codecs, t.dtype) == ((5,), None, (), np.float32)
        with outcore.create("d.zarr", data=np.arange(6), like=a) as d:
            assert d[:].tolist() == [0, 1, 2, 3, 4, 5] and d.attrs["units"] == "K"


def test_codecs_fit_elements_of_another_size():
    words = {"chunks": 16, "compression": ["shuffle", "zstd"]}
    with (
        outcore.create("a.zarr", (64,), "f8", **words) as a,
        outcore.create("b.zarr", like=a, dtype="i2") as b,
    ):
        b[:] = np.arange(64)
    assert zarr.open_array("b.zarr")[:].tolist() == list(range(64))


def test_what_the_format_cannot_keep_is_left_out_and_told():
    with full() as a:
        with pytest.warns(
            UserWarning, match="npy cannot keep fill_value, dims, attrs of 'full.zarr'"
        ):
            outcore.create("x.npy", like=a).close()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with outcore.create("x.h5", like=a) as h:  # shards and crc32c are a matter of layout
                assert (h.chunks, h.shards, h.dims) == ((10, 20), None, ("y", "x"))
                assert h.fill_value == 7 and h.attrs["units"] == "K"
    assert np.load("x.npy").shape == (100, 80)


def test_without_a_suffix_the_format_is_kept():
    with full() as a, outcore.create("plain", like=a) as b:
        assert b.format == "zarr"


def test_like_is_an_array():
    for nothing in (3, "full.zarr", object()):
        with pytest.raises(outcore.errors.UsageError) as caught:
            outcore.create("x.npy", like=nothing)
        assert caught.value.code == "bad-like"


def test_words_of_one_length_do_not_fit_another():
    words = get_options(full())
    assert "dims" not in adapt_options(words, {"shape": (3,), "dtype": "f4"})
    assert adapt_options(words, {"shape": (100, 80), "dtype": "f4"})["shards"] == (50, 40)


# ------------------------------------------------------------------------------------- mode "a"


@pytest.mark.parametrize("path", ["x.npy", "x.zarr", "x.h5", "x.h5::/deep/x", "x.nc::/v", "x.raw"])
def test_it_opens_or_makes(path):
    call = {"shape": (4, 3), "dtype": "i4"}
    for round in range(3):
        with outcore.open(path, "a", **call) as a:
            assert a.mode == "r+" and a.shape == (4, 3)
            assert a[:, 0].tolist() == [*range(1, round + 1), *[0] * (4 - round)]
            a[round] = round + 1


def test_beside_others_in_a_file():
    with h5py.File("x.h5", "w") as file:
        file["one"] = np.arange(3)
    zarr.create_array("g.zarr/one", shape=(3,), dtype="i8")
    zarr.open_group("g.zarr", mode="a")
    for outer in ("x.h5", "g.zarr"):
        outcore.open(f"{outer}::/two", "a", shape=2, dtype="i1").close()
        assert sorted(e.path for e in outcore.ls(outer) if e.kind == "array") == [
            f"{outer}::/one",
            f"{outer}::/two",
        ]
    with h5py.File("x.h5") as file:
        assert file["one"][:].tolist() == [0, 1, 2] and file["two"].shape == (2,)


def test_other_arrays_are_refused_and_stay():
    np.save("x.npy", np.arange(6).reshape(2, 3))
    for words in ({"shape": (3, 2), "dtype": "i8"}, {"shape": (2, 3), "dtype": "f8"}, {"data": [1, 2]},
                  {"like": np.zeros(5)}):  # fmt: skip
        with pytest.raises(outcore.errors.UsageError) as caught:
            outcore.open("x.npy", "a", **words)
        assert caught.value.code == "other-array"
    outcore.open(
        "x.npy", "a", shape=(2, 3), dtype=">i8"
    ).close()  # as h5py: another byte order will do
    assert np.load("x.npy").tolist() == [[0, 1, 2], [3, 4, 5]]


def test_who_is_not_told_how_makes_nothing(tmp_path):
    for words in ({}, {"shape": 3}, {"dtype": "f4"}):
        with pytest.raises(outcore.errors.NotFoundError, match="pass shape= and dtype="):
            outcore.open("x.npy", "a", **words)
    assert list(tmp_path.iterdir()) == []


def test_damaged_files_are_not_replaced():
    with open("x.npy", "wb") as file:
        file.write(b"\x93NUMPY and nothing else")
    with pytest.raises(outcore.errors.FormatError):
        outcore.open("x.npy", "a", shape=3, dtype="f4")
    with open("x.npy", "rb") as file:
        assert file.read().endswith(b"nothing else")


def test_one_of_many_makes_it():
    """All that come at once get the same array, and nobody's elements are lost."""
    for attempt in range(5):
        path, start, failures = f"x{attempt}.zarr", threading.Barrier(6), []

        def work(n, path=path, start=start, failures=failures):
            try:
                start.wait()
                with outcore.open(path, "a", shape=(6, 4), dtype="i4", chunks=(1, 4)) as a:
                    a[n] = n + 1
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert failures == []
        assert zarr.open_array(path)[:, 0].tolist() == [1, 2, 3, 4, 5, 6]


# ------------------------------------------------------------------------------------- chunks="auto"


def auto(path, shape, typical_sections=None, **words):
    with outcore.create(
        path, shape, "f4", chunks="auto", typical_sections=typical_sections, **words, overwrite=True
    ) as a:
        return a.chunks, a.layout


def test_chunks_are_those_of_typical_sections():
    chunks, layout = auto("a.zarr", (4000, 6000), (500, 500))
    assert chunks == (500, 500) == layout.chunks and layout.typical_sections == (((500, 500), 1),)
    rows, _ = auto("b.zarr", (4000, 6000), (1, None))
    columns, _ = auto("c.zarr", (4000, 6000), {(1, None): 1, (None, 1): 50})
    assert rows[1] == 6000 and columns[0] == 4000
    turned, layout = auto("d.zarr", (6000, 4000), {(None, 1): 1, (1, None): 50}, order="F")
    assert turned == columns[::-1] and layout.order == "F"


def test_it_is_the_rule_of_disk_resident_arrays():
    with outcore.create(
        "a.h5", (4000, 6000), "f4", chunks="auto", typical_sections=(128, 256)
    ) as a:
        mine = a.layout
    with outcore.mpi.disk_array("b.h5", (4000, 6000), "f4", typical_sections=(128, 256)) as b:
        assert b.layout.chunks == mine.chunks
        assert [one.chunks for one in b.layout.candidates] == [
            one.chunks for one in mine.candidates
        ]
    assert "times as much" in mine.why and "128x256" in str(mine)


@pytest.mark.parametrize(
    "format", [one.name for one in registry.OWN if one.name not in ("parts", "zarrzip")]
)
def test_a_disk_array_without_a_suffix_gets_one_of_its_format(format):
    with outcore.mpi.disk_array("q", (4, 6), "f8", format=format) as a:
        file = a.path.split("::")[0]
    assert os.path.splitext(file)[1] in (registry.find_by_name(format).suffixes or (".nc",))
    contents = {"shape": (4, 6), "dtype": "f8"} if format == "raw" else {}
    with outcore.open(a.path, **contents) as again:
        assert (again.format, again.shape) == (format, (4, 6))


def test_formats_without_chunks_and_arrays_without_elements():
    assert auto("a.npy", (400, 600))[0] is None
    assert auto("a.raw", (400, 600))[0] is None
    assert "no chunks" in auto("a.npy", (400, 600))[1].why
    assert auto("e.h5", (0, 5))[0] is None
    assert auto("v.h5", (1000,))[0] is None  # a vector that is read as a whole lies as it is


def test_what_needs_chunks_gets_them():
    for words in ({"compression": "gzip"}, {"resizable": True}, {"maxshape": (None, 600)}):
        chunks, _ = auto("a.h5", (400, 600), **words)
        assert chunks is not None
        with h5py.File("a.h5") as file:
            assert file["data"].chunks == chunks
    chunks, layout = auto("b.zarr", (4000, 6000), compression="zstd")
    assert 0.25 < chunks[0] / chunks[1] < 4 and "codec" in layout.why


def test_words_that_do_not_go_together():
    for words, code in (
        ({"chunks": "auto", "shards": (50, 50)}, "bad-chunks"),
        ({"chunks": (5, 5), "typical_sections": (5, 5)}, "bad-typical"),
        ({"chunks": "auto", "typical_sections": (5, 5, 5)}, "bad-typical"),
        ({"chunks": "some"}, "bad-chunks"),
    ):
        with pytest.raises(outcore.errors.UsageError) as caught:
            outcore.create("x.zarr", (100, 100), "f4", **words)
        assert caught.value.code == code
    np.save("a.npy", np.zeros((4, 4)))
    for words, code in (
        ({"chunks": "some"}, "bad-chunks"),
        ({"typical_sections": (2, 2)}, "bad-typical"),
    ):
        with pytest.raises(outcore.errors.UsageError) as caught:
            outcore.convert("a.npy", "x.zarr", **words)
        assert caught.value.code == code


def test_conversions_choose_and_explain():
    data = np.arange(600.0 * 500).reshape(600, 500)
    np.save("a.npy", data)
    planned = outcore.convert(
        "a.npy", "b.zarr", chunks="auto", typical_sections=(100, 100), explain=True
    )
    assert "typical section 100x100" in str(planned.report)
    planned.run()
    z = zarr.open_array("b.zarr")
    assert z.chunks == (100, 100) and np.array_equal(data, z[...])


class Stopped(Exception):
    pass


def test_an_interrupted_choice_stays(monkeypatch):
    """The disk is known better by now, and another layout would be chosen: the one begun goes on."""
    data = np.arange(800.0 * 700).reshape(800, 700)
    np.save("a.npy", data)

    def stop(done, total):
        if done > total // 3:
            raise Stopped

    with pytest.raises(Stopped):
        outcore.convert(
            "a.npy",
            "b.zarr",
            chunks="auto",
            typical_sections=(100, 70),
            memory="1 MiB",
            progress=stop,
        )
    plain = layouts.choose_automatic
    monkeypatch.setattr(
        layouts, "choose_automatic", lambda p, s, d, o, t=None: plain(p, s, d, o, (200, 350))
    )
    outcore.convert(
        "a.npy", "b.zarr", chunks="auto", typical_sections=(100, 70), memory="1 MiB", resume=True
    )
    z = zarr.open_array("b.zarr")
    assert z.chunks == (100, 70) and np.array_equal(data, z[...])


# ------------------------------------------------------------------------------------- what they say


def test_shards_are_those_of_zarr():
    with full() as a:
        z = zarr.open_array("full.zarr")
        assert (a.chunks, a.shards) == (z.chunks, z.shards) == ((10, 20), (50, 40))
    with outcore.create("b.zarr", (4,), "f4", chunks=2) as b:
        assert b.shards is None is zarr.open_array("b.zarr").shards


@pytest.mark.parametrize(
    "words", [{}, {"chunks": 2}, {"chunks": 2, "maxshape": (9, None)}, {"resizable": True}]
)
def test_limits_are_those_of_h5py(words):
    with outcore.create("a.h5", (3, 4), "f4", **words) as a:
        limits = a.maxshape
    with h5py.File("a.h5") as file:
        assert file["data"].maxshape == limits


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("a.npy", {}),
        ("f.npy", {"order": "F"}),
        ("a.raw", {}),
        ("a.zarr", {}),
        ("a.parts", {"folders": ["."]}),
        ("a.h5", {"chunks": 2, "maxshape": (9, None)}),
        ("b.h5", {}),
        ("a.nc::/v", {"dims": ("t", "y"), "unlimited": "t"}),
    ],
)
def test_limits_are_what_resize_allows(path, words):
    with outcore.create(path, (4, 5), "f4", **words) as a:
        for axis, limit in enumerate(a.maxshape):
            longer = list(a.shape)
            longer[axis] += 3
            if limit is None or limit >= longer[axis]:
                a.resize(longer)
                assert a.shape == tuple(longer) and a.maxshape[axis] == limit
            else:
                with pytest.raises(outcore.errors.UnsupportedError):
                    a.resize(longer)


class Cells(HTMLParser):
    def __init__(self):
        super().__init__()
        self.cells, self.tags = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.cells.append(data)


def test_a_notebook_shows_a_table_and_reads_nothing():
    path = "a<script>&.zarr"
    with outcore.create(path, (100, 80), "f4", **{**FULL, "dims": ("<b>", None)}) as a:
        shown = Cells()
        shown.feed(a._repr_html_())
        rows = dict(zip(shown.cells[::2], shown.cells[1::2], strict=True))
        assert set(shown.tags) == {"table", "tr", "th", "td"}
        assert rows["path"] == path and rows["dims"] == "<b>, -"
        assert (
            rows["shape"] == "100 x 80"
            and rows["bytes"] == "32.00 kB"
            and rows["dtype"] == "float32"
        )
        assert rows["chunks"] == "10 x 20: 40 chunks of 800 B" and rows["shards"] == "50 x 40"
        assert rows["codecs"] == "zstd, crc32c" and rows["fill value"] == "7.0"
        assert a.stats()["reads"] == a.stats()["read_bytes"] == 0
    assert "closed" in a._repr_html_()


def test_groups_reports_and_plans_have_one_line_and_a_picture():
    with outcore.open_group("<g>.zarr", "w") as group:
        group.create("u&v", (40, 60), "f4", chunks=(10, 10)).close()
        shown = Cells()
        shown.feed(group._repr_html_())
        rows = dict(zip(shown.cells[::2], shown.cells[1::2], strict=True))
        assert rows == {"path": "<g>.zarr", "format": "zarr", "members": "u&v", "mode": "w"}
        assert "u&amp;v" in group.tree()._repr_html_()
        with group["u&v"] as a:
            plans = [a.explain(np.s_[:, 3]), a.blocks().report]
        planned = outcore.transpose("<g>.zarr::/u&v", explain=True)
        before, report = repr(planned), repr(planned.report)
        assert before.startswith("<Planned: transpose in ") and report[1:].startswith(
            "ComputeReport"
        )
        for one in (*plans, planned, planned.report, group):
            assert "\n" not in repr(one) and len(repr(one)) < 110
            assert repr(one).startswith(f"<{type(one).__name__}")
        for one in (*plans, planned, planned.report):
            assert "<svg" in one._repr_html_() and "class='bar'" in one._repr_html_()
        assert str(planned) == str(planned.report) != before
    assert "closed" in group._repr_html_()


# ------------------------------------------------------------------------------------- reports and stats


def drawn(report):
    picture = report.svg()
    assert picture == report.svg()
    root = ElementTree.fromstring(picture)
    bars = [one for one in root.iter() if one.get("class") == "bar"]
    texts = ["".join(one.itertext()) for one in root.iter("{http://www.w3.org/2000/svg}text")]
    return [int(one.get("data-value")) for one in bars], texts


def test_reports_are_drawn_with_their_numbers():
    with outcore.create("a&b.zarr", (400, 300), "f4", chunks=50, compression="zstd") as a:
        a[...] = np.random.default_rng(0).random((400, 300))
        report = a.explain(np.s_[:, ::3])
        values, texts = drawn(report)
        assert {report.useful_bytes, report.read_bytes, report.decodes, report.budget} <= set(
            values
        )
        assert any("a&b.zarr" in text for text in texts)
        loop = a.blocks().report
        assert {loop.held_bytes, loop.chunks} <= set(drawn(loop)[0])
        planned = outcore.transpose(a, explain=True)
        before = drawn(planned.report)[0]
        assert planned.report.lower_bound_bytes in before
        planned.run().close()
        after, texts = drawn(planned.report)
        assert planned.report.measured.written_bytes in after and len(after) > len(before)
        assert any("measured" in text for text in texts)


def test_bars_are_as_long_as_their_numbers():
    with outcore.create("a.npy", (1000, 300), "f8") as a:
        report = a.explain(np.s_[:, 10])
    pairs = re.findall(r"<rect [^>]*width='([\d.]+)'[^>]*data-value='(\d+)'", report.svg())
    wide = {int(value): float(width) for width, value in pairs}
    moved, wanted = report.moved_bytes, report.useful_bytes
    assert moved > wanted == 8000
    assert math.isclose(wide[wanted] / wide[moved], wanted / moved, rel_tol=0.05)


def test_seconds_are_told():
    with outcore.create("a.zarr", (200, 300), "f8", chunks=(50, 300), compression="zstd") as a:
        told = {k: v for k, v in a.stats().items() if k.endswith("_seconds")}
        parts = ("io", "decode", "encode", "copy", "plan")
        whole = ("read", "write", "flush")
        names = [f"{n}_seconds" for n in whole] + [f"thread_{n}_seconds" for n in parts]
        assert told == dict.fromkeys(names, 0.0)
        a[...] = 1.0
        a.flush()
        written = a.stats()
        assert (
            written["write_seconds"] > 0 and written["flush_seconds"] > 0 == written["read_seconds"]
        )
        a[[1, 5], [2, 3]]
        with pytest.raises(outcore.errors.SectionError):
            a[999]
        a.iread(np.s_[3]).wait()
        read = a.stats()
        assert read["read_seconds"] > 0 and read["write_seconds"] == written["write_seconds"]


def test_like_a_disk_resident_array(tmp_path):
    """It has the properties of the array on disk that it has, and is a pattern as that is."""
    options = {"typical_sections": (10, 20), "format": "zarr"}
    with outcore.mpi.disk_array(tmp_path / "d.zarr", (100, 80), "f4", **options) as resident:
        array = resident.array
        for name in ("shape", "dtype", "ndim", "size", "nbytes", "order", "chunks", "dims"):
            assert getattr(resident, name) == getattr(array, name), name
        for name in ("path", "format", "mode", "writable", "hints", "info"):
            assert getattr(resident, name) == getattr(array, name), name
        with outcore.create(tmp_path / "e.zarr", like=resident) as other:
            assert (other.shape, other.dtype) == ((100, 80), np.dtype("f4"))
            assert other.chunks == array.chunks
