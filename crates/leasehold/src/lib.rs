//! Every shard of your work is run by exactly one live process: spread by capacity, handed over in milliseconds, and
//! stopped before its lease can be lost.
//!
//! Start with [`Node::builder`]: a node is made from a [store](store::open), a name and the [`Group`]s of shards that it
//! serves, each with a handler that is called with a [`Grant`]. [`Client`] watches without joining. The promises, and
//! first what is not promised, are in the repository's `GUARANTEES.md`.

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
pub use node::Node;
