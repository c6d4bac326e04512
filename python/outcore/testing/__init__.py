"""Checks and generators for tests of outcore itself, and of programs that build on it."""
