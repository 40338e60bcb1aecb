use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::event::{Ended, StopReason};
use leasehold_core::{Deadlines, Epoch, Event, GroupName, Moment, ShardId};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::Input;
use super::executor::{Executor, Grants};
use super::works::Works;
use crate::clock::Clock;
use crate::deadman::{Alarm, Leash};
use crate::grant::Grant;
use crate::handler::AnyHandler;
use crate::session::Session;
use crate::tasks::RunsOn;
use crate::watchdog::Watchdog;

/// Writes down what the dead-man timer was told.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<Option<Moment>>>>);

impl Alarm for Notes {
    fn set(&mut self, at: Moment) -> io::Result<()> {
        self.0.lock().unwrap().push(Some(at));
        Ok(())
    }
    fn off(&mut self) -> io::Result<()> {
        self.0.lock().unwrap().push(None);
        Ok(())
    }
}

struct Bench {
    works: Works<Notes>,
    inbox: UnboundedReceiver<Input>,
    notes: Notes,
}

fn deadlines(clock: &Clock, stop_ms: u64) -> Deadlines {
    let after = |ms| clock.now() + Duration::from_millis(ms);
    Deadlines { stop_at: after(stop_ms), kill_at: after(stop_ms + 50), valid_until: after(stop_ms + 100) }
}

impl Bench {
    fn new() -> Self {
        Bench::at(RunsOn::CurrentRuntime, Clock::virtual_time(), Handle::current())
    }

    fn at(runs_on: RunsOn, clock: Clock, runtime: Handle) -> Self {
        let (inputs, inbox) = unbounded_channel();
        let notes = Notes::default();
        let executor = Executor {
            watchdog: Watchdog::start(runs_on, clock.clone(), || {}).unwrap(),
            runtime,
            inputs,
            grants: Arc::new(Grants::default()),
            alarm: Leash::new(notes.clone()),
            kill_early: Duration::ZERO,
            handlers: Default::default(),
            sessions: Default::default(),
            clock: clock.clone(),
        };
        let mut works = Works::new(executor, Duration::from_millis(200));
        works.extend(deadlines(&clock, 1000)).unwrap();
        Bench { works, inbox, notes }
    }

    /// The newest session.
    fn session(&self) -> Arc<Session> {
        self.works.executor.sessions.values().last().unwrap().clone()
    }

    fn handler<F, Fut>(&mut self, work: F)
    where
        F: Fn(Grant) -> Fut + Send + Sync + 'static,
        Fut: std::future::Future<Output = crate::Outcome> + Send + 'static,
    {
        self.works.add_handler(group(), AnyHandler::new(work));
    }

    /// What the core would hear of the next end, once a handler has reported.
    async fn next_end(&mut self) -> Event {
        loop {
            match self.inbox.recv().await.expect("the works hold a sender") {
                Input::HandlerEnded { shard, epoch, how } => {
                    if let Some(event) = self.works.handler_ended(&shard, epoch, how) {
                        return event;
                    }
                }
                Input::OwnedEnded { shard, epoch, how } => {
                    if let Some(event) = self.works.owned_ended(&shard, epoch, how) {
                        return event;
                    }
                }
                _ => panic!("only ends are expected"),
            }
        }
    }
}

fn group() -> GroupName {
    "orders".parse().unwrap()
}

fn shard() -> ShardId {
    "orders/3".parse().unwrap()
}

fn finished(epoch: u64) -> Event {
    Event::Ended { shard: shard(), epoch: Epoch(epoch), how: Ended::Finished }
}

