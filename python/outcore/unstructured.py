"""Unstructured meshes on disk: partitions, translation tables and loops over edges."""

from outcore.problems.unstructured.edge_loop import edge_loop
from outcore.problems.unstructured.edge_schedule import EdgeSchedule, edge_schedule
from outcore.problems.unstructured.localize import AllocationList, LocalEdges
from outcore.problems.unstructured.partition import Partition, partition
from outcore.problems.unstructured.translation import TranslationTable

__all__ = [
    "AllocationList",
    "EdgeSchedule",
    "LocalEdges",
    "Partition",
    "TranslationTable",
    "edge_loop",
    "edge_schedule",
    "partition",
]
