//! The driver: runs the core, and carries out its actions.
//!
//! ```text
//!   store answers ─┐                       ┌─> calls      one task per request, each with its own time limit
//!   store watch ───┤                       ├─> works      handlers on the user's runtime, under grants
//!   handlers end ──┼─> core.step(now, ..) ─┼─> hooks      the acquire gate
//!   commands ──────┤                       ├─> publisher  the view, at most every 100 ms
//!   clock ─────────┘                       └─> meters     log, metrics, stream of events
//! ```
//!
//! It runs on its own thread and runtime, so user code cannot starve renewals. Nothing in here waits for the store,
//! for a handler or for a hook: each of them reports when it is done. If the driver itself is stuck, the watchdog
//! stops all work in time.

mod calls;
#[cfg(test)]
mod death_tests;
mod end_report;
mod executor;
mod publish;
mod works;
#[cfg(test)]
mod works_tests;

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use leasehold_core::event::{Ended, Returning, Verdict};
use leasehold_core::notice::SessionState;
use leasehold_core::store::WatchEvent;
use leasehold_core::view::Me;
use leasehold_core::{Action, Command, Epoch, Event, GroupName, Moment, Now, ShardId};
use tokio::sync::{broadcast, mpsc};

pub(crate) use calls::{Calls, follow, unanswered};
pub(crate) use end_report::EndReport;
pub(crate) use executor::{Executor, Grants, panic_text};
pub(crate) use publish::Publisher;
pub(crate) use works::Works;

use crate::clock::Clock;
use crate::deadman::Alarm;
use crate::events::NodeEvent;
use crate::handler::AnyHandler;
use crate::hooks::{self, Health, Hooks};
use crate::observe::Meters;
use crate::rng;

/// The pause if the core asks to be woken in the past: a bug there must not keep a processor busy.
const OVERDUE_PAUSE: Duration = Duration::from_millis(1);

/// How long after the time for leaving is up the core gives up on a store that does not answer.
const CORE_GIVES_UP_AFTER: Duration = Duration::from_secs(2);

/// How long a node that leaves with nothing to hand over waits for a store that does not answer, before the core's own
/// last try.
const LAST_WORD_WITHIN: Duration = Duration::from_secs(1);

/// A question to the core, answered on the driver's thread.
pub(crate) type Query = Box<dyn FnOnce(&leasehold_core::Node, Now) + Send>;

/// The driver's inputs.
pub(crate) enum Input {
    /// For the core.
    Core(Event),
    /// One handler of a shard is gone.
    HandlerEnded { shard: ShardId, epoch: Epoch, how: Ended },
    /// Nothing that the grant of a shard owns is left, or a part of it failed.
    OwnedEnded { shard: ShardId, epoch: Epoch, how: Ended },
    /// Another handler for a group.
    Handle(GroupName, AnyHandler),
    /// No longer serve a group.
    Unserve(GroupName),
    /// Whether the user accepts new shards.
    Accept(bool),
    /// The answer of the health hook.
    Health(Health),
    /// A question that only the core can answer.
    Query(Query),
    /// The watchdog found the session lost.
    SessionLost,
    /// The runtime that user code runs on was shut down.
    RuntimeGone,
    /// Hand over and leave.
    Leave { within: Duration, returning: Returning },
}

/// How a node ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// All shards were handed over and the session was closed: other nodes can start them at once.
    Clean,
    /// The store could not be told, or work did not stop: other nodes start the shards when the session has expired.
    Unconfirmed,
}

/// The parts of a driver.
pub(crate) struct Driver<A> {
    pub(crate) core: leasehold_core::Node,
    pub(crate) clock: Clock,
    pub(crate) calls: Calls,
    pub(crate) works: Works<A>,
    pub(crate) hooks: Hooks,
    pub(crate) hook_every: Duration,
    pub(crate) hook_within: Duration,
    pub(crate) end_report: EndReport,
    pub(crate) told: broadcast::Sender<Arc<NodeEvent>>,
    pub(crate) inputs: mpsc::UnboundedReceiver<Input>,
    /// How long after a leave was due the session has surely expired.
    pub(crate) ttl: Duration,
    /// How long work may take to stop when its runtime is gone.
    pub(crate) margin: Duration,
    pub(crate) life: Life,
}

