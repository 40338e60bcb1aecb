//! Tools that break real processes on purpose, and judge what they did.
//!
//! - [`proxy`] stands between a node and its store and cuts, stalls, delays or resets their connections.
//! - [`process`] kills, stops and continues node processes, and knows from the kernel since when they do not run.
//! - [`record`] and [`worker`] are what nodes run: work that records when it ran.
//! - [`witness`] detects overlaps of work within one process, while they happen.
//! - [`history`] reads the record, and [`judge`] checks the promises. Both are pure.
//! - [`measure`] computes how long things took. [`rng`] makes random choices from a seed.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod history;
pub mod judge;
pub mod measure;
pub mod process;
pub mod proxy;
pub mod record;
pub mod rng;
pub mod witness;
pub mod worker;
