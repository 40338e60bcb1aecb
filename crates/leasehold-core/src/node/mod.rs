//! One node's state machine: events in, actions out.
//!
//! ```text
//!            Answered, Watched                    Ask
//!   store ───────────────────────▶ mirror ──┐  ┌──────▶ store
//!                                           ▼  │
//!   user  ──── Wish, Gate, Ended ───▶  step(now, event) ──▶ Start, Stop, Deadlines, Lose ──▶ work
//!                                           ▲  │
//!   clock ──── Tick ────────────────────────┘  └──────▶ Tell ──▶ people
//! ```
//!
//! Every step first compares the clock with the session's deadline, before anything else: a node that wakes up late
//! is detached before it acts. The parts:
//!
//! - the store: `requests` (what was asked), `intake` (what comes back), `incarnation` (meta), `tidy` (what is long gone)
//! - the session: `joining`, `session` (its deadlines and its end), `renewing`, `leaving`; of others: `death`
//! - the plan: `planning` (roster and plan), `moves` (what the plan wants elsewhere)
//! - the shards: `shards` (decides about one), `freedom` (may it be claimed?), `acquiring` (is it our turn?), `declines` (what
//!   cannot run here), `publishing` (may it start?), `running` (its work), `writes` (its record), `settling` (what became of a
//!   write)
//! - people: `look` (the view), `overruled` (what the store wants otherwise than the node's own settings)

mod acquiring;
mod death;
mod declines;
mod freedom;
mod incarnation;
mod intake;
mod joining;
mod leaving;
mod look;
mod moves;
mod overruled;
mod planning;
mod publishing;
mod renewing;
mod requests;
mod running;
mod session;
mod settling;
mod shards;
mod tidy;
mod writes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::chance::Chance;
use crate::config::{Config, GroupConfig};
use crate::event::{Action, Event, Wish};
use crate::mirror::Mirror;
use crate::name::{Epoch, GroupName, Incarnation, NodeName, SessionId, ShardId, WriteId};
use crate::notice::{Cause, Differing, Notice, Standing};
use crate::placement::Placement;
use crate::plan::{GroupSettings, Plan, Planning, Roster};
use crate::record::{Control, Meta, Outage};
use crate::rules::Rules;
use crate::store::Facts;
use crate::time::{Moment, Now};
use crate::warning::Warning;

pub use crate::may_move::Unmoved;

use joining::PendingJoin;
use leaving::Leaving;
use publishing::Publishing;
use requests::Requests;
use session::Session;
use shards::Hold;

/// One node: a stable name that has one session after another and holds shards through them.
#[derive(Debug)]
pub struct Node {
    config: Config,
    facts: Facts,
    rules: Rules,
    chance: Chance,
    now: Now,
    out: Vec<Action>,
    done: bool,

    mirror: Mirror,
    requests: Requests,

    // Where the node stands with its session.
    standing: Standing,
    standing_since: Moment,
    cause: Cause,
    waiting_for: Option<String>,
    session: Option<Session>,
    join: Option<PendingJoin>,
    /// Sessions of this process that are over, or that never began.
    former: BTreeSet<SessionId>,
    /// The last of them that held anything.
    ended: Option<SessionId>,
    ended_kill_at: Moment,
    /// When the last session was lost, and why, until there is another one.
    detached_at: Option<(Now, String)>,
    /// The last time without a session, for people.
    outage: Option<Outage>,
    /// A session of our own name that is not ours, and its `seq` when we first saw it.
    rival: Option<(SessionId, u64)>,
    name_taken_told: bool,
    /// Until when sessions of our name whose records were lost may be alive.
    unproved_until: Moment,
    has_been_attached: bool,
    healthy_since: Moment,
    renewals_failed: u32,
    store_failures: u32,
    record_changed: bool,

    // Which life of the namespace this is.
    incarnation: Option<Incarnation>,
    meta_known: Option<Meta>,
    ttl_max_seen: std::time::Duration,
    generation: String,
    /// The incarnation that must not go on, and why.
    distrusted: Option<(Option<Incarnation>, String)>,
    /// The incarnation that we tried to begin, and why.
    begun: Option<(Incarnation, String)>,

