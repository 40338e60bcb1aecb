//! The finalizers and owner references that others set on our Leases. A replacement sends the whole Lease, so it must repeat
//! them: otherwise the server would drop them, and would remove a Lease that is being deleted and that only a finalizer
//! keeps.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::api_types::Metadata;
use crate::layout::Base;

/// How many states of one Lease are remembered: the newest, and some that a write may still expect.
const STATES_MAX: usize = 8;

/// The references of one state of a Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct References {
    pub(crate) finalizers: Vec<String>,
    pub(crate) owner_references: Vec<Value>,
}

impl References {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        let Metadata { finalizers, owner_references, .. } = metadata;
        References { finalizers: finalizers.clone(), owner_references: owner_references.clone() }
    }
}

/// The references of all Leases that have some (hardly any has): each state by its uid and its resourceVersion. A client
/// has always read a state here before it replaces it.
#[derive(Debug, Default)]
pub(crate) struct KnownReferences(Mutex<BTreeMap<String, VecDeque<(String, References)>>>);

impl KnownReferences {
    /// Takes note of a Lease that was read.
    pub(crate) fn note(&self, metadata: &Metadata) {
        if metadata.finalizers.is_empty() && metadata.owner_references.is_empty() {
            return;
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let states = known.entry(metadata.uid.clone()).or_default();
        if states.iter().any(|(state, _)| *state == metadata.resource_version) {
            return;
        }
        states.push_back((metadata.resource_version.clone(), References::of(metadata)));
        if states.len() > STATES_MAX {
            states.pop_front();
        }
    }

    /// A Lease that is gone has none.
    pub(crate) fn forget(&self, uid: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }

    /// The same state with its references.
    pub(crate) fn tied(&self, base: Base) -> Base {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut states = known.get(&base.uid).into_iter().flatten();
        let found = states.find(|(state, _)| *state == base.resource_version);
        Base { references: found.map(|(_, references)| references.clone()).unwrap_or_default(), ..base }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(resource_version: &str, finalizers: &[&str]) -> Metadata {
        Metadata {
            uid: "u".into(),
            resource_version: resource_version.into(),
            finalizers: finalizers.iter().map(|name| (*name).to_owned()).collect(),
            ..Metadata::default()
        }
    }

    #[test]
    fn a_state_keeps_its_own_ties_in_whatever_order_states_are_seen() {
        let known = KnownReferences::default();
        let found = |state: &Metadata| {
            known.tied(Base { references: References::default(), ..state.base() }).references.finalizers
        };
        let (tied, other, free) = (state("7", &["a/b"]), state("8", &["c/d"]), state("9", &[]));
        for seen in [&other, &free, &tied, &tied] {
            known.note(seen);
        }
        assert_eq!(found(&tied), ["a/b"]);
        assert_eq!(found(&other), ["c/d"]);
        assert!(found(&free).is_empty(), "it was removed");
        for n in 10..30 {
            known.note(&state(&n.to_string(), &["a/b"]));
        }
        assert!(found(&tied).is_empty() && found(&state("29", &[])) == ["a/b"], "only the newest are kept");
        known.forget("u");
        assert!(found(&state("29", &[])).is_empty());
    }
}
