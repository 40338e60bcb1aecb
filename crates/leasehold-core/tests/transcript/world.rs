//! The world of a story: a store in memory, processes, and a clock that only moves when the story says so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::event::{Action, Ended, Event, Verdict};
use leasehold_core::placement::Placement;
use leasehold_core::store::{
    Answer, Facts, Freshness, Key, Op, Request, RequestId, Safety, StoreError, StoreErrorKind, Stored,
    Swapped, WatchEvent,
};
use leasehold_core::{Epoch, Moment, Node, Now, ShardId};

use crate::memory_store::MemoryStore;
use crate::names::Names;
use crate::print;
use crate::process::{FaultKind, GateManner, Manner, Process, RunningWork};

/// When the world begins, in milliseconds since 1970.
const BEGIN_UNIX_MS: i64 = 1_700_000_000_000;
/// How often a node may be woken at one moment before it counts as spinning.
const SPINS_MAX: u32 = 50;

/// Something that will happen.
#[derive(Clone, Debug)]
pub(crate) enum Happening {
    /// A request gets to the store; with `answer`, the answer goes back after that long.
    Arrives { request: Request, answer: Option<(Duration, AnswerManner)> },
    /// An event gets to the node.
    Event(Event),
    /// Work comes to its end.
    Ends { shard: ShardId, epoch: Epoch, how: End },
}

/// How an answer goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerManner {
    Plain,
    Unknown,
    Twice,
    Late,
}

/// How work comes to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Stopped,
    Killed,
    Finished,
    Failed(String),
}

pub(crate) struct World {
    pub(crate) now: Moment,
    pub(crate) store: MemoryStore,
    pub(crate) saved: Option<MemoryStore>,
    pub(crate) facts: Facts,
    pub(crate) round_trip: Duration,
    pub(crate) processes: BTreeMap<String, Process>,
    queue: BTreeMap<(Moment, u64), (String, u32, Happening)>,
    queued: u64,
    pub(crate) names: Names,
    pub(crate) traced: BTreeSet<String>,
    pub(crate) log: Vec<String>,
    /// The rules that nodes keep to.
    #[cfg(feature = "sabotage")]
    pub(crate) rules: leasehold_core::rules::Rules,
    /// The placements that nodes of these names bring along.
    pub(crate) placements: BTreeMap<String, Arc<dyn Placement>>,
    /// The highest epoch that each shard was started under.
    pub(crate) epochs: BTreeMap<ShardId, Epoch>,
}

impl World {
    pub(crate) fn new() -> Self {
        World {
            now: Moment::ZERO,
            store: MemoryStore::new(),
            saved: None,
            facts: Facts {
                kind: "story",
                watch: true,
                poll_every: Duration::from_millis(500),
                write_every_min: Duration::ZERO,
                swaps_max: 64,
                reads: Freshness::Newest,
                removes: true,
                safety: Safety::Strict,
                ttl_default: Duration::from_secs(10),
            },
            round_trip: Duration::from_millis(2),
            processes: BTreeMap::new(),
            queue: BTreeMap::new(),
            queued: 0,
            names: Names::default(),
            traced: BTreeSet::new(),
            log: Vec::new(),
            #[cfg(feature = "sabotage")]
            rules: Default::default(),
            placements: BTreeMap::new(),
            epochs: BTreeMap::new(),
        }
    }

    pub(crate) fn say(&mut self, who: &str, what: impl std::fmt::Display) {
        let ms = self.now.as_millis();
        self.log.push(format!("{:>4}.{:03} {who}: {what}", ms / 1000, ms % 1000));
    }

    pub(crate) fn now_of(&self, name: &str) -> Now {
        let off = self.processes.get(name).map_or(0, |process| process.wall_off_ms);
        let unix_ms = BEGIN_UNIX_MS + self.now.as_millis() as i64 + off;
        Now { at: self.now, unix_ms: unix_ms.max(0) as u64 }
    }

