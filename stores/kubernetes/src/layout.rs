//! Maps records to Leases, and checks Leases that are read.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use leasehold_core::record::{NodeRecord, Record, ShardRecord};
use leasehold_store::{Key, StoreError, StoreErrorKind, Stored, Version, rng};

use crate::api_types::{GROUP, Lease, Metadata, Spec};
use crate::naming;
use crate::references::References;

pub(crate) const PREFIX: &str = "leasehold.dev/prefix";
pub(crate) const NAMESPACE: &str = "leasehold.dev/namespace";
pub(crate) const KIND: &str = "leasehold.dev/kind";
pub(crate) const GROUP_OF: &str = "leasehold.dev/group";
pub(crate) const KEY: &str = "leasehold.dev/key";
pub(crate) const RECORD: &str = "leasehold.dev/record";
pub(crate) const EPOCH: &str = "leasehold.dev/epoch";
/// Differs in every write: a replacement that changes nothing would keep its resourceVersion, and a restored etcd gives
/// the same resourceVersions again.
pub(crate) const WRITE: &str = "leasehold.dev/write";

/// What stands in for a key on the Lease whose uid is the generation.
const ANCHOR: &str = "store";

/// The kinds of registered keys and of their leases, which are not among the records.
pub(crate) const REGISTERED: [&str; 2] = ["lease", "key"];

/// The kind of the Leases of shards.
const SHARD: &str = "shard";

/// The Leases of one namespace of Leasehold.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) prefix: String,
    pub(crate) namespace: String,
}

/// What a Lease is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A record, sound or not.
    Record(Key, Stored),
    /// The one whose uid is the generation.
    Anchor(String),
    /// A foreign Lease, in words.
    Foreign(String),
}

/// One state of one Lease: what a replacement or deletion is conditioned on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Base {
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    /// What a replacement must leave as it is.
    pub(crate) references: References,
}

impl Base {
    /// The state that a version stands for, without its references; `None` if it is not a version of this store.
    pub(crate) fn of(version: &Version) -> Option<Self> {
        let mut parts = version.as_str().splitn(3, '.');
        let (resource_version, _mark, uid) = (parts.next()?, parts.next()?, parts.next()?);
        let (uid, resource_version) = (uid.to_owned(), resource_version.to_owned());
        Some(Base { uid, resource_version, references: References::default() })
    }
}

impl Metadata {
    /// Makes this a replacement of that state. The resourceVersion alone is not enough: the server creates a Lease that
    /// is replaced and not there, and only the uid keeps it from doing so.
    pub(crate) fn replaces(&mut self, base: &Base) {
        self.uid = base.uid.clone();
        self.resource_version = base.resource_version.clone();
        self.finalizers = base.references.finalizers.clone();
        self.owner_references = base.references.owner_references.clone();
    }

    /// The state that this is.
    pub(crate) fn base(&self) -> Base {
        let (uid, resource_version) = (self.uid.clone(), self.resource_version.clone());
        Base { uid, resource_version, references: References::of(self) }
    }
}

impl Layout {
    pub(crate) fn new(prefix: &str, namespace: &str) -> Self {
        Layout { prefix: prefix.to_owned(), namespace: namespace.to_owned() }
    }

    /// The namespace of Leasehold.
    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Selects the Leases of records, and whatever else is in this namespace but registered keys.
    pub(crate) fn selector(&self) -> String {
        format!("{},{KIND} notin ({})", self.whole(), REGISTERED.join(","))
    }

    /// Selects the same without those of shards: few, however many shards there are. What lost its kind is among them.
    pub(crate) fn all_but_shards(&self) -> String {
        format!("{},{KIND} notin ({SHARD},{})", self.whole(), REGISTERED.join(","))
    }

    /// Selects all Leases of this namespace, and no others.
    pub(crate) fn whole(&self) -> String {
        format!(
            "{PREFIX}={},{NAMESPACE}={}",
            naming::label_value(&self.prefix),
            naming::label_value(&self.namespace)
        )
    }

    /// The name of the Lease of a record.
    pub(crate) fn name(&self, key: &Key) -> String {
        naming::lease_name(&self.prefix, &self.namespace, kind(key), &key.to_string())
    }

    /// The name of the Lease whose uid is the generation.
    pub(crate) fn anchor_name(&self) -> String {
        naming::lease_name(&self.prefix, &self.namespace, ANCHOR, ANCHOR)
    }

