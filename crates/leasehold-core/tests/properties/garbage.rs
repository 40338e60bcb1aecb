//! A node that is fed with everything that a store, a watch or a driver must never send: answers that do not fit their
//! requests, that come twice, late or out of nowhere, records that nobody wrote, clocks that jump. It may detach, wait
//! and complain as it likes. It must not panic, must not spin, and must start and stop each shard in turn.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use leasehold_core::config::{Gate, Namespace};
use leasehold_core::event::{Action, Command, Ended, Event, Returning, Verdict};
use leasehold_core::record::{MetaState, NodeState, ShardSet, ShardState, Slots};
use leasehold_core::store::{
    Answer, Facts, Freshness, Key, Listing, Op, Request, RequestId, Safety, StoreError, StoreErrorKind,
    Stored, Swapped, Version, WatchEvent,
};
use leasehold_core::{Config, Epoch, GroupConfig, Moment, Node, Now, SessionId, ShardId};
use proptest::prelude::*;

use crate::make;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The oldest request is answered by a store that works.
    Honest,
    /// The oldest request is answered with something else.
    Answer(u8, u64),
    /// An answer that was given before is given again.
    Again(u8),
    /// The watch says something, true or not.
    Watch(u8, u64),
    /// Time passes, in milliseconds; both clocks go on.
    Pass(u16),
    /// The wall clock jumps.
    Wall(i32),
    /// Work that was told to stop has stopped, or work ends by itself.
    Ended(u8),
    /// The gate speaks.
    Gate(u8),
    /// The user wants something.
    Command(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => Just(Step::Honest),
        3 => (any::<u8>(), any::<u64>()).prop_map(|(how, seed)| Step::Answer(how, seed)),
        1 => any::<u8>().prop_map(Step::Again),
        3 => (any::<u8>(), any::<u64>()).prop_map(|(how, seed)| Step::Watch(how, seed)),
        6 => (0_u16..3000).prop_map(Step::Pass),
        1 => any::<i32>().prop_map(Step::Wall),
        3 => any::<u8>().prop_map(Step::Ended),
        1 => any::<u8>().prop_map(Step::Gate),
        1 => any::<u8>().prop_map(Step::Command),
    ]
}

struct Trial {
    node: Node,
    at_ms: u64,
    wall_ms: i64,
    store: BTreeMap<Key, Stored>,
    revision: u64,
    asked: VecDeque<Request>,
    answered: Vec<(RequestId, Answer)>,
    session: SessionId,
    running: BTreeMap<ShardId, Epoch>,
    told_to_stop: BTreeSet<ShardId>,
    done: bool,
}

impl Trial {
    fn new(gate: Gate, watch: bool) -> Self {
        let facts = Facts {
            kind: "garbage",
            watch,
            poll_every: Duration::from_millis(500),
            write_every_min: Duration::ZERO,
            swaps_max: 3,
            reads: if watch { Freshness::Newest } else { Freshness::ListsMayLag },
            removes: true,
            safety: Safety::Strict,
            ttl_default: Duration::from_secs(10),
        };
        let mut config = Config::with_ttl("a".parse().expect("a node's name"), Duration::from_secs(10));
        config.gate = gate;
        config.namespace = Namespace::New;
        config.groups = vec![
            GroupConfig {
                group: "g".parse().expect("a group's name"),
                shards: ShardSet::Numbered(3),
                policy: Default::default(),
                capacity: None,
            },
            GroupConfig {
                group: "n".parse().expect("a group's name"),
                shards: ShardSet::Named,
                policy: Default::default(),
                capacity: None,
            },
        ];
        config.check_on(&facts).expect("a good configuration");
        Trial {
            node: Node::new(config, facts, [7; 32]),
            at_ms: 1,
            wall_ms: 1_700_000_000_000,
            store: BTreeMap::new(),
            revision: 0,
            asked: VecDeque::new(),
            answered: Vec::new(),
            session: SessionId::from_bits(0),
            running: BTreeMap::new(),
            told_to_stop: BTreeSet::new(),
            done: false,
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Honest => {
                if let Some(request) = self.asked.pop_front() {
                    let answer = self.honest(&request);
                    self.answered.push((request.id, answer.clone()));
                    self.send(Event::Answered(request.id, answer));
                }
            }
            Step::Answer(how, seed) => {
                if let Some(request) = self.asked.pop_front() {
                    let answer = self.dishonest(&request, how, seed);
                    self.answered.push((request.id, answer.clone()));
                    self.send(Event::Answered(request.id, answer));
                }
            }
            Step::Again(which) => {
                let known = self.answered.get(which as usize % self.answered.len().max(1)).cloned();
                let (id, answer) = known.unwrap_or((RequestId(99), Answer::Listed(Listing::default())));
                self.send(Event::Answered(id, answer));
            }
            Step::Watch(how, seed) => {
                let event = self.watched(how, seed);
                self.send(Event::Watched(event));
            }
            Step::Pass(ms) => {
                let until = self.at_ms + u64::from(ms);
                self.pass(until);
            }
            Step::Wall(by) => self.wall_ms = (self.wall_ms + i64::from(by)).max(0),
            Step::Ended(how) => self.ended(how),
            Step::Gate(how) => {
                let verdict = if how % 2 == 0 { Verdict::Take } else { Verdict::Refuse };
                self.send(Event::Gate { shard: any_shard(how / 2), verdict });
            }
            Step::Command(how) => self.send(Event::Command(any_command(how))),
        }
    }

