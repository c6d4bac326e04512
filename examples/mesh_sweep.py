"""
Flow on an unstructured mesh that does not fit in memory: sweeps over edges, as in CFD codes.

A cloud is carried around in a disc that turns. Nodes are those of a Delaunay triangulation; what flows
from node to node is computed for each edge, and added to one end and taken from the other (PASSION,
section 4.4, Figure 7, and the 50K mesh of Figures 10 and 11). Look at the mass, which is kept to the
last digits, at the difference from the same sweeps in memory, which is none, and at how often an edge is
worked on: little more than once, because parts are compact.

    python examples/mesh_sweep.py                         20 000 nodes, 2 MiB
    python examples/mesh_sweep.py --nodes 50000 --steps 200 --picture sweep.png
    python examples/mesh_sweep.py --checkpoint 10         keeps the cloud every 10 sweeps; after a kill
    python examples/mesh_sweep.py --resume                goes on from there, on any number of ranks
    python examples/mesh_sweep.py --vtk sweep.vtkhdf      for ParaView (5.10 and later)
    mpiexec -n 4 python examples/mesh_sweep.py            ranks share the parts

SciPy makes the mesh, in memory; everything after that is within the budget.
"""

# matplotlib and SciPy are extras, and do not type all that they offer.
# pyright: basic, reportMissingImports=false, reportMissingModuleSource=false

from __future__ import annotations

import argparse
import importlib.util
import time
from pathlib import Path
from typing import Any

import numpy as np

import outcore
from outcore.mpi import transport, world

Floats = np.ndarray[Any, np.dtype[np.float64]]
Edges = np.ndarray[Any, np.dtype[Any]]

#: VTK's number for a cell of three corners.
TRIANGLE = 5


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument("--parts", type=int, default=16)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--memory", default="2MiB")
    parser.add_argument("--checkpoint", type=int, metavar="SWEEPS", help="keep the cloud so often")
    parser.add_argument("--resume", action="store_true", help="go on from the last that was kept")
    parser.add_argument("--picture", metavar="FILE", help="draw the cloud (needs matplotlib)")
    parser.add_argument("--vtk", metavar="FILE", help="write mesh and cloud for VTK (needs h5py)")
    words = parser.parse_args(arguments)
    if words.vtk and importlib.util.find_spec("h5py") is None:
        parser.error("--vtk needs h5py: pip install h5py")
    if words.picture and importlib.util.find_spec("matplotlib") is None:
        parser.error("--picture needs matplotlib: pip install matplotlib")
    if importlib.util.find_spec("scipy") is None:
        parser.error("the mesh is made by SciPy: pip install scipy")
    comm = transport(world())  # all ranks under mpiexec, else this process

    if words.resume:
        kept = sorted(Path().glob("mesh-kept-*.npy"))
        first = int(kept[-1].stem.rpartition("-")[2]) if kept else 0
        source = kept[-1] if kept else "mesh-start.npy"
        outcore.convert(source, f"mesh-cloud{first % 2}.npy", overwrite=True, comm=comm)
    else:
        first = 0
        if comm.rank == 0:
            make(words.nodes)
        comm.barrier()
        with outcore.memory(words.memory):
            inspect(words.nodes, words.parts, comm)
    began = time.monotonic()
    with (
        outcore.memory(words.memory),
        outcore.unstructured.EdgeSchedule.open("mesh-loop") as schedule,
    ):
        worked = int(schedule.edges_of_blocks.sum()) / schedule.edges
        for step in range(first, words.steps):
            old, new = f"mesh-cloud{step % 2}.npy", f"mesh-cloud{(step + 1) % 2}.npy"
            outcore.convert(old, new, overwrite=True, comm=comm)
            outcore.unstructured.edge_loop(
                schedule,
                reads={"cloud": old, "share": "mesh-share.npy"},
                edge_data={"flow": "mesh-flow.npy"},
                updates={"after": new},
                kernel=carry,
                comm=comm,
            )
            if words.checkpoint and (step + 1) % words.checkpoint == 0:
                # It takes its name when it is complete and on the disk.
                kept_as = f"mesh-kept-{step + 1:09}.npy"
                outcore.convert(new, kept_as, overwrite=True, comm=comm)
    if words.vtk:
        write_vtk(words.vtk, f"mesh-cloud{words.steps % 2}.npy", comm)
    if comm.rank == 0:
        seconds = time.monotonic() - began
        before, after = np.load("mesh-start.npy"), np.load(f"mesh-cloud{words.steps % 2}.npy")
        volume = np.load("mesh-volume.npy")
        print(f"{words.steps - first} sweeps in {schedule.blocks} blocks, {seconds:.1f} s")
        print(f"each of {schedule.edges} edges is worked on {worked:.2f} times")
        print(f"mass {mass(before, volume):.6f} before, {mass(after, volume):.6f} after")
        difference = float(np.abs(in_memory(words.steps) - after).max())
        print(f"largest difference from sweeps in memory: {difference:.1e}")
        if words.picture:
            draw(before, after, words.picture)


def carry(edges: Edges, cloud: Floats, share: Floats, flow: Floats, after: Floats) -> None:
    """What flows along edges takes the cloud of the node that it comes from."""
    a, b = edges.T
    carried = np.where(flow > 0, cloud[a], cloud[b]) * flow
    np.subtract.at(after, a, carried * share[a])
    np.add.at(after, b, carried * share[b])


