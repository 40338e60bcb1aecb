//! The mirror against a dumb twin that keeps the whole history of the store.
//!
//! A store goes through random histories that the protocol allows. A mirror hears of them through reads and listings
//! that take their time and overtake each other, a watch that is in order but late, and its own writes. The twin knows
//! which state is newer than which, because it has them all in a row.

use std::collections::{BTreeMap, VecDeque};

use leasehold_core::mirror::{Change, Mirror, Source};
use leasehold_core::record::{MetaState, NodeRecord, NodeState, Record, ShardState};
use leasehold_core::store::{Key, Listing, Stored, Version};
use leasehold_core::{Epoch, Moment, SessionId};
use proptest::prelude::*;

use crate::make;

/// Something that happens in a history.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A record is written; the number chooses which, and how.
    Write(u8, u8),
    /// A read is issued that takes place after so many steps, and arrives after so many more.
    Read { which: u8, takes_place: u8, arrives: u8 },
    /// The same, of everything.
    List { takes_place: u8, arrives: u8 },
    /// The watch says its next few changes.
    Watch(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (any::<u8>(), any::<u8>()).prop_map(|(which, how)| Step::Write(which, how)),
        2 => (any::<u8>(), 0_u8..6, 0_u8..6)
            .prop_map(|(which, takes_place, arrives)| Step::Read { which, takes_place, arrives }),
        1 => (0_u8..6, 0_u8..6).prop_map(|(takes_place, arrives)| Step::List { takes_place, arrives }),
        2 => (1_u8..5).prop_map(Step::Watch),
    ]
}

/// The dumb twin: every state that each record was ever in, in order.
#[derive(Default)]
struct History {
    states: BTreeMap<Key, Vec<Option<Stored>>>,
    writes: u64,
}

impl History {
    fn now(&self, key: &Key) -> Option<Stored> {
        self.states.get(key)?.last()?.clone()
    }

    fn put(&mut self, key: &Key, make: impl FnOnce(u64) -> Option<Stored>) {
        self.writes += 1;
        let stored = make(self.writes);
        self.states.entry(key.clone()).or_insert_with(|| vec![None]).push(stored);
    }
}

/// Lives and epochs go on as the protocol says, however a record was damaged or removed in between.
#[derive(Default)]
struct Lives {
    epochs: BTreeMap<Key, (u64, ShardState)>,
    sessions: BTreeMap<Key, (u128, u64, bool)>,
    next: u128,
}

fn keys() -> Vec<Key> {
    let group = Key::Group("g".parse().expect("a group's name"));
    vec![
        make::shard_key(0),
        make::shard_key(1),
        make::node_key("a"),
        make::node_key("b"),
        Key::Meta,
        Key::Control,
        group,
    ]
}

fn write(history: &mut History, lives: &mut Lives, which: u8, how: u8) -> Key {
    let keys = keys();
    let key = keys[which as usize % keys.len()].clone();
    match &key {
        _ if how.is_multiple_of(16) => history.put(&key, |_| None),
        _ if how % 16 == 1 => history.put(&key, |version| Some(make::garbage(version))),
        Key::Shard(id) => {
            let (epoch, state) = lives.epochs.get(&key).cloned().unwrap_or((0, make::vacant()));
            let (epoch, state) = match (state, how % 4) {
                (ShardState::Held { .. }, 0) => (epoch, make::vacant()),
                (ShardState::Held { .. }, 1) => (epoch, ShardState::Retired),
                // Written again by its holder, or claimed again.
                (state @ ShardState::Held { .. }, 2) => (epoch, state),
                _ => (epoch + 1, make::held("a", make::session(1))),
            };
            lives.epochs.insert(key.clone(), (epoch, state.clone()));
            history.put(&key, |v| Some(make::stored(v, &make::shard_record(id, epoch, state, v.into()))));
        }
        Key::Node(name) => {
            lives.next += 1;
            let fresh = (lives.next, 1, true);
            let (session, seq, alive) = match (lives.sessions.get(&key).copied(), how % 4) {
                (Some((session, seq, true)), 0 | 1) => (session, seq + 1, true),
                (Some((session, seq, true)), 2) => (session, seq + 1, false),
                // A tombstone by a node that does not know how far it had counted.
                (Some((session, _, true)), _) => (session, 1, false),
                (Some((_, _, false)) | None, _) => fresh,
            };
            lives.sessions.insert(key.clone(), (session, seq, alive));
            let state = if alive { NodeState::Active } else { NodeState::Fenced };
            let session = make::session(session);
            history.put(&key, |v| {
                Some(make::stored(v, &make::node_record(name.as_str(), session, seq, state, v.into())))
            });
        }
        Key::Meta => history.put(&key, |v| Some(make::stored(v, &make::meta(1, MetaState::Open, v.into())))),
        Key::Control => history.put(&key, |v| Some(make::stored(v, &make::control(v.into())))),
        Key::Group(_) => history.put(&key, |v| Some(make::stored(v, &make::group_record(4, v.into())))),
    }
    key
}

