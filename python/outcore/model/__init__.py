"""
Simulated machines, results of the papers, pictures. Only the command line imports this package.

| file | contents |
|---|---|
| `machines/` | parameters of machines, and tables of the papers |
| `simulate/` | times of collective calls and of whole programs on a machine |
| `picture/` | drawings of collective calls |
| `assignment.py` | `assign`: which rank reads which file |
"""

from outcore.model.assignment import Assignment, assign

__all__ = ["Assignment", "assign"]
