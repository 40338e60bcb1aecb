//! A process that runs one node, and the slot that it runs in.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use leasehold_core::event::{Action, Event};
use leasehold_core::notice::SessionState;
use leasehold_core::store::RequestId;
use leasehold_core::work::{SessionNo as SessionOfWork, Watch as Watchdog, Works};
use leasehold_core::{Deadlines, Moment, Node, NodeName, SessionId};

use crate::faults::{FaultKind, PausePoint};
use crate::oracle::SessionNo;
use crate::rng::Rng;
use crate::world::WorldEvent;
use crate::world::clock::{Clock, Instant};
use crate::world::scenario::NAMED;

/// The place of one node: a machine, a name, and the process that runs there now.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) name: NodeName,
    pub(crate) clock: Clock,
    /// The process that runs there.
    pub(crate) process: Option<usize>,
    /// No process starts there any more.
    pub(crate) away: bool,
    /// How many processes have run there.
    pub(crate) lives: u64,
    /// How many new names it has had.
    pub(crate) names: u32,
    /// What the next process there will be.
    pub(crate) version: Version,
    /// What its user asked for, which a new process is told again.
    pub(crate) weight: Option<u32>,
    pub(crate) capacity: Option<Option<u32>>,
    /// The ttl that the next process there is given, if it is another than its own.
    pub(crate) ttl: Option<Instant>,
    /// How many faults keep its requests from the store.
    pub(crate) requests_cut: u32,
    /// How many faults keep the store's answers from it.
    pub(crate) answers_cut: u32,
    /// How many faults keep everything but renewals from the store.
    pub(crate) work_cut: u32,
    /// How many faults keep renewals from the store.
    pub(crate) renewals_cut: u32,
    /// Until when what it writes, but for renewals, is under way.
    pub(crate) stalled_until: Instant,
    /// Until when its gate takes its time.
    pub(crate) gate_slow_until: Instant,
    /// How many faults let it plan with another placement than the others.
    pub(crate) contrary: u32,
    pub(crate) watch_lag: Lags,
    pub(crate) watch_loss: u32,
    pub(crate) refusing: u32,
    pub(crate) crashing: u32,
    pub(crate) not_accepting: u32,
    /// How many faults keep it from running each named shard.
    pub(crate) disengaged: [u32; NAMED],
    pub(crate) sluggish: Lags,
}

/// By how much faults make something late, each from its beginning to its own end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lags(Vec<(usize, Instant)>);

impl Lags {
    pub(crate) fn begin(&mut self, fault: usize, lag: Instant) {
        self.0.push((fault, lag));
    }

    pub(crate) fn end(&mut self, fault: usize) {
        self.0.retain(|(from, _)| *from != fault);
    }

    /// How late it is now: the worst of them.
    pub(crate) fn worst(&self) -> Instant {
        self.0.iter().map(|(_, lag)| *lag).max().unwrap_or(0)
    }
}

/// Which version of Leasehold a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// The one of this source.
    This,
    /// A later one, whose records have fields that this one does not know, and which speaks a newer protocol as well.
    Newer,
}

impl Slot {
    pub(crate) fn new(name: NodeName, clock: Clock) -> Self {
        Slot {
            name,
            clock,
            process: None,
            away: false,
            lives: 0,
            names: 0,
            version: Version::This,
            weight: None,
            capacity: None,
            ttl: None,
            requests_cut: 0,
            answers_cut: 0,
            work_cut: 0,
            renewals_cut: 0,
            stalled_until: 0,
            gate_slow_until: 0,
            contrary: 0,
            watch_lag: Lags::default(),
            watch_loss: 0,
            refusing: 0,
            crashing: 0,
            not_accepting: 0,
            disengaged: [0; NAMED],
            sluggish: Lags::default(),
        }
    }
}

impl Slot {
    /// Which kind of fault its line is cut by.
    pub(crate) fn cut(&self) -> FaultKind {
        match (self.requests_cut, self.answers_cut) {
            (_, 0) => FaultKind::CutRequests,
            (0, _) => FaultKind::CutAnswers,
            _ => FaultKind::Cut,
        }
    }
}

