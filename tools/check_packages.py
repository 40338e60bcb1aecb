#!/usr/bin/env python3
"""Packages every crate that is published, without building it, and looks whether each package has what its readers need.

Packaging fails by itself where crates depend on each other in a circle, or on one that is not published.
"""

import json
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIELDS = ["description", "license", "repository", "documentation", "readme", "keywords", "categories", "rust_version"]
FILES = ["README.md", "LICENSE-MIT", "LICENSE-APACHE"]


def lacks(package, files):
    """What a package lacks, given the sizes of the files in it.

    >>> full = dict.fromkeys(FIELDS, "x") | {"documentation": "https://docs.rs/a", "name": "a"}
    >>> full["metadata"] = {"docs": {"rs": {"all-features": True, "rustdoc-args": ["--cfg", "docsrs"]}}}
    >>> lacks(full, dict.fromkeys(FILES, 1))
    []
    >>> lacks(full | {"keywords": [], "metadata": None}, {"README.md": 1, "LICENSE-MIT": 0})
    ['keywords', 'docs.rs settings', 'LICENSE-MIT', 'LICENSE-APACHE']
    """
    missing = [field for field in FIELDS if not package[field]]
    settings = ((package["metadata"] or {}).get("docs") or {}).get("rs") or {}
    if not settings.get("all-features") or "docsrs" not in settings.get("rustdoc-args", []):
        missing.append("docs.rs settings")
    return missing + [file for file in FILES if not files.get(file)]


def main():
    metadata = subprocess.run(["cargo", "metadata", "--locked", "--no-deps", "--format-version", "1"],
                              cwd=ROOT, check=True, capture_output=True, text=True)
    metadata = json.loads(metadata.stdout)
    published = [package for package in metadata["packages"] if package["publish"] != []]
    command = ["cargo", "package", "--workspace", "--no-verify", "--allow-dirty", "--quiet"]
    for package in metadata["packages"]:
        command += ["--exclude", package["name"]] if package["publish"] == [] else []
    # The index of what is in Cargo.lock is usually at hand, and reading it again takes a minute.
    if subprocess.run([*command, "--offline"], cwd=ROOT, capture_output=True).returncode != 0:
        if subprocess.run(command, cwd=ROOT).returncode != 0:
            return 1
    wrong = False
    for package in published:
        name = f"{package['name']}-{package['version']}"
        with tarfile.open(Path(metadata["target_directory"]) / "package" / f"{name}.crate") as archive:
            files = {file.name.removeprefix(name + "/"): file.size for file in archive.getmembers() if file.isfile()}
        missing = lacks(package, files)
        wrong = wrong or bool(missing)
        print(f"{name}: {len(files)} files" + (", lacks " + ", ".join(missing) if missing else ""))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