fn failed(event: &Event) -> &str {
    match event {
        Event::Ended { how: Ended::Failed(error), .. } => error,
        other => panic!("expected a failure, got {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn work_runs_until_told_to_stop_and_its_grant_ends_before_anybody_hears() {
    let mut bench = Bench::new();
    bench.handler(|grant| async move {
        grant.stopped().await;
        Ok(())
    });
    assert_eq!(bench.works.start(shard(), Epoch(1)), None);
    let grant = bench.works.executor.grants.get(&shard()).unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!((grant.check(), grant.epoch()), (Ok(()), Epoch(1)));
    assert_eq!(bench.works.stop(&shard(), Epoch(1), StopReason::Moving, None), None);
    assert_eq!(grant.check(), Ok(()), "told to stop, not yet over");
    assert_eq!(bench.next_end().await, finished(1));
    assert!(grant.is_lost());
    assert!(bench.works.executor.grants.all().is_empty() && bench.works.running() == 0);
}

#[tokio::test(start_paused = true)]
async fn a_shard_whose_work_has_not_ended_is_never_started_again() {
    let mut bench = Bench::new();
    let starts = Arc::new(AtomicU32::new(0));
    let counted = starts.clone();
    bench.handler(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        std::future::pending()
    });
    assert_eq!(bench.works.start(shard(), Epoch(1)), None);
    bench.works.stop(&shard(), Epoch(1), StopReason::Moving, None);
    let refused = bench.works.start(shard(), Epoch(2)).unwrap();
    assert!(failed(&refused).contains("previous work"));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(starts.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn panics_and_errors_are_failures_and_a_stop_that_crosses_them_is_answered() {
    let mut bench = Bench::new();
    bench.handler(|grant| async move {
        if grant.epoch() == Epoch(1) { panic!("out of {}", "luck") } else { Err("no database".into()) }
    });
    bench.works.start(shard(), Epoch(1));
    assert_eq!(failed(&bench.next_end().await), "panicked: out of luck");
    bench.works.start(shard(), Epoch(2));
    assert_eq!(failed(&bench.next_end().await), "no database");
    assert_eq!(bench.works.stop(&shard(), Epoch(2), StopReason::Moving, None), Some(finished(2)));
}

#[tokio::test(start_paused = true)]
async fn work_that_ignores_the_stop_is_cut_off_and_only_then_reported() {
    let mut bench = Bench::new();
    let clock = bench.works.executor.clock.clone();
    let gone = Arc::new(AtomicBool::new(false));
    struct SetOnDrop(Arc<AtomicBool>);
    impl Drop for SetOnDrop {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }
    let seen = gone.clone();
    bench.handler(move |_| {
        let guard = SetOnDrop(seen.clone());
        async move {
            let _guard = guard;
            std::future::pending().await
        }
    });
    bench.works.start(shard(), Epoch(1));
    tokio::time::sleep(Duration::from_millis(1)).await;
    let kill_at = clock.now() + Duration::from_millis(30);
    bench.works.stop(&shard(), Epoch(1), StopReason::Moving, Some(kill_at));
    assert_eq!(bench.next_end().await, finished(1));
    assert!(gone.load(Ordering::Acquire), "its future is dropped before its end is told");
    assert_eq!(clock.now(), kill_at);
}

#[tokio::test(start_paused = true)]
async fn a_lost_session_stops_all_work_and_cuts_it_off_at_kill_at() {
    let mut bench = Bench::new();
    let clock = bench.works.executor.clock.clone();
    let kill_at = bench.session().kill_at();
    bench.handler(|_| std::future::pending());
    bench.works.start(shard(), Epoch(1));
    let grant = bench.works.executor.grants.get(&shard()).unwrap();
    // Nobody renews and nobody says anything: the watchdog acts alone.
    assert_eq!(bench.next_end().await, finished(1));
    assert!(grant.is_lost());
    assert_eq!(clock.now(), kill_at);
    assert_eq!(
        bench.works.start(shard(), Epoch(2)),
        Some(finished(2)),
        "nothing starts under a lost session"
    );
    assert!(bench.works.extend(deadlines(&clock, 1000)).is_err(), "nothing revives it");
    bench.works.open_session();
    bench.works.extend(deadlines(&clock, 1000)).unwrap();
    assert_eq!(bench.works.start(shard(), Epoch(3)), None);
}

#[tokio::test(start_paused = true)]
async fn user_code_is_not_called_when_time_passed_before_it_could_run() {
    let mut bench = Bench::new();
    let called = Arc::new(AtomicBool::new(false));
    let seen = called.clone();
    bench.handler(move |_| {
        seen.store(true, Ordering::Relaxed);
        async { Ok(()) }
    });
    bench.works.start(shard(), Epoch(1));
    bench.works.lose();
    assert_eq!(bench.next_end().await, finished(1));
    assert!(!called.load(Ordering::Relaxed));
}

#[tokio::test(start_paused = true)]
async fn all_handlers_of_a_group_are_one_work() {
    let mut bench = Bench::new();
    bench.handler(|_| async { Ok(()) });
    bench.handler(|grant| async move {
        grant.stopped().await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        Ok(())
    });
    bench.works.start(shard(), Epoch(1));
    tokio::time::sleep(Duration::from_millis(10)).await;
    // One more joins the running work, under the same grant, and fails: the others are told to stop.
    let clock = bench.works.executor.clock.clone();
    let joined_at = clock.now();
    bench.handler(|grant| async move {
        assert_eq!(grant.epoch(), Epoch(1));
        Err("broken".into())
    });
    assert_eq!(failed(&bench.next_end().await), "broken");
    assert_eq!(clock.now().since(joined_at), Duration::from_millis(20), "the end is that of the last one");
}

#[tokio::test(start_paused = true)]
async fn a_group_without_handlers_is_held_and_let_go_at_once() {
    let mut bench = Bench::new();
    assert_eq!(bench.works.start(shard(), Epoch(1)), None);
    assert!(bench.works.executor.grants.get(&shard()).unwrap().check().is_ok());
    assert_eq!(bench.works.stop(&shard(), Epoch(1), StopReason::Moving, None), Some(finished(1)));
    assert!(bench.works.executor.grants.get(&shard()).is_none());
}

#[tokio::test(start_paused = true)]
async fn the_dead_man_timer_is_set_before_work_runs_moved_before_grants_and_off_when_idle() {
    let mut bench = Bench::new();
    let clock = bench.works.executor.clock.clone();
    let first = bench.session().die_at();
    let later = deadlines(&clock, 2000);
    bench.works.start(shard(), Epoch(1));
    bench.works.extend(later).unwrap();
    bench.works.stop(&shard(), Epoch(1), StopReason::Moving, None);
    bench.works.extend(deadlines(&clock, 3000)).unwrap();
    let notes = bench.notes.0.lock().unwrap().clone();
    assert_eq!(notes, [Some(first), Some(later.kill_at), None], "idle nodes have no timer");
}

/// Work of a session that is over does not end: no renewal of a later session may give it more time.
#[tokio::test(start_paused = true)]
async fn a_new_session_does_not_postpone_the_dead_man_of_stuck_work() {
    let mut bench = Bench::new();
    bench.handler(|_| std::future::pending());
    let clock = bench.works.executor.clock.clone();
    assert_eq!(bench.works.start(shard(), Epoch(1)), None);
    // Another node fenced the session. The handler is stuck: here, nobody takes the report of its end.
    bench.works.lose();
    let kill_at = clock.now() + Duration::from_millis(10);
    bench.works.stop(&shard(), Epoch(1), StopReason::Detached, Some(kill_at));
    bench.works.open_session();
    bench.works.extend(deadlines(&clock, 1000)).unwrap();
    for _ in 0..5 {
        tokio::time::advance(Duration::from_millis(1)).await;
        bench.works.extend(deadlines(&clock, 5000)).unwrap();
    }
    assert_eq!(bench.notes.0.lock().unwrap().last(), Some(&Some(kill_at)));
}

/// A handler starts a thread's worth of work under its grant and is cut off while that goes on.
#[tokio::test(start_paused = true)]
async fn what_a_grant_owns_runs_on_after_its_handler_and_so_does_the_timer() {
    let mut bench = Bench::new();
    let (kept, inbox) = std::sync::mpsc::channel();
    bench.handler(move |grant| {
        kept.send(grant.guard().unwrap()).unwrap();
        std::future::pending()
    });
    bench.works.start(shard(), Epoch(1));
    tokio::time::sleep(Duration::from_millis(1)).await;
    let guard = inbox.try_recv().unwrap();
    let grant = guard.grant().clone();
    let soon = bench.works.executor.clock.now() + Duration::from_millis(10);
    bench.works.stop(&shard(), Epoch(1), StopReason::Moving, Some(soon));
    let waited = tokio::time::timeout(Duration::from_millis(500), bench.next_end()).await;
    assert!(waited.is_err(), "the handler is gone, but not its work: {waited:?}");
    assert_eq!(grant.check(), Ok(()), "so the shard is held");
    assert!(bench.works.start(shard(), Epoch(2)).is_some(), "and nothing starts beside it");
    assert!(bench.notes.0.lock().unwrap().last().unwrap().is_some(), "the timer is armed");
    let more = grant.guard().unwrap();
    drop(guard);
    drop(more);
    assert_eq!(bench.next_end().await, finished(1));
    assert_eq!(bench.notes.0.lock().unwrap().last(), Some(&None));
    assert!(grant.guard().is_err() && grant.spawn(async {}).is_err(), "nothing begins under an ended grant");
}

#[tokio::test(start_paused = true)]
async fn tasks_of_a_grant_are_cut_off_like_handlers_and_their_panics_are_failures() {
    let mut bench = Bench::new();
    bench.handler(|grant| async move {
        let sum = grant.spawn(async { 2 + 2 })?;
        assert_eq!(sum.await, Ok(4));
        let endless = grant.spawn(std::future::pending::<()>())?;
        if grant.epoch() == Epoch(2) {
            grant.spawn(async { panic!("out of luck") })?.await.unwrap_err();
        }
        drop(endless);
        Ok(())
    });
    bench.works.start(shard(), Epoch(1));
    tokio::time::sleep(Duration::from_millis(1)).await;
    let kill_at = bench.works.executor.clock.now() + Duration::from_millis(30);
    bench.works.stop(&shard(), Epoch(1), StopReason::Moving, Some(kill_at));
    assert_eq!(bench.next_end().await, finished(1));
    assert_eq!(bench.works.executor.clock.now(), kill_at);
    bench.works.start(shard(), Epoch(2));
    assert_eq!(failed(&bench.next_end().await), "panicked: out of luck");
}

/// Code that blocks a thread cannot be cut off, and counts as running until it returns.
#[test]
fn blocked_work_is_not_gone_before_it_returns() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let clock = Clock::boot();
    let mut bench = Bench::at(RunsOn::OwnThread, clock.clone(), runtime.handle().clone());
    let left_at = Arc::new(Mutex::new(Moment::NEVER));
    let (leaves, began) = (left_at.clone(), Arc::new(AtomicBool::new(false)));
    let begins = began.clone();
    bench.handler(move |_| {
        let (leaves, begins) = (leaves.clone(), begins.clone());
        async move {
            begins.store(true, Ordering::Release);
            std::thread::sleep(Duration::from_millis(150));
            *leaves.lock().unwrap() = crate::clock::now();
            std::future::pending().await
        }
    });
    bench.works.start(shard(), Epoch(1));
    while !began.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(1));
    }
    bench.works.stop(&shard(), Epoch(1), StopReason::Moving, Some(clock.now()));
    let told = runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(10), bench.next_end())
            .await
            .expect("it ends when it returns")
    });
    assert_eq!(told, finished(1));
    assert!(*left_at.lock().unwrap() <= clock.now(), "told before it had returned");
}

/// A runtime that is shut down takes its work along, and that is an end like any other.
#[test]
fn work_ends_with_its_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut bench = Bench::at(RunsOn::OwnThread, Clock::boot(), runtime.handle().clone());
    bench.handler(|_| std::future::pending());
    bench.works.start(shard(), Epoch(1));
    runtime.block_on(tokio::task::yield_now());
    drop(runtime);
    let other = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let told = other.block_on(bench.next_end());
    assert!(failed(&told).contains("shut down"));
}
