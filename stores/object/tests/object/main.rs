//! The object store, on real servers.

mod careless;
mod common;
mod conformance;
mod faults;
mod nodes;
mod proxy;
mod queue;
mod refusals;
mod registering;
