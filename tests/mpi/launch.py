"""
One rank of a test run: ``mpiexec -n N python tests/mpi/launch.py LOGS LIMIT [pytest options]``.

Only rank 0 prints; what others say goes to files in LOGS. After LIMIT seconds each rank tells where
it is, and ends.
"""

import faulthandler
import os
import sys
from pathlib import Path


def main():
    logs, limit, *options = sys.argv[1:]
    names = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")
    rank = next(int(os.environ[name]) for name in names if name in os.environ)
    if rank:
        log = os.open(Path(logs) / f"rank-{rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        options = [option for option in options if not option.startswith("--junitxml")]
    # Not where pytest captures what tests say.
    alarm = os.fdopen(os.dup(2), "w")
    faulthandler.enable(alarm)
    faulthandler.dump_traceback_later(float(limit), exit=True, file=alarm)
    os.environ["OUTCORE_TESTS_UNDER_MPI"] = "1"

    import pytest

    usual = ["-q", "-rfE", "--color=no"]
    for plugin in ("xdist", "cacheprovider", "faulthandler"):  # the last calls our alarm off
        usual += ["-p", f"no:{plugin}"]
    # Ranks that end together would remove the same dead links.
    usual += ["-o", "tmp_path_retention_policy=all", "-o", "tmp_path_retention_count=3"]
    code = pytest.main([*usual, *options])
    faulthandler.cancel_dump_traceback_later()
    sys.stdout.flush()
    raise SystemExit(int(code))


if __name__ == "__main__":
    main()
