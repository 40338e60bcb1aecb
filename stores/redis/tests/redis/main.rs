//! Redis and Valkey, as real servers. A test whose program is missing is skipped, and says so.

mod access;
mod cluster;
mod common;
mod conformance;
mod examined;
mod failover;
mod failures;
mod lives;
mod nodes;
mod relay;
mod runtimes;