/// A read or listing under way.
struct UnderWay {
    issued: u64,
    takes_place: u8,
    arrives: u8,
    which: Option<Key>,
    found: Option<Vec<(Key, Option<Stored>)>>,
}

/// How far a record has come.
#[derive(Clone, Copy)]
enum Progress {
    Shard(Epoch, bool),
    Node(SessionId, bool, u64),
}

struct Trial {
    history: History,
    lives: Lives,
    mirror: Mirror,
    watch: VecDeque<(Key, Option<Stored>)>,
    under_way: Vec<UnderWay>,
    at: u64,
}

impl Trial {
    fn new() -> Self {
        Trial {
            history: History::default(),
            lives: Lives::default(),
            mirror: Mirror::default(),
            watch: VecDeque::new(),
            under_way: Vec::new(),
            at: 0,
        }
    }

    fn take(&mut self, step: Step) -> Result<(), TestCaseError> {
        self.at += 1;
        match step {
            Step::Write(which, how) => {
                let key = write(&mut self.history, &mut self.lives, which, how);
                self.watch.push_back((key.clone(), self.history.now(&key)));
            }
            Step::Read { which, takes_place, arrives } => {
                let keys = keys();
                let which = Some(keys[which as usize % keys.len()].clone());
                let issued = self.mirror.tick();
                self.under_way.push(UnderWay { issued, takes_place, arrives, which, found: None });
            }
            Step::List { takes_place, arrives } => {
                let issued = self.mirror.tick();
                self.under_way.push(UnderWay { issued, takes_place, arrives, which: None, found: None });
            }
            Step::Watch(count) => {
                for _ in 0..count {
                    let Some((key, stored)) = self.watch.pop_front() else { break };
                    self.observe(Source::Watch, &key, stored.as_ref())?;
                }
            }
        }
        self.go_on()
    }

    /// Time passes for everything under way.
    fn go_on(&mut self) -> Result<(), TestCaseError> {
        let mut arrived = Vec::new();
        for request in &mut self.under_way {
            if request.found.is_none() && request.takes_place == 0 {
                let keys = request.which.clone().map_or_else(keys, |key| vec![key]);
                request.found = Some(keys.into_iter().map(|k| (k.clone(), self.history.now(&k))).collect());
            } else if request.found.is_none() {
                request.takes_place -= 1;
            } else {
                request.arrives = request.arrives.saturating_sub(1);
            }
        }
        let (done, waiting): (Vec<UnderWay>, Vec<UnderWay>) = std::mem::take(&mut self.under_way)
            .into_iter()
            .partition(|r| r.found.is_some() && r.arrives == 0);
        self.under_way = waiting;
        arrived.extend(done);
        for request in arrived {
            let source = Source::Fresh(request.issued);
            let found = request.found.unwrap_or_default();
            match request.which {
                Some(key) => self.observe(source, &key, found[0].1.as_ref())?,
                None => self.observe_listing(source, found)?,
            }
        }
        Ok(())
    }