/// The state of the driver.
pub(crate) struct Life {
    pub(crate) accept: bool,
    pub(crate) health: Health,
    /// When the core has given up on telling the store that it leaves.
    pub(crate) leave_by: Moment,
    /// When the driver gives up on the core.
    pub(crate) give_up_at: Moment,
    pub(crate) lost_in_step: bool,
    /// It leaves without a session and with nothing to hand over: it does not wait for the store for long.
    pub(crate) leaves_empty: bool,
    /// User code can never run here again.
    pub(crate) runtime_gone: bool,
    pub(crate) finish: Option<Finish>,
}

impl Default for Life {
    fn default() -> Self {
        Life {
            accept: true,
            health: Health::Healthy,
            leave_by: Moment::NEVER,
            give_up_at: Moment::NEVER,
            lost_in_step: false,
            leaves_empty: false,
            runtime_gone: false,
            finish: None,
        }
    }
}

impl<A: Alarm> Driver<A> {
    /// Runs until the node has left, or the driver dies of a bug, and then until none of its work is left.
    pub(crate) async fn run(mut self, follow_watch: bool) {
        let panic = AssertUnwindSafe(self.live(follow_watch)).catch_unwind().await.err();
        let Driver { core, clock, calls, mut works, end_report, inputs, life, hooks, told, .. } = self;
        let meters = end_report.meters.clone();
        match panic {
            None => {
                works.kill_all();
                end_report.left(&core, &clock, life.finish.unwrap_or(Finish::Unconfirmed));
            }
            // As if it had detached: work is told to stop now, and the watchdog cuts it off at the deadline.
            Some(panic) => {
                works.lose();
                end_report.died(&panic_text(&*panic));
            }
        }
        // Listeners learn that no more events come, and the user's hooks are dropped.
        drop((core, hooks, told));
        let last = AssertUnwindSafe(outlive(works, calls, inputs, &meters)).catch_unwind().await;
        if last.is_err() {
            tracing::error!("the driver died twice: what still runs is cut off now");
        }
    }

    async fn live(&mut self, follow_watch: bool) {
        let (watch_tx, mut watched) = mpsc::channel(256);
        if follow_watch {
            self.calls.follow(watch_tx.clone());
        }
        self.start_hooks();
        self.works.watch_runtime(self.calls.tasks().end().clone());
        self.step(Event::Tick);
        while self.life.finish.is_none() {
            let wake_at = self.wake_at();
            tokio::select! {
                biased;
                Some(input) = self.inputs.recv() => self.take(input),
                Some(event) = watched.recv() => self.watched(event),
                () = self.clock.sleep_until(wake_at) => {}
            }
            self.tick_if_due();
            self.publish_if_due();
            self.end_report.meters.vitals().driver_ran();
        }
    }

