"""The applications in `examples/`: small runs of them, and what they say of their results."""

import re
import runpy
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"

#: Arguments of a small run, and what it says of its results, one pattern a line.
SMALL = {
    "climate": (
        ["--days", "120", "--latitudes", "20"],
        ["mean at the equator 2", "standard deviation at the equator 3.0"],
    ),
    "fft_filter": (["--rows", "256", "--columns", "192"], [r"without noise: 0\.[01]"]),
    "heat_steps": (
        ["--size", "40", "--steps", "30", "--every", "10", "--check"],
        ["^from step 0 to 30, ", "mean of the plate: 0.0", "from one process: 0.0e.00"],
    ),
    "integrals": (
        ["--functions", "12", "--expansion", "30", "--rows", "20", "--columns", "8"],
        ["^energy -[0-9.]+ after [0-9]+ iterations", "beside integrals in memory: .*(0.0e.00|e-1)"],
    ),
    "laplace": (
        ["--size", "30", "--steps", "300", "--tolerance", "1e-3"],
        ["180 steps, largest change 1.00e-03", "in the middle: 0.7350"],
    ),
    "linear_equations": (["--size", "200", "--memory", "1MiB"], ["residual .*e-1.*e-1"]),
    "matrix_product": (
        ["--size", "400", "--wide", "60", "--memory", "1200KiB", "--check"],  # less than a matrix
        ["^sections of 60 of 400 rows", "from NumPy: 0.0e.00"],
    ),
    "mesh_sweep": (
        ["--nodes", "2000", "--parts", "6", "--steps", "20", "--memory", "512KiB"],
        ["each of 5[0-9]{3} edges is worked on 1\\.[01]", "mass 0.0", "from sweeps .* 0.0e.00"],
    ),
    "median": (["--size", "300", "--memory", "2MiB"], ["before: [34]", "after: 0.0"]),
    "molecules": (
        ["--atoms", "1500", "--memory", "1MiB"],
        ["^[0-9]+ pairs of 1500", "sum of all .* [0-9.]+e-1", "from the loop .* 0.0e.00", "search"],
    ),
    "products": (["--size", "200", "--memory", "1MiB"], ["largest difference .*(0.0e.00|e-1)"]),
    "sparse": (
        ["--pages", "2000", "--memory", "512KiB"],
        ["largest change .*, [0-9.]+e-1", "all ranks: 1.000000000", "from products .* 0.0e.00"],
    ),
    "spectrum": (["--samples", "262144"], ["one peak, at 0.125", "0.125000 and 0.125011"]),
}


def run(name, *more):
    """Call its `main` in the current folder, with `more` arguments."""
    runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]([*SMALL[name][0], *more])


def results(name, printed):
    """The lines that tell results, without times and rounding errors; each has to be there."""
    found = []
    for pattern in SMALL[name][1]:
        lines = [line for line in printed.splitlines() if re.search(pattern, line)]
        assert len(lines) == 1, f"no line, or several, with {pattern!r}:\n{printed}"
        line = re.sub(r", [\d.]+ s$", "", lines[0])
        found.append(re.sub(r"[\d.]+e(-1\d|\+00)", "rounding", line))
    return found