    // What this node is and offers.
    weight: u32,
    capacity: Option<u32>,
    accepting: bool,
    address: Option<String>,
    labels: BTreeMap<String, String>,
    served: BTreeMap<GroupName, GroupConfig>,
    engaged: BTreeSet<ShardId>,
    /// Shards that the gate refused, or that we do not know, with when to ask again.
    declined: BTreeMap<ShardId, Moment>,
    /// Of those, the shards that the gate is asked about again.
    inquired: BTreeSet<ShardId>,
    /// Shards that the gate just let in: they are looked at once more before they are claimed.
    admitted: BTreeSet<ShardId>,
    drain_wished: bool,
    leaving: Option<Leaving>,

    // Who should hold what.
    roster: Roster,
    settings: BTreeMap<GroupName, GroupSettings>,
    planning: Planning,
    plan: Plan,
    replan_at: Moment,
    replan_latest_at: Moment,
    /// When a group is told which slots have had a record.
    fill_at: Moment,
    /// Not before then.
    fill_next_at: Moment,
    vanish_log: Vec<Moment>,
    vanish_of: usize,
    frozen_until: Moment,
    no_room: BTreeMap<GroupName, usize>,
    /// What does not fit together, as it was told.
    warnings: BTreeSet<Warning>,
    /// Groups that the store has of the other kind than we were set up for, as it was told.
    other_kind_told: BTreeSet<GroupName>,
    /// What the store has otherwise than we were set up for, as it was told.
    differing_told: BTreeMap<GroupName, Vec<Differing>>,
    /// What operators ask for, as it was told.
    asked_told: Control,

    // The shards here.
    holds: BTreeMap<ShardId, Hold>,
    /// Work of an earlier session that was told to stop and has not confirmed it.
    orphans: BTreeMap<ShardId, Epoch>,
    unowned_since: BTreeMap<ShardId, Moment>,
    /// Since when an unowned shard has been wanted by some other node.
    turn_since: BTreeMap<ShardId, Moment>,
    moved_at: BTreeMap<ShardId, Moment>,
    surplus: BTreeSet<ShardId>,
    /// Shards that would be claimed if there was room.
    roomless: BTreeSet<ShardId>,
    /// When this node may next give a shard up for one that is full and has to give one up itself.
    swap_places_at: Moment,
    /// How many requests with shard writes may be under way at once now.
    requests_at_once: usize,
    /// How many times in a row a claim hung until somebody else took the shard.
    claims_hung: u32,
    moves_begun: Vec<Moment>,
    /// For whom a shard was given up voluntarily, at which epoch, until somebody has it.
    given_up_for: BTreeMap<ShardId, (NodeName, Epoch)>,
    /// When somebody else had to take what had been given up for a node that has taken nothing since.
    missed_at: BTreeMap<NodeName, Moment>,
    no_receiver_told: bool,
    outbox: BTreeSet<ShardId>,
    reconsider: BTreeSet<ShardId>,
    reconsider_all: bool,
    verify: BTreeSet<ShardId>,
    publishing: Publishing,
    reads_wanted: BTreeSet<NodeName>,
    proven_gone: BTreeSet<SessionId>,
    /// Sessions that shard records name but no node record does.
    lost_sessions: BTreeMap<NodeName, (SessionId, std::time::Duration)>,
    /// Since when reads fail; `NEVER` if the last one did not.
    reads_fail_since: Moment,
    last_read_at: Moment,

    // The fixed table of timers; `NEVER` is off. A tick too many does no harm.
    list_at: Moment,
    renew_at: Moment,
    probe_at: Moment,
    settle_at: Moment,
    surplus_at: Moment,
    acquire_at: Moment,
    acquire_until: Moment,
    acquire_paused_until: Moment,
    open_at: Moment,
    shy_until: Moment,
    /// Until when we wait for others that start with us; `NEVER` if we do not.
    gather_until: Moment,
    gather_latest_at: Moment,
    /// When the first of those that ended a lost session, and count in the plan, must be back.
    returning_until: Moment,
    wake: BTreeSet<(Moment, ShardId)>,
    waking: BTreeMap<ShardId, Moment>,
}

impl Node {
    /// A node with these settings, on a store with these facts. `seed` must come from the system's randomness, and
    /// never be used twice. The settings must have passed [`Config::check`].
    pub fn new(config: Config, facts: Facts, seed: [u8; 32]) -> Self {
        Node::with_placement(config, facts, seed, None)
    }

