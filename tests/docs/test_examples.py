"""The applications in `examples/` run, and say what they promise."""

import importlib.util
import re
import threading

import numpy as np
import pytest

import outcore
from applications import SMALL, results, run
from outcore import _core, mpi
from outcore.testing.sim import SimWorld

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("name", SMALL)
def test_it_runs(name, tmp_path, monkeypatch, capsys):
    """Also a second time, beside what the first run left; then it draws a picture."""
    monkeypatch.chdir(tmp_path)
    run(name)
    assert results(name, capsys.readouterr().out)
    with_picture = importlib.util.find_spec("matplotlib") is not None
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path / "config"))
    run(name, *(["--picture", "drawn.png"] if with_picture else []))
    assert results(name, capsys.readouterr().out)
    if not with_picture:
        pytest.skip("matplotlib is not installed: pictures are NOT tested")
    drawn = (tmp_path / "drawn.png").read_bytes()
    assert drawn.startswith(PNG)
    assert len(drawn) > 5000, "an empty page has less"


def test_a_sweep_goes_on_on_other_numbers_of_ranks(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    here, before = threading.local(), outcore.memory()
    monkeypatch.setattr(mpi, "world", lambda: here.transport)
    monkeypatch.setattr(mpi, "transport", lambda comm: comm)

    def go(t, *more):
        here.transport = t
        run("mesh_sweep", *more)

    try:
        # Ranks that are threads share one budget: each has as much of it as one process has alone.
        words = ("--checkpoint", "4", "--steps", "10", "--memory", "1MiB")
        SimWorld(2).run(lambda t: go(t, *words))
        # Killed after the tenth sweep: what was kept last is older.
        assert sorted(p.name for p in tmp_path.glob("mesh-kept-*")) == [
            "mesh-kept-000000004.npy",
            "mesh-kept-000000008.npy",
        ]
        capsys.readouterr()
        SimWorld(3).run(lambda t: go(t, "--resume"))
    finally:
        outcore.memory(before)  # ranks that are threads set it in any order
    said = capsys.readouterr().out
    assert re.search("^12 sweeps in ", said, re.M)
    assert results("mesh_sweep", said)


def test_heat_goes_on_on_other_numbers_of_ranks(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    here = threading.local()
    monkeypatch.setattr(mpi, "world", lambda: here.transport)
    monkeypatch.setattr(mpi, "transport", lambda comm: comm)

    def go(t, *more):
        here.transport = t
        run("heat_steps", *more)

    SimWorld(2).run(lambda t: go(t, "--every", "7", "--stop-after", "18"))
    capsys.readouterr()
    SimWorld(3).run(lambda t: go(t, "--resume"))
    said = capsys.readouterr().out
    assert re.search("^from step 14 to 30, ", said, re.M)
    assert results("heat_steps", said.replace("from step 14", "from step 0"))


def test_a_product_stays_within_its_memory(tmp_path, monkeypatch, capsys):
    """What moves and multiplies sections keeps to what they leave of 512 KiB."""
    monkeypatch.chdir(tmp_path)
    before = _core.memory_state()[0]
    _core.reset_memory_peak()
    run("matrix_product", "--size", "300", "--wide", "30", "--memory", "512KiB")
    assert "from NumPy: 0.0e+00" in capsys.readouterr().out
    sections, matrix = 8 * (3 * 300 * 30 + 2 * 30**2), 8 * 300 * 300
    assert 0 < _core.memory_state()[2] - before <= (512 << 10) - sections < matrix - sections
    assert _core.memory_state()[0] <= before


@pytest.mark.parametrize("size", [2, 4])
def test_a_product_of_simulated_ranks_is_that_of_numpy(tmp_path, monkeypatch, capsys, size):
    monkeypatch.chdir(tmp_path)
    here, before = threading.local(), outcore.memory()
    monkeypatch.setattr(mpi, "world", lambda: here.transport)
    monkeypatch.setattr(mpi, "transport", lambda comm: comm)

    def go(t):
        here.transport = t
        # Ranks that are threads share one budget: each has as much of it as one process has alone.
        run("matrix_product", "--memory", f"{1200 * size}KiB")

    try:
        SimWorld(size).run(go)
    finally:
        outcore.memory(before)  # ranks that are threads set it in any order
    assert results("matrix_product", capsys.readouterr().out)[1].endswith("NumPy: rounding")


def test_a_mesh_is_written_for_vtk(tmp_path, monkeypatch):
    h5py = pytest.importorskip("h5py", reason="h5py is not installed: output for VTK is NOT tested")
    monkeypatch.chdir(tmp_path)
    run("mesh_sweep", "--vtk", "sweep.vtkhdf")
    with h5py.File("sweep.vtkhdf") as file:
        grid = file["VTKHDF"]
        assert grid.attrs["Type"] == b"UnstructuredGrid"
        assert grid.attrs["Version"].tolist() == [1, 0]
        cells, nodes = int(grid["NumberOfCells"][0]), int(grid["NumberOfPoints"][0])
        assert (nodes, 3 * cells) == (2000, int(grid["NumberOfConnectivityIds"][0]))
        assert grid["Points"].shape == (nodes, 3)
        assert np.array_equal(grid["Offsets"], np.arange(0, 3 * cells + 1, 3))
        corners = grid["Connectivity"][:].reshape(cells, 3)
        assert set(grid["Types"][:]) == {5}
        assert np.array_equal(grid["PointData/cloud"], np.load("mesh-cloud0.npy"))
    ends = np.sort(np.concatenate([corners[:, [0, 1]], corners[:, [1, 2]], corners[:, [2, 0]]]))
    assert np.array_equal(np.unique(ends, axis=0), np.load("mesh-edges.npy"))


def test_vtk_reads_the_mesh(tmp_path, monkeypatch):
    vtk = pytest.importorskip("vtk", reason="vtk is not installed: what VTK reads is NOT tested")
    monkeypatch.chdir(tmp_path)
    run("mesh_sweep", "--vtk", "sweep.vtkhdf")
    reader = vtk.vtkHDFReader()
    reader.SetFileName(str(tmp_path / "sweep.vtkhdf"))
    reader.Update()
    grid = reader.GetOutput()
    assert (grid.GetNumberOfPoints(), grid.GetCell(0).GetNumberOfPoints()) == (2000, 3)
    array = grid.GetPointData().GetArray("cloud")
    assert [array.GetValue(n) for n in range(2000)] == np.load("mesh-cloud0.npy").tolist()


@pytest.mark.parametrize("name", SMALL)
def test_it_says_at_once_what_a_picture_needs(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name, package=None: None)
    with pytest.raises(SystemExit):
        run(name, "--picture", "drawn.png")
    assert "pip install matplotlib" in capsys.readouterr().err
    assert not any(tmp_path.iterdir()), "nothing was computed"
