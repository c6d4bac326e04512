"""
Command line: the command `outcore`, and ``python -m outcore``.

| file | contents |
|---|---|
| `commands.py`   | `main`: the parser, and ``explain``, ``convert``, ``bench``, ``simulate`` |
| `completion.py` | ``completion``: shell scripts that complete commands and options |
| `run.py`        | ``run``, ``jobs``, ``resume``: computations on files |
| `operations.py` | table of the operations of ``run`` and their options |
| `create.py`     | ``create``: new arrays; the storage options of ``create`` and ``convert`` |
| `files.py`      | ``cp``, ``mv``, ``rm``, ``chmod``, ``du``, ``gather``: arrays with all their files |
| `paths.py`      | ``info``, ``ls``, ``verify``: the arrays on disk |
| `status.py`     | exit statuses and error output |
| `output.py`     | JSON and the progress bar |
| `parsing.py`    | sections, lengths and options, parsed from text |
"""

from outcore.cli.commands import main, parse_section

__all__ = ["main", "parse_section"]
