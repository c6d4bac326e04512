"""Products and contractions: `matmul`, `tensordot` and their like."""
