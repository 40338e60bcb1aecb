//! Which sessions the node records show alive, and which of them the kernel proves gone.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::SessionId;
use leasehold_store::{Key, WatchEvent};

use crate::claim::{self, Proof};
use crate::database_file::DatabaseFile;

/// The sessions of one watch.
#[derive(Debug, Default)]
pub(crate) struct LiveSessions {
    alive: BTreeMap<Key, SessionId>,
    told: BTreeSet<SessionId>,
    changed: bool,
}

/// As much of a node record as is needed here, whatever else a newer version may write.
#[derive(serde::Deserialize)]
struct Glance {
    session: SessionId,
    state: String,
}

impl LiveSessions {
    /// Takes in what the reader of the watch is told.
    pub(crate) fn note(&mut self, event: &WatchEvent) {
        match event {
            WatchEvent::Snapshot(listing) => {
                self.changed = true;
                self.alive.clear();
                self.told.clear();
                for (key, stored) in &listing.entries {
                    self.note_record(key, Some(&stored.value));
                }
            }
            WatchEvent::Changed(changes) => {
                for (key, stored) in changes {
                    self.note_record(key, stored.as_ref().map(|stored| &*stored.value));
                }
                let alive: BTreeSet<_> = self.alive.values().collect();
                self.told.retain(|session| alive.contains(session));
            }
            WatchEvent::Interrupted(_) | WatchEvent::ProcessGone(_) => {}
        }
    }

    /// Whether the living sessions may be other ones than when this was asked last.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Sessions that are alive by their record, that the kernel proves gone, and that have not been told yet.
    pub(crate) fn newly_gone(&mut self, db_file: &DatabaseFile) -> Vec<SessionId> {
        let (alive, told) = (&self.alive, &mut self.told);
        let mut gone = Vec::new();
        for session in alive.values() {
            if !told.contains(session) && claim::probe(db_file, *session) == Proof::Gone {
                told.insert(*session);
                gone.push(*session);
            }
        }
        gone
    }

    fn note_record(&mut self, key: &Key, value: Option<&[u8]>) {
        if !matches!(key, Key::Node(_)) {
            return;
        }
        let glance = value.and_then(|value| serde_json::from_slice::<Glance>(value).ok());
        match glance {
            Some(glance) if glance.state != "left" && glance.state != "fenced" => {
                self.changed |= self.alive.insert(key.clone(), glance.session) != Some(glance.session);
            }
            _ => {
                self.alive.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_store::{Listing, Stored, Version};

    fn record(session: u128, state: &str) -> Stored {
        let text = format!(r#"{{"session":"{session:032x}","state":"{state}","new":{{"field":[1]}}}}"#);
        Stored { version: Version::new("1"), value: text.into_bytes().into() }
    }

    fn sessions(live_sessions: &LiveSessions) -> Vec<u128> {
        live_sessions.alive.values().map(|session| session.to_bits()).collect()
    }

    #[test]
    fn only_living_sessions_are_looked_after() {
        let key = |name: &str| format!("nodes/{name}").parse::<Key>().expect("a key");
        let mut live_sessions = LiveSessions::default();
        let mut entries = Vec::new();
        for (name, state) in
            [("a", "active"), ("b", "draining"), ("c", "left"), ("d", "fenced"), ("e", "newer")]
        {
            entries.push((key(name), record(u128::from(name.as_bytes()[0]), state)));
        }
        live_sessions.note(&WatchEvent::Snapshot(Listing { entries, ..Listing::default() }));
        assert_eq!(sessions(&live_sessions), [97, 98, 101]);
        let corrupt = Stored { version: Version::new("2"), value: b"{".as_slice().into() };
        let changes =
            vec![(key("a"), Some(record(97, "fenced"))), (key("b"), None), (key("e"), Some(corrupt))];
        live_sessions.note(&WatchEvent::Changed(changes));
        assert_eq!(sessions(&live_sessions), []);
    }
}
