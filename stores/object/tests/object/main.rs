//! The object store, on real servers.

mod common;
mod conformance;
