"""
The licences of what is compiled into a wheel: ``LICENSES-THIRD-PARTY.txt``, which goes with it.

    .venv/bin/python tests/release/licences.py      write it anew, after a dependency changed

Problem. The compiled module holds crates and C libraries of others, whose licences ask that their texts
go with every copy. Idea. cargo tells the crates, whose sources have the texts; of the C libraries in
them the texts lie deeper, in places that are listed here. Equal texts stand once.
"""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "LICENSES-THIRD-PARTY.txt"
#: Of a choice of licences the first that is offered; names as crates use them.
CHOICE = ("LICENSE-MIT", "LICENSE", "LICENSE.md", "LICENSE.txt", "COPYING", "LICENSE-APACHE")
#: C libraries within crates, and where their texts are.
WITHIN = {
    "libdeflate-sys": ("libdeflate", "libdeflate/COPYING"),
    "libz-sys": ("zlib", "src/zlib/LICENSE"),
    "lz4-sys": ("LZ4", "liblz4/lib/LICENSE"),
    "zstd-sys": ("Zstandard", "zstd/LICENSE"),
}
#: The crate has C-Blosc without its texts; numcodecs (requirements/dev.txt) has both.
BLOSC = ("LICENSE.txt", "LICENSES/BITSHUFFLE.txt", "LICENSES/FASTLZ.txt", "LICENSES/ZLIB-NG.txt")
HEAD = """\
The compiled module of outcore (outcore/_core.abi3.so) is made of outcore, under the licence in LICENSE;
of the standard library of Rust, under the MIT licence, whose text is the first one below; and of what is
named below, each under the licence that follows it. Of a choice of licences MIT was taken.
"""


def crates() -> dict[str, Path]:
    """The crates of others in the module: name and version, and the folder of the source."""
    tree = ["cargo", "tree", "--locked", "-p", "outcore-py", "--prefix", "none"]
    tree += ["-e", "normal,no-proc-macro", "--format", "{p}"]
    listed = subprocess.run(tree, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = {" ".join(line.split()[:2]) for line in listed.splitlines() if "(/" not in line}
    # Crates for other systems need not be on this machine.
    host = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout
    triple = host.partition("host: ")[2].split()[0]
    meta = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", triple]
    told = subprocess.run(meta, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    places = {
        f"{one['name']} v{one['version']}": Path(one["manifest_path"]).parent
        for one in json.loads(told)["packages"]
    }
    return {name: places[name] for name in sorted(names)}


def parts() -> list[tuple[str, str]]:
    """What needs a text, and the text."""
    found = []
    for name, folder in crates().items():
        file = next((folder / choice for choice in CHOICE if (folder / choice).exists()), None)
        if file is not None:
            found.append((name, file.read_text("utf-8")))
        inner = WITHIN.get(name.split()[0])
        if inner is not None:
            found.append((f"{inner[0]} (in {name})", (folder / inner[1]).read_text("utf-8")))
        if name.startswith("blosc-src "):
            files = importlib.metadata.files("numcodecs") or []
            for wanted in BLOSC:
                path = next(f for f in files if str(f).endswith(f"licenses/c-blosc/{wanted}"))
                found.append((f"C-Blosc (in {name})", path.read_text("utf-8")))
        elif file is None:
            raise FileNotFoundError(f"{name}: no text of its licence in {folder}")
    return found


def text() -> str:
    """The whole file."""
    who: dict[str, list[str]] = {}
    for name, body in parts():
        body = "\n".join(line.rstrip() for line in body.strip().splitlines())
        who.setdefault(body, []).append(name)
    bar = "=" * 78
    made = [f"{bar}\n{', '.join(names)}\n{bar}\n\n{body}\n" for body, names in who.items()]
    return "\n".join([HEAD, *made])


if __name__ == "__main__":
    FILE.write_text(text(), "utf-8")
    print(f"{FILE.name}: {FILE.stat().st_size} bytes")
