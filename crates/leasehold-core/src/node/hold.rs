//! One shard that is here, and the phases that it goes through.
//!
//! ```text
//!   Asking ──▶ Claiming ──▶ Claimed ──▶ Running ──▶ Stopping ──▶ Stopped ──▶ Releasing
//!                 ▲                        │
//!                 └── Resting, Idle ◀───────┘
//! ```

use std::time::Duration;

use super::publishing::Check;
use super::writes::Write;
use crate::event::StopReason;
use crate::name::Epoch;
use crate::record::{MoveReason, WorkState};
use crate::store::Version;
use crate::time::Moment;

/// A shard that this node holds, is getting, or is giving up.
#[derive(Debug)]
pub(super) struct Hold {
    epoch: Epoch,
    phase: Phase,
    write: Option<Write>,
    /// Of its record, as we last wrote or saw it.
    version: Option<Version>,
    /// When its work started, or when the gate was asked.
    started_at: Moment,
    /// How many times in a row its work ended by itself.
    failures: u32,
    /// Whether its work is run.
    work: WorkState,
    /// It is to be tried again, once the outcome of the write under way is known.
    pardoned: bool,
    /// Its work stepped down: for how long it is declined once that has ended.
    steps_down_for: Option<Duration>,
    /// What a claim must still pass before the work starts.
    check: Check,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The gate is being asked.
    Asking,
    /// Its record is being written with our name.
    Claiming,
    /// Its record has our name; its work starts once that is published, and once nobody else publishes it.
    Claimed { why: MoveReason },
    /// Its work runs.
    Running,
    /// Its work was told to stop.
    Stopping { why: StopReason, since: Moment, stuck: bool },
    /// Its work ended; it starts again then.
    Resting { until: Moment },
    /// It is held and not run: its work failed too often, or has finished.
    Idle { since: Moment },
    /// Nothing of it runs, and it is to be released once the outcome of an earlier write is known.
    Stopped { why: Option<StopReason>, started: Started },
    /// Nothing of it runs; its record is being written without our name.
    Releasing,
}

/// Whether the work of a claim has ever been started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Started {
    Yes,
    /// It was given up before. Nobody has looked whether another session runs the shard, so giving it up is not a release.
    No,
}

impl Hold {
    /// A shard whose record is being written.
    pub(super) fn writing(phase: Phase, write: Write) -> Self {
        Hold {
            epoch: write.record.epoch,
            phase,
            work: write.record.work,
            write: Some(write),
            version: None,
            started_at: Moment::ZERO,
            failures: 0,
            pardoned: false,
            steps_down_for: None,
            check: Check::default(),
        }
    }

    /// A shard that the gate is asked about.
    pub(super) fn asking(write: Write, at: Moment) -> Self {
        Hold { started_at: at, ..Hold::writing(Phase::Asking, write) }
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    /// The write of its record that is not known to have landed.
    pub(super) fn write(&self) -> Option<&Write> {
        self.write.as_ref()
    }

    pub(super) fn write_mut(&mut self) -> Option<&mut Write> {
        self.write.as_mut()
    }

    /// It is known what became of the write.
    pub(super) fn take_write(&mut self) -> Option<Write> {
        self.write.take()
    }

    pub(super) fn version(&self) -> Option<&Version> {
        self.version.as_ref()
    }

    /// Its record has this version, or is gone.
    pub(super) fn set_version(&mut self, version: Option<Version>) {
        self.version = version;
    }

    /// When its work started, or when the gate was asked.
    pub(super) fn started_at(&self) -> Moment {
        self.started_at
    }

    /// Whether its work is run, or why not.
    pub(super) fn work(&self) -> WorkState {
        self.work
    }

    /// Whether it is held and not run.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle { .. })
    }

    /// Whether it is to be tried again.
    pub(super) fn is_pardoned(&self) -> bool {
        self.pardoned
    }

    pub(super) fn check(&self) -> &Check {
        &self.check
    }

    pub(super) fn check_mut(&mut self) -> &mut Check {
        &mut self.check
    }

