"""Fourier transforms along axes, which may be longer than memory."""
