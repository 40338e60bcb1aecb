//! Redis and Valkey, as real servers. A test whose program is missing is skipped, and says so.

#[allow(dead_code)]
mod common;
mod conformance;
