#!/usr/bin/env python3
"""Compares the public API of the library's crates with docs/public-api, so that no change of it goes unseen.

`tools/public_api.py` compares, and `tools/public_api.py --write` rewrites the listings. rustdoc says what is public, in its JSON
format; features are all on, except those that open a store. Exits with 75 if the listings were made from another version of
that format and differ, because then the difference may be only the format's.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from public_api_words import Words

ROOT = Path(__file__).resolve().parent.parent
CRATES = ["leasehold", "leasehold-core", "leasehold-store"]
# Features that change nothing in the API but what it can open, and one that no real build has.
LEFT_OUT = {"default", "local", "etcd", "redis", "kubernetes", "object", "sabotage"}


def rustdoc(crate):
    """What rustdoc says of a crate."""
    metadata = run("cargo", "metadata", "--locked", "--no-deps", "--format-version", "1")
    features = next(package["features"] for package in metadata["packages"] if package["name"] == crate)
    wanted = ",".join(sorted(set(features) - LEFT_OUT))
    with tempfile.TemporaryDirectory() as folder:
        # The JSON format is unstable. Only rustdoc learns that it may be used: build scripts that look for an unstable
        # compiler would run again, and everything after them.
        wrapper = Path(folder) / "rustdoc"
        wrapper.write_text('#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec "$REAL_RUSTDOC" "$@"\n')
        wrapper.chmod(0o755)
        real = os.environ.get("RUSTDOC", "rustdoc")
        environment = dict(os.environ, RUSTDOC=str(wrapper), REAL_RUSTDOC=real)
        environment.pop("RUSTDOCFLAGS", None)
        command = ["cargo", "rustdoc", "--locked", "--quiet", "-p", crate, "--lib", "--no-default-features", "--features", wanted]
        command += ["--", "-Zunstable-options", "--output-format", "json", "--cap-lints", "allow"]
        subprocess.run(command, cwd=ROOT, env=environment, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", metadata["target_directory"]))
    return json.loads((ROOT / target / "doc" / (crate.replace("-", "_") + ".json")).read_text())


def run(*command):
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)


def differences(before, after):
    """What one listing lacks and what it has in addition.

    >>> differences(["a", "b"], ["b", "c"])
    ['- a', '+ c']
    """
    gone, new = set(before) - set(after), set(after) - set(before)
    return ["- " + line for line in before if line in gone] + ["+ " + line for line in after if line in new]


def main():
    write = sys.argv[1:] == ["--write"]
    if sys.argv[1:] and not write:
        sys.exit(__doc__)
    changed, incomparable = False, False
    for crate in CRATES:
        said = rustdoc(crate)
        head = f"# The public API of {crate}, by tools/public_api.py --write (rustdoc format {said['format_version']})."
        lines = Words(said).listing()
        file = ROOT / "docs" / "public-api" / f"{crate}.txt"
        if write:
            file.write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")
            print(f"{file.relative_to(ROOT)}: {len(lines)} lines")
            continue
        before = file.read_text(encoding="utf-8").splitlines() if file.exists() else [""]
        found = differences(before[1:], lines)
        if found and before[0] and before[0] != head:
            incomparable = True
            print(f"{crate}: the listing is of another version of rustdoc's format", file=sys.stderr)
        elif found:
            changed = True
            print(f"{crate}: the public API is not what {file.relative_to(ROOT)} says:", *found, sep="\n  ")
    if changed:
        print("Is the change intended? Then rewrite the listings with: tools/public_api.py --write")
        return 1
    return 75 if incomparable else 0


if __name__ == "__main__":
    sys.exit(main())
