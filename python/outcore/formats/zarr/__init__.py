"""
Zarr, versions 2 and 3, in folders and in zip files.

| file | holds |
|---|---|
| `format.py`, `version2.py`, `version3.py` | the formats: what both share, and each version |
| `tree.py`, `store.py`, `staged.py`, `identity.py` | nodes and files of a store; new arrays; identity |
| `grid.py`, `chunks.py`, `shards.py` | chunks and shards as files |
| `codecs.py`, `dtypes.py`, `strings.py` | codecs, element types and text of the metadata |
| `zip.py`, `zip_tree.py` | the format of zip files; nodes and chunks in one |
| `zip_archive.py` | members of a zip file |
"""
