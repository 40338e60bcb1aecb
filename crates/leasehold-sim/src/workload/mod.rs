//! Simulated user code: what a node runs for a shard it holds, and what that code writes to.

mod parts;
mod sink;
mod worker;

pub(crate) use sink::Sink;
pub(crate) use worker::{WorkEvent, Worker};
