"""Names of the formats that outcore chooses where the caller names none."""

__all__ = ["CHUNKED", "DIVIDED", "PLAIN", "PLAIN_SUFFIX"]

#: Arrays without chunks: tables, files of ranks, temporary arrays, and names without a suffix.
PLAIN, PLAIN_SUFFIX = "npy", ".npy"
#: Arrays in chunks.
CHUNKED = "zarr"
#: Arrays that are divided over several folders.
DIVIDED = "parts"
