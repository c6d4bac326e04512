"""Reductions, scans, counts and quantiles along axes."""
