"""The budget: a refusal names what would do, more than that does as well, nothing passes it."""

import time

import numpy as np
import pytest

import outcore
from outcore import _core
from outcore.formats.hdf5 import chunks as hdf5_chunks

DATA = np.arange(200 * 300, dtype="f8").reshape(200, 300)
KINDS = {
    "zstd": ("a.zarr", {"compression": "zstd"}),
    "zstd 19": ("a.zarr", {"compression": "zstd:19"}),
    "gzip": ("a.zarr", {"compression": "gzip"}),
    "blosc": ("a.zarr", {"compression": "blosc"}),
    "plain": ("a.zarr", {}),
    "shards": ("a.zarr", {"shards": (80, 96), "compression": "zstd"}),
    "h5 gzip": ("a.h5::/x", {"compression": "gzip"}),
    "h5": ("a.h5::/x", {}),
}
KEYS = (np.s_[17, 5], np.s_[:], np.s_[3:199:2, 10:-10])


def make(path, options):
    return outcore.create(path, DATA.shape, "f8", chunks=(40, 48), **options)


def read(a, key):
    np.testing.assert_array_equal(DATA[key], a[key])


def write(a, key):
    a[key] = DATA[key]


def cast(a, key):
    a[key] = DATA[key].astype("i4")


def needed(a, work, key):
    """The budget that a refusal names, asked for again as long as there is a refusal: once at most."""
    asked = []
    while len(asked) <= 1:
        try:
            with outcore.memory(asked[-1] if asked else 4096):
                work(a, key)
            break
        except outcore.BudgetError as error:
            asked.append(error.needed)
    assert len(asked) <= 1
    return asked[0] if asked else 4096


@pytest.mark.parametrize("work", [read, write, cast])
@pytest.mark.parametrize("kind", KINDS)
def test_a_refusal_names_what_does_and_so_does_more(tmp_path, monkeypatch, kind, work):
    name, options = KINDS[kind]
    with make(f"{tmp_path}/{name}", options) as a:
        if work is read:
            a[...] = DATA
        if work is read and kind.startswith("h5"):
            monkeypatch.setattr(hdf5_chunks, "QUIET", 0.03)
            time.sleep(0.05)  # a table of a file that changes is read again each time
        for key in KEYS:
            a.explain(key)  # HDF5's table of chunks is held from now on
            least = needed(a, work, key)
            before = _core.memory_state()[0]
            for limit in (least, least + 1, least + 4096, least * 5 // 4, 2 * least, 7 * least):
                with outcore.memory(limit):
                    _core.reset_memory_peak()
                    work(a, key)
                    used, _, peak = _core.memory_state()
                    assert used == before
                    assert peak <= limit
        if work is not read:
            np.testing.assert_array_equal(DATA, a[...])


def test_a_closed_array_holds_nothing(tmp_path):
    a = outcore.create(f"{tmp_path}/a.h5::/x", data=DATA, chunks=(40, 48), compression="gzip")
    before = _core.memory_state()[0]
    list(a.blocks())
    assert _core.memory_state()[0] > before  # its table of chunks
    a.close()
    assert _core.memory_state()[0] == before


@pytest.mark.parametrize(
    ("name", "options", "least"),
    [
        ("a.npy", {}, 4096),
        ("f.npy", {"order": "F"}, 4096),
        ("a.zarr", {"chunks": (40, 48)}, 8192),
        ("s.zarr", {"chunks": (40, 48), "shards": (80, 96)}, 8192),
        ("a.h5::/x", {"chunks": (40, 48)}, 12288),  # its table is held, 1120 bytes
    ],
)
def test_plain_elements_take_a_page_and_one_for_the_table_of_chunks(tmp_path, name, options, least):
    a = outcore.create(f"{tmp_path}/{name}", data=DATA, hints={"method": "list"}, **options)
    list(a.blocks())
    for work in (read, write):
        for key in KEYS:
            for limit in (least, least + 1, 3 * least):
                with outcore.memory(limit):
                    work(a, key)
            with outcore.memory(least - 4095), pytest.raises(outcore.BudgetError) as caught:
                work(a, key)
            # It does for whatever else the access may hold: a missing chunk, tables, tasks of threads.
            assert least <= caught.value.needed <= max(least, 40960) * 9 // 8 + 17 * 4096
            with outcore.memory(caught.value.needed):
                work(a, key)


@pytest.mark.parametrize("kind", KINDS)
def test_hints_bound_an_operation_and_explain_says_how_much_it_takes(tmp_path, kind):
    name, options = KINDS[kind]
    make(f"{tmp_path}/{name}", options).close()
    for hint in (4 * 2**20, 16 * 2**20, 2**28):
        with outcore.open(f"{tmp_path}/{name}", "r+", hints={"memory": hint}) as a:
            for key in KEYS:
                for work in (write, read):
                    said = a.explain(key, write=work is write).peak_bytes
                    _core.reset_memory_peak()
                    work(a, key)
                    peak = _core.memory_state()[2]
                    assert peak <= hint
                    # Buffers come in whole pages, and missing plain chunks are made first.
                    made = 2**15 if "h5" in kind and work is write else 0
                    assert peak <= said + made + 2**14


def test_many_threads_encode_at_a_high_level_within_the_budget(tmp_path):
    """Contexts of Zstandard at level 19 are larger than all else; threads take turns."""
    name, options = KINDS["zstd 19"]
    with make(tmp_path / name, options) as a:
        a[...] = DATA
        least = needed(a, write, KEYS[2])
        with outcore.memory(least + least // 2):
            _core.reset_memory_peak()
            requests = [a.iwrite(np.s_[k::8], DATA[k::8]) for k in range(8)]
            for request in requests:
                request.wait()
            assert _core.memory_state()[2] <= least + least // 2
        np.testing.assert_array_equal(DATA, a[...])
