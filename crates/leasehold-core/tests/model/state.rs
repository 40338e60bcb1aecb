//! One state of the model, in small integers.

use crate::setup::{PROCS, SHARDS, Setup};

/// Where a process stands. A process that crashed is one that has just started: until it acts there is no difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// It has just started and has no session.
    #[default]
    Fresh,
    /// It has chosen a session and tries to write its record.
    Joining,
    /// Its session is good until its clock says otherwise.
    Attached,
    /// Its session is over and its work is being stopped.
    Lost,
    /// Its session is over and its work has stopped.
    Over,
}

/// A request whose answer the process waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum WriteState {
    /// There is none.
    #[default]
    None,
    /// On its way to the store, or lost; if it arrives it can still be applied.
    Flying,
    /// Applied; its answer is on the way, or lost.
    Applied,
}

/// The work of a shard in a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum WorkState {
    /// Nothing runs.
    #[default]
    None,
    /// It runs.
    Running,
    /// It was told to stop and still runs.
    Stopping,
}

/// A session: which process, and which of its lives (renumbered after every step, oldest first).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Session {
    pub(crate) owner: u8,
    pub(crate) life: u8,
}

/// What a process keeps per shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holding {
    pub(crate) work: WorkState,
    pub(crate) claim: WriteState,
    /// The claim expects no record.
    pub(crate) creates: bool,
    /// The epoch of the claim that was applied and not heard of.
    pub(crate) epoch: u8,
    /// A claim that nobody waits for any more and that may yet land, by this life of the process.
    pub(crate) late: Option<u8>,
    /// That one expects no record.
    pub(crate) late_creates: bool,
    /// The claim that was applied replaced a release, so that nobody else can be running the shard.
    pub(crate) trusted: bool,
    /// The shard's record is the one that its work was last started under here.
    pub(crate) ran: bool,
    /// For how long the holder has been seen without a node record that speaks for it; 0 is not yet, then from 1.
    pub(crate) orphaned: u8,
}

/// One process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Proc {
    pub(crate) phase: Phase,
    pub(crate) paused: bool,
    pub(crate) life: u8,
    /// Ticks until its session ends, on its own clock.
    pub(crate) left_for: u8,
    /// Its renewal, or its first write.
    pub(crate) renewal: WriteState,
    /// The renewal expects no record.
    pub(crate) creates: bool,
    /// Ticks since the renewal was sent.
    pub(crate) age: u8,
    /// For how long each name's record has been seen unchanged; 0 is not yet, then from 1.
    pub(crate) silent: [u8; PROCS],
    /// The live session that a roster, read at some time, shows for each name: 0 no roster, 1 nobody, else 2 and up.
    /// Only kept where old rosters are believed.
    pub(crate) roster: [u8; PROCS],
    pub(crate) holding: [Holding; SHARDS],
    /// The incarnation that it knows: 0 none, 1 the one that is, 2 one that was.
    pub(crate) incarnation: u8,
    /// For how long it has seen the new incarnation settle; 0 is not yet, then from 1.
    pub(crate) settling_for: u8,
    /// Its renewal was sent after `meta` was seen to be damaged; it was heard of, so the store is the one that it knew.
    pub(crate) asked: bool,
    pub(crate) vouched: bool,
    /// It has read `meta` since its session's first record landed.
    pub(crate) read: bool,
    /// The shards (as bits) that the renewal under way publishes.
    pub(crate) publishing: u8,
    /// The shards that the store publishes for sure, whatever becomes of the renewal under way.
    pub(crate) published: u8,
}

/// The state of a node record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Life {
    #[default]
    Absent,
    Active,
    Left,
    Fenced,
}

/// A node record, and the requests for it that nobody waits for and that may yet be applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) state: Life,
    pub(crate) session: Session,
    /// It was swapped over the record of a dead session, and so on back to the first: all former ones are dead.
    pub(crate) proves: bool,
    /// It was written by a request older than what its session has seen since.
    pub(crate) old: bool,
    pub(crate) renewal: bool,
    pub(crate) leave: bool,
    pub(crate) fence: Option<Session>,
    pub(crate) join: Option<Session>,
    /// That join expects no record.
    pub(crate) join_creates: bool,
    /// The shards (as bits) that the record publishes, and those that a late one would.
    pub(crate) publishes: u8,
    pub(crate) late_publishes: u8,
}