    /// Time goes on to `until`, and the node is woken whenever it wants to be.
    fn pass(&mut self, until: u64) {
        let mut woken_at = (0, 0);
        while !self.done {
            let due = self.node.deadline();
            let due_ms = due.as_nanos().div_ceil(1_000_000).max(self.at_ms);
            if due == Moment::NEVER || due_ms > until {
                break;
            }
            self.wall_ms += (due_ms - self.at_ms) as i64;
            self.at_ms = due_ms;
            woken_at = if woken_at.0 == due_ms { (due_ms, woken_at.1 + 1) } else { (due_ms, 1) };
            assert!(woken_at.1 < 100, "the node spins at {due_ms} ms");
            self.send(Event::Tick);
        }
        self.wall_ms += (until - self.at_ms.min(until)) as i64;
        self.at_ms = self.at_ms.max(until);
    }

    fn send(&mut self, event: Event) {
        let now = Now { at: Moment::from_millis(self.at_ms), unix_ms: self.wall_ms as u64 };
        let mut actions = Vec::new();
        self.node.step(now, event, &mut actions);
        self.node.view(now);
        for action in actions {
            assert!(!self.done, "{action:?} after the end");
            match action {
                Action::OpenSession(session) => self.session = session,
                Action::Ask(request) => self.asked.push_back(request),
                Action::Start { shard, epoch } => {
                    let before = self.running.insert(shard.clone(), epoch);
                    assert_eq!(before, None, "{shard} was started twice");
                }
                Action::Stop { shard, epoch, .. } => {
                    assert_eq!(self.running.get(&shard), Some(&epoch), "{shard} was stopped and did not run");
                    self.told_to_stop.insert(shard);
                }
                Action::Done => self.done = true,
                Action::Deadlines(_) | Action::Lose | Action::AskGate(_) | Action::Tell(_) => {}
            }
        }
    }

    /// What was told to stop does so.
    fn stop_as_told(&mut self) {
        for shard in std::mem::take(&mut self.told_to_stop) {
            if let Some(epoch) = self.running.get(&shard).copied() {
                self.send(Event::Ended { shard: shard.clone(), epoch, how: Ended::Finished });
                self.running.remove(&shard);
            }
        }
    }

    fn ended(&mut self, how: u8) {
        let count = self.running.len().max(1);
        let Some((shard, epoch)) = self.running.iter().nth(how as usize % count) else { return };
        let (shard, epoch) = (shard.clone(), *epoch);
        let how = match how % 4 {
            0 => Ended::Failed("boom".into()),
            1 => {
                // Of a start that never was.
                let wrong = Epoch(epoch.0 + 1);
                return self.send(Event::Ended { shard, epoch: wrong, how: Ended::Finished });
            }
            _ => Ended::Finished,
        };
        // It may be told to stop in the same step, before that knows that it has ended.
        self.send(Event::Ended { shard: shard.clone(), epoch, how });
        self.running.remove(&shard);
        self.told_to_stop.remove(&shard);
    }