    /// The Lease whose uid is the generation.
    pub(crate) fn anchor(&self) -> Lease {
        self.bare(self.anchor_name(), ANCHOR, ANCHOR.to_owned())
    }

    /// A record as a Lease that replaces `base`, or is new.
    pub(crate) fn lease(&self, key: &Key, value: &[u8], base: Option<&Base>) -> Result<Lease, StoreError> {
        let Ok(text) = std::str::from_utf8(value) else {
            let what =
                format!("the record {key} is not UTF-8, which an annotation must be. Nothing was written.");
            return Err(StoreError::new(StoreErrorKind::Refused, what));
        };
        let mut lease = self.bare(self.name(key), kind(key), key.to_string());
        if let Some(base) = base {
            lease.metadata.replaces(base);
        }
        let group = match key {
            Key::Group(group) => Some(group),
            Key::Shard(shard) => Some(&shard.group),
            Key::Meta | Key::Control | Key::Node(_) => None,
        };
        if let Some(group) = group {
            lease.metadata.labels.insert(GROUP_OF.to_owned(), naming::label_value(group.as_str()));
        }
        lease.metadata.annotations.insert(RECORD.to_owned(), text.to_owned());
        lease.metadata.annotations.insert(WRITE.to_owned(), rng::fresh_id()?);
        match key {
            Key::Node(_) => lease.spec = node_spec(value).unwrap_or_default(),
            Key::Shard(_) => {
                if let Ok(record) = ShardRecord::decode(value) {
                    lease.spec = shard_spec(&record);
                    lease.metadata.annotations.insert(EPOCH.to_owned(), record.epoch.0.to_string());
                }
            }
            Key::Meta | Key::Control | Key::Group(_) => {}
        }
        Ok(lease)
    }

    /// The key of a Lease whose fields differ from its record. A record that cannot be read is reported elsewhere, and
    /// times are not compared: they do not affect ownership.
    pub(crate) fn misleads(&self, lease: &Lease) -> Option<Key> {
        let Entry::Record(key, stored) = self.entry(lease) else { return None };
        let right = match &key {
            Key::Node(_) => node_spec(&stored.value)?,
            Key::Shard(_) => shard_spec(&ShardRecord::decode(&stored.value).ok()?),
            Key::Meta | Key::Control | Key::Group(_) => Spec::default(),
        };
        let shown = &lease.spec;
        let fits = shown.holder_identity == right.holder_identity
            && shown.lease_transitions == right.lease_transitions
            && shown.lease_duration_seconds == right.lease_duration_seconds;
        (!fits).then_some(key)
    }

    /// What a Lease from a listing or a watch is.
    pub(crate) fn entry(&self, lease: &Lease) -> Entry {
        let Metadata { name, uid, annotations, .. } = &lease.metadata;
        let Some(text) = annotations.get(KEY) else {
            return Entry::Foreign(format!("the Lease {name}, which has no annotation {KEY}"));
        };
        if text == ANCHOR && *name == self.anchor_name() {
            return Entry::Anchor(uid.clone());
        }
        match text.parse::<Key>() {
            Err(_) => Entry::Foreign(text.clone()),
            Ok(key) if self.name(&key) == *name => {
                let stored = self.stored(&key, lease);
                Entry::Record(key, stored)
            }
            Ok(key) => Entry::Foreign(format!("the Lease {name}, a copy that says it is {key}")),
        }
    }

    /// What the Lease with a record's name holds. A Lease that was tampered with yields bytes that are not a
    /// record, so its shard counts as held until its holder cannot be alive any more.
    pub(crate) fn stored(&self, key: &Key, lease: &Lease) -> Stored {
        let Metadata { name, labels, annotations, .. } = &lease.metadata;
        let spoiled = |what: String| Arc::from(format!("not a record: the Lease {name} {what}").into_bytes());
        let right_label = |label: &str, text: &str| labels.get(label) == Some(&naming::label_value(text));
        let value: Arc<[u8]> = if annotations.get(KEY) != Some(&key.to_string())
            || annotations.get(NAMESPACE) != Some(&self.namespace)
        {
            spoiled(format!("does not say in its annotations that it is {key} of {}", self.namespace))
        } else if !right_label(PREFIX, &self.prefix)
            || !right_label(NAMESPACE, &self.namespace)
            || REGISTERED.iter().any(|kind| right_label(KIND, kind))
            || (kind(key) != SHARD && right_label(KIND, SHARD))
        {
            spoiled("has lost its labels, and is not listed".to_owned())
        } else {
            match annotations.get(RECORD) {
                Some(text) => Arc::from(text.as_bytes()),
                None => spoiled(format!("has no annotation {RECORD}")),
            }
        };
        Stored { version: version(lease), value }
    }

