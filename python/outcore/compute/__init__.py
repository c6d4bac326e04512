"""
Computations on arrays that do not fit in memory.

An algorithm is one file: the public function, a plan (from shapes, layouts, memory and the measured
speeds of the machine to a schedule), and kernels that compute with blocks in memory. Everything
else (storing results, memory, execution, restart) is in `outcore.compute.jobs` and
`outcore.arrays.schedule`, which do not depend on any algorithm.
"""
