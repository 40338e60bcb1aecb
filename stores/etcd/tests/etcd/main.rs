//! The etcd store, on real servers.

mod basics;
mod common;
mod conformance;
