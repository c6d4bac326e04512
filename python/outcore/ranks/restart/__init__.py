"""Checkpoints of arrays in memory, which any number of ranks can restore: `outcore.mpi.checkpoint`."""
