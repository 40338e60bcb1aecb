//! What it takes to break real processes on purpose, and to judge what they did.
//!
//! - [`proxy`] stands between a node and its store and cuts, stalls, delays or resets their connections.

pub mod proxy;
