"""Arrays divided in any way go to disk, come back and change hands, element by element."""

import random

import numpy as np

import outcore
from mpi.collective_cases import METHODS
from mpi.distribution_cases import part, random_distribution, random_shape, widths_of
from mpi.test_collective import NODES, once
from ranks import UNDER_MPI, ranks

FILES = [
    ("a.npy", {}),
    ("a.npy", {"order": "F"}),
    ("a.h5::/x", {}),
    ("a.h5::/x", {"chunks": 4, "compression": "gzip"}),
    ("a.zarr", {"chunks": 3, "compression": "zstd"}),
]
HOW_MANY = 8 if UNDER_MPI else 4


def contributions(number, case, widths):
    """What all ranks have, ghosts included: sums whose bits depend on their order."""
    rng = np.random.default_rng(number)
    shapes = [[len(axis) for axis in case.near(rank, widths)] for rank in range(case.ranks)]
    return [rng.standard_normal(shape) ** 3 for shape in shapes]


@ranks(1, 2, 3, 4, 5, 8, 16, per_node=NODES)
def test_random_distributions_equal_numpy(world, folder, agree_on):
    for number in range(HOW_MANY // (2 if world.size > 8 else 1)):
        rng = random.Random(100 * number + world.size)
        shape = random_shape(rng)
        dtype = rng.choice(["f8", "i2", "f4"])
        one, other = (
            random_distribution(rng, shape, world.size, one_piece=rng.random() < 0.3)
            for _ in range(2)
        )
        ghosts, other_ghosts = widths_of(rng, one), widths_of(rng, other)
        name, options = rng.choice(FILES)
        there_and_back = rng.choice(METHODS), rng.choice(METHODS)
        slot, least = rng.choice([2000, 1 << 20]), rng.choice([1, 500])
        agree_on(slot=slot, least=least)
        data = (np.arange(np.prod(shape)) % 32_000 + 1).reshape(shape).astype(dtype)
        where = folder / f"{number}"
        parts = contributions(number, one, ghosts)
        summed = one.accumulated(parts, ghosts, np.add)
        said = f"{shape} {dtype}, {one.make()}, then {other.make()}, {name} {options}"

        def body(
            t,
            *,
            data=data,
            one=one,
            other=other,
            ghosts=ghosts,
            other_ghosts=other_ghosts,
            where=where,
            name=name,
            options=options,
            there_and_back=there_and_back,
            parts=parts,
            summed=summed,
            said=said,
        ):
            def same(expected, actual, what):
                np.testing.assert_array_equal(expected, actual, err_msg=f"{what}: {said}")

            once(t, where.mkdir)
            first, second = one.make(), other.make()
            mine = outcore.mpi.DistArray.zeros(first, data.dtype, transport=t, ghosts=ghosts)
            mine.owned[...] = part(data, one.has(t.rank))
            # Between distributions, with the ghosts of the second one, and of the first one afterwards.
            moved = mine.redistribute_all(second, ghosts=other_ghosts)
            same(part(data, other.near(t.rank, other_ghosts)), moved.local, "redistributed")
            mine.update_ghosts_all()
            same(part(data, one.near(t.rank, ghosts)), mine.local, "ghosts")
            given = outcore.mpi.DistArray(first, parts[t.rank], transport=t, ghosts=ghosts)
            given.accumulate_ghosts_all("add")
            expected = part(summed[one.copy(t.rank)], one.has(t.rank))
            same(expected, given.owned, "ghosts, combined")
            # Neither ghosts nor copies of what others own are written.
            owned = part(data, one.has(t.rank))
            mine.local[...] = 0
            mine.owned[...] = owned if one.is_owner(t.rank) else 0
            made = outcore.open(
                where / name, "w", shape=data.shape, dtype=data.dtype, comm=t, **options
            )
            with made as a:
                mine.write_all(a, method=there_and_back[0])
                same(data, a.read_all(method="direct"), "written")
                back = outcore.mpi.DistArray.zeros(
                    second, data.dtype, transport=t, ghosts=other_ghosts
                )
                back.read_all(a, method=there_and_back[1])
                same(part(data, other.has(t.rank)), back.owned, "read")
                back.local[...] = 0
                back.read_all(a, ghosts=True, method=there_and_back[1])
                same(part(data, other.near(t.rank, other_ghosts)), back.local, "read with ghosts")

        world.run(body)
