//! Tests of the library as its users see it.

mod bench;
#[cfg(target_os = "linux")]
mod deadman;
mod node;
