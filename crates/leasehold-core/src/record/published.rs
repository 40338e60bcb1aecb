//! What a session publishes in its node record: the shards that it may be running.
//!
//! A shard's record can be deleted or damaged by anyone, and its holder may be paused. So a node that claims a shard
//! whose record was not a release looks here, in the record that the holder renews, before it starts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::SlotSet;
use crate::name::{Epoch, GroupName, ShardId, ShardName};

/// Up to this many names of one group are written out; beyond that, a hash of each.
const NAMES_MAX: usize = 32;
/// Bits of the hash of a name: four characters each.
const HASH_BITS: u32 = 24;
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// What a session may be running. Too much in it costs others a wait, too little would cost safety.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Published(BTreeMap<GroupName, PublishedGroup>);

/// What a session may be running of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedGroup {
    /// Shards that it holds.
    #[serde(default, skip_serializing_if = "ShardList::is_empty")]
    pub holds: ShardList,
    /// Shards that it does not hold and may start at any moment: it is claiming them, or the plan gives them to it.
    #[serde(default, skip_serializing_if = "ShardList::is_empty")]
    pub plans: ShardList,
    /// It starts nothing of this group above this epoch without saying so first, and has never held a higher one.
    #[serde(default)]
    pub epoch: Epoch,
}

/// Shards of one group: slots of a numbered one, names of a named one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardList {
    /// Slots, exactly.
    #[serde(default, skip_serializing_if = "SlotSet::is_empty")]
    slots: SlotSet,
    /// Names.
    #[serde(default, skip_serializing_if = "Names::is_empty")]
    names: Names,
}

impl Published {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.0.values().all(|group| group.holds.is_empty() && group.plans.is_empty())
    }

    /// The group's part, to be filled.
    pub fn group(&mut self, group: &GroupName) -> &mut PublishedGroup {
        self.0.entry(group.clone()).or_default()
    }

    /// Whether the session holds this shard.
    pub fn holds(&self, shard: &ShardId) -> bool {
        self.0.get(&shard.group).is_some_and(|group| group.holds.contains(&shard.name))
    }

    /// Whether the session may hold this shard as far as a hash tells, which may mean another name.
    pub fn holds_by_hash(&self, shard: &ShardId) -> bool {
        self.holds(shard)
            && self.0.get(&shard.group).is_some_and(|group| matches!(group.holds.names, Names::Hashed { .. }))
    }

    /// Whether the session may be running this shard, or start it without saying more.
    pub fn has(&self, shard: &ShardId) -> bool {
        let group = self.0.get(&shard.group);
        group.is_some_and(|group| group.holds.contains(&shard.name) || group.plans.contains(&shard.name))
    }

    /// Whether the session may be running this shard at this epoch, or start it without saying more.
    pub fn covers(&self, shard: &ShardId, epoch: Epoch) -> bool {
        self.has(shard) && self.epoch(&shard.group) >= epoch
    }

    /// The session starts nothing of this group above this epoch without saying so first.
    pub fn epoch(&self, group: &GroupName) -> Epoch {
        self.0.get(group).map_or(Epoch(0), |group| group.epoch)
    }

    /// See [`PublishedGroup::epoch`], for each group.
    pub fn epochs(&self) -> impl Iterator<Item = (&GroupName, Epoch)> {
        self.0.iter().map(|(group, published)| (group, published.epoch))
    }

    /// Writes long lists of names in short. `salt` decides how they are hashed, and so which other names they hit.
    pub fn shorten(&mut self, salt: u32) {
        for group in self.0.values_mut() {
            group.holds.names.shorten(salt);
            group.plans.names.shorten(salt);
        }
    }
}

impl ShardList {
    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.names.is_empty()
    }

    /// Adds a slot of a numbered group.
    pub fn add_slot(&mut self, slot: u32) {
        self.slots.insert(slot);
    }

    /// Adds a shard of a named group.
    pub fn add_name(&mut self, name: &ShardName) {
        match &mut self.names {
            Names::Exact(names) => names.insert(name.clone()),
            Names::Hashed { salt, hashes } => hashes.insert(hash(*salt, name)),
        };
    }

    fn contains(&self, name: &ShardName) -> bool {
        name.as_slot().is_some_and(|slot| self.slots.contains(slot)) || self.names.contains(name)
    }
}

/// Names of shards: as they are while they are few, and else a hash of each.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Names {
    Exact(BTreeSet<ShardName>),
    Hashed { salt: u32, hashes: BTreeSet<u32> },
}

impl Default for Names {
    fn default() -> Self {
        Names::Exact(BTreeSet::new())
    }
}

fn hash(salt: u32, name: &ShardName) -> u32 {
    (xxh3_64_with_seed(name.as_str().as_bytes(), u64::from(salt)) >> (64 - HASH_BITS)) as u32
}

