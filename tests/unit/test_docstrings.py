"""The examples in the docstrings run and give what they say."""

import doctest
import importlib
import pkgutil

import pytest

import outcore

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(outcore.__path__, "outcore.")
    if not module.name.endswith(("_core", "__main__"))
)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("name", ["outcore", *MODULES])
def test_examples_of(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(importlib.import_module(name), optionflags=FLAGS)
    assert result.failed == 0
