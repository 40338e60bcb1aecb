//! What it takes to break real processes on purpose, and to judge what they did.
//!
//! - [`proxy`] stands between a node and its store and cuts, stalls, delays or resets their connections.
//! - [`process`] kills, stops and continues node processes, and knows by word of the kernel since when they don't run.
//! - [`record`] and [`worker`] are what nodes run: work that writes down when it ran.
//! - [`witness`] sees overlaps of work within one process, as they happen.
//! - [`history`] reads what was written down, and [`judge`] says whether the promises were kept. Both are pure.
//! - [`measure`] says how long things took. [`rng`] makes the choices of a seed.

pub mod history;
pub mod judge;
pub mod measure;
pub mod process;
pub mod proxy;
pub mod record;
pub mod rng;
pub mod witness;
pub mod worker;
