"""Factorisations of matrices, and solvers that use them."""
