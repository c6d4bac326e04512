"""`scatter_all(fill=)` with slices and integers beside the indices."""

import numpy as np

import outcore
from ranks import once, ranks


@ranks(1, 3)
def test_elements_beside_slices_are_filled(world, folder):
    """Whatever axes the indices are of, through owners and in passes (values on disk)."""
    shape = (9, 11, 5)
    data = np.arange(np.prod(shape), dtype="f8").reshape(shape)
    keys = [
        lambda i: np.s_[i, 1:3],
        lambda i: np.s_[i, 2, ::3],
        lambda i: np.s_[i, ::-2, 4],
        lambda i: np.s_[2:7:2, i],
        lambda i: np.s_[1:8:3, 3:4, i],
        lambda i: np.s_[None, 0:0, i],
        lambda i: np.s_[:, i, i],
        lambda i: np.s_[i, 1:2, i],
    ]

    def body(t):
        for suffix, words in ((".npy", {}), (".zarr", {"chunks": (4, 3, 2)})):
            path = folder / f"beside{suffix}"
            once(t, lambda path=path, words=words: outcore.create(path, data=data, **words).close())
            for number, key in enumerate(keys):
                lists = [np.arange(rank, 5, t.size) for rank in range(t.size)]
                for combine in ("last", "add"):
                    expected, kept = np.full(shape, -5.0), np.zeros(shape, bool)
                    for one in lists:
                        kept[key(one)] = True
                    expected[kept] = 7 if combine == "last" else data[kept] + 7
                    for passes in (False, True):
                        once(t, lambda path=path: outcore.open(path, "r+").write(..., data))
                        with outcore.open(path, "r+", comm=t) as a:
                            schedule = a.schedule_all(key(lists[t.rank]))
                            values = np.full(schedule.shape, 7.0)
                            if passes:
                                np.save(folder / f"v{t.rank}.npy", values)
                                values = outcore.open(folder / f"v{t.rank}.npy")
                            schedule.scatter_all(values, combine, fill=-5)
                            t.barrier()
                            case = suffix, number, combine, passes
                            assert np.array_equal(expected, a[...]), case
                            t.barrier()

    world.run(body)
