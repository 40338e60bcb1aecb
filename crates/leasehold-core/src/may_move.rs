//! All stabilisers of voluntary moves, in one pure function. None of them delays an unowned shard.

use std::time::Duration;

use crate::name::NodeName;
use crate::record::Policy;
use crate::time::Moment;

/// A voluntary move of one shard that runs here, and everything that may delay it.
#[derive(Clone, Debug)]
pub struct Move<'a> {
    /// Now.
    pub at: Moment,
    /// The group's policy.
    pub policy: Policy,
    /// Why an operator froze voluntary moves, if that is so.
    pub frozen_by_operator: Option<&'a str>,
    /// Whether an operator pinned the shard to this node.
    pub pinned_here: bool,
    /// Until when voluntary moves are frozen because much of the roster vanished at once.
    pub frozen_until: Moment,
    /// Whether the roster has changed since the plan was made.
    pub plan_is_stale: bool,
    /// When we saw the shard move last.
    pub moved_at: Option<Moment>,
    /// When it started here.
    pub started_at: Moment,
    /// Until when it is on trial here, because its work failed too often before.
    pub on_trial_until: Option<Moment>,
    /// When this node began its latest moves, oldest first.
    pub moves_begun: &'a [Moment],
    /// How many shards of the group run here, this one included.
    pub running: usize,
    /// How many shards of all groups run here, this one included.
    pub running_in_all: usize,
    /// How many shards of all groups this node keeps at least.
    pub kept_min_in_all: u32,
    /// The hash of what this node plans with.
    pub view: u64,
    /// The node that should get it.
    pub to: Option<Receiver<'a>>,
}

/// The node that should get a shard.
#[derive(Clone, Copy, Debug)]
pub struct Receiver<'a> {
    /// Its name.
    pub node: &'a NodeName,
    /// Whether it is there, active, of any weight, and takes shards now.
    pub receives: bool,
    /// How long its record has not changed; `None` if it has no record.
    pub silent_for: Option<Duration>,
    /// Its ttl.
    pub ttl: Duration,
    /// The hash of what it plans with.
    pub view: u64,
    /// When another node had to take a shard that had been given up for it, if it has not taken one since.
    pub missed_at: Option<Moment>,
    /// How much room it has.
    pub room: Room,
}

/// Why a shard that the plan wants elsewhere has not moved yet, in the order in which they are looked at.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unmoved {
    /// No other node can take it.
    NoReceiver,
    /// An operator froze voluntary moves.
    FrozenByOperator(String),
    /// An operator pinned it here.
    Pinned,
    /// Much of the roster vanished at once, for this many more milliseconds if nothing else happens.
    FrozenByVanishing(u64),
    /// The roster has just changed, and the plan does not know it yet.
    PlanIsStale,
    /// It moved recently: the cooldown lasts this many more milliseconds.
    Cooldown(u64),
    /// It started recently: `min_run` lasts this many more milliseconds.
    MinimumRun(u64),
    /// Its work failed too often before and is on trial here, for this many more milliseconds.
    OnTrial(u64),
    /// This node has begun as many moves as the policy allows, for this many more milliseconds.
    Rate(u64),
    /// This node would keep too few shards of the group.
    MinimumKept(u32),
    /// This node would keep too few shards of all groups together.
    MinimumKeptInAll(u32),
    /// The receiver is not there, drains, or takes nothing.
    ReceiverRefuses(NodeName),
    /// The receiver has been silent for too long.
    ReceiverSilent(NodeName),
    /// The receiver does not plan with the same view yet.
    ReceiverDisagrees(NodeName),
    /// The receiver did not take what was given up for it: for this many more milliseconds.
    ReceiverMissed(NodeName, u64),
    /// The receiver holds as much as it can.
    ReceiverFull(NodeName),
}

impl std::fmt::Display for Unmoved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unmoved::FrozenByOperator(note) => write!(f, "voluntary moves are frozen: {note}"),
            Unmoved::FrozenByVanishing(ms) => {
                write!(f, "many nodes vanished at once; voluntary moves are frozen for {ms} ms")
            }
            Unmoved::PlanIsStale => f.write_str("the roster changed; replanning is pending"),
            Unmoved::Pinned => f.write_str("an operator pinned it here"),
            Unmoved::Cooldown(ms) => write!(f, "it moved recently; cooldown for {ms} ms more"),
            Unmoved::MinimumRun(ms) => write!(f, "it started recently; min_run for {ms} ms more"),
            Unmoved::OnTrial(ms) => {
                write!(f, "its work failed too often before and is on trial for {ms} ms more")
            }
            Unmoved::Rate(ms) => write!(f, "this node reached moves_max; next move in {ms} ms"),
            Unmoved::MinimumKept(kept) => {
                write!(f, "this node must keep at least {kept} shards of the group")
            }
            Unmoved::MinimumKeptInAll(kept) => {
                write!(f, "this node must keep at least {kept} shards over all groups")
            }
            Unmoved::NoReceiver => f.write_str("no other node can take it"),
            Unmoved::ReceiverRefuses(node) => {
                write!(f, "{node} is not live, is draining, or takes no shards")
            }
            Unmoved::ReceiverFull(node) => write!(f, "{node} has no room until it hands over a shard"),
            Unmoved::ReceiverSilent(node) => write!(f, "{node} has been silent for too long"),
            Unmoved::ReceiverDisagrees(node) => write!(f, "{node} does not have the same view yet"),
            Unmoved::ReceiverMissed(node, ms) => {
                write!(f, "{node} did not take a shard that was released for it; retry in {ms} ms")
            }
        }
    }
}

