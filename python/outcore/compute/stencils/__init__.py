"""Stencils of any number of steps, and SciPy's filters."""
