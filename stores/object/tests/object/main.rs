//! The object store, on real servers.

mod common;
mod conformance;
mod faults;
mod proxy;
mod refusals;
