//! What really happened, seen from outside the world in true time, and when it is judged.
//!
//! The oracle records when user code ran and which epochs its writes carried, not what nodes believe, and asks the
//! [`invariants`] about each observation. [`healing`] judges the end of a run: whether the world recovered, and within
//! which [`bounds`].

mod bounds;
mod census;
mod healing;
pub(crate) mod records;

pub(crate) use census::Census;
pub(crate) use healing::Healing;

use leasehold_core::Epoch;

use crate::invariants::{self, Violation};
use crate::world::clock::Instant;

/// A process, numbered in the order in which they began.
pub type ProcessNo = usize;
/// A life of a node in the store, numbered in the order in which they began.
pub type SessionNo = usize;
/// One run of user code for one shard, numbered in the order in which they began.
pub type RunNo = usize;
/// A shard, by its slot.
pub type ShardNo = usize;

/// Something that really happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// A process opened a session.
    Opened {
        /// Which.
        session: SessionNo,
        /// Whose.
        process: ProcessNo,
        /// How long its work has between being told to stop and being killed.
        stop_budget: Instant,
    },
    /// User code begins. Its run is the next number.
    Began {
        /// In which session.
        session: SessionNo,
        /// For which shard.
        shard: ShardNo,
        /// Under which epoch.
        epoch: Epoch,
    },
    /// User code was told to stop, or that its grant is lost.
    Told {
        /// Which run.
        run: RunNo,
    },
    /// Nothing of the run is left.
    Ended {
        /// Which run.
        run: RunNo,
        /// How.
        how: RunEnd,
    },
    /// The grants of a session are now good until then.
    Deadlines {
        /// Which session.
        session: SessionNo,
        /// Until when, in true time.
        until: Until,
    },
    /// The clock of a session's machine runs at another rate from now on. By that clock its deadlines are the same.
    ClockRate {
        /// Which session.
        session: SessionNo,
        /// When they are in true time now.
        until: Until,
    },
    /// The grants of a session are void.
    Lost {
        /// Which session.
        session: SessionNo,
    },
    /// A process is paused: nothing of it runs.
    Paused {
        /// Which.
        process: ProcessNo,
    },
    /// It goes on.
    Resumed {
        /// Which.
        process: ProcessNo,
    },
    /// The machine of a session was frozen, with its clock, by which its deadlines are as far away as they were. Until it is
    /// renewed again, it is not promised to know how long its grants are good.
    Froze {
        /// Which session.
        session: SessionNo,
        /// Until when its grants are good by its own clock, in true time.
        until: Until,
    },
    /// A session was renewed after that.
    Thawed {
        /// Which.
        session: SessionNo,
    },
    /// A process does what it does up to this much late, from now on.
    Starved {
        /// Which.
        process: ProcessNo,
        /// How late.
        by: Instant,
    },
    /// A session sends the store the release of a shard.
    ReleaseSent {
        /// Which session.
        session: SessionNo,
        /// Which shard.
        shard: ShardNo,
    },
    /// A session tells the store that it is over.
    LeftSent {
        /// Which session.
        session: SessionNo,
    },
    /// A write of a run arrived at the fenced sink.
    Wrote {
        /// Which run.
        run: RunNo,
        /// What the sink said.
        verdict: Fence,
    },
    /// User code looked at its grant, and found it good.
    Passed {
        /// Which run.
        run: RunNo,
    },
    /// Time passed.
    Moment,
}

/// How a run of user code ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// It stopped as told, or was done.
    Stopped,
    /// It crashed by itself.
    Crashed,
    /// It was killed, at its deadline or because its node could wait no longer.
    Killed,
    /// It was over before its process, which had stood still past the deadline, did anything else.
    KilledOnWaking,
    /// Its process died.
    Died,
}

/// Until when grants are good, in true time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Until {
    /// Told to stop from here on.
    pub stop_at: Instant,
    /// Killed from here on.
    pub kill_at: Instant,
    /// Void from here on.
    pub valid_until: Instant,
}

/// What a fenced sink says to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// No later epoch has written.
    Accepted,
    /// A later epoch has written.
    Rejected,
}

