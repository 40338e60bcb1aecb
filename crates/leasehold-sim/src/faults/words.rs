//! Faults in words, for schedules and traces.

use std::fmt;

use crate::faults::{
    Damage, Fault, Grace, GroupKind, PausePoint, Raise, Restart, ScheduledFault, Shutdown, Target, Traffic,
};
use crate::store::Generation;
use crate::world::clock::{Instant, MS, SECOND};

impl fmt::Display for ScheduledFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.at / MS;
        write!(f, "#{} at {}.{:03}s: {}", self.number, ms / 1000, ms % 1000, self.fault)
    }
}

struct Span(Instant);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}s", self.0 / SECOND, self.0 / MS % 1000)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Crash { slot, then } => write!(f, "the process of node {slot} dies{then}"),
            Fault::Leave { slot, within, then, grace } => {
                let back = if *grace == Grace::Asked { ", to be back soon" } else { "" };
                write!(f, "node {slot} is told to leave within {}{back}{then}", Span(*within))
            }
            Fault::Pause { slot, lasts, point } => {
                let point = match point {
                    PausePoint::Anywhere => "",
                    PausePoint::BetweenCheckAndAct => ", between a worker's check and its act",
                    PausePoint::BetweenStepAndAct => ", between a decision of the core and carrying it out",
                    PausePoint::BeforeStart => ", just before work starts",
                    PausePoint::BeforeBegin => ", just before the last check of the deadline",
                };
                write!(f, "node {slot} is paused for {}{point}", Span(*lasts))
            }
            Fault::Frozen { slot, lasts, times, .. } => {
                write!(f, "the machine of node {slot} is frozen with its clock, {times} × {}", Span(*lasts))
            }
            Fault::Cut { slot, lasts, traffic } => {
                let cannot = match traffic {
                    Traffic::All => "is cut off from the store",
                    Traffic::Requests => "cannot send to the store",
                    Traffic::Answers => "cannot hear the store",
                    Traffic::Work => "reaches the store only to renew",
                    Traffic::Renewals => "cannot renew",
                };
                write!(f, "node {slot} {cannot} for {}", Span(*lasts))
            }
            Fault::SlowStore { lasts, times } => {
                write!(f, "the store is {times} times slower for {}", Span(*lasts))
            }
            Fault::Errors { lasts, permille } => {
                write!(f, "{permille} of 1000 requests fail for {}", Span(*lasts))
            }
            Fault::LostAnswers { lasts, permille } => {
                write!(f, "{permille} of 1000 answers are lost for {}", Span(*lasts))
            }
            Fault::DoubledAnswers { lasts, permille } => {
                write!(f, "{permille} of 1000 answers come twice or late for {}", Span(*lasts))
            }
            Fault::DoubledWrites { lasts, permille } => {
                write!(f, "{permille} of 1000 writes arrive once more, late, for {}", Span(*lasts))
            }
            Fault::WatchBreak { slot: Some(slot) } => write!(f, "the watch of node {slot} breaks"),
            Fault::WatchBreak { slot: None } => write!(f, "all watches break"),
            Fault::WatchLag { slot, lasts, lag } => {
                write!(f, "the watch of node {slot} is {} late for {}", Span(*lag), Span(*lasts))
            }
            Fault::WatchLoss { slot, lasts } => {
                write!(f, "the watch of node {slot} loses changes for {}", Span(*lasts))
            }
            Fault::StaleLists { lasts, lag } => {
                write!(f, "listings are up to {} behind for {}", Span(*lag), Span(*lasts))
            }
            Fault::StoreRestart { lasts } => write!(f, "the store is down for {}", Span(*lasts)),
            Fault::Failover { lasts, loses } => {
                write!(f, "the store fails over for {} and loses the last {}", Span(*lasts), Span(*loses))
            }
            Fault::Emptied { generation: Generation::Kept } => {
                write!(f, "the store is emptied and keeps its generation")
            }
            Fault::Emptied { generation: Generation::New } => {
                write!(f, "the store is emptied and gets a new generation")
            }
            Fault::RolledBack { by } => write!(f, "the store is rolled back by {}", Span(*by)),
            Fault::MassLeave { slots, how, then } => {
                let how = if *how == Shutdown::Killed { "killed" } else { "told to leave" };
                let slots: Vec<_> = slots.iter().map(usize::to_string).collect();
                write!(f, "nodes {} are {how} at once{then}", slots.join(", "))
            }
            Fault::RollingRestart { gap, how } => {
                let how = if *how == Shutdown::Killed { "killed" } else { "told to leave" };
                write!(f, "all nodes are {how} and come back, one every {}", Span(*gap))
            }
            Fault::Weight { slot, weight } => write!(f, "node {slot} gets the weight {weight}"),
            Fault::Capacity { slot, capacity: Some(n) } => write!(f, "node {slot} gets the capacity {n}"),
            Fault::Capacity { slot, capacity: None } => write!(f, "node {slot} has no capacity limit"),
            Fault::NotAccepting { slot, lasts } => {
                write!(f, "node {slot} accepts nothing new for {}", Span(*lasts))
            }
            Fault::Resize { shards } => write!(f, "the group gets {shards} shards"),
            Fault::Pin { shard, slot, lasts } => {
                write!(f, "shard {shard} is pinned to node {slot} for {}", Span(*lasts))
            }
            Fault::Drain { slot, lasts } => write!(f, "an operator drains node {slot} for {}", Span(*lasts)),
            Fault::Freeze { lasts } => write!(f, "an operator freezes moves for {}", Span(*lasts)),
            Fault::Release { shard } => write!(f, "an operator wants shard {shard} released"),
            Fault::Disengage { shard, slot: Some(slot), lasts } => {
                write!(f, "node {slot} cannot run the named shard {shard} for {}", Span(*lasts))
            }
            Fault::Disengage { shard, slot: None, lasts } => {
                write!(f, "no node can run the named shard {shard} for {}", Span(*lasts))
            }
            Fault::Corrupt { what, how } => {
                let how = match how {
                    Damage::Noise => "becomes noise",
                    Damage::Cut => "loses its second half",
                    Damage::TooNew => "is in a format that no node here reads",
                    Damage::Usurped => "names a holder that does not exist",
                };
                write!(f, "{what} {how}")
            }
            Fault::Vanish { what: Target::Shards } => write!(f, "{} are deleted", Target::Shards),
            Fault::Vanish { what } => write!(f, "{what} is deleted"),
            Fault::Refuse { slot, lasts } => {
                write!(f, "work at node {slot} refuses to stop for {}", Span(*lasts))
            }
            Fault::WorkCrash { slot, lasts } => write!(f, "work at node {slot} crashes for {}", Span(*lasts)),
            Fault::StepDown { slot, shard: Some(shard), pause } => {
                write!(f, "work of shard {shard} at node {slot} steps down for {}", Span(*pause))
            }
            Fault::StepDown { slot, shard: None, pause } => {
                write!(f, "all work at node {slot} steps down for {}", Span(*pause))
            }
            Fault::Upgrade { slot, after } => {
                write!(f, "node {slot} is killed and comes back as a newer version after {}", Span(*after))
            }
            Fault::Downgrade { gap, how } => {
                let how = if *how == Shutdown::Killed { "killed" } else { "told to leave" };
                write!(f, "all nodes are {how} and come back as the older version, one every {}", Span(*gap))
            }
            Fault::Protocol { slot, raise, lasts } => {
                let what = match raise {
                    Raise::Protocol => "asks for a protocol",
                    Raise::Format => "has a format",
                };
                write!(
                    f,
                    "the namespace {what} that only newer versions know, for {}, and node {slot} is killed and comes back",
                    Span(*lasts)
                )
            }
            Fault::Twin { slot, lasts } => {
                write!(f, "a second process runs under the name of node {slot} for {}", Span(*lasts))
            }
            Fault::WallStep { slot, by_ms } => write!(f, "the wall clock of node {slot} steps by {by_ms} ms"),
            Fault::RollingTtl { gap, how, ttl } => {
                let how = if *how == Shutdown::Killed { "killed" } else { "told to leave" };
                let (ttl, gap) = (Span(*ttl), Span(*gap));
                write!(f, "all nodes are {how} and come back with a ttl of {ttl}, one every {gap}")
            }
            Fault::SlowGate { slot, lasts } => {
                write!(f, "the gate at node {slot} takes up to {} to answer", Span(*lasts))
            }
            Fault::ClockRate { slot, rate } => {
                write!(
                    f,
                    "the boot clock of node {slot} runs {}.{:06} times as fast",
                    rate / 1_000_000,
                    rate % 1_000_000
                )
            }
            Fault::FullDisk { lasts } => write!(f, "the store refuses all writes for {}", Span(*lasts)),
            Fault::Placement { slot, lasts } => {
                write!(f, "node {slot} is killed and comes back with another placement for {}", Span(*lasts))
            }
            Fault::Stall { slot, lasts } => {
                write!(f, "writes of node {slot} are delayed for {}", Span(*lasts))
            }
            Fault::Sluggish { slot, lasts, lag } => {
                write!(f, "everything node {slot} does is up to {} late for {}", Span(*lag), Span(*lasts))
            }
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Node(slot) => write!(f, "the record of node {slot}"),
            Target::Shard(shard) => write!(f, "the record of shard {shard}"),
            Target::Named(shard) => write!(f, "the record of the named shard {shard}"),
            Target::Shards => write!(f, "the records of all shards"),
            Target::Group(GroupKind::Numbered) => write!(f, "the record of the group"),
            Target::Group(GroupKind::Named) => write!(f, "the record of the group of named shards"),
            Target::Control => write!(f, "the record of operators' commands"),
            Target::Meta => write!(f, "the record meta"),
        }
    }
}

impl fmt::Display for Restart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Restart::SameName { after } => write!(f, " and comes back after {}", Span(*after)),
            Restart::NewName { after } => {
                write!(f, " and comes back under a new name after {}", Span(*after))
            }
            Restart::Never => write!(f, " and stays away"),
        }
    }
}
