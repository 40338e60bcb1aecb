//! Maps registered keys and their leases to Leases, and checks Leases that are read.

use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::jiff::Timestamp;
use leasehold_store::{LeaseId, StoreError, rng};
use serde_json::Value;

use crate::api_types::{Lease, Spec, TimedLease};
use crate::layout::{Base, KEY, KIND, Layout, NAMESPACE, REGISTERED, WRITE, seconds, time};
use crate::leases::MANAGER;
use crate::naming;

/// Under which lease a key is: exactly as an annotation, and as a label to select by.
const LEASE: &str = "leasehold.dev/lease";
/// The exact ttl of a lease in milliseconds.
const TTL_MS: &str = "leasehold.dev/ttl-ms";
/// The value of a key that is text.
const VALUE: &str = "leasehold.dev/value";
/// The value of a key that is not, as the data of a Secret is written.
const VALUE_BASE64: &str = "leasehold.dev/value-base64";
/// Every renewal has one of these and not the other: servers like 1.20 note the time of a write only if it adds a field
/// or removes one, not if it changes a value.
const TICK: [&str; 2] = ["leasehold.dev/tick", "leasehold.dev/tock"];

const LEASE_KIND: &str = REGISTERED[0];
const KEY_KIND: &str = REGISTERED[1];
/// What the annotation with the key begins with, as no record's does.
const LEASES: &str = "leases/";
const KEYS: &str = "keys/";

/// Both times of an age are cut to whole seconds, which makes it wrong by one at most. The other is for API servers of
/// one cluster whose clocks differ a little.
const GRACE: Duration = Duration::from_secs(2);

/// A lease as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Registration {
    pub(crate) id: LeaseId,
    pub(crate) ttl: Duration,
    pub(crate) base: Base,
    /// When it was written last, by the clock of the server that wrote it.
    pub(crate) written: Timestamp,
    acquire_time: Option<String>,
    tick: &'static str,
}

/// A registered key as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Registered {
    pub(crate) key: String,
    pub(crate) value: Vec<u8>,
    pub(crate) lease: LeaseId,
    pub(crate) name: String,
    pub(crate) base: Base,
}

impl Registration {
    /// Whether it has not run out, where the server's clock shows this.
    pub(crate) fn is_alive_at(&self, now: Timestamp) -> bool {
        self.age(now) <= self.ttl + GRACE
    }

    /// Whether it ran out so long ago that no client can take it for alive, even where a server's clock is behind.
    pub(crate) fn is_long_gone_at(&self, now: Timestamp) -> bool {
        self.age(now) > (self.ttl + GRACE) * 2
    }

    /// Whether the server noted when it was written, if that was not before this.
    pub(crate) fn is_noted_since(&self, before: Timestamp) -> bool {
        self.age(before) <= GRACE
    }

    /// How long ago it was written; not at all if that is still to come.
    fn age(&self, now: Timestamp) -> Duration {
        Duration::try_from(now.duration_since(self.written)).unwrap_or_default()
    }
}

impl Layout {
    /// The name of the Lease of a lease.
    pub(crate) fn lease_name(&self, id: &LeaseId) -> String {
        naming::lease_name(&self.prefix, &self.namespace, LEASE_KIND, &format!("{LEASES}{}", id.0))
    }

    /// The name of the Lease of a registered key.
    pub(crate) fn key_name(&self, key: &str) -> String {
        naming::lease_name(&self.prefix, &self.namespace, KEY_KIND, &format!("{KEYS}{key}"))
    }

    /// Selects registered keys and their leases.
    pub(crate) fn registered_selector(&self) -> String {
        format!("{},{KIND} in ({})", self.whole(), REGISTERED.join(","))
    }

    /// Selects the keys under a lease.
    pub(crate) fn selector_under(&self, id: &LeaseId) -> String {
        format!("{},{KIND}={KEY_KIND},{LEASE}={}", self.whole(), naming::label_value(&id.0))
    }

