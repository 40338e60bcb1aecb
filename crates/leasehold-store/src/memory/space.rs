use std::collections::BTreeMap;

use leasehold_core::store::{Key, Listing, Stored};

use super::leases::Leases;

/// One namespace: its records under their names as text, so that tests can also put foreign ones there.
#[derive(Clone, Debug, Default)]
pub(super) struct Space {
    pub(super) records: BTreeMap<String, Stored>,
    pub(super) leases: Leases,
}

impl Space {
    pub(super) fn get(&self, key: &str) -> Option<Stored> {
        self.records.get(key).cloned()
    }

    pub(super) fn listing(&self, generation: &str, revision: u64) -> Listing {
        let mut listing =
            Listing { generation: generation.to_owned(), revision: Some(revision), ..Listing::default() };
        for (text, stored) in &self.records {
            match text.parse::<Key>() {
                Ok(key) => listing.entries.push((key, stored.clone())),
                Err(_) => listing.foreign.push(text.clone()),
            }
        }
        listing
    }

    /// The records of nodes, and `meta`.
    pub(super) fn nodes(&self, generation: &str, revision: u64) -> Listing {
        let nodes = self.records.range("nodes/".to_owned().."nodes0".to_owned());
        let known = nodes.chain(self.records.get_key_value("meta"));
        let entry = |(text, stored): (&String, &Stored)| Some((text.parse::<Key>().ok()?, stored.clone()));
        Listing {
            entries: known.filter_map(entry).collect(),
            generation: generation.to_owned(),
            revision: Some(revision),
            newest: true,
            ..Listing::default()
        }
    }
}
