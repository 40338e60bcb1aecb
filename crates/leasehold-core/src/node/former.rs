//! What came before this session: earlier sessions of this process, how the last one ended, and sessions of our name that
//! are not ours.

use std::collections::BTreeSet;

use crate::name::SessionId;
use crate::record::Outage;
use crate::time::{Moment, Now};

/// What came before this session.
#[derive(Debug, Default)]
pub(super) struct Former {
    /// Sessions of this process that are over, or that never began.
    sessions: BTreeSet<SessionId>,
    /// The last of them that held anything.
    last: Option<SessionId>,
    /// When its work must be killed.
    kill_at: Moment,
    /// When the last session was lost, and why, until there is another one.
    detached_at: Option<(Now, String)>,
    /// The last time without a session, for people.
    outage: Option<Outage>,
    /// A session of our own name that is not ours, and its `seq` when we first saw it.
    rival: Option<(SessionId, u64)>,
    /// Until when sessions of our name whose records were lost may be alive.
    unproved_until: Moment,
}

impl Former {
    /// One of our sessions is over, or never began.
    pub(super) fn add(&mut self, session: SessionId) {
        self.sessions.insert(session);
    }

    pub(super) fn contains(&self, session: SessionId) -> bool {
        self.sessions.contains(&session)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = SessionId> {
        self.sessions.iter().copied()
    }

    /// A session that may have held something was lost.
    pub(super) fn lost(&mut self, session: SessionId, kill_at: Moment, now: Now, why: String) {
        self.add(session);
        self.last = Some(session);
        self.kill_at = kill_at;
        self.detached_at = Some((now, why));
    }

    /// The last session that held anything.
    pub(super) fn last(&self) -> Option<SessionId> {
        self.last
    }

    /// When the work of that session must be killed.
    pub(super) fn kill_at(&self) -> Moment {
        self.kill_at
    }

    /// A new session begins: the time without one is over, and so is any other session of our name.
    pub(super) fn session_begins(&mut self, at: Moment) {
        self.rival = None;
        if let Some((detached_at, cause)) = self.detached_at.take() {
            let for_ms = at.since(detached_at.at).as_millis() as u64;
            self.outage = Some(Outage { cause, unix_ms: detached_at.unix_ms, for_ms });
        }
    }

    /// The last time without a session.
    pub(super) fn outage(&self) -> Option<&Outage> {
        self.outage.as_ref()
    }

    /// Another session has our name. Says whether it has renewed since we first saw it, so that a live process uses it.
    pub(super) fn meet_rival(&mut self, session: SessionId, seq: u64) -> bool {
        match self.rival {
            Some((rival, first)) if rival == session => seq > first,
            _ => {
                self.rival = Some((session, seq));
                false
            }
        }
    }

    /// Until when sessions of our name whose records were lost may be alive.
    pub(super) fn unproved_until(&self) -> Moment {
        self.unproved_until
    }

    pub(super) fn set_unproved_until(&mut self, until: Moment) {
        self.unproved_until = until;
    }
}
