#!/usr/bin/env python3
"""Checks that ARCHITECTURE.md, GUARANTEES.md and CHAOS.md name files and functions that exist.

A reference is `path/file.rs::name`, or `path/file.rs` followed by a colon and names, as in `node/fencing.rs`: `suspect`, `probe`.
The path is the end of a path in the repository. In ARCHITECTURE.md a bare `file.rs` counts as a reference too.
"""

import re
import subprocess
import sys
from pathlib import Path

PLACE = r"`((?:[\w-]+/)*[\w-]+\.(?:rs|py|lua))"
NAME = r"`([A-Za-z_]\w*)`"


def references(text):
    """The references in a text, each as (path, name); the name is None where only the file is named.

    >>> references("`a/b.rs::c` and `d.rs`: `e`, `f`; `g.rs`: `h`, which `i` calls")
    [('a/b.rs', 'c'), ('d.rs', 'e'), ('d.rs', 'f'), ('g.rs', 'h')]
    >>> references("`only.rs` has no name")
    [('only.rs', None)]
    """
    found = []
    for match in re.finditer(PLACE + r"(?:::(\w+))?`(:\s" + NAME + r"(?:,\s" + NAME + r")*)?", text):
        path, name, names = match.group(1), match.group(2), match.group(3)
        if names:
            found += [(path, each) for each in re.findall(NAME, names)]
        else:
            found.append((path, name))
    return found


def defines(source, name):
    """Whether a source has a function, type, constant or variant of this name.

    >>> defines("pub(super) fn step(&mut self) {", "step"), defines("self.step()", "step")
    (True, False)
    >>> defines("enum Timer { Renew, }", "Timer"), defines("def place(question):", "place")
    (True, True)
    >>> defines("local function fetch(key)", "fetch")
    True
    """
    return re.search(r"\b(?:fn|struct|enum|trait|type|const|static|mod|def|function)\s+" + re.escape(name) + r"\b", source) is not None


def problems(document, files):
    """What a document says wrongly; `files` has the source of every path in the repository."""
    wrong = []
    for path, name in references(document):
        matches = [source for file, source in files.items() if file == path or file.endswith("/" + path)]
        if not matches:
            wrong.append(f"`{path}`: there is no such file")
        elif name and not any(defines(source, name) for source in matches):
            wrong.append(f"`{path}`: it has no `{name}`")
    return wrong


def main():
    root = Path(__file__).resolve().parent.parent
    listed = subprocess.run(["git", "ls-files"], cwd=root, check=True, capture_output=True, text=True).stdout.split("\n")
    files = {}
    for file in listed:
        if file.endswith((".rs", ".py", ".lua")) and (root / file).exists():
            files[file] = (root / file).read_text(encoding="utf-8")
    failed = False
    for document in ["ARCHITECTURE.md", "GUARANTEES.md", "CHAOS.md"]:
        for problem in problems((root / document).read_text(encoding="utf-8"), files):
            print(f"{document}: {problem}")
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
