"""An environment of its own for each peer that has one: ``requirements/peers/NAME.txt``."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "target" / "peers"


def python_of(name: str) -> Path:
    """
    The Python of a peer's environment; made if its requirements changed.

    Raises
    ------
    OSError
        It cannot be made; the message has the last line of what pip says.
    """
    wanted = ROOT / "requirements" / "peers" / f"{name}.txt"
    folder = FOLDER / name
    stamp, python = folder / "stamp", folder / "bin" / "python"
    digest = hashlib.sha256(sys.version.encode() + wanted.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return python
    print(f"-- installing {name} into {folder.relative_to(ROOT)}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    _call(sys.executable, "-m", "venv", "--without-pip", folder)
    # pip of this Python installs into it, for some systems split ensurepip off.
    words = ["--quiet", "--disable-pip-version-check", "--no-deps", "-r", wanted]
    _call(sys.executable, "-m", "pip", "--python", python, "install", *words)
    stamp.write_text(digest)
    return python


def _call(*words: object) -> None:
    done = subprocess.run(
        [str(word) for word in words], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise OSError(f"{' '.join(map(str, words[1:4]))} failed: {lines[-1]}")
