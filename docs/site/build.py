"""
The site of the documentation, in one command: ``./x docs`` (or ``./x docs site``, the site alone).

    python docs/site/build.py FOLDER      FOLDER/html is the site, FOLDER/source what Sphinx read

Problem. The documents are read in the repository, where links lead to any file and folder; a site has
only its pages. Idea. A folder is laid out like the repository, with what the documents lead to: other
documents (found by following links), and files, which a reader may fetch. The pages of the reference are
made beside them (`reference.py`). Where a document has ``<!-- picture: NAME.svg: what it shows -->`` its
code, which is run for it, draws the picture. Sphinx finds the pages by globs in ``docs/index.md``.

Invariants. Nothing is fetched. Every warning is an error: a page in no table of contents, a link that
leads nowhere, a docstring that is no valid text.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
#: Where it begins; what these lead to comes along.
BEGIN = ("*.md", "docs/**/*.md", "bench/*.md")
PICTURE = re.compile(r"^<!-- picture: (\S+\.svg): (.+) -->$", re.M)
LINK = re.compile(r"(\]\()([^)#:\s]+)(#[^)\s]*)?(\))")
FENCE = re.compile(r"^( *)```.*?^\1```", re.S | re.M)


def links_of(text: str) -> list[str]:
    """What a document links to in this repository, outside of its code."""
    return [link[2] for link in LINK.finditer(FENCE.sub("", text))]


def documents() -> tuple[list[Path], list[Path]]:
    """All documents of the site, and all other files that they lead to."""
    waiting = [path for pattern in BEGIN for path in sorted(ROOT.glob(pattern))]
    pages: dict[Path, None] = {}
    files: dict[Path, None] = {}
    while waiting:
        page = waiting.pop(0)
        if page in pages:
            continue
        pages[page] = None
        for link in links_of(page.read_text("utf-8")):
            there = Path(os.path.normpath(page.parent / link))
            if there.is_dir() and (there / "README.md").exists():
                there /= "README.md"
            if there.suffix == ".md":
                waiting.append(there)
            elif there.is_file():
                files[there] = None
    return list(pages), list(files)


def for_site(page: Path, text: str) -> str:
    """The text of a document with links and pictures as the site has them."""

    def lead(link: re.Match[str]) -> str:
        there = Path(os.path.normpath(page.parent / link[2]))
        if not there.is_dir():
            return link[0]
        # Of a folder its own page, or the one with all pages.
        to = there / "README.md"
        to = to if to.exists() else ROOT / "docs" / "index.md"
        return f"{link[1]}{os.path.relpath(to, page.parent)}{link[4]}"

    parts, at = [], 0
    for fence in FENCE.finditer(text):
        parts += [LINK.sub(lead, text[at : fence.start()]), fence[0]]
        at = fence.end()
    parts.append(LINK.sub(lead, text[at:]))
    return PICTURE.sub(lambda found: f"![{found[2]}]({found[1]})", "".join(parts))


def draw(page: Path, names: list[str], to: Path) -> None:
    """Run the code of a document, and take the pictures that it draws."""
    to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        # As on a usual machine, with disks that nobody measured: the same pictures everywhere.
        env = os.environ | {"OUTCORE_MEMORY": "1GiB", "OUTCORE_LEARN_DISKS": "0"}
        env |= {"XDG_CACHE_HOME": folder}
        command = [sys.executable, str(ROOT / "tests" / "docs" / "blocks.py"), str(page)]
        subprocess.run(command, cwd=folder, env=env, check=True, stdout=subprocess.DEVNULL)
        for name in names:
            shutil.copyfile(Path(folder) / name, to / name)


def lay_out(source: Path) -> list[Path]:
    """Make the folder that Sphinx reads; the documents in it."""
    shutil.rmtree(source, ignore_errors=True)
    pages, files = documents()
    for page in pages:
        to = source / page.relative_to(ROOT)
        to.parent.mkdir(parents=True, exist_ok=True)
        text = page.read_text("utf-8")
        names = [name for name, _ in PICTURE.findall(text)]
        if names:
            draw(page, names, to.parent)
        to.write_text(for_site(page, text), "utf-8")
    for file in files:
        to = source / file.relative_to(ROOT)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, to)
    return [source / page.relative_to(ROOT) for page in pages]


def main(folder: Path) -> int:
    """Build the site; the exit status."""
    started = time.monotonic()
    sys.path.insert(0, str(HERE))
    import reference

    source, html = folder / "source", folder / "html"
    pages = lay_out(source)
    names = reference.write(source / "docs" / "reference")
    shutil.rmtree(html, ignore_errors=True)
    words = ["-b", "html", "-c", HERE, "-d", folder / "doctrees", "-q", "-E", "-W", "--keep-going"]
    words += ["-j", "2", source, html]
    code = subprocess.run([sys.executable, "-m", "sphinx", *map(str, words)]).returncode
    if code:
        print("docs: every warning above is an error; mend the page or the docstring it names")
        return code
    (html / "index.html").write_text(
        '<!doctype html><meta http-equiv="refresh" content="0; url=docs/index.html">'
        '<a href="docs/index.html">outcore</a>\n'
    )
    took = time.monotonic() - started
    print(
        f"{len(pages)} pages, {len(names)} of the reference, in {took:.0f} s: {html / 'index.html'}"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]).resolve()))
