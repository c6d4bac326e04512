"""Stencils of any number of steps, and the filters of SciPy."""
