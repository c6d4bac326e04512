"""Sorting, and what sorting answers: `searchsorted`, `unique`."""