    /// The same, with the user's own placement. All nodes of a namespace must use the same one.
    pub fn with_placement(
        config: Config,
        facts: Facts,
        seed: [u8; 32],
        own: Option<Arc<dyn Placement>>,
    ) -> Self {
        let never = Moment::NEVER;
        Node {
            rules: Rules::default(),
            chance: Chance::new(seed),
            now: Now { at: Moment::ZERO, unix_ms: 0 },
            out: Vec::new(),
            done: false,
            mirror: Mirror::default(),
            requests: Requests::default(),
            standing: Standing::Joining,
            standing_since: Moment::ZERO,
            cause: Cause::Asked,
            waiting_for: None,
            session: None,
            join: None,
            former: BTreeSet::new(),
            ended: None,
            ended_kill_at: Moment::ZERO,
            detached_at: None,
            outage: None,
            rival: None,
            name_taken_told: false,
            unproved_until: Moment::ZERO,
            has_been_attached: false,
            healthy_since: Moment::ZERO,
            renewals_failed: 0,
            store_failures: 0,
            record_changed: false,
            incarnation: None,
            meta_known: None,
            ttl_max_seen: std::time::Duration::ZERO,
            generation: String::new(),
            distrusted: None,
            begun: None,
            weight: config.weight,
            capacity: config.capacity,
            accepting: true,
            address: config.address.clone(),
            labels: config.labels.clone(),
            served: config.groups.iter().map(|g| (g.group.clone(), g.clone())).collect(),
            engaged: BTreeSet::new(),
            declined: BTreeMap::new(),
            inquired: BTreeSet::new(),
            admitted: BTreeSet::new(),
            drain_wished: false,
            leaving: None,
            roster: Roster::new(),
            settings: BTreeMap::new(),
            planning: Planning::new(own),
            plan: Plan::default(),
            replan_at: never,
            replan_latest_at: never,
            fill_at: never,
            fill_next_at: Moment::ZERO,
            vanish_log: Vec::new(),
            vanish_of: 0,
            frozen_until: Moment::ZERO,
            no_room: BTreeMap::new(),
            warnings: BTreeSet::new(),
            other_kind_told: BTreeSet::new(),
            differing_told: BTreeMap::new(),
            asked_told: Control::empty(WriteId::from_bits(0)),
            holds: BTreeMap::new(),
            orphans: BTreeMap::new(),
            unowned_since: BTreeMap::new(),
            turn_since: BTreeMap::new(),
            moved_at: BTreeMap::new(),
            surplus: BTreeSet::new(),
            roomless: BTreeSet::new(),
            swap_places_at: Moment::ZERO,
            requests_at_once: writes::REQUESTS_MAX,
            claims_hung: 0,
            moves_begun: Vec::new(),
            given_up_for: BTreeMap::new(),
            missed_at: BTreeMap::new(),
            no_receiver_told: false,
            outbox: BTreeSet::new(),
            reconsider: BTreeSet::new(),
            reconsider_all: false,
            verify: BTreeSet::new(),
            publishing: Publishing::default(),
            reads_wanted: BTreeSet::new(),
            proven_gone: BTreeSet::new(),
            lost_sessions: BTreeMap::new(),
            reads_fail_since: never,
            last_read_at: Moment::ZERO,
            list_at: Moment::ZERO,
            renew_at: never,
            probe_at: never,
            settle_at: never,
            surplus_at: never,
            acquire_at: never,
            acquire_until: Moment::ZERO,
            acquire_paused_until: Moment::ZERO,
            open_at: never,
            shy_until: never,
            gather_until: never,
            gather_latest_at: Moment::ZERO,
            returning_until: never,
            wake: BTreeSet::new(),
            waking: BTreeMap::new(),
            config,
            facts,
        }
    }

