"""Products of arrays: what a step needs of those before it, and what BLAS is given."""

from mutants import Mutant

CONTRACTION = "python/outcore/compute/products/contraction.py"
PRODUCTS = "tests/unit/test_products.py"

MUTANTS = [
    Mutant(
        file=CONTRACTION,
        before="[None, None]), turn > 0\n",
        after="[None, None]), False\n",
        killed_by=f"{PRODUCTS}::test_sums_over_blocks",
        why="who goes on would begin in the midst of a sum, with what memory holds by chance",
    ),
    Mutant(
        file=CONTRACTION,
        before="                continues = True\n                continue\n",
        after="                continue\n",
        killed_by=f"{PRODUCTS}::test_what_is_kept_for_long_is_loaded_again_now_and_then",
        why="who goes on would multiply by an operand that was not read",
    ),
    Mutant(
        file="python/outcore/compute/products/gemm.py",
        before="    if a.shape != (m, k) or b.shape != (k, n) or not a.dtype == b.dtype == c.dtype:\n",
        after="    if False:\n",
        killed_by=f"{PRODUCTS}::test_products_are_added_in_place",
        why="BLAS would read and write beyond the ends of matrices",
    ),
]