impl Names {
    fn is_empty(&self) -> bool {
        match self {
            Names::Exact(names) => names.is_empty(),
            Names::Hashed { hashes, .. } => hashes.is_empty(),
        }
    }

    fn contains(&self, name: &ShardName) -> bool {
        match self {
            Names::Exact(names) => names.contains(name),
            Names::Hashed { salt, hashes } => hashes.contains(&hash(*salt, name)),
        }
    }

    fn shorten(&mut self, salt: u32) {
        if let Names::Exact(names) = self
            && names.len() > NAMES_MAX
        {
            let hashes = names.iter().map(|name| hash(salt, name)).collect();
            *self = Names::Hashed { salt, hashes };
        }
    }
}

/// Exact names are an array; hashes are text: the salt, a colon, and four characters of base64url for each, in order.
impl Serialize for Names {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Names::Exact(names) => names.serialize(serializer),
            Names::Hashed { salt, hashes } => {
                let mut text = String::with_capacity(12 + 4 * hashes.len());
                write!(text, "{salt}:").expect("writing to text does not fail");
                for hash in hashes {
                    for shift in [18, 12, 6, 0] {
                        text.push(char::from(DIGITS[(hash >> shift) as usize % 64]));
                    }
                }
                serializer.serialize_str(&text)
            }
        }
    }
}

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Exact(BTreeSet<ShardName>),
            Hashed(String),
        }
        match Form::deserialize(deserializer)? {
            Form::Exact(names) => Ok(Names::Exact(names)),
            Form::Hashed(text) => parse(&text).ok_or_else(|| {
                de::Error::custom("expected a salt, a colon and four characters for each name")
            }),
        }
    }
}

fn parse(text: &str) -> Option<Names> {
    let (salt, digits) = text.split_once(':')?;
    if digits.len() % 4 != 0 {
        return None;
    }
    let value = |digit: &u8| DIGITS.iter().position(|known| known == digit).map(|at| at as u32);
    let hashes = digits
        .as_bytes()
        .chunks(4)
        .map(|four| four.iter().try_fold(0, |hash, digit| Some((hash << 6) | value(digit)?)));
    Some(Names::Hashed { salt: salt.parse().ok()?, hashes: hashes.collect::<Option<_>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(text: &str) -> ShardId {
        text.parse().unwrap()
    }

    #[test]
    fn slots_and_few_names_are_exact_and_readable() {
        let mut published = Published::default();
        let orders = published.group(&"orders".parse().unwrap());
        (0..3).for_each(|slot| orders.holds.add_slot(slot));
        orders.plans.add_slot(5);
        orders.epoch = Epoch(7);
        published.group(&"tenants".parse().unwrap()).holds.add_name(&"a b".parse().unwrap());
        published.shorten(0);
        let text = serde_json::to_string(&published).unwrap();
        assert_eq!(
            text,
            r#"{"orders":{"holds":{"slots":"0-2"},"plans":{"slots":"5"},"epoch":7},"tenants":{"holds":{"names":["a b"]},"epoch":0}}"#
        );
        assert_eq!(serde_json::from_str::<Published>(&text).unwrap(), published);
        assert!(published.holds(&shard("orders/2")) && !published.holds(&shard("orders/5")));
        assert!(published.has(&shard("orders/5")) && !published.has(&shard("orders/3")));
        assert!(published.has(&shard("tenants/a b")) && !published.has(&shard("tenants/b")));
        assert_eq!(published.epoch(&"orders".parse().unwrap()), Epoch(7));
    }

    #[test]
    fn many_names_are_short_and_none_is_missing() {
        let name = |number: u32| -> ShardName { format!("customer-{number:08}").parse().unwrap() };
        let of = |salt| {
            let mut published = Published::default();
            let group = published.group(&"tenants".parse().unwrap());
            (0..10_000).for_each(|number| group.holds.add_name(&name(number)));
            published.shorten(salt);
            published
        };
        let published = of(1);
        let text = serde_json::to_string(&published).unwrap();
        assert!(text.len() < 41_000, "{}", text.len());
        let back: Published = serde_json::from_str(&text).unwrap();
        assert_eq!(back, published);
        let group: GroupName = "tenants".parse().unwrap();
        let has = |published: &Published, number| published.has(&ShardId::new(group.clone(), name(number)));
        assert!((0..10_000).all(|number| has(&back, number)), "too little would cost safety");
        let wrong: Vec<u32> = (10_000..60_000).filter(|number| has(&back, *number)).collect();
        assert!(wrong.len() < 200, "{}", wrong.len());
        let other = of(2);
        assert!(
            wrong.iter().filter(|number| has(&other, **number)).count() < 3,
            "another salt hits other names"
        );
        for bad in [r#""x""#, r#""1:abc""#, r#""a:abcd""#, r#""1:ab d""#, "7"] {
            assert!(serde_json::from_str::<Names>(bad).is_err(), "{bad}");
        }
    }
}
