use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::Moment;

use crate::{LeaseId, LeaseState};

/// The registered keys of one namespace and the leases that keep them.
#[derive(Clone, Debug, Default)]
pub(super) struct Leases {
    leases: BTreeMap<LeaseId, Lease>,
    keys: BTreeMap<String, Registered>,
}

#[derive(Clone, Debug)]
struct Lease {
    ttl: Duration,
    expires_at: Moment,
}

#[derive(Clone, Debug)]
struct Registered {
    lease: LeaseId,
    value: Vec<u8>,
}

impl Leases {
    pub(super) fn grant(&mut self, now: Moment, lease: LeaseId, ttl: Duration) {
        self.leases.insert(lease, Lease { ttl, expires_at: now + ttl });
    }

    pub(super) fn keep_alive(&mut self, now: Moment, lease: &LeaseId) -> LeaseState {
        self.expire(now);
        match self.leases.get_mut(lease) {
            Some(lease) => {
                lease.expires_at = now + lease.ttl;
                LeaseState::Alive
            }
            None => LeaseState::Gone,
        }
    }

    pub(super) fn put(&mut self, now: Moment, lease: &LeaseId, key: &str, value: &[u8]) -> LeaseState {
        self.expire(now);
        if !self.leases.contains_key(lease) {
            return LeaseState::Gone;
        }
        self.keys.insert(key.to_owned(), Registered { lease: lease.clone(), value: value.to_vec() });
        LeaseState::Alive
    }

    pub(super) fn remove(&mut self, now: Moment, lease: &LeaseId, key: &str) {
        self.expire(now);
        if self.keys.get(key).is_some_and(|registered| registered.lease == *lease) {
            self.keys.remove(key);
        }
    }

    pub(super) fn revoke(&mut self, lease: &LeaseId) {
        self.leases.remove(lease);
        self.keys.retain(|_, registered| registered.lease != *lease);
    }

    pub(super) fn keys(&mut self, now: Moment) -> Vec<(String, Vec<u8>)> {
        self.expire(now);
        self.keys.iter().map(|(key, registered)| (key.clone(), registered.value.clone())).collect()
    }

    /// Nothing happens by itself in here, so expired leases end here, before each use.
    fn expire(&mut self, now: Moment) {
        let over: Vec<LeaseId> = self
            .leases
            .iter()
            .filter(|(_, lease)| lease.expires_at <= now)
            .map(|(id, _)| id.clone())
            .collect();
        for lease in &over {
            self.revoke(lease);
        }
    }
}
