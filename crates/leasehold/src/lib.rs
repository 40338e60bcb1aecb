//! Every shard of your work run by exactly one live process: spread by capacity, handed over in milliseconds, and
//! **stopped before its lease can be lost**, on the store that you already run.
//!
//! ```no_run
//! use leasehold::{Group, Node};
//!
//! # async fn example() -> Result<(), leasehold::BoxError> {
//! let store = leasehold::store::open("local:./work.db", "demo")?;
//! let node = Node::builder(store)
//!     .name("worker-1")
//!     .group(Group::numbered("orders", 64), |grant| async move {
//!         while !grant.stopping().is_cancelled() {
//!             grant.check()?; // right before every side effect
//!             // … work on grant.shard(), and put grant.epoch() into conditional writes
//!             tokio::time::sleep(std::time::Duration::from_millis(100)).await;
//!         }
//!         Ok(())
//!     })
//!     .start()
//!     .await?;
//! tokio::signal::ctrl_c().await?;
//! node.leave().await;
//! # Ok(())
//! # }
//! ```
//!
//! # The parts
//!
//! - [`Node`] joins a namespace, holds shards and runs their handlers; [`Builder`] sets it up.
//! - [`Group`] is a set of shards: numbered, named, or one for leader election.
//! - [`Grant`] is what a handler gets: the shard, its epoch, [`check`](Grant::check), and the word to stop.
//! - [`Client`] watches without joining, finds who has a key, and carries operators' wishes.
//! - [`registry::Registry`] keeps any key alive under one shared lease, for other programs to read.
//! - [`observe`] lists all metrics.
//!
//! # What stops work
//!
//! A node renews its session from a thread of its own. If no renewal is confirmed in time, a watchdog thread that needs
//! nothing but the clock tells all work to stop at `stop_at`, a margin before anybody else may start; what still runs at
//! `kill_at` is cut off at its next `await`. Code that blocks a thread cannot be cut off from inside:
//! [`Builder::dead_man_timer`] lets the kernel kill the process then, and [`Grant::epoch`] lets the target of a write
//! refuse whoever is behind.
//! The promises, and first what is not promised, are in the repository's `GUARANTEES.md`.

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

mod alarm_clock;
mod builder;
mod chance;
mod client;
pub mod clock;
pub mod deadman;
mod driver;
mod error;
mod events;
mod grant;
mod group;
mod hooks;
mod launch;
mod locate;
mod node;
pub mod observe;
mod pulse;
pub mod registry;
mod session;
pub mod store;
pub mod tasks;
mod watchdog;

pub use builder::Builder;
pub use client::{Client, ClientOptions};
pub use driver::Finish;
pub use error::Error;
pub use events::{Events, Told};
pub use grant::{Grant, Lost, LostReason};
pub use group::{BoxError, Group, Outcome};
pub use hooks::Health;
pub use leasehold_core::config::{Backoff, Config};
pub use leasehold_core::event::{Located, Returning, Verdict};
pub use leasehold_core::explain::{Difference, Explanation, WhatIf};
pub use leasehold_core::record::{Policy, ShardSet, ZoneRule};
pub use leasehold_core::{Epoch, GroupName, Moment, NodeName, Notice, ShardId, ShardName, View};
pub use node::Node;
pub use pulse::Pulse;
