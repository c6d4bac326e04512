"""
Classic NetCDF (CDF-1, CDF-2, CDF-5), read and written without a library.

| File            | Contents |
|-----------------|---|
| `format.py`     | the formats, one class for each version |
| `magic.py`      | magic bytes of the versions |
| `describing.py` | variables as arrays |
| `expecting.py`  | places for record variables that are created one by one |
| `changes.py`    | new files, variables, attributes and records |
| `moving.py`     | elements that get another place, and fill values |
| `files.py`      | headers on the disk: read, and changed in one step |
| `places.py`     | where variables are stored, and how large they are |
| `attributes.py` | attributes and names as Python values |
| `header.py`     | bytes of a header to a value, and back |
"""
