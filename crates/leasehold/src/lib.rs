//! Leasehold spreads shards of work over your processes. At most one live process runs a shard at a time, and one does
//! within a stated bound. Shards are spread by capacity, handed over in milliseconds, and **stopped before their lease
//! can be lost**, on the store that you already run.
//!
//! ```no_run
//! use leasehold::{Grant, Group, Node, Outcome};
//!
//! # async fn example() -> Result<(), leasehold::BoxError> {
//! let store = leasehold::store::open("local:./work.db", "demo")?;
//! let node = Node::builder(store)
//!     .name("worker-1")
//!     .group(Group::numbered("orders", 64), orders)
//!     .start()
//!     .await?;
//! node.leave_on(leasehold::shutdown_signal()).await; // SIGTERM or Ctrl-C: stop all work and hand it over
//! # Ok(())
//! # }
//!
//! async fn orders(grant: Grant) -> Outcome {
//!     while !grant.stopping().is_cancelled() {
//!         grant.check()?; // right before every side effect
//!         // … work on grant.shard(), and put grant.epoch() into conditional writes
//!         tokio::time::sleep(std::time::Duration::from_millis(100)).await;
//!     }
//!     Ok(())
//! }
//! ```
//!
//! # The parts
//!
//! - [`Node`] joins a namespace, holds shards and runs their handlers; [`Builder`] configures it.
//! - [`Group`] is a set of shards: numbered, named, or a single one for leader election.
//! - [`Grant`] is what a handler gets: the shard, its epoch, [`check`](Grant::check), and the signal to stop.
//! - [`Client`] watches without joining, finds the owner of a key, and writes operators' commands.
//! - [`registry::Registry`] keeps any key alive under one shared lease, for other programs to read.
//! - [`observe`] lists all metrics.
//! - `testing`, with the feature `test-util`, has grants without a node and stores that fail on purpose;
//!   [`docs/testing.md`](https://github.com/leasehold-dev/leasehold/blob/main/docs/testing.md) says how to test a handler.
//!
//! # Logs, events and metrics
//!
//! What a node does is told three times: in the log (`tracing`), as [`Events`], and as metrics through the `metrics` facade,
//! for any exporter. Handlers run in a [span](Grant::span) that names their shard. Install the exporter before the node
//! starts, so that nothing is missing from the counters:
//!
//! ```
//! # fn main() -> Result<(), leasehold::BoxError> {
//! let exporter = metrics_exporter_prometheus::PrometheusBuilder::new().install_recorder()?;
//! // … start the node, and serve this text at /metrics …
//! let page = exporter.render();
//! # assert!(page.is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! # What stops work
//!
//! A node renews its session from its own thread. If no renewal is confirmed in time, a watchdog thread that needs
//! only the clock tells all work to stop at `stop_at`, a margin before any other node may start it. Work that still
//! runs at `kill_at` is cut off at its next `await`. Code that blocks a thread cannot be cut off from inside:
//! [`Builder::dead_man_timer`] lets the kernel kill the process then, and [`Grant::epoch`] lets the target of a write
//! refuse a late writer.
//!
//! **Leasehold sees only handlers and what a grant owns:** [`Grant::spawn`], [`Grant::spawn_blocking`] and
//! [`Grant::guard`]. The shard stays held, and the dead-man timer armed, until all of that is gone. Any other task,
//! thread or process that a handler starts is invisible, and keeps running beside the next holder.
//!
//! # Platforms
//!
//! Leasehold is tested and run on Linux. Without features it also compiles for macOS and Windows, for development and for
//! stores of one's own. What is best effort there:
//!
//! | | Linux | macOS | Windows |
//! | --- | --- | --- | --- |
//! | a clock that counts suspend | `CLOCK_BOOTTIME` | the monotonic clock | `Instant`: nobody promises that it counts suspend |
//! | the watchdog wakes up after a suspend | at once: a kernel timer | within 50 ms | within 50 ms |
//! | [`Builder::dead_man_timer`] | yes | refused at the start | refused at the start |
//! | [`shutdown_signal`] | SIGTERM, SIGINT | SIGTERM, SIGINT | Ctrl-C |
//! | the feature `local`, and the program `leasehold` | yes | no | no |
//!
//! If a clock stands still while the machine sleeps, a node learns of the sleep from its wall clock: it detaches once the
//! wall clock has advanced by more than the margin and the other has not. Until that first comparison, nothing stops work
//! that wakes up with the machine.
//!
//! `GUARANTEES.md` in the repository lists what is not promised, and then what is. `docs/glossary.md` explains the
//! words.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct OwnReadme;

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

#[cfg(all(doctest, feature = "test-util"))]
#[doc = include_str!("../../../docs/testing.md")]
struct Testing;

mod alarm_clock;
mod builder;
mod client;
pub mod clock;
pub mod deadman;
mod driver;
mod error;
mod events;
mod grant;
mod group;
mod handler;
mod hooks;
mod launch;
mod locate;
mod node;
pub mod observe;
mod owned;
mod pulse;
pub mod registry;
mod rng;
mod session;
mod signal;
pub mod store;
pub mod tasks;
#[cfg(feature = "test-util")]
pub mod testing;
mod vitals;
mod watchdog;

