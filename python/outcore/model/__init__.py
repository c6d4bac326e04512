"""
Simulated machines, figures of the papers, pictures. Only the command line imports this package.

| file | holds |
|---|---|
| `machines/` | figures of machines, and tables of the papers |
| `simulate/` | times of collectives and of whole programs on a machine |
| `picture/` | drawings of collectives |
| `assignment.py` | `assign`: which rank reads which file |
"""