    pub(crate) fn bare(&self, name: String, kind: &str, key: String) -> Lease {
        let labels = [
            ("app.kubernetes.io/managed-by", "leasehold".to_owned()),
            (PREFIX, naming::label_value(&self.prefix)),
            (NAMESPACE, naming::label_value(&self.namespace)),
            (KIND, kind.to_owned()),
        ];
        let annotations = [(KEY, key), (NAMESPACE, self.namespace.clone())];
        let owned = |pairs: &[(&str, String)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
        };
        Lease {
            api_version: format!("{GROUP}/v1"),
            kind: "Lease".to_owned(),
            metadata: Metadata {
                name,
                labels: owned(&labels),
                annotations: owned(&annotations),
                ..Metadata::default()
            },
            spec: Spec::default(),
        }
    }
}

/// The version of a Lease: equal only if it was not written in between.
pub(crate) fn version(lease: &Lease) -> Version {
    let Metadata { uid, resource_version, annotations, .. } = &lease.metadata;
    let write = annotations.get(WRITE).map_or("", String::as_str).replace('.', "-");
    Version::new(format!("{resource_version}.{write}.{uid}"))
}

fn kind(key: &Key) -> &'static str {
    match key {
        Key::Meta => "meta",
        Key::Control => "control",
        Key::Group(_) => "group",
        Key::Node(_) => "node",
        Key::Shard(_) => SHARD,
    }
}

/// A living session has a holder, and looks expired to other tools when it does not renew. One that is over has none,
/// and no renew time either: its record says when it ended, which is not a renewal.
fn node_spec(value: &[u8]) -> Option<Spec> {
    let record = NodeRecord::decode(value).ok()?;
    if !record.state.is_alive() {
        return Some(Spec::default());
    }
    Some(Spec {
        holder_identity: Some(record.node.to_string()),
        lease_duration_seconds: Some(seconds(record.ttl_ms)),
        renew_time: unix_time(record.written_unix_ms),
        ..Spec::default()
    })
}

/// A shard is held as long as its holder's session lives, so its own Lease has no duration and no renew time: with
/// them other tools would take it for expired.
fn shard_spec(record: &ShardRecord) -> Spec {
    let holder = record.holder();
    Spec {
        holder_identity: holder.map(|holder| holder.node.to_string()),
        acquire_time: holder.and_then(|_| unix_time(record.written_unix_ms)),
        lease_transitions: Some(i32::try_from(record.epoch.0).unwrap_or(i32::MAX)),
        ..Spec::default()
    }
}

fn unix_time(unix_ms: u64) -> Option<String> {
    Timestamp::from_millisecond(i64::try_from(unix_ms).ok().filter(|ms| *ms > 0)?).ok().map(time)
}

