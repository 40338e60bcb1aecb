#!/usr/bin/env bash
# Compiles the library without stores for systems other than Linux: `tools/check_platforms.sh [TARGET...]`. Nothing is
# installed: where the compiler lacks a target's standard library, that of the same version is fetched into the cache
# folder (27 MB each) and laid beside the compiler's own. Exits with 75 if it cannot be had, so that nothing was checked.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- x86_64-pc-windows-gnu aarch64-apple-darwin

sysroot=$(rustc --print sysroot)
version=$(rustc --version | cut -d' ' -f2)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/leasehold/rust-std-$version
unavailable() { printf '%s\n' "$1: rustup target add $target, or use a stable toolchain of rustup" >&2; exit 75; }

# Lays the standard library of $target beside the compiler's own in a folder, and prints the folder.
lay_out() {
  local name=rust-std-$version-$target url work
  if [ ! -d "$cache/lib/rustlib/$target" ]; then
    [[ $version =~ ^[0-9.]+$ ]] || unavailable "Rust $version has no standard library of $target to fetch"
    url=https://static.rust-lang.org/dist/$name.tar.xz
    mkdir -p "$cache/lib/rustlib"
    work=$(mktemp -d -p "$cache")
    {
      curl -sSf --retry 2 --max-time 300 -o "$work/$name.tar.xz" "$url" &&
        curl -sSf --retry 2 --max-time 60 -o "$work/sum" "$url.sha256" &&
        echo "$(head -c 64 "$work/sum")  $work/$name.tar.xz" | sha256sum --quiet -c - &&
        tar -xJf "$work/$name.tar.xz" -C "$work"
    } || { rm -rf "$work"; unavailable "the standard library of $target could not be fetched from $url"; }
    mv -T "$work/$name/rust-std-$target/lib/rustlib/$target" "$cache/lib/rustlib/$target"
    rm -rf "$work"
  fi
  # Build scripts and macros run on this machine.
  ln -sfn "$sysroot/lib/rustlib/$host" "$cache/lib/rustlib/$host"
  echo "$cache"
}

host=$(rustc -vV | sed -n 's/^host: //p')
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for target in "$@"; do
  flags='-D warnings'
  if [ ! -d "$sysroot/lib/rustlib/$target/lib" ]; then
    folder=$(lay_out)
    flags="$flags --sysroot $folder"
    # A distribution's compiler does not read what rustup's wrote.
    (cd "$scratch" && echo | rustc --sysroot "$folder" --target "$target" --crate-type lib --emit metadata - 2>/dev/null) ||
      unavailable "this compiler cannot use the standard library of $target that was fetched"
  fi
  printf -- '-- %s\n' "$target"
  variable=CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<<"$target")_RUSTFLAGS
  # Other flags would make Cargo ignore these.
  env -u RUSTFLAGS -u CARGO_ENCODED_RUSTFLAGS "$variable=$flags" \
    cargo check --locked --quiet -p leasehold --no-default-features --target "$target"
done