    /// A lease that begins now.
    pub(crate) fn new_lease(&self, id: &LeaseId, ttl: Duration, now: Timestamp) -> Result<Lease, StoreError> {
        let mut lease = self.bare(self.lease_name(id), LEASE_KIND, format!("{LEASES}{}", id.0));
        let annotations = &mut lease.metadata.annotations;
        annotations.insert(LEASE.to_owned(), id.0.clone());
        annotations.insert(TTL_MS.to_owned(), millis(ttl).to_string());
        annotations.insert(TICK[0].to_owned(), rng::fresh_id()?);
        lease.spec = Spec {
            holder_identity: Some(id.0.clone()),
            lease_duration_seconds: Some(seconds(millis(ttl))),
            acquire_time: Some(time(now)),
            renew_time: Some(time(now)),
            ..Spec::default()
        };
        Ok(lease)
    }

    /// A lease that was read, renewed now.
    pub(crate) fn renewed(&self, found: &Registration, now: Timestamp) -> Result<Lease, StoreError> {
        let mut lease = self.new_lease(&found.id, found.ttl, now)?;
        lease.metadata.replaces(&found.base);
        if found.tick == TICK[0] {
            let annotations = &mut lease.metadata.annotations;
            let mark = annotations.remove(TICK[0]).unwrap_or_default();
            annotations.insert(TICK[1].to_owned(), mark);
        }
        lease.spec.acquire_time = found.acquire_time.clone().or(lease.spec.acquire_time);
        Ok(lease)
    }

    /// A registered key that replaces `base`, or is new. It has a holder and no duration, as a shard has.
    pub(crate) fn new_key(
        &self,
        id: &LeaseId,
        key: &str,
        value: &[u8],
        base: Option<&Base>,
    ) -> Result<Lease, StoreError> {
        let mut lease = self.bare(self.key_name(key), KEY_KIND, format!("{KEYS}{key}"));
        if let Some(base) = base {
            lease.metadata.replaces(base);
        }
        let (name, text) = match std::str::from_utf8(value) {
            Ok(text) => (VALUE, text.to_owned()),
            Err(_) => (VALUE_BASE64, base64(value)),
        };
        lease.metadata.labels.insert(LEASE.to_owned(), naming::label_value(&id.0));
        let annotations = &mut lease.metadata.annotations;
        annotations.insert(LEASE.to_owned(), id.0.clone());
        annotations.insert(name.to_owned(), text);
        annotations.insert(WRITE.to_owned(), rng::fresh_id()?);
        lease.spec.holder_identity = Some(id.0.clone());
        Ok(lease)
    }

    /// The lease that a Lease is; `None` if it was damaged, which counts as gone.
    pub(crate) fn registration(&self, lease: &TimedLease) -> Option<Registration> {
        let id = LeaseId(self.own(lease, LEASES, |id| self.lease_name(&LeaseId(id.to_owned())))?);
        let annotations = &lease.metadata.plain.annotations;
        let ttl = annotations.get(TTL_MS)?.parse().ok().map(Duration::from_millis)?;
        let tick = TICK.into_iter().find(|tick| annotations.contains_key(*tick))?;
        let acquire_time = lease.spec.acquire_time.clone();
        let base = lease.metadata.plain.base();
        Some(Registration { id, ttl, base, written: written(lease)?, acquire_time, tick })
    }

    /// The registered key that a Lease is; `None` if it was damaged.
    pub(crate) fn registered(&self, lease: &TimedLease) -> Option<Registered> {
        let key = self.own(lease, KEYS, |key| self.key_name(key))?;
        let plain = &lease.metadata.plain;
        let value = match plain.annotations.get(VALUE) {
            Some(text) => text.clone().into_bytes(),
            None => from_base64(plain.annotations.get(VALUE_BASE64)?)?,
        };
        let lease = LeaseId(plain.annotations.get(LEASE)?.clone());
        Some(Registered { key, value, lease, name: plain.name.clone(), base: plain.base() })
    }

    /// What a Lease says that it is, if its name matches that.
    fn own(&self, lease: &TimedLease, kind: &str, name: impl Fn(&str) -> String) -> Option<String> {
        let plain = &lease.metadata.plain;
        let own = plain.annotations.get(KEY)?.strip_prefix(kind)?;
        let is_ours = plain.annotations.get(NAMESPACE) == Some(&self.namespace) && plain.name == name(own);
        is_ours.then(|| own.to_owned())
    }
}

