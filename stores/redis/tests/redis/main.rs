//! Redis and Valkey, as real servers. A test whose program is missing is skipped, and says so.

mod access;
mod cluster;
mod common;
mod conformance;
mod failover;
mod lives;
mod nodes;
mod runtimes;
mod troubles;