/// How many more shards a node can hold; `None` is without limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// In all.
    pub in_all: Option<u32>,
    /// Of the group.
    pub of_group: Option<u32>,
}

impl Room {
    /// Whether it can hold no more.
    pub fn is_none_left(&self) -> bool {
        self.in_all == Some(0) || self.of_group == Some(0)
    }

    /// The room that is left after so many more shards.
    pub fn less(self, in_all: u32, of_group: u32) -> Room {
        Room {
            in_all: self.in_all.map(|left| left.saturating_sub(in_all)),
            of_group: self.of_group.map(|left| left.saturating_sub(of_group)),
        }
    }
}

/// Whether a shard may be moved voluntarily now; if not, the first reason why, in the order of [`Unmoved`].
pub fn may_move(it: &Move<'_>) -> Result<(), Unmoved> {
    let at = it.at;
    let left = |until: Moment| until.since(at).as_millis() as u64;
    let span = Duration::from_millis;
    let to = it.to.ok_or(Unmoved::NoReceiver)?;
    if let Some(note) = it.frozen_by_operator {
        return Err(Unmoved::FrozenByOperator(note.to_owned()));
    }
    if it.pinned_here {
        return Err(Unmoved::Pinned);
    }
    if at < it.frozen_until {
        return Err(Unmoved::FrozenByVanishing(left(it.frozen_until)));
    }
    if it.plan_is_stale {
        return Err(Unmoved::PlanIsStale);
    }
    let cool_at = it.moved_at.map_or(Moment::ZERO, |moved_at| moved_at + span(it.policy.cooldown_ms));
    if at < cool_at {
        return Err(Unmoved::Cooldown(left(cool_at)));
    }
    let run_until = it.started_at + span(it.policy.min_run_ms);
    if at < run_until {
        return Err(Unmoved::MinimumRun(left(run_until)));
    }
    if let Some(until) = it.on_trial_until.filter(|until| at < *until) {
        return Err(Unmoved::OnTrial(left(until)));
    }
    if let Some(until) = rate_used_up_until(it) {
        return Err(Unmoved::Rate(left(until)));
    }
    if it.policy.kept_min > 0 && it.running <= it.policy.kept_min as usize {
        return Err(Unmoved::MinimumKept(it.policy.kept_min));
    }
    if it.kept_min_in_all > 0 && it.running_in_all <= it.kept_min_in_all as usize {
        return Err(Unmoved::MinimumKeptInAll(it.kept_min_in_all));
    }
    receiver_ready(at, &to, it.view)
}

/// Until when this node must not begin another move, if it has begun as many as it may.
fn rate_used_up_until(it: &Move<'_>) -> Option<Moment> {
    let window = Duration::from_millis(it.policy.move_window_ms);
    let most = it.policy.moves_max as usize;
    let mut recent = it.moves_begun.iter().filter(|begun| it.at.since(**begun) < window);
    // With `most` of them in the window, the next may begin when the first of the last `most` has left it.
    let count = recent.clone().count();
    let first = recent.nth(count.saturating_sub(most.max(1)))?;
    (most > 0 && count >= most).then(|| *first + window)
}

fn receiver_ready(at: Moment, to: &Receiver<'_>, view: u64) -> Result<(), Unmoved> {
    if !to.receives {
        return Err(Unmoved::ReceiverRefuses(to.node.clone()));
    }
    if to.silent_for.is_none_or(|silent_for| silent_for > to.ttl / 2) {
        return Err(Unmoved::ReceiverSilent(to.node.clone()));
    }
    if to.view != view {
        return Err(Unmoved::ReceiverDisagrees(to.node.clone()));
    }
    let again_at = to.missed_at.map_or(Moment::ZERO, |missed_at| missed_at + to.ttl);
    if at < again_at {
        return Err(Unmoved::ReceiverMissed(to.node.clone(), again_at.since(at).as_millis() as u64));
    }
    match to.room.is_none_left() {
        true => Err(Unmoved::ReceiverFull(to.node.clone())),
        false => Ok(()),
    }
}
