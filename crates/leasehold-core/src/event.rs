//! What goes into the core ([`Event`]) and what comes out of it ([`Action`]).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::name::{Epoch, GroupName, SessionId, ShardId, ShardName};
use crate::notice::Notice;
use crate::store::{Answer, Request, RequestId, WatchEvent};
use crate::time::Moment;

/// Something that happened. The core stays safe if events are late, duplicated or lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Time passed. An extra tick does no harm.
    Tick,
    /// The store answered a request, or the request timed out.
    Answered(RequestId, Answer),
    /// The store's watch delivered something.
    Watched(WatchEvent),
    /// The work of a shard has ended: nothing of it runs any more. Also the answer to [`Action::Stop`].
    Ended {
        /// Which shard.
        shard: ShardId,
        /// Under which epoch it was started.
        epoch: Epoch,
        /// How.
        how: Ended,
    },
    /// The acquire gate's answer to [`Action::AskGate`].
    Gate {
        /// Which shard.
        shard: ShardId,
        /// The answer.
        verdict: Verdict,
    },
    /// A command of the user.
    Command(Command),
    /// The driver's own timer found `stop_at` passed and told all work so, before it could publish the
    /// [`Action::Deadlines`] of a renewal that was confirmed at that very moment. Lost is lost: the session is over.
    Lost,
}

/// How work ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It returned, or stopped as told.
    Finished,
    /// It failed or panicked.
    Failed(String),
}

/// The acquire gate's decision about one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Take it.
    Take,
    /// Leave it to the next in rank; asked again later.
    Refuse,
}

/// A user's command to its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Set the weight.
    Weight(u32),
    /// Set the total capacity.
    Capacity(Option<u32>),
    /// Whether to take new shards (health).
    Accepting(bool),
    /// Set the address for callers.
    Address(Option<String>),
    /// Set the labels.
    Labels(BTreeMap<String, String>),
    /// This node can run a shard of a named group.
    Engage(ShardId),
    /// This node no longer can.
    Disengage(ShardId),
    /// Begin to serve a group, also one that is served already (its static settings are replaced).
    Serve(crate::config::GroupConfig),
    /// The same for a group that others created in the store: if its settings there are deleted, this node does not write
    /// them again.
    ServeStored(crate::config::GroupConfig),
    /// No longer serve a group: the work of its shards is told to stop, and they are given up.
    Unserve(GroupName),
    /// Hand everything over, take nothing, stay. Undone by `Undrain`.
    Drain,
    /// Take shards again.
    Undrain,
    /// Hand everything over and leave. Work that has not stopped by then is killed.
    Leave {
        /// How long it may take.
        within: Duration,
        /// Whether this name comes back soon (restart grace).
        returning: Returning,
    },
    /// Try a shard again whose work kept crashing.
    Unquarantine(ShardId),
    /// Stop the work of a shard and give the shard up, so that the next node in rank takes it. For `pause`, counted from the
    /// end of the work, this node declines the shard. If no other node can take it, nobody holds it until then, and it comes
    /// back here. Does nothing if the shard is not held at this epoch, or is being given up already.
    StepDown {
        /// Which shard.
        shard: ShardId,
        /// The epoch of the grant that steps down.
        epoch: Epoch,
        /// For how long this node declines the shard.
        pause: Duration,
    },
}

/// Whether a node that leaves comes back under the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returning {
    /// Soon: in groups with a restart grace its shards stay reserved for it.
    Soon,
    /// No.
    No,
}

/// Something that the driver must do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A new session begins: tell the store (so that it can prove the process's death where it has a way to) before
    /// the next request of [`crate::store::Lane::Renewal`] is sent. All earlier sessions of this node are dead.
    OpenSession(SessionId),
    /// Send this to the store, and answer with [`Event::Answered`], once, by `give_up_at`.
    Ask(Request),
    /// The deadlines of all grants of the session are now these. They only move forward.
    Deadlines(Deadlines),
    /// All grants of the session are lost, for good, now. Comes before the `Stop` of each.
    Lose,
    /// Start the work of a shard. The driver must check [`Deadlines::stop_at`] once more before it runs user code.
    Start {
        /// Which shard.
        shard: ShardId,
        /// Its epoch: above all earlier ones of this shard.
        epoch: Epoch,
    },
    /// Tell the work to stop; answer with [`Event::Ended`] when nothing of it runs any more.
    Stop {
        /// Which shard.
        shard: ShardId,
        /// The epoch that it was started under.
        epoch: Epoch,
        /// Why.
        why: StopReason,
        /// When the driver must kill it if it still runs; `None` means that it is never killed (a voluntary move).
        kill_at: Option<Moment>,
    },
    /// Ask the acquire gate about a shard; answer with [`Event::Gate`].
    AskGate(ShardId),
    /// Tell people: log it, count it, show it.
    Tell(Notice),
    /// The node has left: nothing more will come.
    Done,
}

/// Until when the session's grants are valid. All three move forward together, with each confirmed renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Deadlines {
    /// Work is told to stop from here on.
    pub stop_at: Moment,
    /// Work is killed from here on.
    pub kill_at: Moment,
    /// Another node may start from here on.
    pub valid_until: Moment,
}

/// Why work is told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum StopReason {
    /// It moves to another node.
    Moving,
    /// The node drains or leaves.
    Draining,
    /// The node lost its session, or may have.
    Detached,
    /// The store names another holder.
    NotOurs,
    /// The shard was disengaged, or its group became smaller.
    Disengaged,
    /// An operator asked for it.
    Operator,
    /// Its own work asked for it, so that another node gets the shard.
    SteppedDown,
    /// Another part of the shard's work failed.
    Failed,
}

impl StopReason {
    /// Whether the shard is still held until its work has ended, so that the work may finish what it has begun.
    /// Otherwise another node may be starting it, and the work must write nothing more.
    pub fn is_planned(self) -> bool {
        !matches!(self, StopReason::Detached | StopReason::NotOurs)
    }
}

impl std::fmt::Display for StopReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            StopReason::Moving => "moving",
            StopReason::Draining => "draining",
            StopReason::Detached => "detached",
            StopReason::NotOurs => "not ours",
            StopReason::Disengaged => "disengaged",
            StopReason::Operator => "operator",
            StopReason::SteppedDown => "stepped down",
            StopReason::Failed => "failed",
        })
    }
}

/// Which shard a key belongs to, and which node holds it: the answer to `locate`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Located {
    /// The shard.
    pub shard: ShardId,
    /// The node that holds it, as far as we know.
    pub node: Option<crate::name::NodeName>,
    /// The address at which callers reach that node.
    pub address: Option<String>,
    /// The epoch at which it holds the shard.
    pub epoch: Epoch,
}

impl Located {
    /// A shard that nobody holds, as far as we know.
    pub fn nowhere(shard: ShardId) -> Self {
        Located { shard, node: None, address: None, epoch: Epoch::default() }
    }
}

/// The shard that a key of a numbered group belongs to.
pub fn shard_of(group: &GroupName, slots: u32, key: &[u8]) -> ShardId {
    ShardId { group: group.clone(), name: ShardName::slot(crate::placement::slot_of_key(key, slots)) }
}