/// One process: the real core, and what its driver keeps.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) slot: usize,
    pub(crate) name: NodeName,
    pub(crate) version: Version,
    pub(crate) began_at: Instant,
    /// It has another placement than usual.
    pub(crate) contrary: bool,
    pub(crate) core: Node,
    pub(crate) alive: bool,
    /// It is paused; the number distinguishes one pause from the next.
    pub(crate) paused: Option<u32>,
    pub(crate) pauses: u32,
    /// What became due while it was paused.
    pub(crate) deferred: Vec<WorldEvent>,
    /// What its core had decided when it was stopped before doing it.
    pub(crate) undone: Vec<Action>,
    /// It will be paused for this long as soon as it reaches that point.
    pub(crate) pause_at_check: Option<Instant>,
    pub(crate) pause_at_step: Option<(Instant, PausePoint)>,
    pub(crate) pause_at_begin: Option<Instant>,
    /// When the next tick is in the queue, and its number.
    pub(crate) tick_at: Instant,
    pub(crate) ticks: u64,
    pub(crate) sessions: Vec<Session>,
    /// What decides about its work: the same code as in the library.
    pub(crate) works: Works,
    /// What its watchdog decides, and when that looks next.
    pub(crate) watchdog: Watchdog<SessionOfWork, usize>,
    pub(crate) guard_at: Instant,
    /// How much earlier than the dead-man timer work is killed from inside.
    pub(crate) kill_early: Duration,
    /// What the dead-man timer is set to, and when the kernel looks next.
    pub(crate) armed: Option<Moment>,
    pub(crate) dead_man_at: Instant,
    /// What its core must hear when all that it has decided is done.
    pub(crate) heard: VecDeque<Event>,
    /// Requests that wait for their answer.
    pub(crate) waiting: BTreeSet<RequestId>,
    /// How many listings it was given.
    pub(crate) lists: u32,
    pub(crate) watch: Watch,
    /// Workers that have not ended.
    pub(crate) workers: Vec<usize>,
    pub(crate) session_state: SessionState,
    /// When its session state last changed.
    pub(crate) state_since: Instant,
    /// When its pause began, for a clock that does not count pauses.
    pub(crate) slept_at: Instant,
    /// When its machine last resumed after a freeze; and how long a clock may stop unnoticed.
    pub(crate) thawed_at: Instant,
    /// When its core first looked at the clocks after the last step of its wall clock.
    pub(crate) wall_step_seen_at: Instant,
    pub(crate) margin: Instant,
    /// How long its work has to stop, by its settings, and how long killing it takes at most.
    pub(crate) stop_budget: Instant,
    pub(crate) kill_takes: Instant,
    /// When the newest write of its own record that the store has was sent, and for how long that makes grants valid.
    pub(crate) proved_from: Instant,
    pub(crate) valid_for: Instant,
    /// How many ticks it took in which millisecond.
    pub(crate) busy: (u64, u32),
    /// What it does when it has ended.
    pub(crate) leaving: Leaving,
    pub(crate) network_rng: Rng,
    pub(crate) driver_rng: Rng,
    pub(crate) work_rng: Rng,
    pub(crate) parts_rng: Rng,
    pub(crate) watch_rng: Rng,
}

/// Whether a process was told to leave, and what comes after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    No,
    Then(crate::faults::Restart),
}

/// A session, as the driver sees it: what all its grants share.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) number: SessionNo,
    pub(crate) id: SessionId,
    pub(crate) deadlines: Deadlines,
    pub(crate) lost: bool,
    /// Its number among those of its process that had deadlines.
    pub(crate) no: Option<SessionOfWork>,
}

impl Session {
    /// Whether its grants are valid by the process's own clock.
    pub(crate) fn good_at(&self, now: Moment) -> bool {
        !self.lost && now < self.deadlines.stop_at
    }
}

/// A process's watch on the store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    pub(crate) connected: bool,
    /// How much of the store's log it has been told.
    pub(crate) told: usize,
    /// Whether a delivery is in the queue.
    pub(crate) scheduled: bool,
    /// It could not be told something, because it was cut off.
    pub(crate) stalled: bool,
    /// Tells one connection from the next.
    pub(crate) number: u32,
}

impl Process {
    /// The session that its grants belong to.
    pub(crate) fn session(&self) -> Option<&Session> {
        self.sessions.last()
    }

    pub(crate) fn running(&self) -> bool {
        self.alive && self.paused.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lag_ends_at_its_own_time() {
        let mut lags = Lags::default();
        lags.begin(1, 30);
        lags.begin(2, 70);
        assert_eq!(lags.worst(), 70);
        lags.end(2);
        assert_eq!(lags.worst(), 30, "the other one goes on");
        lags.end(1);
        assert_eq!(lags.worst(), 0);
    }
}
