"""The lane `compute`: computations on arrays on disk, beside what the machine and peers can do."""
