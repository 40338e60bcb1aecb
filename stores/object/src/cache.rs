//! The last seen state of every object, so that only changes are fetched.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use leasehold_core::store::{Key, LISTS_A_SWEEP};

use crate::client::Mark;
use crate::page::Content;

/// An object as it was when it was last seen.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// The store's mark of this state; `None` if the object is not there.
    pub(crate) mark: Option<Mark>,
    /// What it holds.
    pub(crate) content: Arc<Content>,
}

impl Held {
    pub(crate) fn nothing() -> Self {
        Held { mark: None, content: Arc::new(Content::Absent) }
    }

    pub(crate) fn etag(&self) -> Option<&str> {
        self.mark.as_ref().map(|mark| mark.etag.as_str())
    }
}

/// Whether everything is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sweep {
    /// If the marker tells of a change.
    IfMarked,
    /// Whatever the marker tells.
    Always,
}

/// When a request was issued, counted in requests and answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

/// The objects of one namespace. An answer replaces what is held only if its request was issued after what is held was
/// known: two requests that overlap can come back in the wrong order, and then the object counts as not seen.
#[derive(Debug, Default)]
pub(crate) struct ObjectCache {
    clock: u64,
    slots: BTreeMap<String, Slot>,
    /// The marker's state at the last complete look.
    marker: Option<Option<String>>,
    /// Listings that were asked for since one of them showed everything as it was.
    lists: u32,
    foreign: Vec<String>,
}

#[derive(Debug)]
struct Slot {
    /// As it was when it was last seen.
    held: Held,
    /// It may be different now: answers crossed each other, or a write has an unknown outcome.
    doubted: bool,
    known_at: u64,
    /// Records that may be in the object although it does not show them: what was in it when it was last read, and what
    /// was asked for since.
    hidden: BTreeSet<Key>,
    /// It had records and is not there any more. Leasehold never does that: it leaves a page without rows.
    deleted: bool,
}

impl Slot {
    fn new() -> Self {
        Slot { held: Held::nothing(), doubted: true, known_at: 0, hidden: BTreeSet::new(), deleted: false }
    }

    fn set(&mut self, found: Held) {
        match found.content.hiding() {
            None => self.hidden.clear(),
            Some(by) => {
                if self.held.content.hiding() != Some(by) {
                    self.hidden.extend(self.held.content.keys().cloned());
                }
                // What is shown again is hidden no more, also if it is removed later.
                for key in found.content.keys() {
                    self.hidden.remove(key);
                }
            }
        }
        self.deleted = found.mark.is_none() && (self.deleted || self.held.content.keys().next().is_some());
        (self.held, self.doubted) = (found, false);
    }
}

impl ObjectCache {
    /// To be taken before a request is sent.
    pub(crate) fn ticket(&mut self) -> Ticket {
        self.clock += 1;
        Ticket(self.clock)
    }

    /// Takes in what a request found.
    pub(crate) fn put(&mut self, object: &str, issued: Ticket, found: Held) {
        self.clock += 1;
        let slot = self.slots.entry(object.to_owned()).or_insert_with(Slot::new);
        if issued.0 > slot.known_at {
            slot.set(found);
        } else if !slot.doubted && slot.held.mark == found.mark {
            return;
        } else {
            slot.doubted = true;
        }
        slot.known_at = self.clock;
    }

    /// The state of an object is unknown.
    pub(crate) fn doubt(&mut self, object: &str) {
        self.clock += 1;
        let slot = self.slots.entry(object.to_owned()).or_insert_with(Slot::new);
        (slot.doubted, slot.known_at) = (true, self.clock);
    }

    /// A caller was told that this record may be in an object that does not show it: from now on it is listed.
    pub(crate) fn hide(&mut self, object: &str, key: &Key) {
        if let Some(slot) = self.slots.get_mut(object) {
            slot.hidden.insert(key.clone());
        }
    }

    /// The records that may be in an object although it does not show them.
    pub(crate) fn hidden(&self, object: &str) -> BTreeSet<Key> {
        self.slots.get(object).map(|slot| slot.hidden.clone()).unwrap_or_default()
    }

    /// What is held of an object, if anything is known of it.
    pub(crate) fn get(&self, object: &str) -> Option<Held> {
        self.slots.get(object).filter(|slot| !slot.doubted).map(|slot| slot.held.clone())
    }

    /// The objects that had records and were deleted.
    pub(crate) fn deleted(&self) -> BTreeSet<String> {
        let deleted = self.slots.iter().filter(|(_, slot)| slot.deleted && !slot.doubted);
        deleted.map(|(object, _)| object.clone()).collect()
    }

    /// Whether something must be fetched whatever the marker says.
    pub(crate) fn has_doubts(&self) -> bool {
        self.slots.values().any(|slot| slot.doubted)
    }

    /// All objects that something is known of.
    pub(crate) fn objects(&self) -> Vec<String> {
        self.slots.keys().cloned().collect()
    }

    /// Whether the last complete look saw this state of the marker.
    pub(crate) fn is_marked(&self, marker: &Option<String>) -> bool {
        self.marker.as_ref() == Some(marker)
    }

    /// A listing is requested. One in so many reads everything, whatever the marker says.
    pub(crate) fn count_list(&mut self) -> Sweep {
        self.lists = self.lists.saturating_add(1);
        if self.lists < LISTS_A_SWEEP { Sweep::IfMarked } else { Sweep::Always }
    }

    /// A listing has read everything.
    pub(crate) fn listed_newest(&mut self) {
        self.lists = 0;
    }

    /// Whether the last look was complete and saw this state of the marker.
    pub(crate) fn is_current(&self, marker: &Option<String>) -> bool {
        self.is_marked(marker) && !self.has_doubts()
    }

    /// A look was complete.
    pub(crate) fn looked(&mut self, marker: Option<String>, foreign: Vec<String>) {
        self.marker = Some(marker);
        self.foreign = foreign;
    }

    pub(crate) fn foreign(&self) -> &[String] {
        &self.foreign
    }

    /// Everything that is held, with the records that are known to be hidden in it.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&String, &Held, &BTreeSet<Key>)> {
        let known = self.slots.iter().filter(|(_, slot)| !slot.doubted);
        known.map(|(object, slot)| (object, &slot.held, &slot.hidden))
    }
}