/// When we wrote it last, by the server's clock. Writes of others are not a sign of life.
pub(crate) fn written(lease: &TimedLease) -> Option<Timestamp> {
    let ours = lease.metadata.managed_fields.iter().filter(|managed| managed.manager == MANAGER);
    ours.filter_map(|managed| managed.time.parse().ok()).max()
}

fn millis(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)
}

fn base64(bytes: &[u8]) -> String {
    match serde_json::to_value(ByteString(bytes.to_vec())) {
        Ok(Value::String(text)) => text,
        _ => unreachable!("bytes are written as text"),
    }
}

fn from_base64(text: &str) -> Option<Vec<u8>> {
    serde_json::from_value::<ByteString>(Value::String(text.to_owned())).ok().map(|bytes| bytes.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api_types::{Managed, TimedMetadata};

    const TTL: Duration = Duration::from_secs(15);

    fn layout() -> Layout {
        Layout::new("leasehold", "demo")
    }

    fn id() -> LeaseId {
        LeaseId("0123456789abcdef0123456789abcdef".to_owned())
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    /// As the server shows it after we wrote it then.
    fn stored(lease: Lease, second: i64) -> TimedLease {
        let ours = Managed { manager: MANAGER.to_owned(), time: at(second).to_string() };
        let metadata = TimedMetadata { plain: lease.metadata, managed_fields: vec![ours] };
        TimedLease { metadata, spec: lease.spec }
    }

    #[test]
    fn a_lease_is_over_when_the_server_says_so() {
        let mut lease = stored(layout().new_lease(&id(), TTL, at(0)).unwrap(), 0);
        // An annotation that is added by hand does not keep it alive.
        lease.metadata.managed_fields.push(Managed { manager: "kubectl".into(), time: at(900).to_string() });
        let found = layout().registration(&lease).unwrap();
        assert_eq!((&found.id, found.ttl, found.written), (&id(), TTL, at(0)));
        let states = |second| (found.is_alive_at(at(second)), found.is_long_gone_at(at(second)));
        assert_eq!([-60, 0, 17].map(states), [(true, false); 3]);
        assert_eq!([18, 34].map(states), [(false, false); 2]);
        assert_eq!(states(35), (false, true));
        assert!(found.is_noted_since(at(2)) && !found.is_noted_since(at(3)));
        lease.metadata.managed_fields.remove(0);
        assert_eq!(layout().registration(&lease), None, "nobody knows how old it is");
    }

    #[test]
    fn every_renewal_has_another_field_and_keeps_the_rest() {
        let mut lease = layout().new_lease(&id(), TTL, at(0)).unwrap();
        for round in 1..4 {
            let found = layout().registration(&stored(lease.clone(), round)).unwrap();
            let next = layout().renewed(&found, at(round)).unwrap();
            let names = |lease: &Lease| lease.metadata.annotations.keys().cloned().collect::<Vec<_>>();
            assert_ne!(names(&next), names(&lease), "in round {round}");
            assert_eq!(names(&next).len(), names(&lease).len());
            assert_eq!(next.spec.acquire_time, Some(time(at(0))));
            assert_eq!(next.spec.renew_time, Some(time(at(round))));
            lease = next;
        }
        assert_eq!(lease.spec.lease_duration_seconds, Some(15));
    }

    #[test]
    fn a_key_comes_back_and_one_that_was_tampered_with_does_not() {
        for value in [b"text".as_slice(), b"", b"\xff\0\xfe"] {
            let key = stored(layout().new_key(&id(), "services/a", value, None).unwrap(), 0);
            let found = layout().registered(&key).unwrap();
            assert_eq!(
                (found.key.as_str(), found.value.as_slice(), &found.lease),
                ("services/a", value, &id())
            );
            assert_eq!(layout().registration(&key), None);
            assert_eq!(Layout::new("leasehold", "other").registered(&key), None);
            for name in [KEY, NAMESPACE, LEASE] {
                let mut tampered = key.clone();
                tampered.metadata.plain.annotations.remove(name);
                assert_eq!(layout().registered(&tampered), None, "without {name}");
            }
            let mut copy = key;
            copy.metadata.plain.name = "a-copy".to_owned();
            assert_eq!(layout().registered(&copy), None);
        }
    }
}
