"""
Out-of-core unstructured problems: partitions, translation tables, edges of partitions, edge loops.

The package implements the routines of the PASSION report's Table 5 (section 4.4). `partition` divides
the data (`oc_gen_partition`), with keys and cuts from `curves`, `cuts`, `bisection` and `graphs`.
`share` contains the communication of ranks that make these together.
"""