/// The state of a shard record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Hold {
    #[default]
    Absent,
    Vacant,
    Held,
    /// Given up by a node that had not started it, or held by a session that is dead: no release.
    Unstarted,
}

/// A release on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Release {
    #[default]
    None,
    /// Of a shard that ran, or that would have started without a look at anything.
    Proper,
    /// Of one that was given up before anybody looked who else may be running it.
    Unstarted,
}

/// A shard record. Epochs are renumbered after every step; only their order counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shard {
    pub(crate) state: Hold,
    pub(crate) session: Session,
    pub(crate) epoch: u8,
    /// The floor for epochs of this incarnation.
    pub(crate) floor: u8,
    /// The highest epoch that any work was ever started under. Nobody in the model can see it.
    pub(crate) started: u8,
    /// A release that may yet land.
    pub(crate) release: Release,
}

/// The state of `meta`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Meta {
    Absent,
    Settling,
    #[default]
    Open,
    /// Nobody can read it.
    Damaged,
}

/// A write of `meta` that is under way and may yet land, also when its sender is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum MetaWrite {
    #[default]
    None,
    /// Begins an incarnation where there is no `meta`.
    Create,
    /// Opens the incarnation that settles.
    Open,
    /// Writes a damaged `meta` back, as it is.
    Restore,
    /// Writes a damaged `meta` back, as it was before the store was emptied.
    RestoreFormer,
    /// Begins an incarnation over a damaged `meta`.
    Replace,
}

/// One state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) procs: [Proc; PROCS],
    pub(crate) names: [Name; PROCS],
    pub(crate) shards: [Shard; SHARDS],
    pub(crate) meta: Meta,
    pub(crate) meta_write: MetaWrite,
    pub(crate) vanishes: u8,
    pub(crate) holes: u8,
    pub(crate) wipes: u8,
    pub(crate) damages: u8,
}

impl State {
    /// Every process has just started. The store is empty, or all names have been used before and all shards are
    /// vacant.
    pub(crate) fn start(setup: &Setup) -> State {
        let Setup { vanishes, holes, wipes, damages, .. } = *setup;
        let mut state = State { vanishes, holes, wipes, damages, ..State::default() };
        for p in 0..setup.procs {
            state.procs[p].incarnation = u8::from(setup.wipes > 0);
            if setup.used_before {
                let name = &mut state.names[setup.name[p]];
                (name.state, name.session.owner, name.proves) = (Life::Left, p as u8, true);
            }
        }
        if setup.begun {
            state.all_begun(setup);
        } else if setup.used_before {
            state.shards[..setup.shards].iter_mut().for_each(|shard| shard.state = Hold::Vacant);
        }
        state.normalise(setup);
        state
    }

    /// Every process has a session, and the first one runs the first shard.
    fn all_begun(&mut self, setup: &Setup) {
        for p in 0..setup.procs {
            let session = self.session(p);
            let proc = &mut self.procs[p];
            (proc.phase, proc.left_for, proc.read) = (Phase::Attached, setup.ttl, true);
            let name = &mut self.names[setup.name[p]];
            (name.state, name.session, name.proves) = (Life::Active, session, true);
        }
        let (session, shard) = (self.session(0), &mut self.shards[0]);
        (shard.state, shard.session, shard.epoch, shard.started) = (Hold::Held, session, 1, 1);
        (self.procs[0].holding[0].work, self.procs[0].holding[0].ran) = (WorkState::Running, true);
    }

    /// The session that process `p` has or had last.
    pub(crate) fn session(&self, p: usize) -> Session {
        Session { owner: p as u8, life: self.procs[p].life }
    }

    /// Whether the shard's record names the present session of process `p`.
    pub(crate) fn holds(&self, p: usize, x: usize) -> bool {
        let proc = &self.procs[p];
        self.shards[x].state == Hold::Held
            && proc.phase != Phase::Fresh
            && self.shards[x].session == self.session(p)
    }

    /// Whether the record of this name is that of a live session, and which.
    pub(crate) fn alive(&self, n: usize) -> Option<Session> {
        (self.names[n].state == Life::Active).then_some(self.names[n].session)
    }
}