    fn honest(&mut self, request: &Request) -> Answer {
        let generation = "g1".to_owned();
        match &request.op {
            Op::List | Op::ListNodes => {
                let listing = Listing {
                    entries: self.store.iter().map(|(key, stored)| (key.clone(), stored.clone())).collect(),
                    foreign: Vec::new(),
                    unreadable: Vec::new(),
                    generation,
                    revision: Some(self.revision),
                    newest: true,
                };
                Answer::Listed(if request.op == Op::List { listing } else { listing.nodes_only() })
            }
            Op::Read(keys) => Answer::Read {
                found: keys.iter().map(|key| self.store.get(key).cloned()).collect(),
                generation,
            },
            Op::Swap(swaps) => {
                let mut outcomes = Vec::new();
                for swap in swaps {
                    let current = self.store.get(&swap.key);
                    if current.map(|stored| &stored.version) != swap.expect.as_ref() {
                        outcomes.push(Swapped::Lost(current.cloned()));
                        continue;
                    }
                    self.revision += 1;
                    let version = Version::new(self.revision.to_string());
                    match &swap.value {
                        Some(value) => {
                            let stored = Stored { version: version.clone(), value: value.clone() };
                            self.store.insert(swap.key.clone(), stored);
                        }
                        None => {
                            self.store.remove(&swap.key);
                        }
                    }
                    outcomes.push(Swapped::Applied(version));
                }
                Answer::Swapped { outcomes, generation }
            }
        }
    }

    fn dishonest(&mut self, request: &Request, how: u8, seed: u64) -> Answer {
        let generation = if seed.is_multiple_of(17) { "g2" } else { "g1" }.to_owned();
        let keys = match &request.op {
            Op::Read(keys) => keys.clone(),
            Op::List | Op::ListNodes => Vec::new(),
            Op::Swap(swaps) => swaps.iter().map(|swap| swap.key.clone()).collect(),
        };
        match how % 8 {
            0 => Answer::Failed(StoreError::new(StoreErrorKind::TimedOut, "no answer")),
            1 => {
                // It was done, and the answer is lost.
                self.honest(request);
                Answer::Failed(StoreError::new(StoreErrorKind::TimedOut, "no answer"))
            }
            2 => Answer::Read { found: vec![None; (seed % 4) as usize], generation },
            3 => Answer::Swapped { outcomes: vec![Swapped::Unknown; keys.len()], generation },
            4 => {
                let lost = |(at, key): (usize, &Key)| Swapped::Lost(self.any_stored(key, seed + at as u64));
                Answer::Swapped { outcomes: keys.iter().enumerate().map(lost).collect(), generation }
            }
            5 => {
                let outcomes = vec![Swapped::Applied(Version::new("made up")); (seed % 4) as usize];
                Answer::Swapped { outcomes, generation }
            }
            6 => {
                let found = keys.iter().enumerate().map(|(at, key)| self.any_stored(key, seed + at as u64));
                Answer::Read { found: found.collect(), generation }
            }
            _ => Answer::Listed(self.any_listing(seed)),
        }
    }

    fn watched(&mut self, how: u8, seed: u64) -> WatchEvent {
        match how % 8 {
            0 => WatchEvent::Snapshot(self.any_listing(seed)),
            1 => WatchEvent::Interrupted("broken".into()),
            2 => WatchEvent::ProcessGone(self.any_session(seed)),
            3 | 4 => {
                let keys: Vec<Key> = self.store.keys().cloned().collect();
                let truth = keys.into_iter().map(|key| (key.clone(), self.store.get(&key).cloned()));
                WatchEvent::Changed(truth.skip((seed % 3) as usize).collect())
            }
            _ => {
                let key = any_key(seed);
                let stored = self.any_stored(&key, seed / 11);
                WatchEvent::Changed(vec![(key, stored)])
            }
        }
    }

    fn any_listing(&self, seed: u64) -> Listing {
        let count = seed % 6;
        let entries = (0..count).filter_map(|at| {
            let key = any_key(seed / 7 + at);
            let stored = self.any_stored(&key, seed / 3 + at)?;
            Some((key, stored))
        });
        Listing {
            entries: entries.collect(),
            foreign: vec!["x".into()],
            unreadable: vec!["y".into()],
            generation: if seed.is_multiple_of(13) { "g2".into() } else { "g1".into() },
            revision: (!seed.is_multiple_of(3)).then_some(seed % 100),
            newest: seed.is_multiple_of(2),
        }
    }

    fn any_session(&self, seed: u64) -> SessionId {
        if seed.is_multiple_of(2) { self.session } else { SessionId::from_bits(u128::from(seed % 5)) }
    }

