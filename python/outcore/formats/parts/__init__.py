"""
Arrays in several files: a manifest and a file for each part.

| file | holds |
|---|---|
| `format.py` | the format |
| `manifest.py` | the manifest |
| `files.py` | the files of the parts |
"""