pub use builder::Builder;
pub use client::{Client, ClientOptions};
pub use driver::Finish;
pub use error::Error;
pub use events::{Events, NodeEvent};
pub use grant::{Grant, Lost, LostReason};
pub use group::Group;
pub use handler::{BoxError, Handler, IntoOutcome, Outcome};
pub use hooks::Health;
pub use leasehold_core::config::{Backoff, Config};
pub use leasehold_core::event::{Located, Returning, StopReason, Verdict};
pub use leasehold_core::explain::{Difference, Explanation, WhatIf};
pub use leasehold_core::name::NameError;
pub use leasehold_core::record::{FailurePolicy, FinishPolicy, Policy, ShardSet, ZoneRule};
pub use leasehold_core::{
    Epoch, GroupName, Moment, NodeName, Notice, Now, SessionId, ShardId, ShardName, View,
};
pub use node::Node;
pub use owned::{CutOff, Task, WorkGuard};
pub use pulse::Pulse;
pub use signal::shutdown_signal;
pub use vitals::Vitals;

/// The parts of a [`Config`], the errors that it can have, and what it amounts to.
pub mod config {
    pub use leasehold_core::config::{
        Backoff, Config, ConfigError, ConfigErrors, Cost, Explanation, Gate, GroupConfig, Namespace,
    };
    pub use leasehold_store::bill::{Bill, ClusterSize, Dollars, Prices};
}

/// Explains where a shard runs and why, and what a change would move: see [`Client::explain`] and [`Client::what_if`].
pub mod explain {
    pub use leasehold_core::explain::{
        Difference, Explanation, LeftOut, LeftOutReason, Move, Ranked, WhatIf,
    };
    pub use leasehold_core::record::WorkState;
}

/// The parts of a [`Notice`].
pub mod notice {
    pub use leasehold_core::event::StopReason;
    pub use leasehold_core::notice::{
        Cause, Differing, Gone, Notice, OperatorCommand, QuarantineEnds, SessionState,
    };
    pub use leasehold_core::record::MoveReason;
}

/// The input and output of a custom placement: see [`Builder::placement`].
pub mod placement {
    pub use leasehold_core::placement::{Assignment, Candidate, Placement, Question, Rendezvous};
}

/// The records that an operator's program may change: see [`Client::control`] and [`Client::edit_group`].
pub mod record {
    pub use leasehold_core::name::WriteId;
    pub use leasehold_core::record::{
        Control, DrainRequest, Extra, FailurePolicy, FinishPolicy, GroupRecord, Policy, RecordError,
        ShardSet, WorkState, ZoneRule,
    };
}

/// The parts of a [`View`].
pub mod view {
    pub use leasehold_core::record::Outage;
    pub use leasehold_core::view::{
        GroupView, Me, NodePhase, NodeView, Problem, ProblemKind, SettingsSource, ShardKey, ShardPhase,
        ShardView, Silence, View,
    };
}

/// Shows that every type in a public signature can be named with this crate alone.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use leasehold::config::{ConfigErrors, Gate, GroupConfig, Namespace};
/// use leasehold::explain::{Difference, LeftOut, Move, Ranked};
/// use leasehold::notice::{OperatorCommand, Cause, Differing, Gone, MoveReason, SessionState, StopReason};
/// use leasehold::placement::{Assignment, Placement, Question};
/// use leasehold::record::{Control, DrainRequest, GroupRecord, RecordError};
/// use leasehold::registry::{LeaseId, Registry};
/// use leasehold::store::{Facts, Key, Reading, Store, StoreError, StoreErrorKind, SwapReply, Watch};
/// use leasehold::view::{GroupView, Me, NodeView, Outage, Problem, ShardKey, ShardView};
/// use leasehold::{Builder, Client, Config, Node, Now, SessionId, ShardId};
///
/// struct InOrder;
///
/// impl Placement for InOrder {
///     fn id(&self) -> String {
///         "in-order-1".to_owned()
///     }
///     fn place(&self, question: &Question) -> Assignment {
///         let nodes = question.nodes.len();
///         let to = |at: usize| (nodes > 0).then(|| (at % nodes) as u32);
///         Assignment { to: (0..question.shards.len()).map(to).collect() }
///     }
///     fn rank(&self, question: &Question, _: &ShardId) -> Vec<u32> {
///         (0..question.nodes.len() as u32).collect()
///     }
/// }
///
/// struct Service {
///     store: Arc<dyn Store>,
///     lease: Option<LeaseId>,
/// }
///
/// fn open() -> Result<Service, StoreError> {
///     Ok(Service { store: leasehold::store::open("local:./work.db", "demo")?, lease: None })
/// }
///
/// fn build(service: &Service) -> Builder {
///     let placement: Arc<dyn Placement> = Arc::new(InOrder);
///     Node::builder(service.store.clone())
///         .placement(placement)
///         .configure(|config: &mut Config| config.namespace = Namespace::New)
/// }
///
/// async fn clear(client: &Client) -> Result<(), leasehold::Error> {
///     client.control("clearing", |control: &mut Control| control.freeze = None).await
/// }
///
/// fn session(me: &Me) -> Option<SessionId> {
///     me.session
/// }
/// ```
#[cfg(doctest)]
struct Names;