    fn observe(&mut self, source: Source, key: &Key, stored: Option<&Stored>) -> Result<(), TestCaseError> {
        let before = self.good(key);
        let change = self.mirror.observe(Moment::from_millis(self.at), source, key, stored);
        prop_assert!(
            !matches!(change, Change::RolledBack(_)),
            "{key}: {change:?}, but nothing was rolled back"
        );
        self.as_stored(key)?;
        self.only_forward(source, key, before)
    }

    /// What the mirror shows of a node is what the store has under that version, to the last field: renewals are not parsed
    /// whole.
    fn as_stored(&self, key: &Key) -> Result<(), TestCaseError> {
        let Key::Node(name) = key else { return Ok(()) };
        let seen = self.mirror.nodes().get(name).and_then(|node| node.seen.as_ref());
        let Some((version, record)) = seen.and_then(|seen| Some((&seen.version, seen.good()?))) else {
            return Ok(());
        };
        let mut states = self.history.states.get(key).into_iter().flatten().flatten();
        let stored = states.rfind(|stored| stored.version == *version);
        let stored = stored.map(|stored| NodeRecord::decode(&stored.value));
        prop_assert_eq!(stored, Some(Ok(record.as_ref().clone())), "{}", key);
        Ok(())
    }

    fn observe_listing(
        &mut self,
        source: Source,
        found: Vec<(Key, Option<Stored>)>,
    ) -> Result<(), TestCaseError> {
        let before: Vec<(Key, Option<Progress>)> =
            keys().into_iter().map(|key| (key.clone(), self.good(&key))).collect();
        let entries = found.into_iter().filter_map(|(key, stored)| Some((key, stored?))).collect();
        let listing = Listing { entries, ..Listing::default() };
        let mut wrong = None;
        self.mirror.observe_listing(Moment::from_millis(self.at), source, &listing, |key, change| {
            if let Change::RolledBack(what) = change {
                wrong = Some(format!("{key}: {what}, but nothing was rolled back"));
            }
        });
        prop_assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
        for (key, before) in before {
            self.only_forward(source, &key, before)?;
        }
        Ok(())
    }

    /// How far the record that the mirror shows has come, if it can be read: an epoch, or a session's count.
    fn good(&self, key: &Key) -> Option<Progress> {
        match key {
            Key::Shard(id) => {
                let record = self.mirror.shards().get(id)?.good()?;
                let over = !matches!(record.state, ShardState::Held { .. });
                Some(Progress::Shard(record.epoch, over))
            }
            Key::Node(name) => {
                let record = self.mirror.nodes().get(name)?.seen.as_ref()?.good()?;
                let over = !record.state.is_alive();
                Some(Progress::Node(record.session, over, if over { 0 } else { record.seq }))
            }
            _ => None,
        }
    }

    /// Of two states that can be read, the mirror never goes back to the older one. (Two writes of one epoch by one
    /// holder are as good as each other, and so are two sessions of which neither is known to be over.)
    fn only_forward(&self, source: Source, key: &Key, before: Option<Progress>) -> Result<(), TestCaseError> {
        match (before, self.good(key)) {
            (Some(Progress::Shard(epoch, over)), Some(Progress::Shard(new_epoch, new_over))) => {
                prop_assert!(
                    (epoch, over) <= (new_epoch, new_over),
                    "{key} fell from {epoch} to {new_epoch}"
                );
            }
            (Some(Progress::Node(s, over, seq)), Some(Progress::Node(new_s, new_over, new_seq))) => {
                let same = s == new_s;
                prop_assert!(
                    !same || (over, seq) <= (new_over, new_seq),
                    "{key} fell from {seq} to {new_seq}"
                );
                let revived = source == Source::Watch && !new_over && self.mirror.is_proved_over(&new_s);
                prop_assert!(!revived, "{key} shows a session that is known to be over");
            }
            _ => {}
        }
        Ok(())
    }