    /// Something that could stand under this key, if the world were mad.
    fn any_stored(&self, key: &Key, seed: u64) -> Option<Stored> {
        let version = seed % 1000;
        let write = u128::from(seed);
        let session = self.any_session(seed / 5);
        if seed.is_multiple_of(5) {
            return None;
        }
        if seed % 5 == 1 {
            return Some(make::garbage(version));
        }
        Some(match key {
            Key::Meta => {
                let state = if seed.is_multiple_of(3) { MetaState::Open } else { MetaState::Settling };
                make::stored(version, &make::meta(u128::from(seed % 3), state, write))
            }
            Key::Control => {
                let mut control = make::control(write);
                control.drain.extend(
                    seed.is_multiple_of(3).then(|| ("a".parse().expect("a name"), Default::default())),
                );
                control.release.insert(any_shard(seed as u8), Epoch(seed % 9));
                control.pins.insert(any_shard(seed as u8), "b".parse().expect("a node's name"));
                control.unquarantine.insert(any_shard(seed as u8), Epoch(seed % 9));
                make::stored(version, &control)
            }
            Key::Group(_) => {
                let mut group = make::group_record((seed % 5) as u32, write);
                group.filled = Slots::below((seed % 4) as u32);
                make::stored(version, &group)
            }
            Key::Node(name) => {
                let states = [NodeState::Active, NodeState::Draining, NodeState::Left, NodeState::Fenced];
                let state = states[(seed / 3 % 4) as usize];
                make::stored(version, &make::node_record(name.as_str(), session, seed % 20, state, write))
            }
            Key::Shard(shard) => {
                let state = match seed / 3 % 4 {
                    0 => make::vacant(),
                    1 => ShardState::Retired,
                    2 => make::held("a", session),
                    _ => make::held("b", session),
                };
                make::stored(version, &make::shard_record(shard, seed % 9, state, write))
            }
        })
    }
}

fn any_shard(number: u8) -> ShardId {
    match number % 5 {
        3 => "n/x".parse().expect("a shard's name"),
        4 => "unknown/y".parse().expect("a shard's name"),
        number => make::shard_id(number.into()),
    }
}

fn any_key(seed: u64) -> Key {
    match seed % 8 {
        0 => Key::Meta,
        1 => Key::Control,
        2 => Key::Group("g".parse().expect("a group's name")),
        3 => Key::Group("n".parse().expect("a group's name")),
        4 => make::node_key("a"),
        5 => make::node_key("b"),
        _ => Key::Shard(any_shard((seed / 8) as u8)),
    }
}

fn any_command(how: u8) -> Command {
    let shard = any_shard(how / 16);
    match how % 14 {
        0 => Command::Weight(u32::from(how)),
        1 => Command::Capacity((how > 100).then_some(1)),
        2 => Command::Accepting(how > 100),
        3 | 4 => Command::Engage(shard),
        5 => Command::Disengage(shard),
        6 => Command::Drain,
        7 => Command::Undrain,
        8 => Command::Unquarantine(shard),
        9 if how > 200 => Command::Leave { within: Duration::from_secs(3), returning: Returning::Soon },
        _ => Command::Address(Some(how.to_string())),
    }
}

proptest! {
    #![proptest_config(crate::trying(300))]

    #[test]
    fn nothing_makes_a_node_panic_spin_or_start_twice(
        steps in prop::collection::vec(step(), 1..250),
        asks in any::<bool>(),
        watches in any::<bool>(),
    ) {
        let mut trial = Trial::new(if asks { Gate::Ask } else { Gate::Open }, watches);
        trial.send(Event::Tick);
        for step in steps {
            trial.take(step);
        }
    }

    /// After all the garbage the store is healthy and answers. A node that has not left must recover.
    #[test]
    fn a_node_gets_over_garbage(steps in prop::collection::vec(step(), 1..150), watches in any::<bool>()) {
        let mut trial = Trial::new(Gate::Open, watches);
        trial.send(Event::Tick);
        for step in steps {
            trial.take(step);
        }
        trial.send(Event::Command(Command::Undrain));
        trial.send(Event::Command(Command::Accepting(true)));
        trial.send(Event::Command(Command::Capacity(None)));
        trial.send(Event::Command(Command::Weight(100)));
        trial.store.remove(&Key::Control);
        for _ in 0..4000 {
            if trial.done {
                return Ok(());
            }
            trial.stop_as_told();
            let mut answers = 0;
            while let Some(request) = trial.asked.front() {
                answers += 1;
                prop_assert!(answers < 200, "it asks without end: {request:?}");
                trial.take(Step::Honest);
            }
            let now = Now { at: Moment::from_millis(trial.at_ms), unix_ms: trial.wall_ms as u64 };
            let view = trial.node.view(now);
            if view.me.is_some_and(|me| me.session_state == leasehold_core::notice::SessionState::Attached) && trial.running.len() >= 3 {
                return Ok(());
            }
            trial.take(Step::Pass(50));
        }
        let now = Now { at: Moment::from_millis(trial.at_ms), unix_ms: trial.wall_ms as u64 };
        let view = trial.node.view(now);
        prop_assert!(false, "after 200 s it still has not recovered: {:?}, runs {:?}", view.me, trial.running);
    }
}
