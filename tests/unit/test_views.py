"""The same elements with other axes, and blocks that are seen with more axes than they have."""

import threading

import numpy as np
import pytest

import outcore
from outcore.arrays.schedule import Load
from outcore.compute.jobs import InMemory
from outcore.compute.jobs.views import open_view


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", ["npy", "h5::/x", "memory"])
def test_a_view_has_the_elements_of_its_array(tmp_path, kind, order):
    data = np.arange(4 * 60 * 3.0).reshape(4, 60, 3)
    if kind == "memory":
        array = InMemory(np.array(data, order=order), "here")
    else:
        words = {"order": order} if kind == "npy" else {}
        array = outcore.create(f"{tmp_path}/a.{kind}", data=data, **words)
    view = open_view(array, ((4,), (7, 8), (3,)), 1 << 20, write=True)
    assert view.shape == (4, 7, 8, 3)
    expected = data[:, :56].reshape(4, 7, 8, 3)
    part = np.s_[1:3, 2:6, 1:8, 0:3]
    out = np.empty((2, 4, 7, 3), order="F")
    view.iread(part, out=out).wait()
    np.testing.assert_array_equal(expected[part], out)
    view.iwrite(part, -out).wait()
    view.close()
    expected[part] *= -1  # a view of the data
    after = data.copy()
    after[:, :56] = expected.reshape(4, 56, 3)
    np.testing.assert_array_equal(after, array[...])


def test_writes_of_views_through_windows_wait_for_each_other(tmp_path):
    """Each reads, changes and writes back what holds elements of the other one."""
    hints = outcore.Hints(exclusive=True)
    array = outcore.create(tmp_path / "a.npy", data=np.zeros((300, 512)), hints=hints)
    views = [
        open_view(array, lengths, 1 << 24, write=True)
        for lengths in [((3, 100), (512,)), ((300,), (8, 64))]
    ]
    keys = [np.s_[:, :, ::2], np.s_[:, :, 1::2]]

    def write(view, key, number):
        view.handle.core.sieving().write(
            key, np.full(np.empty(view.shape, "?")[key].shape, float(number))
        )

    for number in range(1, 30):
        threads = [
            threading.Thread(target=write, args=(v, k, number))
            for v, k in zip(views, keys, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (array[...] == number).all()
    for view in views:
        view.close()


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_block_that_is_divided_is_the_same_memory(order):
    block = np.zeros((6, 10), order=order)
    load = Load(
        0, (slice(0, 4), slice(0, 3), slice(0, 2)), 0, np.s_[0:6, 2:6], (1, 2, 0), (3, 2, 4)
    )
    place = load.place(block)
    assert place.shape == (4, 3, 2)
    place[...] = np.arange(24).reshape(4, 3, 2)
    np.testing.assert_array_equal(
        np.arange(24).reshape(4, 3, 2).transpose(1, 2, 0).reshape(6, 4), block[:, 2:6]
    )
