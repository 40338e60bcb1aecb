//! The etcd store, on real servers.

mod basics;
mod common;
mod conformance;
mod cut;
mod members;
mod nodes;
mod peers;
mod registered;
mod security;
