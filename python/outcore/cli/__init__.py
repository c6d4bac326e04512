"""
The command line: the command `outcore`, and ``python -m outcore``.

| file | holds |
|---|---|
| `commands.py`   | `main`: the parser, and ``explain``, ``convert``, ``bench``, ``simulate`` |
| `completion.py` | ``completion``: scripts of shells that complete commands and options |
| `run.py`        | ``run``, ``jobs``, ``resume``: computations on files |
| `operations.py` | the table of what can be run, and which options each operation has |
| `create.py`     | ``create``: new arrays; how what ``convert`` makes is to be stored |
| `files.py`      | ``cp``, ``mv``, ``rm``, ``chmod``, ``du``, ``gather``: arrays as one thing |
| `paths.py`      | ``info``, ``ls``, ``verify``: what there is on the disk |
| `status.py`     | exit statuses, and how an error is told |
| `output.py`     | JSON, and the bar of progress |
| `words.py`      | sections, lengths and options, as they are typed |
"""

from outcore.cli.commands import main, parse_section

__all__ = ["main", "parse_section"]
