"""Factorisations: rows that are interchanged late, and what a step has to wait for."""

from mutants import Mutant

LU = "python/outcore/compute/factors/lu.py"
BLAS = "python/outcore/compute/factors/blas.py"
SEPARATE = "python/outcore/compute/factors/separate.py"
TESTS = "tests/unit/test_factorisations.py"

MUTANTS = [
    Mutant(
        file=LU,
        before="                self.blas.laswp(columns[group:], blocks[-1] - PIVOT.type(group))\n",
        after="                pass\n",
        killed_by=f"{TESTS}::test_lu_factor",
        why="columns would be eliminated with rows of L that belong to other rows",
    ),
    Mutant(
        file=LU,
        before="            self.blas.laswp(rows, pivots[after:] - PIVOT.type(after))\n",
        after="            pass\n",
        killed_by=f"{TESTS}::test_lu_factor",
        why="rows of L would stay in the order in which their group was factored",
    ),
    Mutant(
        file=LU,
        before="            after=stored,\n",
        after="",
        killed_by=f"{TESTS}::test_lu_factor",
        why="a panel would load columns of L that are not stored yet",
    ),
    Mutant(
        file=BLAS,
        before="        self.laswp(left[half:], pivots[half:])\n",
        after="",
        killed_by=f"{TESTS}::test_halves_are_factored_as_lapack_does",
        why="rows of the left half of a panel would not be those of the right half",
    ),
    Mutant(
        file=BLAS,
        before="            self.gemm(right, left, a[half:, :half], tb=trans)\n",
        after="",
        killed_by=f"{TESTS}::test_halves_of_triangles_are_solved",
        why="a block below the diagonal would be solved as if the halves had nothing to do with each other",
    ),
    Mutant(
        file="python/outcore/compute/factors/cholesky.py",
        before="            after=self.stored_before(target, group),\n",
        after="",
        killed_by=f"{TESTS}::test_cholesky",
        why="a panel would load columns of L that are not stored yet",
    ),
    Mutant(
        file="python/outcore/compute/factors/cholesky.py",
        before="            after=self.begins[target.panel] + self.diagonal_steps(target.panel),\n",
        after="",
        killed_by="tests/unit/test_every_algorithm.py"
        "::test_schedules_pass_the_check_and_can_be_done_again[cholesky by tiles]",
        why="a tile would be solved with a diagonal that is not stored yet",
    ),
    Mutant(
        file=SEPARATE,
        before='                    np.take(came[:, j], places, out=low[:, j], mode="clip")\n',
        after="                    low[:, j] = came[:, j]\n",
        killed_by=f"{TESTS}::test_lu",
        why="rows of L would not be in the order of those of the matrix",
    ),
]
