"""The files of a crate, and which of them use which: circles are groups that use each other."""

import re
from pathlib import Path

_TESTS = re.compile(r"#\[cfg\(test\)\]\s*\nmod \w+ \{")


class Crate:
    """Modules of a crate by path, such as ``("collective", "mod")``, and their uses."""

    def __init__(self, source: Path) -> None:
        self.files = {}
        for file in sorted(source.rglob("*.rs")):
            parts = file.relative_to(source).with_suffix("").parts
            name = parts[:-1] if parts[-1] == "mod" else parts
            if not any("test" in part for part in name):
                self.files[() if name == ("lib",) else name] = file
        self._exported = self._exports()
        self.uses = {name: self._used(name) for name in self.files}

    def _exports(self) -> dict[str, tuple[str, ...]]:
        """What ``lib.rs`` exports, and the module that it is from."""
        found = {}
        for path in _trees(self.files[()].read_text(), r"pub(?:\(crate\))? use ([^;]+);"):
            found[path[-1]] = tuple(part for part in path[:-1] if part != "crate")
        return found

    def _used(self, name: tuple[str, ...]) -> set[tuple[str, ...]]:
        text = re.sub(r"//[^\n]*", "", _TESTS.split(self.files[name].read_text())[0])
        paths = _trees(text, r"\buse ([^;]+);")
        paths += [path.split("::") for path in re.findall(r"\b(?:crate|super)(?:::\w+)+", text)]
        found = {self._module(name, path) for path in paths}
        return {one for one in found if one is not None and one != name}

    def _module(self, name: tuple[str, ...], path: list[str]) -> tuple[str, ...] | None:
        """The module that a path leads to, from a module; None if it is of another crate."""
        at, rest = list(name), list(path)
        if rest[0] == "crate":
            at = []
        elif rest[0] not in ("self", "super") and (*name, rest[0]) not in self.files:
            return None
        while rest and rest[0] in ("crate", "self", "super"):
            at = at[:-1] if rest.pop(0) == "super" else at
        whole = (*at, *rest)
        known = next(whole[:n] for n in range(len(whole), -1, -1) if whole[:n] in self.files)
        return known or self._exported.get(whole[0] if whole else "", None)

    def circles(self) -> list[set[tuple[str, ...]]]:
        """Groups of modules of which each leads to all others (Warshall)."""
        reach = {name: set(used) for name, used in self.uses.items()}
        for between in reach:
            for there in reach.values():
                if between in there:
                    there |= reach[between]
        found: list[set[tuple[str, ...]]] = []
        for name in reach:
            group = {other for other in reach[name] if name in reach.get(other, ())}
            if group and group not in found:
                found.append(group)
        return found


def _trees(text: str, pattern: str) -> list[list[str]]:
    """Paths of `use` declarations, with ``{a, b}`` taken apart."""
    found: list[list[str]] = []

    def walk(before: list[str], tree: str) -> None:
        tree = tree.strip()
        group = re.fullmatch(r"([\w:]*?)(?:::)?\{(.*)\}", tree, re.S)
        if group is None:
            parts = [part for part in tree.split(" as ")[0].split("::") if part]
            if parts or before:
                found.append([*before, *parts])
            return
        depth, item = 0, ""
        before = [*before, *(part for part in group[1].split("::") if part)]
        for letter in group[2] + ",":
            depth += (letter == "{") - (letter == "}")
            if letter == "," and depth == 0:
                if item.strip():
                    walk(before, item)
                item = ""
            else:
                item += letter

    for tree in re.findall(pattern, text):
        walk([], re.sub(r"\s+", " ", tree))
    return found
