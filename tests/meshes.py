"""Meshes for tests, and bisection written down element by element."""

import numpy as np


def triangulation(n, seed=0):
    """Points in a square, and the edges between them, in no order that helps."""
    from scipy.spatial import Delaunay

    rng = np.random.default_rng(seed)
    points = rng.random((n, 2))
    corners = Delaunay(points).simplices
    pairs = np.concatenate([corners[:, [0, 1]], corners[:, [1, 2]], corners[:, [2, 0]]])
    edges = np.unique(np.sort(pairs, axis=1), axis=0).astype(np.int64)
    flipped = rng.random(len(edges)) < 0.5
    edges[flipped] = edges[flipped][:, ::-1]
    return points, edges[rng.permutation(len(edges))]


def bisected(points, weights, parts, within=1):
    """Recursive coordinate bisection by sorting, with whole numbers of any size."""
    points = np.asarray(points, float)
    points = points.reshape(len(points), -1 if points.size else 1)
    part = np.zeros(len(points), np.int32)

    def divide(which, first, parts):
        if parts == 1 or not which:
            part[which] = first
            return
        before = parts // within // 2 * within if parts > within else parts // 2
        box = points[which]
        axis = int(np.argmax(box.max(axis=0) / 2 - box.min(axis=0) / 2))
        order = sorted(which, key=lambda i: (points[i, axis], i))
        total, passed, cut = sum(weights[i] for i in which), 0, 0
        for i in order:
            # The middle of its weight, against the wanted share.
            if (2 * passed + weights[i]) * parts > 2 * total * before:
                break
            passed, cut = passed + weights[i], cut + 1
        divide(sorted(order[:cut]), first, before)
        divide(sorted(order[cut:]), first + before, parts - before)

    divide(list(range(len(points))), 0, parts)
    return part


def cut_edges(part, edges):
    """Edges whose ends lie in different parts."""
    return int((part[edges[:, 0]] != part[edges[:, 1]]).sum())


def spread(edges, x, y):
    """Kernel that adds to each node of an edge the sum over its nodes, times a factor of the column."""
    for column in range(edges.shape[1]):
        np.add.at(x, edges[:, column], y[edges].sum(axis=1) * (column + 0.1))
