"""
Types of results: they have no constructor that a program calls.

`outcore.mpi`, `outcore.unstructured` and `outcore.model` have the types that their own calls return.
"""

from outcore.arrays.blocks import Blocks
from outcore.arrays.disk.attributes import Attributes
from outcore.arrays.disk.selecting import Indexer
from outcore.arrays.groups import Tree
from outcore.arrays.verification import Damage
from outcore.base.hints import MemoryLimit
from outcore.base.report import BlocksReport, Report
from outcore.base.requests import IORequest
from outcore.compute.jobs import ComputeReport, Measured, Planned
from outcore.formats import Entry
from outcore.formats.groups import GroupInfo
from outcore.formats.layout import ArrayInfo, Chunked, Codec, Origin, Part, Strided

__all__ = [
    "ArrayInfo",
    "Attributes",
    "Blocks",
    "BlocksReport",
    "Chunked",
    "Codec",
    "ComputeReport",
    "Damage",
    "Entry",
    "GroupInfo",
    "IORequest",
    "Indexer",
    "Measured",
    "MemoryLimit",
    "Origin",
    "Part",
    "Planned",
    "Report",
    "Strided",
    "Tree",
]