/// Everything that happened so far, as far as the invariants need it.
#[derive(Debug, Default)]
pub struct State {
    pub(crate) processes: Vec<ProcessState>,
    pub(crate) sessions: Vec<SessionState>,
    pub(crate) runs: Vec<Run>,
    pub(crate) shards: Vec<ShardState>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ProcessState {
    pub(crate) paused: bool,
    pub(crate) resumed_at: Instant,
    pub(crate) starved_by: Instant,
    /// By how much it was starved before that, and until when.
    pub(crate) starved_before: (Instant, Instant),
}

#[derive(Clone, Debug)]
pub(crate) struct SessionState {
    pub(crate) process: ProcessNo,
    pub(crate) until: Until,
    pub(crate) lost: bool,
    /// Its machine was frozen since it was last renewed.
    pub(crate) frozen: bool,
    pub(crate) stop_budget: Instant,
    pub(crate) open: Vec<RunNo>,
}

/// One run of user code.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) session: SessionNo,
    pub(crate) shard: ShardNo,
    pub(crate) epoch: Epoch,
    pub(crate) began_at: Instant,
    pub(crate) told_at: Option<Instant>,
    pub(crate) ended_at: Option<Instant>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ShardState {
    /// Runs that have not ended.
    pub(crate) open: Vec<RunNo>,
    /// The highest epoch of any start.
    pub(crate) epoch: Option<Epoch>,
    /// The newest run whose write was accepted.
    pub(crate) wrote: Option<RunNo>,
}

impl State {
    pub(crate) fn shard(&self, shard: ShardNo) -> &ShardState {
        const NONE: &ShardState = &ShardState { open: Vec::new(), epoch: None, wrote: None };
        self.shards.get(shard).unwrap_or(NONE)
    }

    pub(crate) fn process_of(&self, run: &Run) -> ProcessNo {
        self.sessions[run.session].process
    }

    /// Whether user code of this run runs right now.
    pub(crate) fn running(&self, run: RunNo) -> bool {
        let run = &self.runs[run];
        run.ended_at.is_none() && !self.processes[self.process_of(run)].paused
    }

    /// Whether the machine of this run was frozen since its session was last renewed.
    pub(crate) fn was_frozen(&self, run: RunNo) -> bool {
        self.sessions[self.runs[run].session].frozen
    }

    /// Whether the grant of this run is good right now, by its own clock.
    pub(crate) fn valid(&self, run: RunNo, at: Instant) -> bool {
        let run = &self.runs[run];
        let session = &self.sessions[run.session];
        run.ended_at.is_none() && !session.lost && at < session.until.valid_until
    }

    fn apply(&mut self, at: Instant, observation: Observation) {
        match observation {
            Observation::Opened { session, process, stop_budget } => {
                assert_eq!(session, self.sessions.len(), "sessions are numbered in order");
                let until = Until::default();
                self.sessions.push(SessionState {
                    process,
                    until,
                    lost: false,
                    frozen: false,
                    stop_budget,
                    open: Vec::new(),
                });
                self.reach_process(process);
            }
            Observation::Began { session, shard, epoch } => {
                let run = self.runs.len();
                let began = Run { session, shard, epoch, began_at: at, told_at: None, ended_at: None };
                self.runs.push(began);
                self.sessions[session].open.push(run);
                if self.shards.len() <= shard {
                    self.shards.resize(shard + 1, ShardState::default());
                }
                let state = &mut self.shards[shard];
                state.open.push(run);
                state.epoch = state.epoch.max(Some(epoch));
            }
            Observation::Told { run } => self.runs[run].told_at = self.runs[run].told_at.or(Some(at)),
            Observation::Ended { run, .. } => {
                let Run { session, shard, .. } = self.runs[run];
                self.runs[run].ended_at = Some(at);
                self.sessions[session].open.retain(|open| *open != run);
                self.shards[shard].open.retain(|open| *open != run);
            }
            Observation::Deadlines { session, until } | Observation::ClockRate { session, until } => {
                self.sessions[session].until = until;
            }
            Observation::Lost { session } => self.sessions[session].lost = true,
            Observation::Paused { process } => self.reach_process(process).paused = true,
            Observation::Resumed { process } => {
                let process = self.reach_process(process);
                process.paused = false;
                process.resumed_at = at;
            }
            Observation::Froze { session, until } => {
                let session = &mut self.sessions[session];
                (session.frozen, session.until) = (true, until);
            }
            Observation::Thawed { session } => self.sessions[session].frozen = false,
            Observation::Starved { process, by } => {
                let process = self.reach_process(process);
                process.starved_before = (process.starved_by, at);
                process.starved_by = by;
            }
            Observation::Wrote { run, verdict: Fence::Accepted } => {
                let shard = self.runs[run].shard;
                self.shards[shard].wrote = self.shards[shard].wrote.max(Some(run));
            }
            Observation::Wrote { verdict: Fence::Rejected, .. }
            | Observation::ReleaseSent { .. }
            | Observation::LeftSent { .. }
            | Observation::Passed { .. }
            | Observation::Moment => {}
        }
    }

    fn reach_process(&mut self, process: ProcessNo) -> &mut ProcessState {
        if self.processes.len() <= process {
            self.processes.resize(process + 1, ProcessState::default());
        }
        &mut self.processes[process]
    }
}

/// Records what really happened, and reports the first broken promise.
#[derive(Debug, Default)]
pub struct Oracle {
    /// What happened so far.
    pub(crate) state: State,
}

impl Oracle {
    /// Judges what happened, then remembers it.
    pub fn observe(&mut self, at: Instant, observation: Observation) -> Result<(), Violation> {
        let judged = invariants::judge(&self.state, at, &observation);
        self.state.apply(at, observation);
        judged
    }
}
