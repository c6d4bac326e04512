"""Keys with arrays, the long way: thousands of examples; see `test_points`."""

from __future__ import annotations

import os

import pytest
import test_points

EXAMPLES = int(os.environ.get("OUTCORE_EXAMPLES", "150"))


@pytest.mark.parametrize("name", test_points.NAMES)
@pytest.mark.filterwarnings("ignore")
def test_keys_with_arrays_on_every_format_equal_numpy(name: str) -> None:
    """As in the quick lane, with more examples."""
    test_points.run_many(name, EXAMPLES)