/// A time in a Lease.
pub(crate) fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// A duration in a Lease: whole seconds, rounded up.
pub(crate) fn seconds(ms: u64) -> i32 {
    ms.div_ceil(1000).clamp(1, i32::MAX as u64) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        Layout::new("leasehold", "demo")
    }

    fn key(text: &str) -> Key {
        text.parse().unwrap()
    }

    fn shard(epoch: u64, state: &str) -> Vec<u8> {
        format!(
            r#"{{"format":1,"write":"{:032x}","shard":"orders/7","epoch":{epoch},"state":{state},"why":"planned","written_unix_ms":1700000000123}}"#,
            5
        )
        .into_bytes()
    }

    const HELD: &str =
        r#"{"held":{"holder":{"node":"a","session":"00000000000000000000000000000001","ttl_ms":15000}}}"#;

    #[test]
    fn a_shard_reads_truthfully() {
        let key = key("shards/orders/7");
        let lease = layout().lease(&key, &shard(41, HELD), None).unwrap();
        assert_eq!(lease.spec.holder_identity.as_deref(), Some("a"));
        assert_eq!(lease.spec.acquire_time.as_deref(), Some("2023-11-14T22:13:20.123000Z"));
        assert_eq!(lease.spec.lease_transitions, Some(41));
        assert_eq!((lease.spec.lease_duration_seconds, lease.spec.renew_time), (None, None));
        let vacant = layout().lease(&key, &shard(1 << 40, r#"{"vacant":{}}"#), None).unwrap();
        assert_eq!((vacant.spec.holder_identity, vacant.spec.acquire_time), (None, None));
        assert_eq!(vacant.spec.lease_transitions, Some(i32::MAX));
        assert_eq!(vacant.metadata.annotations[EPOCH], (1u64 << 40).to_string());
        assert_eq!(vacant.metadata.labels[GROUP_OF], "orders");
    }

    #[test]
    fn only_a_living_session_has_a_renew_time() {
        let node = |state: &str| {
            let text = format!(
                r#"{{"format":1,"write":"{:032x}","node":"a","session":"{:032x}","state":"{state}","accepting":true,"weight":100,"groups":{{}},"ttl_ms":15000,"seq":3,"view":0,"protocol":[1,1],"written_unix_ms":1700000000123}}"#,
                5, 1
            );
            NodeRecord::decode(text.as_bytes()).unwrap();
            layout().lease(&key("nodes/a"), text.as_bytes(), None).unwrap().spec
        };
        for state in ["active", "draining"] {
            assert_eq!(node(state).renew_time.as_deref(), Some("2023-11-14T22:13:20.123000Z"));
            assert_eq!(node(state).lease_duration_seconds, Some(15));
        }
        for state in ["left", "fenced"] {
            assert_eq!(node(state), Spec::default(), "what ended it was no renewal");
        }
    }

    #[test]
    fn a_lease_that_shows_something_else_than_its_record_is_found() {
        let key = key("shards/orders/7");
        let good = layout().lease(&key, &shard(41, HELD), None).unwrap();
        assert_eq!(layout().misleads(&good), None);
        let edited = |change: &dyn Fn(&mut Lease)| {
            let mut lease = good.clone();
            change(&mut lease);
            layout().misleads(&lease)
        };
        assert_eq!(edited(&|lease| lease.spec.holder_identity = Some("b".into())), Some(key.clone()));
        assert_eq!(edited(&|lease| lease.spec.holder_identity = None), Some(key.clone()));
        assert_eq!(edited(&|lease| lease.spec.lease_transitions = Some(99)), Some(key.clone()));
        assert_eq!(edited(&|lease| lease.spec.lease_duration_seconds = Some(1)), Some(key));
        assert_eq!(edited(&|lease| drop(lease.metadata.annotations.remove(RECORD))), None);
    }

    #[test]
    fn a_record_comes_back_from_its_lease() {
        let key = key("shards/orders/7");
        let base =
            Base { uid: "u-1".into(), resource_version: "12".into(), references: References::default() };
        let lease = layout().lease(&key, b"some bytes", Some(&base)).unwrap();
        let Entry::Record(found, stored) = layout().entry(&lease) else { panic!("a record") };
        assert_eq!((found, &*stored.value), (key, b"some bytes".as_slice()));
        assert_eq!(Base::of(&stored.version), Some(base));
        assert_eq!(Base::of(&Version::new("7")), None);
    }

    #[test]
    fn a_lease_that_was_tampered_with_is_not_believed() {
        let key = key("shards/orders/7");
        let good = layout().lease(&key, &shard(1, HELD), None).unwrap();
        let tampered = |change: &dyn Fn(&mut Lease)| {
            let mut lease = good.clone();
            change(&mut lease);
            let value = layout().stored(&key, &lease).value;
            assert!(ShardRecord::decode(&value).is_err(), "{}", String::from_utf8_lossy(&value));
        };
        tampered(&|lease| drop(lease.metadata.annotations.remove(RECORD)));
        tampered(&|lease| drop(lease.metadata.annotations.insert(KEY.into(), "shards/orders/8".into())));
        tampered(&|lease| drop(lease.metadata.annotations.remove(NAMESPACE)));
        tampered(&|lease| drop(lease.metadata.labels.remove(NAMESPACE)));
        tampered(&|lease| drop(lease.metadata.labels.insert(KIND.into(), "key".into())));
        let mut copy = good;
        copy.metadata.name = "a-copy".into();
        assert!(matches!(layout().entry(&copy), Entry::Foreign(_)));
        assert!(matches!(Layout::new("leasehold", "other").entry(&copy), Entry::Foreign(_)));
    }
}
