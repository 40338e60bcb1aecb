#!/usr/bin/env bash
# Runs the local store's tests with the oldest rusqlite that Cargo.toml allows, beside Cargo.lock, which has the newest:
# a program links SQLite once, so the range must hold at both ends.
set -euo pipefail
cd "$(dirname "$0")/.."
oldest=$(sed -n 's/^rusqlite = { version = ">=\([0-9.]*\),.*/\1/p' Cargo.toml)
[ -n "$oldest" ] || { echo 'Cargo.toml has no range of rusqlite' >&2; exit 1; }
# Another workspace of the same files, with a lock file of its own.
workspace=$(mktemp -d)
trap 'rm -rf "$workspace"' EXIT
cp Cargo.toml Cargo.lock clippy.toml "$workspace"
for name in crates stores tools README.md; do ln -s "$PWD/$name" "$workspace/$name"; done
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
cd "$workspace"
cargo update --quiet -p rusqlite --precise "$oldest.0"
echo "-- rusqlite $oldest"
cargo test --locked --quiet -p leasehold-local --lib --tests -- --test-threads=2
