"""
Calls in processes that have imported `outcore` alone: a program, which `test_fresh_process.py` runs.

What a process has imported before decides nothing. Each case runs in a child that is forked from one
process, which has imported `outcore` and NumPy and has called neither; it prints what failed.
"""

import doctest
import functools
import inspect
import operator
import os
import re
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import outcore

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
DATA = np.arange(1.0, 10.0).reshape(3, 3)
AT_IMPORT = {
    "outcore",
    "outcore._core",
    "outcore.errors",
    *("outcore.arrays", "outcore.arrays.measured", "outcore.base", "outcore.base.ranked"),
}
BINARY = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"),
    *("lt", "le", "gt", "ge", "eq", "ne"),
)
BITS = ("and_", "or_", "xor", "lshift", "rshift")
UNARY = ("neg", "pos", "abs")
#: They write into their argument, ask for a file, print the name of the type, or give no elements.
OTHERS = {
    *("array_repr", "copyto", "fill_diagonal", "place", "put", "put_along_axis", "putmask"),
    *("save", "savetxt", "savez", "savez_compressed"),
    *("empty_like", "may_share_memory", "shares_memory"),
}
README = Path(__file__).parent.with_name("README.md")
#: Their second argument is where the result goes.
WITH_OUT = {"fix", "isneginf", "isposinf"}


def opened(data: np.ndarray) -> Any:
    np.save("a.npy", data)
    return outcore.open("a.npy")


def operators() -> Iterator[tuple[str, Callable[[], None]]]:
    """Each operator with an array on disk on the left, on the right and on both sides."""
    for name in (*BINARY, *BITS):
        data = DATA.astype("i8") if name in BITS else DATA
        two = getattr(operator, name)
        for sides in ("left", "right", "both"):
            yield f"operator.{name}, {sides}", lambda d=data, f=two, s=sides: on_both(f, d, s)
    yield "divmod", lambda: on_both(divmod, DATA, "both")
    for name in UNARY:
        yield f"operator.{name}", lambda n=name: equals_numpy(getattr(operator, n), DATA, 1)
    yield "operator.invert", lambda: equals_numpy(operator.invert, DATA.astype("i8"), 1)
    for convert in (bool, float, int, complex, len):
        for data in (np.array(3), np.array(2.5), np.array([7]), DATA, np.empty(0)):
            yield (
                f"{convert.__name__} of {data.dtype} {data.shape}",
                lambda f=convert, d=data: equals_numpy(f, d, 1),
            )


def on_both(function: Callable[..., Any], data: np.ndarray, sides: str) -> None:
    a = opened(data)
    x = a if sides != "right" else data
    y = a if sides != "left" else data
    np.testing.assert_equal(function(x, y), function(data, data))


def equals_numpy(function: Callable[..., Any], data: np.ndarray, count: int) -> None:
    """It gives what it gives for the array in memory, or raises the same."""
    wanted, found = (outcome(function, one, count) for one in (data.copy(), opened(data)))
    np.testing.assert_equal(found, wanted)


def outcome(function: Callable[..., Any], array: Any, count: int) -> Any:
    try:
        return function(*[array] * count)
    except Exception as error:
        kinds = (ValueError, TypeError, IndexError)
        return next((kind for kind in kinds if isinstance(error, kind)), repr(error))


def functions() -> Iterator[tuple[str, Callable[[], None]]]:
    """Each function of NumPy that asks its arguments how it is done."""
    seen = set()
    for module in (np, np.linalg, np.fft):
        for name in sorted(dir(module)):
            function = getattr(module, name)
            counts = (1, 2)
            if isinstance(function, np.ufunc):
                counts = (function.nin,)
            elif not hasattr(function, "_implementation"):
                continue
            elif name in WITH_OUT:
                counts = (1,)
            if name in OTHERS or name.startswith("_") or function in seen:
                continue
            seen.add(function)
            yield f"{module.__name__}.{name}", lambda f=function, n=counts: taken(f, n)


def taken(function: Callable[..., Any], counts: tuple[int, ...]) -> None:
    for count in counts:
        for data in (DATA, DATA.astype("i8")) if count == counts[0] else (DATA,):
            wanted = outcome(function, data.copy(), count)
            if not isinstance(wanted, type | str):
                np.testing.assert_equal(function(*[opened(data)] * count), wanted)


def public() -> list[str]:
    """All public names, found in another process: this one imports nothing."""
    program = "from outcore.public import list_public; print(*(name for name, _ in list_public()))"
    return subprocess.check_output([sys.executable, "-c", program], text=True).split()


def find(name: str) -> Any:
    return functools.reduce(getattr, name.split(".")[1:], outcore)


def names() -> Iterator[tuple[str, Callable[[], None]]]:
    """Each public name, and each that the README has."""
    found = set(re.findall(r"\boutcore\.[\w.]*\w", README.read_text("utf-8")))
    for name in sorted(found.union(public())):
        yield name, lambda n=name: find(n)


def examples() -> Iterator[tuple[str, Callable[[], None]]]:
    """The examples of each public function, and those of the README."""
    for name in public():
        yield f"example of {name}", lambda n=name: example(n, find(n))
    for number, block in enumerate(
        re.findall("```python\n(.*?)```", README.read_text("utf-8"), re.S)
    ):
        yield f"block {number} of the README", lambda b=block: exec(b, {})


def example(name: str, thing: Any) -> None:
    if inspect.isfunction(thing):
        finder = doctest.DocTestFinder(recurse=False)
        (test,) = finder.find(thing, name, globs={})
        runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
        lines: list[str] = []
        runner.run(test, out=lines.append)
        assert not runner.failures, "".join(lines)


def forked(call: Callable[[], None]) -> str:
    """What a child prints of the call: nothing if it went well."""
    sys.stdout.flush()
    read, write = os.pipe()
    child = os.fork()
    if not child:
        said = ""
        try:
            os.close(read)
            with (
                tempfile.TemporaryDirectory() as folder,
                open(os.devnull, "w") as sys.stdout,
            ):
                os.chdir(folder)
                call()
        except BaseException:
            said = traceback.format_exc()
        os.write(write, said.encode()[-60_000:])
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    return said or (f"ended with {status}" if status else "")


def batches(kind: str, most: int) -> Iterator[list[tuple[str, Callable[[], None]]]]:
    """Cases that share a child: at most so many; a product of matrices alone."""
    batch: list[tuple[str, Callable[[], None]]] = []
    for case in KINDS[kind]():
        if re.search("mat|vec|dot|inner|outer", case[0]):
            yield [case]
        else:
            batch.append(case)
        if len(batch) == most:
            yield batch
            batch = []
    if batch:
        yield batch


def main(kind: str, most: int) -> int:
    """Print what fails, and return how many cases ran; `most` of them in one process."""
    warnings.simplefilter("ignore")
    ran = 0
    for batch in batches(kind, most):
        brought = {one for one in sys.modules if one.split(".")[0] == "outcore"}
        assert brought == AT_IMPORT, brought

        def call(batch: list[tuple[str, Callable[[], None]]] = batch) -> None:
            for name, one in batch:
                try:
                    one()
                except BaseException as error:
                    error.add_note(name)
                    raise

        print(forked(call), end="", flush=True)
        ran += len(batch)
    return ran


KINDS = {"operators": operators, "functions": functions, "names": names, "examples": examples}

if __name__ == "__main__":
    print(main(sys.argv[1], int(sys.argv[2])), "ran")