    /// A process begins: a node, and a watch that begins with everything.
    pub(crate) fn begin(&mut self, name: &str, life: u32) {
        let Some(process) = self.processes.get_mut(name) else { return };
        let mut seed = [0; 32];
        for (at, byte) in name.bytes().chain(life.to_le_bytes()).enumerate() {
            seed[at % 32] ^= byte;
        }
        let own = self.placements.get(name).cloned();
        let node = Node::with_placement(process.config.clone(), self.facts.clone(), seed, own);
        #[cfg(feature = "sabotage")]
        let node = {
            let mut node = node;
            node.set_rules(self.rules.clone());
            node
        };
        process.node = Some(node);
        process.life = life;
        if self.facts.watch {
            self.snapshot(name);
        }
        self.step(name, Event::Tick);
    }

    /// A process dies, with all that it started.
    pub(crate) fn end(&mut self, name: &str) {
        let Some(process) = self.processes.get_mut(name) else { return };
        process.node = None;
        process.works.clear();
        process.held.clear();
        process.paused = false;
    }

    pub(crate) fn after(&mut self, delay: Duration, name: &str, what: Happening) {
        self.at(self.now + delay, name, what);
    }

    fn at(&mut self, at: Moment, name: &str, what: Happening) {
        let life = self.processes.get(name).map_or(0, |process| process.life);
        self.queued += 1;
        self.queue.insert((at.max(self.now), self.queued), (name.to_owned(), life, what));
    }

