//! One node's state machine: events in, actions out.
//!
//! ```text
//!            Answered, Watched                    Ask
//!   store ───────────────────────▶ mirror ──┐  ┌──────▶ store
//!                                           ▼  │
//!   user  ──── Command, Gate, Ended ───▶  step(now, event) ──▶ Start, Stop, Deadlines, Lose ──▶ work
//!                                           ▲  │
//!   clock ──── Tick ────────────────────────┘  └──────▶ Tell ──▶ people
//! ```
//!
//! Every step first compares the clock with the session's deadline, before anything else: a node that wakes up late
//! is detached before it acts. Then it takes in the event, fires the timers that are due, and decides about shards until
//! nothing is left to decide.
//!
//! The state is divided into parts by what changes together. Each part is a type whose fields only its own file or folder
//! can touch; everything else uses its methods. Questions take `&self` and change nothing.
//!
//! - A method belongs to the part whose duty it is. It takes what else it needs by name: `&mut Context` (settings, time, what
//!   the step leaves to do), `&Mirror`, `&mut Holds`. So its signature says what it may touch. It stands in the file of its
//!   subject: `overrides` has methods of `Offer`, `Reported` and `Planner`.
//! - Questions that need the same parts are methods of a view, which borrows these parts: `Others` (what the records of the
//!   other nodes say), `Claimability`, `Turns`, `Drafts` (what shard records should say) and `Movability`.
//! - A part never asks the store. It returns an `Ask`, and `Node::ask` sends it.
//! - `Node` has the methods that coordinate many parts: they may detach, take in a record or ask the store, or they would need
//!   five arguments or more.
//!
//! The files by their subjects:
//!
//! - the store: `requests` (what was asked), `dispatch` (what comes back), `pace` (how fast we ask), `timers` (what happens
//!   when), `gc` (what is long gone)
//! - the session: `session` (with `joining`, `renewing` and its record), `life` (the state that people see), `former` (what
//!   came before it), `leaving` (the departure); `namespace` and `incarnation` (`meta`); `fencing` (the sessions of others)
//! - the plan: `offer` (what this node is), `declines` (what cannot run here), `planner` and `planning` (roster and plan),
//!   `groups` (the groups' settings in the store), `gathering` (a cold start), `freeze` (many vanished at once), `moves` (what
//!   the plan wants elsewhere)
//! - the shards: `agenda` (which are looked at again), `shards` (decides about one), `holds` and `hold` (those that are here),
//!   `claimable` (may it be claimed?), `vacancies` and `acquiring` (is it our turn?), `writes` and `outbox` (its record),
//!   `outcomes` (what became of a write), `publishing` (may it start?), `running` (its work), `verifying` (is it still ours?)
//! - people: `look` (the view), `overrides` (settings in the store that override the node's own), `reported` (what was told)
//! - `assertions` (what must never be), `sabotage` (what a wrong design would do, in test builds only)

mod acquiring;
mod agenda;
mod assertions;
mod claimable;
mod context;
mod declines;
mod dispatch;
mod ends;
mod fencing;
mod former;
mod freeze;
mod gathering;
mod gc;
mod groups;
mod hold;
mod holds;
mod incarnation;
mod leaving;
mod life;
mod look;
mod moves;
mod namespace;
mod offer;
mod outbox;
mod outcomes;
mod overrides;
mod pace;
mod planner;
mod planning;
mod publishing;
mod reported;
mod requests;
mod running;
#[cfg(feature = "sabotage")]
mod sabotage;
mod session;
mod shards;
mod timers;
mod vacancies;
mod verifying;
mod writes;

use std::sync::Arc;

use crate::config::Config;
use crate::event::{Action, Command, Event};
use crate::mirror::Mirror;
use crate::name::SessionId;
use crate::notice::Cause;
use crate::placement::Placement;
use crate::store::Facts;
use crate::time::Now;

pub use crate::may_move::Unmoved;

use context::Context;
use declines::Declines;
use fencing::Fencing;
use former::Former;
use freeze::Freeze;
use gathering::Gathering;
use holds::Holds;
use leaving::Departure;
use life::Life;
use moves::Moves;
use namespace::Namespace;
use offer::Offer;
use outbox::Outbox;
use pace::Pace;
use planner::Planner;
use publishing::{Others, Publishing};
use reported::Reported;
use requests::Requests;
use session::{PendingJoin, Session};
use timers::{StepStage, Timer};
use vacancies::Vacancies;

/// How often one step goes through the shards, at most. What is done for one shard may be a reason to look at another, in
/// the next round. If two shards kept causing each other, they would continue in the next step instead of
/// keeping this one from ending.
const ROUNDS_MAX: usize = 4;

/// One node: a stable name that has one session after another and holds shards through them.
#[derive(Debug)]
pub struct Node {
    /// The settings, the time, and what a step leaves to do.
    ctx: Context,

    // The store, as we know it and as we ask it.
    mirror: Mirror,
    requests: Requests,
    pace: Pace,

    // Our session, the namespace, and the sessions of others.
    life: Life,
    session: Option<Session>,
    join: Option<PendingJoin>,
    former: Former,
    departure: Departure,
    namespace: Namespace,
    fencing: Fencing,

