"""User functions over blocks: `map_blocks`, `apply_along_axis`."""