    /// Lets time pass.
    pub(crate) fn run(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            let next = self.queue.first_key_value().map_or(Moment::NEVER, |((at, _), _)| *at);
            let awake = self.processes.iter().filter(|(_, process)| !process.paused);
            let ticks = awake.filter_map(|(name, process)| Some((process.node.as_ref()?.deadline(), name)));
            let (tick_at, ticked) =
                ticks.min().map_or((Moment::NEVER, None), |(at, name)| (at, Some(name.clone())));
            let at = next.min(tick_at);
            if at > end {
                break;
            }
            if at > self.now {
                self.now = at;
                self.processes.values_mut().for_each(|process| process.spins = 0);
            }
            match ticked {
                Some(name) if tick_at < next => self.wake(&name),
                _ => {
                    let Some((_, (name, life, what))) = self.queue.pop_first() else { break };
                    self.happens(&name, life, what);
                }
            }
        }
        self.now = end;
    }

    fn wake(&mut self, name: &str) {
        let Some(process) = self.processes.get_mut(name) else { return };
        process.spins += 1;
        if process.spins > SPINS_MAX {
            self.say(name, "!! spins");
            self.end(name);
            return;
        }
        self.step(name, Event::Tick);
    }

    pub(crate) fn happens(&mut self, name: &str, life: u32, what: Happening) {
        if let Happening::Arrives { request, answer } = what {
            return self.arrives(name, life, &request, answer);
        }
        let Some(process) = self.processes.get_mut(name) else { return };
        if process.life != life || process.node.is_none() {
            return;
        }
        if process.paused {
            process.held.push(what);
            return;
        }
        match what {
            Happening::Arrives { .. } => {}
            Happening::Event(event) => self.step(name, event),
            Happening::Ends { shard, epoch, how } => self.ends(name, shard, epoch, how),
        }
    }

    fn ends(&mut self, name: &str, shard: ShardId, epoch: Epoch, how: End) {
        let Some(process) = self.processes.get_mut(name) else { return };
        let Some(work) = process.works.get(&shard).copied().filter(|work| work.epoch == epoch) else {
            return;
        };
        process.works.remove(&shard);
        process.admitted.remove(&shard);
        let (word, how) = match how {
            End::Stopped => ("stopped".to_owned(), Ended::Finished),
            End::Killed => ("KILLED".to_owned(), Ended::Finished),
            End::Finished => ("finished".to_owned(), Ended::Finished),
            End::Failed(_) if work.told_to_stop => ("stopped".to_owned(), Ended::Finished),
            End::Failed(error) => (format!("failed ({error})"), Ended::Failed(error)),
        };
        self.say(name, format!("work {shard} epoch {epoch} {word}"));
        self.step(name, Event::Ended { shard, epoch, how });
    }

    fn arrives(
        &mut self,
        name: &str,
        life: u32,
        request: &Request,
        answer: Option<(Duration, AnswerManner)>,
    ) {
        let generation = self.store.generation.clone();
        let mut changes = Vec::new();
        let mut reply = match &request.op {
            Op::Read(keys) => {
                let found = keys.iter().map(|key| self.store.records.get(key).cloned()).collect();
                Answer::Read { found, generation }
            }
            Op::List => Answer::Listed(self.store.listing()),
            Op::ListNodes => Answer::Listed(self.store.listing().nodes_only()),
            Op::Swap(swaps) => {
                let mut outcomes = Vec::new();
                for swap in swaps {
                    let outcome = self.store.swap(swap);
                    if let Swapped::Applied(_) = outcome {
                        changes.push((swap.key.clone(), self.store.records.get(&swap.key).cloned()));
                    }
                    outcomes.push(outcome);
                }
                Answer::Swapped { outcomes, generation }
            }
        };
        if self.traced.contains("asks") {
            self.say(name, print::answer(request, &reply, answer.is_some()));
        }
        self.tell_changes(changes);
        let Some((after, manner)) = answer else { return };
        if let (AnswerManner::Unknown, Answer::Swapped { outcomes, .. }) = (manner, &mut reply) {
            outcomes.iter_mut().for_each(|outcome| *outcome = Swapped::Unknown);
        }
        if self.processes.get(name).is_none_or(|process| process.life != life) {
            return;
        }
        let event = Happening::Event(Event::Answered(request.id, reply));
        let give_up_at = request.give_up_at;
        if self.now + after >= give_up_at {
            self.times_out(name, request.id, give_up_at);
            if manner == AnswerManner::Late {
                self.after(after, name, event);
            }
            return;
        }
        self.after(after, name, event.clone());
        if manner == AnswerManner::Twice {
            self.after(after * 2, name, event);
        }
    }

    fn times_out(&mut self, name: &str, id: RequestId, at: Moment) {
        let error = StoreError::new(StoreErrorKind::TimedOut, "no answer");
        self.at(at, name, Happening::Event(Event::Answered(id, Answer::Failed(error))));
    }

    /// Another program writes a record without asking what was there.
    pub(crate) fn write(&mut self, key: &Key, value: Option<Arc<[u8]>>) {
        let stored = self.store.put(key, value);
        self.tell_changes(vec![(key.clone(), stored)]);
    }

    /// Garbage that is written past the store: no version changes, and nobody is told.
    pub(crate) fn scribble(&mut self, key: &Key) -> Result<(), String> {
        let stored = self.store.records.get_mut(key).ok_or("there is no such record")?;
        stored.value = Arc::from(b"garbage".as_slice());
        Ok(())
    }

    fn tell_changes(&mut self, changes: Vec<(Key, Option<Stored>)>) {
        if changes.is_empty() || !self.facts.watch {
            return;
        }
        let hear = self.processes.iter().filter(|(_, process)| process.hears_changes());
        let names: Vec<String> = hear.map(|(name, _)| name.clone()).collect();
        for name in names {
            let event = Event::Watched(WatchEvent::Changed(changes.clone()));
            let late = self.processes.get(&name).map_or(Duration::ZERO, |process| process.watch_late);
            self.after(self.round_trip / 2 + late, &name, Happening::Event(event));
        }
    }

    pub(crate) fn snapshot(&mut self, name: &str) {
        let event = Event::Watched(WatchEvent::Snapshot(self.store.listing()));
        self.after(self.round_trip / 2, name, Happening::Event(event));
    }

    pub(crate) fn step(&mut self, name: &str, event: Event) {
        let now = self.now_of(name);
        let mut actions = Vec::new();
        let Some(process) = self.processes.get_mut(name) else { return };
        let Some(node) = &mut process.node else { return };
        node.step(now, event, &mut actions);
        print::actions(self, name, &actions);
        for action in actions {
            self.act(name, action);
        }
    }

    fn act(&mut self, name: &str, action: Action) {
        let now = self.now;
        let Some(process) = self.processes.get_mut(name) else { return };
        match action {
            Action::OpenSession(_) => process.lost = false,
            Action::Ask(request) => self.ask(name, request),
            Action::Deadlines(deadlines) => process.deadlines = deadlines,
            Action::Lose => process.lost = true,
            Action::Start { shard, epoch } => self.start(name, shard, epoch),
            Action::Stop { shard, epoch, kill_at, .. } => {
                let manner = process.manners.get(&shard).copied();
                let Some(work) = process.works.get_mut(&shard).filter(|work| work.epoch == epoch) else {
                    return self.say(name, format!("!! stops {shard} epoch {epoch}, which does not run"));
                };
                work.told_to_stop = true;
                let stops_after = match manner {
                    Some(Manner::Refuses) => None,
                    Some(Manner::StopsAfter(after)) => Some(after),
                    Some(Manner::FailsAfter(_)) | None => Some(Duration::from_millis(10)),
                };
                if let Some(after) = stops_after {
                    let (shard, how) = (shard.clone(), End::Stopped);
                    self.after(after, name, Happening::Ends { shard, epoch, how });
                }
                if let Some(kill_at) = kill_at {
                    self.at(kill_at.max(now), name, Happening::Ends { shard, epoch, how: End::Killed });
                }
            }
            Action::AskGate(shard) => {
                let soon = Duration::from_millis(1);
                let (after, verdict) = match process.gate_says(&shard) {
                    GateManner::Take => (soon, Verdict::Take),
                    GateManner::TakeAfter(after) => (after, Verdict::Take),
                    GateManner::Refuse => (soon, Verdict::Refuse),
                    GateManner::Silent => return,
                };
                self.after(after, name, Happening::Event(Event::Gate { shard, verdict }));
            }
            Action::Tell(_) => {}
            Action::Done => process.node = None,
        }
    }

    fn start(&mut self, name: &str, shard: ShardId, epoch: Epoch) {
        let now = self.now;
        let elsewhere = self.processes.iter().find(|(other, process)| {
            other.as_str() != name
                && process.works.contains_key(&shard)
                && now < process.deadlines.valid_until
        });
        if let Some(other) = elsewhere.map(|(other, _)| other.clone()) {
            self.say(name, format!("!! {shard} still runs on {other}"));
        }
        if self.epochs.get(&shard).is_some_and(|highest| epoch <= *highest) {
            self.say(name, format!("!! {shard} has had epoch {epoch}"));
        }
        self.epochs.insert(shard.clone(), epoch);
        let Some(process) = self.processes.get_mut(name) else { return };
        if process.lost || now >= process.deadlines.stop_at {
            self.say(name, format!("!! {shard} starts without a session"));
        }
        let Some(process) = self.processes.get_mut(name) else { return };
        let manner = process.manners.get(&shard).copied();
        let before = process.works.insert(shard.clone(), RunningWork { epoch, told_to_stop: false });
        if before.is_some() {
            self.say(name, format!("!! {shard} was started twice"));
        }
        if let Some(Manner::FailsAfter(after)) = manner {
            let how = End::Failed("boom".into());
            self.after(after, name, Happening::Ends { shard, epoch, how });
        }
    }

    fn ask(&mut self, name: &str, request: Request) {
        let Some(process) = self.processes.get_mut(name) else { return };
        let fault = process.fault_for(&request);
        let half = self.round_trip / 2;
        let (id, give_up_at) = (request.id, request.give_up_at);
        if self.traced.contains("asks") {
            let asked = print::request(self, &request);
            self.say(name, asked);
        }
        let (arrives_after, answer) = match fault {
            None => (half, Some((half, AnswerManner::Plain))),
            Some(FaultKind::SayUnknown) => (half, Some((half, AnswerManner::Unknown))),
            Some(FaultKind::Twice) => (half, Some((half, AnswerManner::Twice))),
            Some(FaultKind::Late(span)) => (half, Some((span, AnswerManner::Late))),
            Some(FaultKind::Slow(span)) => (span / 2, Some((span / 2, AnswerManner::Plain))),
            Some(FaultKind::Again(span)) => {
                let copy = Happening::Arrives { request: request.clone(), answer: None };
                self.after(span, name, copy);
                (half, Some((half, AnswerManner::Plain)))
            }
            Some(FaultKind::LoseAnswers) => (half, None),
            Some(FaultKind::Delay(span)) => (span, None),
            Some(FaultKind::Stall) => return self.times_out(name, id, give_up_at),
            Some(FaultKind::Cut) => {
                let error = StoreError::new(StoreErrorKind::Unreachable, "cut off");
                let event = Event::Answered(id, Answer::Failed(error));
                return self.after(Duration::from_millis(1), name, Happening::Event(event));
            }
        };
        self.after(arrives_after, name, Happening::Arrives { request, answer });
        if answer.is_none() {
            self.times_out(name, id, give_up_at);
        }
    }
}
