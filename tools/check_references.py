#!/usr/bin/env python3
"""Checks that ARCHITECTURE.md, GUARANTEES.md and CHAOS.md name files and functions that exist.

A reference is `path/file.rs::name`, or `path/file.rs` followed by a colon and names, as in `node/fencing.rs`: `suspect`, `probe`.
In ARCHITECTURE.md a bare `file.rs` counts as a reference too. A path means one file, found as a reader would find it:

- in the folder that the section named last before it and that has such a file (a folder is written `crates/x` or `node/`; of a
  crate its `src` counts as well);
- otherwise anywhere, if only one file of the repository ends in this path.

What could mean several files is reported: then the text must name the folder.
"""

import re
import subprocess
import sys
from pathlib import Path

PLACE = r"`((?:[\w-]+/)*[\w-]+\.(?:rs|py|lua))"
NAME = r"`([A-Za-z_]\w*)`"
REFERENCE = re.compile(PLACE + r"(?:::(\w+))?`(:\s" + NAME + r"(?:,\s" + NAME + r")*)?")
FOLDER = re.compile(r"`((?:[\w-]+/)+[\w-]*)`")


def references(text):
    """The references in a text, each as (where, path, name); the name is None where only the file is named.

    >>> [it[1:] for it in references("`a/b.rs::c` and `d.rs`: `e`, `f`; `g.rs`: `h`, which `i` calls")]
    [('a/b.rs', 'c'), ('d.rs', 'e'), ('d.rs', 'f'), ('g.rs', 'h')]
    >>> references("`only.rs` has no name")
    [(0, 'only.rs', None)]
    """
    found = []
    for match in REFERENCE.finditer(text):
        path, name, names = match.group(1), match.group(2), match.group(3)
        if names:
            found += [(match.start(), path, each) for each in re.findall(NAME, names)]
        else:
            found.append((match.start(), path, name))
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


def within(folders, path, known):
    """What a path means in the innermost of these folders that has it, or None.

    >>> within(["crates/a", "crates/a/src/node"], "mod.rs", {"crates/a/src/mod.rs", "crates/a/src/node/mod.rs"})
    'crates/a/src/node/mod.rs'
    >>> within(["crates/a"], "mod.rs", {"crates/a/src/mod.rs", "mod.rs"})
    'crates/a/src/mod.rs'
    """
    for folder in reversed(folders):
        for each in (f"{folder}/{path}", f"{folder}/src/{path}"):
            if each in known:
                return each
    return None


def meant(folders, path, known):
    """All that a path can mean: one thing, if the document is right."""
    exact = path if path in known else within(folders, path, known)
    return [exact] if exact else sorted(each for each in known if each.endswith("/" + path))


def problems(document, files):
    """What a document says wrongly; `files` has the source of every path in the repository.

    >>> files = {"a/src/mod.rs": "fn f() {}", "a/src/node/mod.rs": "fn step() {}"}
    >>> problems("In `a/src/node`: `mod.rs::step`, not `mod.rs::f`.", files)
    ['`mod.rs` (a/src/node/mod.rs): it has no `f`']
    >>> problems("`mod.rs::step`", files)
    ['`mod.rs`: name its folder, for it may be a/src/mod.rs or a/src/node/mod.rs']
    >>> problems("## `a`\\n`src/node/mod.rs::step` in `node/`: `mod.rs::step`\\n## else\\n`none.rs`", files)
    ['`none.rs`: there is no such file']
    """
    all_folders = {"/".join(file.split("/")[:depth]) for file in files for depth in range(1, file.count("/") + 1)}
    wrong = []
    for section in re.split(r"^(?=#+ )", document, flags=re.MULTILINE):
        folders = []
        marks = [(match.start(), match.group(1).rstrip("/"), None) for match in FOLDER.finditer(section)]
        marks += [(at, path, (name,)) for at, path, name in references(section)]
        for _, path, named in sorted(marks, key=lambda mark: mark[0]):
            if named is None:
                found = meant(folders, path, all_folders)
                folders += found if len(found) == 1 else []
                continue
            name, found = named[0], meant(folders, path, files)
            if not found:
                wrong.append(f"`{path}`: there is no such file")
            elif len(found) > 1:
                wrong.append(f"`{path}`: name its folder, for it may be {' or '.join(found)}")
            elif name and not defines(files[found[0]], name):
                wrong.append(f"`{path}` ({found[0]}): it has no `{name}`")
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