    /// Whether user code may be running.
    pub(super) fn has_work(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::Stopping { .. })
    }

    /// Whether it is on its way to another node, as far as that depends on us. Work that does not stop delays no other move.
    pub(super) fn is_given_up(&self) -> bool {
        matches!(self.phase, Phase::Stopping { stuck: false, .. } | Phase::Stopped { .. } | Phase::Releasing)
    }

    /// Whether it may be given up for the node that should have it: its work runs, or no node runs it. Work that finished here
    /// would begin once more at another node.
    pub(super) fn may_be_moved(&self) -> bool {
        self.phase == Phase::Running || (self.is_idle() && !self.work.is_run())
    }

    /// Whether its claim has landed and its work has not started.
    pub(super) fn is_claimed(&self) -> bool {
        matches!(self.phase, Phase::Claimed { .. })
    }

    /// Whether its work was told to stop, and has not in time.
    pub(super) fn is_stuck(&self) -> bool {
        matches!(self.phase, Phase::Stopping { stuck: true, .. })
    }

    /// Whether its record has named us. A claim that is under way has not, and may be taken over while it hangs.
    pub(super) fn is_ours(&self) -> bool {
        self.phase != Phase::Claiming || self.version.is_some()
    }

    /// Whether its work may run, or may start by what is under way.
    pub(super) fn is_published(&self) -> bool {
        match self.phase {
            Phase::Asking | Phase::Releasing | Phase::Stopped { .. } => false,
            Phase::Claiming
            | Phase::Claimed { .. }
            | Phase::Running
            | Phase::Stopping { .. }
            | Phase::Resting { .. }
            | Phase::Idle { .. } => true,
        }
    }

    /// It is claimed once more, so that its work can start again.
    pub(super) fn claim(&mut self, write: Write) {
        self.epoch = write.record.epoch;
        self.phase = Phase::Claiming;
        self.write = Some(write);
    }

    /// Its claim has landed.
    pub(super) fn claimed(&mut self, version: Version, epoch: Epoch, check: Check, why: MoveReason) {
        self.version = Some(version);
        self.epoch = epoch;
        self.check = check;
        self.phase = Phase::Claimed { why };
    }

    /// Its work runs.
    pub(super) fn run(&mut self, at: Moment) {
        self.phase = Phase::Running;
        self.started_at = at;
    }

    /// Its work is told to stop.
    pub(super) fn stop(&mut self, why: StopReason, since: Moment) {
        self.phase = Phase::Stopping { why, since, stuck: false };
    }

    /// Its work was told to stop, and has not in time.
    pub(super) fn stuck(&mut self, why: StopReason, since: Moment) {
        self.phase = Phase::Stopping { why, since, stuck: true };
    }

    /// Its work ended by itself. Says how many times in a row; work that ran for long enough starts counting again.
    pub(super) fn work_ended(&mut self, at: Moment, healthy_after: Duration) -> u32 {
        if at.since(self.started_at) >= healthy_after {
            self.failures = 0;
        }
        self.failures += 1;
        self.failures
    }

    /// Its work starts again then.
    pub(super) fn rest(&mut self, until: Moment) {
        self.phase = Phase::Resting { until };
    }

    /// It is held and not run: its work failed too often, here or where it was before, or has finished.
    pub(super) fn idle(&mut self, work: WorkState, since: Moment) {
        self.phase = Phase::Idle { since };
        self.work = work;
    }

    /// Until when its work is on trial; `None` if it is not.
    pub(super) fn on_trial_until(&self, healthy_after: Duration) -> Option<Moment> {
        (self.work == WorkState::Trial).then(|| self.started_at + healthy_after)
    }

    /// From its next start on, its work is this.
    pub(super) fn set_work(&mut self, work: WorkState) {
        self.work = work;
    }

    /// Its work is to be tried again; `false` if the outcome of the write under way must be known first.
    pub(super) fn pardon(&mut self) -> bool {
        self.pardoned = self.write.is_some();
        if !self.pardoned {
            self.work = WorkState::Runs;
            self.failures = 0;
        }
        !self.pardoned
    }

    /// It is given up, and declined for this long after its work has ended.
    pub(super) fn step_down_for(&mut self, pause: Duration) {
        self.steps_down_for = Some(pause);
    }

    /// For how long it is declined once its work has ended, if that stepped down.
    pub(super) fn steps_down_for(&self) -> Option<Duration> {
        self.steps_down_for
    }

    /// Nothing of it runs any more.
    pub(super) fn stopped(&mut self, why: Option<StopReason>) {
        self.phase = Phase::Stopped { why, started: self.started() };
    }

    /// Whether the claim has ever been cleared to start.
    pub(super) fn started(&self) -> Started {
        match self.phase {
            Phase::Stopped { started, .. } => started,
            Phase::Claimed { .. } if !self.check.trusts_the_record() => Started::No,
            _ => Started::Yes,
        }
    }

    /// Its record is written without our name.
    pub(super) fn release(&mut self, write: Write) {
        self.phase = Phase::Releasing;
        self.write = Some(write);
    }

    /// Its record is written again.
    pub(super) fn rewrite(&mut self, write: Write) {
        self.write = Some(write);
    }
}
