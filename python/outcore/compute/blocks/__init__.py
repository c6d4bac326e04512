"""Functions of the user over blocks: `map_blocks`, `apply_along_axis`."""
