//! The pure heart of Leasehold: who holds which shard, until when, and what to do next.
//!
//! There is no clock, no I/O, no async and no randomness in here. A driver tells the core what time it is and what
//! happened ([`Event`]); the core answers with what must be done ([`Action`]). The same code runs in production, in
//! the simulator and in tests.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod config;
pub mod event;
pub mod explain;
pub mod may_move;
pub mod mirror;
pub mod name;
pub mod node;
pub mod notice;
pub mod observer;
pub mod placement;
pub mod plan;
pub mod record;
mod rng;
pub mod rules;
mod span;
pub mod splitmix;
pub mod store;
pub mod time;
pub mod view;
pub mod warning;
pub mod work;

pub use config::{Config, GroupConfig};
pub use event::{Action, Command, Deadlines, Event};
pub use name::{Epoch, GroupName, NodeName, SessionId, ShardId, ShardName};
pub use node::Node;
pub use notice::Notice;
pub use observer::Observer;
pub use time::{Moment, Now};
pub use view::View;