    fn wake_at(&self) -> Moment {
        let soonest = self.clock.now() + OVERDUE_PAUSE;
        let for_people = self.end_report.publisher.due_at().min(self.end_report.meters.again_at());
        self.core.deadline().max(soonest).min(for_people).min(self.life.give_up_at)
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Core(event) => self.step(event),
            Input::HandlerEnded { shard, epoch, how } => {
                if let Some(event) = self.works.handler_ended(&shard, epoch, how) {
                    self.step(event);
                }
            }
            Input::OwnedEnded { shard, epoch, how } => {
                if let Some(event) = self.works.owned_ended(&shard, epoch, how) {
                    self.step(event);
                }
            }
            Input::Handle(group, handler) => {
                self.works.add_handler(group, handler);
                self.leave_if_nothing_can_run();
            }
            Input::Unserve(group) => {
                self.works.executor.handlers.remove(&group);
                self.step(Event::Command(Command::Unserve(group)));
            }
            Input::Accept(accept) => {
                self.life.accept = accept;
                self.wish_accepting();
            }
            Input::Health(health) => {
                self.life.health = health;
                self.wish_accepting();
            }
            Input::Query(query) => query(&self.core, self.clock.read()),
            Input::SessionLost => self.step(Event::Tick),
            Input::RuntimeGone => {
                self.life.runtime_gone = true;
                self.leave_if_nothing_can_run();
            }
            Input::Leave { within, returning } => self.leave(within, returning),
        }
    }

    fn watched(&mut self, event: WatchEvent) {
        self.end_report.meters.watched(&event);
        self.step(Event::Watched(event));
    }

    fn wish_accepting(&mut self) {
        let accepting = self.life.accept && self.life.health == Health::Healthy;
        self.step(Event::Command(Command::Accepting(accepting)));
    }

    fn leave(&mut self, within: Duration, returning: Returning) {
        let leave_by = self.clock.now() + within + CORE_GIVES_UP_AFTER;
        self.life.leave_by = self.life.leave_by.min(leave_by);
        self.life.give_up_at = self.life.leave_by + self.ttl;
        self.step(Event::Command(Command::Leave { within, returning }));
    }

    /// A node that leaves, has no session and runs nothing has nothing to hand over: it only tries for a moment to say that
    /// its former session is over. The time that it was given is for work.
    fn hurry_if_empty(&mut self, me: Option<&Me>) {
        let leaves = self.life.leave_by != Moment::NEVER && self.life.finish.is_none();
        let detached =
            me.is_some_and(|me| matches!(me.session_state, SessionState::Detached | SessionState::Joining));
        if leaves && detached && self.works.running() == 0 && !self.life.leaves_empty {
            self.life.leaves_empty = true;
            self.leave(LAST_WORD_WITHIN, Returning::No);
        }
    }

    /// A node that can run nothing must not attract shards: it hands over what it has and leaves. A node that only
    /// holds shards, without any user code, needs no runtime.
    fn leave_if_nothing_can_run(&mut self) {
        if !self.life.runtime_gone || (self.works.executor.handlers.is_empty() && self.hooks.is_empty()) {
            return;
        }
        tracing::error!(
            "the runtime of the handlers and hooks was shut down: the node leaves, because it can no longer run any work"
        );
        self.leave(self.margin, Returning::No);
    }

    /// The core's timers run before anything that waits in the queue.
    fn tick_if_due(&mut self) {
        let now = self.clock.now();
        if self.life.finish.is_none() && now >= self.core.deadline() {
            self.step(Event::Tick);
        }
        if self.life.finish.is_none() && now >= self.life.give_up_at {
            self.life.finish = Some(Finish::Unconfirmed);
        }
    }

    fn publish_if_due(&mut self) {
        if self.clock.now() >= self.end_report.publisher.due_at() {
            let view = self.end_report.publisher.publish(&self.core, &self.clock);
            self.hurry_if_empty(view.me.as_ref());
            self.end_report.meters.view(&view, &self.works.running_by_group(), self.clock.now());
        } else if self.clock.now() >= self.end_report.meters.again_at() {
            self.end_report.meters.again(self.clock.now());
        }
    }

    fn step(&mut self, event: Event) {
        let mut quiet = event == Event::Tick;
        let plans = self.core.plans_made();
        self.life.lost_in_step = false;
        let mut events = VecDeque::from([event]);
        let mut actions = Vec::new();
        while let Some(event) = events.pop_front() {
            self.step_core(event, &mut actions);
            quiet &= actions.is_empty();
            for action in actions.drain(..) {
                events.extend(self.perform(action));
            }
        }
        // After the actions, because a plan of the step in which the node joins is one of the new session.
        if self.core.plans_made() != plans {
            self.end_report.meters.vitals().planned();
        }
        if !quiet {
            self.end_report.publisher.changed(self.clock.now());
        }
    }

    fn step_core(&mut self, event: Event, actions: &mut Vec<Action>) {
        let (plans, began_at) = (self.core.plans_made(), self.clock.read());
        self.core.step(began_at, event, actions);
        if self.core.plans_made() != plans {
            self.end_report.meters.planned(self.clock.now().since(began_at.at));
        }
    }

    /// Carries out one action of the core; returns what the core must learn of it at once.
    fn perform(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::OpenSession(session) => {
                self.works.open_session();
                self.calls.open_session(session);
            }
            Action::Ask(request) => self.calls.ask(request),
            Action::Deadlines(deadlines) => {
                if self.works.extend(deadlines).is_err() {
                    return Some(Event::Lost);
                }
            }
            Action::Lose => {
                self.works.lose();
                self.life.lost_in_step = true;
            }
            Action::Start { shard, epoch } => return self.works.start(shard, epoch),
            Action::Stop { shard, epoch, why, kill_at } => {
                return self.works.stop(&shard, epoch, why, kill_at);
            }
            Action::AskGate(shard) => self.ask_gate(shard),
            Action::Tell(notice) => {
                self.end_report.meters.tell(&notice, self.clock.now());
                let _ = self.told.send(Arc::new(NodeEvent { unix_ms: self.clock.unix_ms(), notice }));
            }
            Action::Done => self.life.finish = Some(self.how_it_finished()),
        }
        None
    }

    fn ask_gate(&self, shard: ShardId) {
        let inputs = self.works.executor.inputs.clone();
        let Some(gate) = self.hooks.gate.clone() else {
            let _ = inputs.send(Input::Core(Event::Gate { shard, verdict: Verdict::Take }));
            return;
        };
        let (runtime, clock) = (self.works.executor.runtime.clone(), self.clock.clone());
        let within = self.hook_within;
        self.calls.tasks().spawn(async move {
            let about = shard.clone();
            let asked = hooks::ask(&runtime, &clock, within, async move { gate(about).await }).await;
            let verdict = asked.unwrap_or(Verdict::Refuse);
            let _ = inputs.send(Input::Core(Event::Gate { shard, verdict }));
        });
    }

    /// Asks for weight and health regularly; only changes are passed on.
    fn start_hooks(&self) {
        let (every, within, clock) = (self.hook_every, self.hook_within, self.clock.clone());
        let (runtime, inputs) = (self.works.executor.runtime.clone(), self.works.executor.inputs.clone());
        if let Some(weight) = self.hooks.weight.clone() {
            let (clock, runtime, inputs) = (clock.clone(), runtime.clone(), inputs.clone());
            self.calls.tasks().spawn(async move {
                let mut last = None;
                loop {
                    let ask = weight.clone();
                    let answer = hooks::ask(&runtime, &clock, within, async move { ask().await }).await;
                    if answer.is_some() && answer != last {
                        last = answer;
                        let _ =
                            inputs.send(Input::Core(Event::Command(Command::Weight(answer.unwrap_or(0)))));
                    }
                    clock.sleep(every + rng::up_to(every / 10)).await;
                }
            });
        }
        if let Some(health) = self.hooks.health.clone() {
            self.calls.tasks().spawn(async move {
                let mut last = Health::Healthy;
                loop {
                    let ask = health.clone();
                    let answer = hooks::ask(&runtime, &clock, within, async move { ask().await }).await;
                    let answer = answer.unwrap_or(Health::Unhealthy);
                    if answer != last {
                        last = answer;
                        let _ = inputs.send(Input::Health(answer));
                    }
                    clock.sleep(every + rng::up_to(every / 10)).await;
                }
            });
        }
    }

    /// Clean, unless work still runs, the session was only given up at the end, or the store could no longer be told.
    fn how_it_finished(&self) -> Finish {
        let in_time = self.clock.now() < self.life.leave_by;
        let clean = self.works.running() == 0 && in_time && !self.life.lost_in_step;
        if clean { Finish::Clean } else { Finish::Unconfirmed }
    }
}

/// Waits until none of the work is left, and only then gives up what holds the session. The watchdog and the dead-man
/// timer stay as they are; callers learn that the node has left.
async fn outlive<A: Alarm>(
    mut works: Works<A>,
    mut calls: Calls,
    mut inputs: mpsc::UnboundedReceiver<Input>,
    meters: &Meters,
) {
    calls.tasks().end().cancel();
    meters.running(&works.running_by_group());
    while works.running() > 0 {
        match inputs.recv().await {
            Some(Input::HandlerEnded { shard, epoch, how }) => drop(works.handler_ended(&shard, epoch, how)),
            Some(Input::OwnedEnded { shard, epoch, how }) => drop(works.owned_ended(&shard, epoch, how)),
            Some(_) => {}
            None => return,
        }
        meters.running(&works.running_by_group());
    }
    calls.close_session();
}
