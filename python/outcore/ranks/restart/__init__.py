"""Checkpoints of arrays in memory, which any number of ranks goes on from: `outcore.checkpoint`."""
