"""What a refusal names as `needed` is enough: the second call, with that budget, succeeds."""

import itertools
import math
import warnings

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import outcore
from outcore import _core
from outcore.public import find_public

FORMATS = ("npy", "raw", "h5", "zarr", "zarr2")
AXES = ("sum", "mean", "std", "min", "argmax", "cumsum", "sort", "argsort", "median", "fft", "norm")
WHOLE = ("unique", "statistics", "count_nonzero", "ptp", "nansum", "nanargmin", "histogram")
NAMES = itertools.count()
#: Files take most of the time.
MOST_CHUNKS = 1_000


class Stored:
    """Arrays of random shapes, formats, chunks and codecs."""

    def __init__(self, rng, folder):
        self.rng, self.folder = rng, folder

    def shape(self, ndim):
        longest = {1: 4_000, 2: 200, 3: 30}[ndim]
        return tuple(
            self.rng.choice([1, 7, longest, self.rng.randint(1, longest)]) for _ in range(ndim)
        )

    def array(self, data, mode="r"):
        format, how = self.rng.choice(FORMATS), {}
        if format in ("npy", "raw"):
            how["order"] = self.rng.choice("CF")
        elif data.size and self.rng.random() < 0.8:
            chunks = tuple(min(n, self.rng.choice([1, 7, 32, n])) for n in data.shape)
            files = math.prod(-(-n // c) for n, c in zip(data.shape, chunks, strict=True))
            how["chunks"] = chunks if files <= MOST_CHUNKS else data.shape
            if self.rng.random() < 0.6:
                how["compression"] = "gzip"
            if format == "zarr" and self.rng.random() < 0.4:
                how["shards"] = tuple(2 * n for n in how["chunks"])
        suffix = "zarr" if format == "zarr2" else format
        path = f"{self.folder}/{next(NAMES)}.{suffix}" + ("::/a" if format == "h5" else "")
        outcore.create(path, data=data, format="hdf5" if format == "h5" else format, **how).close()
        words = {"dtype": data.dtype, "shape": data.shape} if format == "raw" else {}
        if format == "raw":
            words["order"] = how["order"]
        return outcore.open(path, mode, **words)

    def numbers(self, ndim=None, dtype=None, mode="r"):
        dtype = dtype or self.rng.choice(["f8", "f4", "i4", ">f8", "c16", "u1"])
        shape = self.shape(ndim or self.rng.choice([1, 2, 2, 3]))
        return self.array((np.arange(np.prod(shape)) * 7 % 101).reshape(shape).astype(dtype), mode)

    def computation(self):
        """A computation, as a function of its budget."""
        name, out = self.rng.choice(COMPUTATIONS), f"{self.folder}/{next(NAMES)}"
        a = self.numbers(2 if name in TWO else None, "f8")
        if name in AXES:
            axis = self.rng.randrange(a.ndim)
            return name, lambda m: find_public(name)(a, axis=axis, memory=m)
        if name in WHOLE:
            return name, lambda m: find_public(name)(a, memory=m)
        if name == "empty norm":
            empty = self.array(np.empty((257, 0)))
            return name, lambda m: outcore.linalg.norm(empty, memory=m)
        suffix = self.rng.choice((".npy", ".zarr", ".h5"))
        square = self.array(np.eye(a.shape[0]) * 3 + 0.001)
        calls = {
            "transpose": lambda m: outcore.transpose(a, out=out + suffix, memory=m),
            "rechunk": lambda m: outcore.rechunk(a, (5, 9), out=out + ".zarr", memory=m),
            "convert": lambda m: outcore.convert(a, out + suffix, memory=m),
            "matmul": lambda m: outcore.matmul(square, a, memory=m),
            "outer": lambda m: outcore.outer(a, [1.0, 2.0, 3.0], memory=m),
            "cholesky": lambda m: outcore.linalg.cholesky(square, memory=m),
            "lu_factor": lambda m: outcore.linalg.lu_factor(square, memory=m),
            "solve": lambda m: outcore.linalg.solve(square, a, memory=m),
            "qr": lambda m: outcore.linalg.qr(a, memory=m),
            "stencil": lambda m: outcore.stencil(a, [[0, 1, 0], [1, 0, 1], [0, 1, 0]], memory=m),
            "median_filter": lambda m: outcore.ndimage.median_filter(a, 3, memory=m),
            "map_blocks": lambda m: outcore.map_blocks(np.sqrt, a, dtype="f8", memory=m),
            "quantile": lambda m: outcore.quantile(a, [0.2, 0.5], memory=m),
        }
        return name, calls[name]

    def access(self):
        """A read, a write, or a function of NumPy, within `outcore.memory`."""
        name, a = self.rng.choice(ACCESSES), self.numbers(mode="r+")
        key = tuple(slice(None, None, self.rng.choice([1, 1, 2, 3, -1])) for _ in a.shape)
        rows = np.array([self.rng.randrange(a.shape[0]) for _ in range(self.rng.randint(1, 99))])
        mask = np.arange(a.size).reshape(a.shape) % 3 == 0
        other = self.array(np.ones(a.shape, a.dtype))
        value = np.ones(a.shape, "i2")
        calls = {
            "read": lambda: a[key],
            "write": lambda: a.write(key, value[key]),
            "write of one": lambda: a.write(key, 1),
            "copy": lambda: a.write(..., other),
            "rows": lambda: a[rows],
            "write of rows": lambda: a.write(rows, 1),
            "mask": lambda: a[mask],
            "write of a mask": lambda: a.write(mask, 1),
            "array": lambda: np.asarray(a),
            "add": lambda: a + 1,
            "nonzero": lambda: a.nonzero(),
            "take": lambda: a.take(rows, axis=0),
            "blocks": lambda: [None for _ in a.blocks()],
            "product": lambda: a @ np.ones((a.shape[-1], 300), "f4"),
        }
        return name, calls[name]


COMPUTATIONS = (*AXES, *WHOLE, "empty norm", "transpose", "rechunk", "convert", "matmul", "outer")
COMPUTATIONS += ("cholesky", "lu_factor", "solve", "qr", "stencil", "median_filter", "map_blocks")
COMPUTATIONS += ("quantile",)
TWO = ("rechunk", "matmul", "solve", "qr", "stencil", "median_filter")
ACCESSES = (
    "read",
    "write",
    "write of one",
    "copy",
    "rows",
    "write of rows",
    "mask",
    "array",
    "add",
)
ACCESSES += ("write of a mask", "nonzero", "take", "blocks", "product")
BUDGETS = st.sampled_from([1, 500, 3_000, 10_000, 60_000, 200_000])


def refused(call, budget):
    """The error, if the budget does not do."""
    try:
        call(budget)
    except outcore.BudgetError as error:
        return error
    return None


def must_do(call, budget, case):
    first = refused(call, budget)
    if first is not None:
        assert first.needed, (case, budget, str(first))
        again = refused(call, first.needed)
        assert again is None, (case, budget, first.needed, str(again))


def within(call):
    def limited(budget):
        with outcore.memory(budget):
            call()

    return limited


def checked(folder, rng, budget):
    stored = Stored(rng, folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if rng.random() < 0.5:
                name, call = stored.computation()
                if rng.random() < 0.3:
                    must_do(within(lambda: call(None)), budget, name)
                else:
                    must_do(call, budget, name)
            else:
                name, call = stored.access()
                must_do(within(call), budget, name)
        except (outcore.errors.UsageError, outcore.errors.UnsupportedError) as error:
            if isinstance(error, outcore.BudgetError):
                raise


def test_budgets_of_accesses_to_chunks(tmp_path):
    """Such an access holds lists, tables, chunks and codecs one after the other, beside open arrays."""
    rows = np.array([3, 4, 99])
    gzip = {"format": "hdf5", "compression": "gzip"}
    tall = outcore.create(tmp_path / "a.h5", data=np.ones((257, 3), "i4"), chunks=(1, 1), **gzip)
    wide = outcore.create(tmp_path / "b.h5", data=np.ones((3, 257), ">f8"), chunks=(3, 1), **gzip)
    words = {"format": "zarr", "chunks": (1, 32), "shards": (2, 32)}
    shards = outcore.create(tmp_path / "c.zarr", data=np.ones((100, 371), "i1"), **words)
    bytes_ = outcore.create(tmp_path / "d.zarr", data=np.ones((219, 5), "i1"), format="zarr2")
    words = {"chunks": (1, 1), "shards": (2, 2), "compression": "gzip"}
    many = outcore.create(tmp_path / "m.zarr", data=np.ones((3, 200)), **words)
    gzip |= {"data": np.ones((141, 200), "c16")}
    source = outcore.create(tmp_path / "s.h5", chunks=(32, 7), **gzip)
    target = outcore.create(tmp_path / "t.h5", chunks=(32, 1), **gzip)
    few = outcore.create(tmp_path / "f.h5", data=np.ones((30, 1, 19), "i4"), chunks=(30, 1, 7))
    long = outcore.create(tmp_path / "e.npy", data=np.ones((257, 5), "f4"))
    turned = long[...].T
    calls = {
        "rows": lambda: tall[rows],
        "write of rows": lambda: tall.write(rows, 1.5),
        "cast": lambda: wide.write(np.s_[::2], 1.5),
        "rows of shards": lambda: shards.write(rows, 1),
        "rows of many shards": lambda: many[rows % 3],
        "mask": lambda: shards[shards[...] > 0],
        "array": lambda: np.asarray(bytes_),
        "few chunks": lambda: np.asarray(few),
        "copy": lambda: target.write(..., source),
        "product": lambda: long @ turned,
    }
    for (name, call), budget in itertools.product(calls.items(), (1, 500, 10_000, 600_000)):
        must_do(within(call), budget, name)


def test_budgets_of_computations(tmp_path):
    """A job holds results, reads whole vectors and casts; what its first refusal names does for all."""
    values = (np.arange(4_000) * 7 % 101).astype("f8")
    zarr = outcore.create(tmp_path / "a.zarr", data=values, compression="zstd")
    gzip = {"format": "hdf5", "compression": "gzip", "chunks": (1, 1)}
    table = outcore.create(tmp_path / "a.h5", data=np.ones((163, 1), ">f8"), **gzip)
    few = outcore.create(tmp_path / "few.zarr", data=np.ones((7, 3), "f4"), compression="zstd")
    ones = outcore.create(tmp_path / "ones.npy", data=np.ones((200, 100)))
    mask = np.arange(163).reshape(163, 1) % 3 == 0
    turned = np.array([[-37.75 - 31j]], ">c8")

    def other_order(memory):
        words = {"compression": None, "overwrite": True}
        target = outcore.create(tmp_path / "b.zarr", (1, 1), "<c8", **words)
        outcore.transpose(turned, (1, 0), out=target, memory=memory)

    def beside_others(memory):
        held = _core.Reservation("others", 864)
        try:
            within(lambda: outcore.argmax(zarr, axis=0))(memory)
        finally:
            held.release()

    counts = {"out": tmp_path / "counts.zarr", "overwrite": True, "chunks": (24,)}
    calls = {
        "argmax": within(lambda: outcore.argmax(zarr, axis=0)),
        "argmax of memory": lambda m: outcore.argmax(zarr, axis=0, memory=m),
        "argmax beside others": beside_others,
        "nonzero": within(ones.nonzero),
        "write of a mask": within(lambda: table.write(mask, 1)),
        "outer": within(lambda: outcore.outer(few, [1.0, 2.0])),
        "another byte order": other_order,
        "bincount": lambda m: outcore.bincount(np.arange(49), memory=m, **counts),
    }
    for (name, call), budget in itertools.product(calls.items(), (1, 500, 10_000, 600_000)):
        refusal = refused(call, budget)
        assert refusal is None or refusal.needed < 2**21, name
        must_do(call, budget, name)


@given(rng=st.randoms(use_true_random=False), budget=BUDGETS)
@settings(deadline=None, max_examples=60)
def test_the_budget_that_an_error_names_does(tmp_path_factory, rng, budget):
    checked(tmp_path_factory.mktemp("needed"), rng, budget)


@given(rng=st.randoms(use_true_random=False), budget=BUDGETS)
@settings(deadline=None, max_examples=1_000)
def test_the_budget_that_an_error_names_does_slow(tmp_path_factory, rng, budget):
    checked(tmp_path_factory.mktemp("needed"), rng, budget)
