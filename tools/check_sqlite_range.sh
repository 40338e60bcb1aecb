#!/usr/bin/env bash
# Runs the local store's tests with the oldest rusqlite that Cargo.toml allows, beside Cargo.lock, which has the newest:
# a program links SQLite once, so the range must hold at both ends.
set -euo pipefail
cd "$(dirname "$0")/.."
oldest=$(sed -n 's/^rusqlite = { version = ">=\([0-9.]*\),.*/\1/p' Cargo.toml)
[ -n "$oldest" ] || { echo 'Cargo.toml has no range of rusqlite' >&2; exit 1; }
mkdir -p "${CARGO_TARGET_DIR:=target}"
CARGO_TARGET_DIR=$(cd "$CARGO_TARGET_DIR" && pwd)
export CARGO_TARGET_DIR
# Another workspace of the same files, with a lock file of its own; always in the same place, so that it is built once.
workspace=$CARGO_TARGET_DIR/oldest-rusqlite
mkdir -p "$workspace"
cp Cargo.toml Cargo.lock "$workspace"
for name in crates stores tools README.md; do ln -sfn "$PWD/$name" "$workspace/$name"; done
cd "$workspace"
cargo update --quiet -p rusqlite --precise "$oldest.0"
echo "-- rusqlite $oldest"
cargo test --locked --quiet -p leasehold-local --lib --tests -- --test-threads=2
