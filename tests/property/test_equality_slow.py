"""Equality, the long way: thousands of examples; see `test_equality`."""

from __future__ import annotations

import os

import pytest
import test_equality

EXAMPLES = int(os.environ.get("OUTCORE_EXAMPLES", "150"))


@pytest.mark.parametrize("name", test_equality.KINDS)
@pytest.mark.filterwarnings("ignore")
def test_sections_of_every_format_equal_numpy(name: str) -> None:
    """As in the quick lane, with more examples."""
    test_equality.run_many(name, EXAMPLES)
