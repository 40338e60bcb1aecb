use std::fmt;

use leasehold_core::store::{Lane, StoreError, StoreErrorKind, Swap};

use crate::{Store, rng};

/// How often a sweep is tried while the last writes of nodes may still arrive.
const ROUNDS: usize = 5;

/// The name of a temporary namespace, for tests of a store.
///
/// It is always a fresh, random name. So a caller that passes it to
/// [`Administration::discard`](crate::Administration::discard) created the namespace, and no other records can be removed by
/// mistake.
#[derive(Debug)]
pub struct Throwaway {
    name: String,
}

impl Throwaway {
    /// Makes up a name, `leasehold-<purpose>-<32 digits>`.
    pub fn new(purpose: &str) -> Result<Throwaway, StoreError> {
        Ok(Throwaway { name: format!("leasehold-{purpose}-{}", rng::fresh_id()?) })
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// An error unless this is the name of that namespace.
    pub fn must_be(&self, namespace: &str) -> Result<(), StoreError> {
        match namespace == self.name {
            true => Ok(()),
            false => {
                Err(refused(format!("{namespace:?} is not the namespace {self}, so nothing was removed")))
            }
        }
    }

    /// The error of a store that cannot remove a namespace.
    pub fn stays(&self, kind: &str) -> StoreError {
        refused(format!("a {kind} store cannot remove a namespace, so {self} remains"))
    }

    /// Removes every record of a namespace of this name, each on condition of its version, until none is left. For
    /// stores: they know their namespace, and ask [`must_be`](Throwaway::must_be) first.
    pub async fn sweep(&self, store: &dyn Store) -> Result<(), StoreError> {
        for _ in 0..ROUNDS {
            let entries = store.list().await?.entries;
            if entries.is_empty() {
                return Ok(());
            }
            let removal = |(key, stored): (_, leasehold_core::store::Stored)| Swap {
                key,
                expect: Some(stored.version),
                value: None,
            };
            let swaps: Vec<Swap> = entries.into_iter().map(removal).collect();
            for some in swaps.chunks(store.facts().swaps_max.max(1)) {
                store.swap(Lane::Work, some).await?;
            }
        }
        Err(StoreError::new(StoreErrorKind::Busy, format!("records keep appearing in {self}")))
    }
}

impl fmt::Display for Throwaway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

fn refused(message: String) -> StoreError {
    StoreError::new(StoreErrorKind::Refused, message)
}

#[cfg(test)]
mod tests {
    use super::Throwaway;

    #[test]
    fn no_two_names_are_the_same_and_each_fits_only_itself() {
        let (one, other) = (Throwaway::new("check").unwrap(), Throwaway::new("check").unwrap());
        assert_ne!(one.name(), other.name());
        assert!(one.name().starts_with("leasehold-check-") && one.name().len() == 48);
        one.must_be(one.name()).unwrap();
        for namespace in [other.name(), "default", ""] {
            assert!(one.must_be(namespace).is_err());
        }
    }
}
