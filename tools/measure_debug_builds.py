#!/usr/bin/env python3
"""Measures what the profile lines in crates/leasehold/README.md are worth to a debug build: `tools/measure_debug_builds.py`.

Builds one small program outside the workspace, with and without the lines, runs both by turns, and compares the processor
time that they take to place 20,000 shards on 100 nodes.
"""

import re
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 5
MANIFEST = """[package]
name = "plan"
version = "0.0.0"
edition = "2024"
[workspace]
[dependencies]
leasehold-core = {{ path = "{core}" }}
{lines}
"""
PROGRAM = """
use leasehold_core::name::{GroupName, NodeName, ShardId};
use leasehold_core::placement::{Candidate, Placement, Question, Rendezvous};

fn main() {
    let group = GroupName::new("g").unwrap();
    let node = |i: u32| Candidate {
        name: NodeName::new(format!("worker-{i}")).unwrap(), weight: 1 + i % 8, capacity: None, zone: None,
    };
    let question = Question {
        nodes: (0..100).map(node).collect(),
        shards: (0..20_000).map(|slot| ShardId::slot(&group, slot)).collect(),
        policy: Default::default(),
        pins: Default::default(),
        declined: Default::default(),
    };
    for _ in 0..3 {
        std::hint::black_box(Rendezvous.place(&question));
    }
}
"""


def profile_lines(readme):
    """The profile lines that a README recommends.

    >>> profile_lines("a\\n```toml\\n[profile.dev.package.x]\\nopt-level = 2\\n```\\nb")
    '[profile.dev.package.x]\\nopt-level = 2\\n'
    """
    return re.search(r"```toml\n(\[profile\..*?)```", readme, re.DOTALL).group(1)


def build(folder, lines):
    (folder / "src").mkdir(parents=True)
    (folder / "Cargo.toml").write_text(MANIFEST.format(core=ROOT / "crates/leasehold-core", lines=lines))
    (folder / "Cargo.lock").write_bytes((ROOT / "Cargo.lock").read_bytes())
    (folder / "src/main.rs").write_text(PROGRAM)
    subprocess.run(["cargo", "build", "--quiet", "--target-dir", folder / "target"], cwd=folder, check=True)
    return folder / "target/debug/plan"


def processor_seconds(program):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run([program], check=True)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def main():
    lines = profile_lines((ROOT / "crates/leasehold/README.md").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        programs = {"without": build(Path(folder) / "without", ""), "with": build(Path(folder) / "with", lines)}
        times = {name: [] for name in programs}
        for _ in range(ROUNDS):
            for name, program in programs.items():
                times[name].append(processor_seconds(program))
    middle = {name: statistics.median(values) for name, values in times.items()}
    for name, seconds in middle.items():
        print(f"{name} the profile lines: {seconds / 3 * 1000:.0f} ms per plan (median of {ROUNDS} runs)")
    print(f"ratio: {middle['without'] / middle['with']:.1f}")


if __name__ == "__main__":
    sys.exit(main())
