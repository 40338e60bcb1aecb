//! Tests of the library as its users see it.

mod bench;
mod client;
#[cfg(target_os = "linux")]
mod deadman;
mod node;
mod registry;
mod threads;
