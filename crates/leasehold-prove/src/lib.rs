//! The commands of the program `leasehold` that prove its promises: [`demo()`] shows them, [`check()`] tests them on a store,
//! [`bench()`] measures what they cost, and [`sim()`] tests the core in simulated clusters. Operators can build the program
//! without them.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[macro_use]
extern crate leasehold_cli_common;

mod bench;
mod check;
mod cluster;
mod demo;
mod sim;

pub use bench::{Bench, bench};
pub use check::{Check, check};
pub use cluster::hidden_main;
pub use demo::{Demo, demo};
pub use sim::{Sim, sim};
