"""
Packages for kinds of problems, built on the lower layers.

| file | contents |
|---|---|
| `unstructured/` | meshes: partitions, translation tables, schedules of edges, loops over edges |
| `placement/` | arrays divided over ranks on disk: in one file, one file per rank, in partitions |
"""