    /// Switches safety rules off, to show that tests notice.
    #[cfg(feature = "sabotage")]
    pub fn set_rules(&mut self, rules: Rules) {
        self.planning.obey(&rules);
        self.rules = rules;
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Takes in what happened and appends what must be done.
    pub fn step(&mut self, now: Now, event: Event, out: &mut Vec<Action>) {
        if self.done {
            return;
        }
        self.compare_clocks(now);
        match event {
            Event::Tick => {}
            Event::Answered(id, answer) => self.on_answer(id, answer),
            Event::Watched(event) => self.on_watch(event),
            Event::Ended { shard, epoch, how } => self.on_ended(shard, epoch, how),
            Event::Gate { shard, verdict } => self.on_gate(shard, verdict),
            Event::Wish(wish) => self.on_wish(wish),
            Event::Lost => self.detach(Cause::DeadlineReached),
        }
        self.run_timers();
        self.work_off();
        if let Some(done) = self.out.iter().position(|action| *action == Action::Done) {
            self.out.truncate(done + 1);
        }
        out.append(&mut self.out);
    }

    /// When the next [`Event::Tick`] is due at the latest.
    pub fn deadline(&self) -> Moment {
        if self.done {
            return Moment::NEVER;
        }
        let timers = [
            self.list_at,
            self.renew_at,
            self.probe_at,
            self.settle_at,
            self.surplus_at,
            self.acquire_at,
            self.open_at,
            self.shy_until,
            self.gather_until,
            self.returning_until,
            self.replan_at,
            self.fill_at,
            self.requests.give_up_at(),
            self.session.as_ref().map_or(Moment::NEVER, |session| session.over_at()),
            self.recovered_at(),
            self.leaving.as_ref().map_or(Moment::NEVER, |leaving| leaving.next_at(self.now.at)),
            self.thaw_at(),
            self.wake.first().map_or(Moment::NEVER, |(at, _)| *at),
        ];
        timers.into_iter().min().unwrap_or(Moment::NEVER)
    }

    fn run_timers(&mut self) {
        let at = self.now.at;
        self.give_up_requests();
        self.run_session_timers();
        if at >= self.open_at {
            self.open_at = Moment::NEVER;
            self.ask_to_open();
        }
        if at >= self.probe_at {
            self.probe();
        }
        if at >= self.settle_at {
            self.settle();
        }
        if at >= self.acquire_at {
            self.look_for_wanted();
        }
        self.run_thaw();
        if at >= self.shy_until {
            self.shy_until = Moment::NEVER;
            self.record_changed = true;
        }
        if at >= self.gather_until {
            self.gather_until = Moment::NEVER;
            self.reconsider_all = true;
        }
        if at >= self.replan_at || at >= self.returning_until {
            self.replan();
        }
        if at >= self.fill_at {
            self.mend_groups();
        }
        while let Some((due, _)) = self.wake.first()
            && *due <= at
        {
            let (_, shard) = self.wake.pop_first().expect("it is there");
            self.waking.remove(&shard);
            self.reconsider.insert(shard);
        }
    }

    /// Carries out what earlier parts of the step asked for, until nothing is left to decide.
    fn work_off(&mut self) {
        for _ in 0..4 {
            if std::mem::take(&mut self.reconsider_all) {
                self.reconsider_everything();
            }
            while let Some(shard) = self.reconsider.pop_first() {
                self.consider(&shard);
            }
            if self.now.at >= self.surplus_at {
                self.move_surplus();
            }
            self.run_leaving();
            if self.reconsider.is_empty() && !self.reconsider_all {
                break;
            }
        }
        self.ask_reads();
        self.ask_for_nodes();
        self.ask_for_claims();
        self.send_writes();
        self.renew_if_changed();
    }

    fn on_wish(&mut self, wish: Wish) {
        match wish {
            Wish::Weight(weight) => self.weight = weight,
            Wish::Capacity(capacity) => self.capacity = capacity,
            Wish::Accepting(accepting) => self.accepting = accepting,
            Wish::Address(address) => self.address = address,
            Wish::Labels(labels) => self.labels = labels,
            Wish::Engage(shard) => self.engage(shard),
            Wish::Disengage(shard) => self.disengage(shard),
            Wish::Serve(group) => {
                self.served.insert(group.group.clone(), group);
                self.list_at = self.list_at.min(self.now.at);
            }
            Wish::Drain => self.drain_wished = true,
            Wish::Undrain => self.drain_wished = false,
            Wish::Leave { within, returning } => self.begin_to_leave(within, returning),
            Wish::Unquarantine(shard) => self.unquarantine(&shard),
        }
        self.record_changed = true;
        self.replan_now();
    }

    fn tell(&mut self, notice: Notice) {
        self.out.push(Action::Tell(notice));
    }

    fn is_me(&self, node: &NodeName) -> bool {
        *node == self.config.node
    }

    fn me(&self) -> NodeName {
        self.config.node.clone()
    }

    /// The session's id, while it is good.
    fn session_id(&self) -> Option<SessionId> {
        self.session.as_ref().map(|session| session.id)
    }

    fn wake_at(&mut self, shard: &ShardId, at: Moment) {
        if at == Moment::NEVER {
            return;
        }
        match self.waking.get(shard) {
            Some(known) if *known <= at => return,
            Some(known) => {
                self.wake.remove(&(*known, shard.clone()));
            }
            None => {}
        }
        self.waking.insert(shard.clone(), at);
        self.wake.insert((at, shard.clone()));
    }
}
