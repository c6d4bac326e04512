"""
Packages for kinds of problems, built on the floors below.

| file | holds |
|---|---|
| `unstructured/` | meshes: partitions, translation tables, schedules of edges, loops over edges |
| `placement/` | arrays divided over ranks on disk: in one file, a file for each rank, in partitions |
"""
