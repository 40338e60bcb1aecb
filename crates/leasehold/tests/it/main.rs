//! Tests of the library as its users see it.

#[cfg(target_os = "linux")]
mod deadman;