    // Who should hold what.
    offer: Offer,
    declines: Declines,
    planner: Planner,
    gathering: Gathering,
    freeze: Freeze,
    moves: Moves,

    // The shards.
    holds: Holds,
    vacancies: Vacancies,
    publishing: Publishing,
    outbox: Outbox,

    // People.
    reported: Reported,
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
        Node {
            mirror: Mirror::default(),
            requests: Requests::default(),
            pace: Pace::default(),
            life: Life::default(),
            session: None,
            join: None,
            former: Former::default(),
            departure: Departure::default(),
            namespace: Namespace::default(),
            fencing: Fencing::default(),
            offer: Offer::of(&config),
            declines: Declines::default(),
            planner: Planner::new(own),
            gathering: Gathering::default(),
            freeze: Freeze::default(),
            moves: Moves::default(),
            holds: Holds::default(),
            vacancies: Vacancies::default(),
            publishing: Publishing::default(),
            outbox: Outbox::default(),
            reported: Reported::default(),
            ctx: Context::new(config, facts, seed),
        }
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.ctx.config
    }

    /// Takes in what happened and appends what must be done.
    pub fn step(&mut self, now: Now, event: Event, out: &mut Vec<Action>) {
        if self.departure.is_done() {
            return;
        }
        self.compare_clocks(now);
        match event {
            Event::Tick => {}
            Event::Answered(id, answer) => self.on_answer(id, answer),
            Event::Watched(event) => self.on_watch(event),
            Event::Ended { shard, epoch, how } => self.on_ended(shard, epoch, how),
            Event::Gate { shard, verdict } => self.on_gate(shard, verdict),
            Event::Command(command) => self.on_command(command),
            Event::Lost => self.detach(Cause::DeadlineReached),
        }
        self.run_timers(StepStage::Timers);
        self.work_off();
        if let Some(done) = self.ctx.out.iter().position(|action| *action == Action::Done) {
            self.ctx.out.truncate(done + 1);
        }
        out.append(&mut self.ctx.out);
    }

    /// Carries out what earlier parts of the step asked for, until nothing is left to decide.
    fn work_off(&mut self) {
        for _ in 0..ROUNDS_MAX {
            if self.ctx.agenda.take_everything() {
                self.reconsider_everything();
            }
            while let Some(shard) = self.ctx.agenda.next() {
                self.consider(&shard);
            }
            self.run_timers(StepStage::Decided);
            self.run_leaving();
            if self.ctx.agenda.is_empty() {
                break;
            }
        }
        self.ask_what_shards_wait_for();
        self.send_writes();
        self.renew_if_changed();
    }

    /// Reads what shards wait for: the sessions that their records name, and what must be known before a claimed one starts.
    fn ask_what_shards_wait_for(&mut self) {
        if let Some(ask) = self.fencing.reads_to_ask(&self.requests) {
            self.ask(ask);
        }
        if self.session.is_none() {
            return;
        }
        if let Some(ask) = self.publishing.nodes_to_read(&self.requests, &self.pace, &self.ctx) {
            self.ask(ask);
        }
        let claims = self.publishing.claims_to_read(&self.holds, &self.requests, &self.pace, &mut self.ctx);
        if let Some(ask) = claims {
            self.ask(ask);
        }
    }

    fn on_command(&mut self, command: Command) {
        match command {
            Command::Weight(weight) => self.offer.set_weight(weight),
            Command::Capacity(capacity) => self.offer.set_capacity(capacity),
            Command::Accepting(accepting) => self.offer.set_accepting(accepting),
            Command::Address(address) => self.offer.set_address(address),
            Command::Labels(labels) => self.offer.set_labels(labels),
            Command::Engage(shard) => self.declines.engage(shard, &mut self.ctx),
            Command::Disengage(shard) => self.declines.disengage(shard, &mut self.ctx),
            Command::Serve(group) => {
                self.offer.serve(group);
                self.ctx.timers.set_earlier(Timer::List, self.ctx.now.at);
            }
            Command::ServeStored(group) => {
                self.offer.serve_stored(group);
                self.ctx.timers.set_earlier(Timer::List, self.ctx.now.at);
            }
            Command::Unserve(group) => {
                self.offer.unserve(&group);
                self.ctx.agenda.add_everything();
            }
            Command::Drain => self.departure.drain(),
            Command::Undrain => self.departure.undrain(),
            Command::Leave { within, returning } => self.departure.begin(within, returning, &mut self.ctx),
            Command::Unquarantine(shard) => self.unquarantine(&shard),
            Command::StepDown { shard, epoch, pause } => self.step_down(&shard, epoch, pause),
        }
        self.ctx.record_changed();
        self.ctx.replan_now();
    }

    /// The session's id, while it is good.
    fn session_id(&self) -> Option<SessionId> {
        self.session.as_ref().map(|session| session.id())
    }

    /// What the records of the other nodes say of shards.
    fn others(&self) -> Others<'_> {
        Others { mirror: &self.mirror, namespace: &self.namespace, ctx: &self.ctx }
    }
}