    fn shown(&self, key: &Key) -> Option<Version> {
        match key {
            Key::Shard(id) => self.mirror.shards().get(id).map(|seen| seen.version.clone()),
            Key::Node(name) => Some(self.mirror.nodes().get(name)?.seen.as_ref()?.version.clone()),
            Key::Meta => self.mirror.meta().map(|seen| seen.version.clone()),
            Key::Control => self.mirror.control_record().map(|seen| seen.version.clone()),
            Key::Group(name) => self.mirror.groups().get(name).map(|seen| seen.version.clone()),
        }
    }
}

proptest! {
    #![proptest_config(crate::trying(2000))]

    #[test]
    fn the_mirror_only_goes_forward_and_ends_at_the_truth(steps in prop::collection::vec(step(), 1..80)) {
        let mut trial = Trial::new();
        for step in steps {
            trial.take(step)?;
        }
        // Everything late comes in, and then one listing that was issued after all of it.
        trial.take(Step::Watch(u8::MAX))?;
        for _ in 0..16 {
            trial.go_on()?;
        }
        trial.take(Step::List { takes_place: 0, arrives: 0 })?;
        trial.go_on()?;
        for key in keys() {
            let truth = trial.history.now(&key).map(|stored| stored.version);
            prop_assert_eq!(trial.shown(&key), truth, "{}", key);
        }
    }

    #[test]
    fn a_store_that_is_rolled_back_is_noticed(
        steps in prop::collection::vec(step(), 1..60),
        back in 1_usize..20,
        which in 0_usize..2,
    ) {
        let mut trial = Trial::new();
        for step in steps {
            trial.take(step)?;
        }
        trial.take(Step::Watch(u8::MAX))?;
        for _ in 0..16 {
            trial.go_on()?;
        }
        trial.take(Step::List { takes_place: 0, arrives: 0 })?;
        trial.go_on()?;
        let key = make::shard_key(which as u32);
        let Some(states) = trial.history.states.get(&key).cloned() else { return Ok(()) };
        let Some(old) = states.len().checked_sub(1 + back).and_then(|at| states[at].clone()) else { return Ok(()) };
        let epoch = |stored: &Stored| {
            let record: serde_json::Value = serde_json::from_slice(&stored.value).ok()?;
            record["epoch"].as_u64()
        };
        let now = trial.history.now(&key);
        let (Some(was), Some(is)) = (epoch(&old), now.as_ref().and_then(epoch)) else { return Ok(()) };
        if was < is {
            let issued = trial.mirror.tick();
            let change = trial.mirror.observe(Moment::from_millis(999), Source::Fresh(issued), &key, Some(&old));
            prop_assert!(matches!(change, Change::RolledBack(_)), "{:?} after epoch {}, now {}", change, is, was);
        }
    }
}

/// A damaged node record counts with the ttl that a shard's record names for its holder, whichever of the two is read first.
#[test]
fn a_damaged_node_record_has_the_ttl_that_a_shard_names_for_it() {
    let (shard, session) = (make::shard_id(0), make::session(7));
    let held = make::shard_record(&shard, 1, make::held("b", session), 1).encode();
    let stored =
        |version: &str, value: Vec<u8>| Stored { version: Version::new(version), value: value.into() };
    let shard = (Key::Shard(shard), stored("1", held));
    let node = (Key::Node("b".parse().expect("a node's name")), stored("2", b"noise".to_vec()));
    for order in [[&shard, &node], [&node, &shard]] {
        let mut mirror = Mirror::default();
        for (key, stored) in order {
            mirror.observe(Moment::from_millis(1), Source::Watch, key, Some(stored));
        }
        let seen = mirror.nodes().values().next().expect("the node");
        assert_eq!(seen.ttl_longest, std::time::Duration::from_secs(10));
    }
}