def inspect(nodes: int, parts: int, comm: outcore.mpi.Transport) -> None:
    """The partition, and the schedule that all sweeps use, made by all ranks together."""
    with outcore.unstructured.partition(
        "mesh-points.npy", parts, out="mesh-parts", comm=comm
    ) as partition:
        outcore.unstructured.edge_schedule(
            "mesh-edges.npy",
            nodes,
            partition=partition,
            bytes_per_node=24,
            bytes_per_edge=8,
            out="mesh-loop",
            comm=comm,
        ).close()


def make(nodes: int) -> None:
    """
    The mesh: nodes in a disc, edges, and what flows along each edge in a step.

    The flow between two nodes crosses the faces of their cells, from the middle of the edge to the
    middles of the triangles beside it. Its stream function is known, so that is the difference of two
    values.
    """
    from scipy.spatial import Delaunay

    rng = np.random.default_rng(0)
    radius, angle = np.sqrt(rng.random(nodes)), rng.random(nodes) * 2 * np.pi
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    corners = Delaunay(points).simplices
    a, b, c = (points[corners[:, n]] for n in range(3))
    double = np.cross(np.c_[b - a, np.zeros(len(a))], np.c_[c - a, np.zeros(len(a))])[:, 2]
    corners[double < 0] = corners[double < 0][:, ::-1]
    volume = np.bincount(corners.ravel(), np.repeat(np.abs(double) / 6, 3), nodes)

    centres = points[corners].mean(axis=1)
    sides = np.concatenate([corners[:, [0, 1]], corners[:, [1, 2]], corners[:, [2, 0]]])
    middles = points[sides].mean(axis=1)
    crossing = stream(np.tile(centres, (3, 1))) - stream(middles)
    least, most = sides.min(axis=1), sides.max(axis=1)
    numbers, which = np.unique(least.astype(np.int64) * nodes + most, return_inverse=True)
    flow = np.bincount(which, np.where(sides[:, 0] == least, crossing, -crossing))
    edges = np.stack([numbers // nodes, numbers % nodes], axis=1)

    leaving = np.bincount(edges[:, 0], np.maximum(flow, 0), nodes)
    leaving += np.bincount(edges[:, 1], np.maximum(-flow, 0), nodes)
    step = 0.9 / float((leaving / volume).max())
    start = np.exp(-40 * ((points[:, 0] - 0.5) ** 2 + points[:, 1] ** 2))
    for old in Path().glob("mesh-kept-*.npy"):
        old.unlink()  # of another mesh
    files = {"points": points, "edges": edges, "flow": flow * step, "share": 1 / volume}
    files |= {"volume": volume, "start": start, "cloud0": start}
    # As VTK has a mesh: points in space, the corners of all triangles in a row, and where each begins.
    files |= {"points3": np.c_[points, np.zeros(nodes)], "connectivity": corners.ravel()}
    files |= {"offsets": np.arange(0, 3 * len(corners) + 1, 3)}
    files |= {"types": np.full(len(corners), TRIANGLE, np.uint8)}
    for name, data in files.items():
        outcore.create(f"mesh-{name}.npy", data=data, overwrite=True).close()


def stream(points: Floats) -> Floats:
    """The stream function of a disc that turns."""
    found: Floats = -(points**2).sum(axis=1) / 2
    return found


def mass(cloud: Floats, volume: Floats) -> float:
    """All of the cloud."""
    return float((cloud * volume).sum())


def in_memory(steps: int) -> Floats:
    """The same sweeps, in NumPy."""
    names = ("edges", "share", "flow", "start")
    edges, share, flow, start = (np.load(f"mesh-{name}.npy") for name in names)
    cloud: Floats = start
    for _ in range(steps):
        added = np.zeros_like(cloud)
        carry(edges, cloud, share, flow, added)
        cloud = cloud + added
    return cloud


def write_vtk(path: str, cloud: str, comm: outcore.mpi.Transport) -> None:
    """
    Mesh and cloud in VTK's own format: an HDF5 file with arrays of these names, in the order of nodes.

    The HDF5 library makes groups and attributes; arrays of any size are copied by all ranks together.
    """
    import h5py

    if comm.rank == 0:
        with h5py.File(path, "w") as file, outcore.open("mesh-types.npy") as types:
            grid = file.create_group("VTKHDF", track_order=True)
            grid.attrs["Version"] = np.array([1, 0])
            grid.attrs["Type"] = np.bytes_("UnstructuredGrid")
            with outcore.open(cloud) as values:
                grid["NumberOfPoints"] = np.array([values.size])
            grid["NumberOfCells"] = np.array([types.size])
            grid["NumberOfConnectivityIds"] = np.array([3 * types.size])
            grid.create_group("PointData")
    comm.barrier()
    for name, source in {
        "Points": "mesh-points3.npy",
        "Connectivity": "mesh-connectivity.npy",
        "Offsets": "mesh-offsets.npy",
        "Types": "mesh-types.npy",
        "PointData/cloud": cloud,
    }.items():
        outcore.convert(source, f"{path}::/VTKHDF/{name}", format="hdf5", comm=comm)


def draw(before: Floats, after: Floats, picture: str) -> None:
    """The cloud before and after."""
    import matplotlib.pyplot as plt

    x, y = np.load("mesh-points.npy").T
    _, axes = plt.subplots(1, 2, figsize=(9, 4))
    for axis, name, cloud in zip(axes, ("before", "after"), (before, after), strict=True):
        axis.set_title(name)
        axis.set_aspect("equal")
        axis.tripcolor(x, y, cloud, shading="gouraud", cmap="viridis")
    plt.savefig(picture)


if __name__ == "__main__":
    main()
