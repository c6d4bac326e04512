"""
Computations on arrays that do not fit in memory.

An algorithm is one file: the function that the user calls, a plan (from shapes, layouts, memory and the
figures of the machine to a schedule) and kernels that compute with blocks in memory. Everything else
(where results go, memory, what runs when, restart) is in `outcore.compute.jobs` and
`outcore.arrays.schedule`, which know no algorithm.
"""
