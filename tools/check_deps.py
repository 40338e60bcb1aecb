#!/usr/bin/env python3
"""Checks the dependencies against deny.toml (licences, bans, sources, duplicate versions) and the workspace's rust-version.

A light stand-in for cargo-deny, which takes long to build: it looks at the graph of this machine's platform with all
features, and knows only the rules that deny.toml uses.
"""

import collections
import json
import re
import subprocess
import sys

try:
    import tomllib
except ImportError:
    sys.exit("tools/check_deps.py needs Python 3.11 or newer.")


def is_allowed(expression, allowed):
    """Whether a licence expression (SPDX) can be met with the allowed licences.

    >>> allowed = {"MIT", "ISC", "Apache-2.0"}
    >>> [is_allowed(text, allowed) for text in ("MIT", "GPL-3.0", "GPL-3.0 OR MIT", "GPL-3.0/MIT", "MIT AND GPL-3.0")]
    [True, False, True, True, False]
    >>> [is_allowed(text, allowed) for text in ("(MIT OR GPL-3.0) AND ISC", "MIT OR GPL-3.0 AND ISC", "(MIT AND X) OR Y")]
    [True, True, False]
    >>> [is_allowed(text, allowed) for text in ("Apache-2.0 WITH LLVM-exception", "Apache-2.0 WITH LLVM-exception OR MIT")]
    [False, True]
    >>> is_allowed(None, allowed)
    False
    """
    words = re.findall(r"\(|\)|[^\s()]+", (expression or "").replace("/", " OR "))

    # AND binds more strongly than OR.
    def either():
        met = both()
        while words[:1] == ["OR"]:
            words.pop(0)
            met = both() or met
        return met

    def both():
        met = one()
        while words[:1] == ["AND"]:
            words.pop(0)
            met = one() and met
        return met

    def one():
        word = words.pop(0) if words else ""
        if word == "(":
            met = either()
            words[:1] = []
            return met
        if words[:1] == ["WITH"]:
            word = " ".join([word, words.pop(0), words.pop(0)])
        return word in allowed

    return either()


def version(text):
    """
    >>> version("1.89") == version("1.89.0"), version("1.9") < version("1.89")
    (True, True)
    """
    return tuple(int(part) for part in (text + ".0.0").split(".")[:3])


def problems(rules, packages, msrv):
    """All that breaks a rule.

    >>> rules = {
    ...     "licenses": {"allow": ["MIT"]},
    ...     "bans": {"deny": [{"crate": "openssl", "reason": "one TLS stack"}]},
    ...     "sources": {"allow-registry": ["https://index"]},
    ... }
    >>> def package(name, **other):
    ...     good = {"version": "1.0.0", "license": "MIT", "source": "registry+https://index", "rust_version": None}
    ...     return {"name": name, **good, **other}
    >>> problems(rules, [package("a"), package("b", source=None)], "1.89")
    []
    >>> bad = [package("c", license="X"), package("openssl"), package("d", source="git+https://x"), package("e", rust_version="1.90")]
    >>> for problem in problems(rules, bad, "1.89"):
    ...     print(problem)
    c 1.0.0: the licence "X" is not allowed
    openssl 1.0.0 is banned: one TLS stack
    d 1.0.0: the source git+https://x is not allowed
    e 1.0.0 needs Rust 1.90, newer than the workspace's rust-version 1.89
    """
    allowed = set(rules["licenses"]["allow"])
    banned = {ban["crate"]: ban["reason"] for ban in rules["bans"]["deny"]}
    sources = {None} | {"registry+" + url for url in rules["sources"]["allow-registry"]}
    found = []
    for package in packages:
        name = f"{package['name']} {package['version']}"
        if not is_allowed(package["license"], allowed):
            found.append(f'{name}: the licence "{package["license"]}" is not allowed')
        if package["name"] in banned:
            found.append(f"{name} is banned: {banned[package['name']]}")
        if package["source"] not in sources:
            found.append(f"{name}: the source {package['source']} is not allowed")
        if package["rust_version"] and version(package["rust_version"]) > version(msrv):
            found.append(f"{name} needs Rust {package['rust_version']}, newer than the workspace's rust-version {msrv}")
    return found


def main():
    with open("deny.toml", "rb") as file:
        rules = tomllib.load(file)
    with open("Cargo.toml", "rb") as file:
        msrv = tomllib.load(file)["workspace"]["package"]["rust-version"]
    rustc = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout
    host = re.search("^host: (.*)$", rustc, re.MULTILINE)[1]
    command = ["cargo", "metadata", "--locked", "--format-version=1", "--all-features", "--filter-platform", host]
    packages = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["packages"]

    versions = collections.defaultdict(list)
    for package in packages:
        versions[package["name"]].append(package["version"])
    for name, several in sorted(versions.items()):
        if len(several) > 1:
            print(f"warning: {name} is there in several versions: {', '.join(several)}")

    found = problems(rules, packages, msrv)
    print("\n".join(found) or f"{len(packages)} packages keep the rules of deny.toml, and none needs a Rust newer than {msrv}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
