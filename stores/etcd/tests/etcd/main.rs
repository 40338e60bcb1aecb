//! The etcd store, on real servers.

mod basics;
mod common;
mod conformance;
mod members;
mod nodes;
mod registered;
mod security;
