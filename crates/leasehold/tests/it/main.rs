//! Tests of the library as its users see it.

mod bench;
mod client;
#[cfg(target_os = "linux")]
mod deadman;
mod endings;
mod handlers;
#[cfg(feature = "local")]
mod local;
mod metrics;
mod node;
mod observe;
mod recorder;
mod registry;
mod testing;
mod threads;
