//! The timer that detaches: it needs no I/O, no reply, and nothing of the driver.
//!
//! It knows the deadlines from the sessions' own atomics. At `stop_at` it latches *lost* and tells all work; at
//! `kill_at` it cuts off work that still runs. The core does the same when it gets there; the first one wins.

use std::io;
use std::sync::{Arc, mpsc};

use leasehold_core::Moment;
use leasehold_core::work::{Watch, WatchdogAction};
#[cfg(feature = "test-util")]
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::alarm_clock::{AlarmClock, Waker};
use crate::clock::Clock;
use crate::session::Session;
#[cfg(feature = "test-util")]
use crate::tasks;
use crate::tasks::RunsOn;

/// Watches sessions, and work that must stop by some moment. Ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Watchdog(Channel);

#[derive(Debug)]
enum Channel {
    Thread {
        commands: mpsc::Sender<WatchdogCommand>,
        waker: Waker,
    },
    #[cfg(feature = "test-util")]
    Task {
        commands: tokio::sync::mpsc::UnboundedSender<WatchdogCommand>,
    },
}

#[derive(Debug)]
enum WatchdogCommand {
    Guard(Arc<Session>),
    KillAt(Moment, CancellationToken),
    End,
}

impl Watchdog {
    /// Starts it. `on_lost` is called each time it finds a session lost, after all work was told.
    pub(crate) fn start(
        runs_on: RunsOn,
        clock: Clock,
        on_lost: impl Fn() + Send + 'static,
    ) -> io::Result<Watchdog> {
        let dog = Dog { clock, watch: Watch::default() };
        match runs_on {
            RunsOn::OwnThread => on_thread(dog, on_lost),
            #[cfg(feature = "test-util")]
            RunsOn::CurrentRuntime => Ok(as_task(dog, on_lost)),
        }
    }

    /// Watches this session from now on.
    pub(crate) fn guard(&self, session: Arc<Session>) {
        self.command(WatchdogCommand::Guard(session));
    }

    /// Cancels the token at this moment.
    pub(crate) fn kill_at(&self, at: Moment, kill: CancellationToken) {
        self.command(WatchdogCommand::KillAt(at, kill));
    }

    fn command(&self, command: WatchdogCommand) {
        match &self.0 {
            Channel::Thread { commands, waker } => {
                let _ = commands.send(command);
                waker.wake();
            }
            #[cfg(feature = "test-util")]
            Channel::Task { commands } => {
                let _ = commands.send(command);
            }
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.command(WatchdogCommand::End);
    }
}

fn on_thread(mut dog: Dog, on_lost: impl Fn() + Send + 'static) -> io::Result<Watchdog> {
    let alarm = AlarmClock::new()?;
    let (commands, inbox) = mpsc::channel();
    let waker = alarm.waker();
    std::thread::Builder::new().name("leasehold-watchdog".to_owned()).spawn(move || {
        loop {
            for command in inbox.try_iter() {
                if !dog.take(command) {
                    return dog.end();
                }
            }
            let next = dog.turn(&on_lost);
            if let Err(error) = alarm.wait_until(next) {
                // The timer failed: without a reliable timer, nothing may keep running.
                tracing::error!(%error, "the watchdog cannot wait on its timer: stopping all work");
                return dog.end();
            }
        }
    })?;
    Ok(Watchdog(Channel::Thread { commands, waker }))
}

#[cfg(feature = "test-util")]
fn as_task(mut dog: Dog, on_lost: impl Fn() + Send + 'static) -> Watchdog {
    let (commands, mut inbox) = tokio::sync::mpsc::unbounded_channel();
    let clock = dog.clock.clone();
    tasks::spawn_on(&Handle::current(), async move {
        loop {
            let next = dog.turn(&on_lost);
            tokio::select! {
                biased;
                command = inbox.recv() => {
                    if !command.is_some_and(|command| dog.take(command)) {
                        return dog.end();
                    }
                }
                () = clock.sleep_until(next) => {}
            }
        }
    });
    Watchdog(Channel::Task { commands })
}

/// The watchdog's decisions, and how they are carried out.
struct Dog {
    clock: Clock,
    watch: Watch<Arc<Session>, CancellationToken>,
}

impl Dog {
    /// Takes a command; returns false for the last one.
    fn take(&mut self, command: WatchdogCommand) -> bool {
        match command {
            WatchdogCommand::Guard(session) => self.watch.guard(session),
            WatchdogCommand::KillAt(at, kill) => self.watch.cut_off_at(at, kill),
            WatchdogCommand::End => return false,
        }
        true
    }

    /// Does what is due and returns when to run again.
    fn turn(&mut self, on_lost: &impl Fn()) -> Moment {
        let mut due = Vec::new();
        let next = self.watch.turn(|| self.clock.now(), |session| session.look(), &mut due);
        let lost = due.iter().any(|action| matches!(action, WatchdogAction::Lose(_)));
        perform(due);
        if lost {
            on_lost();
        }
        next
    }

    /// The owner is gone: nothing that it started may keep running.
    fn end(self) {
        let mut due = Vec::new();
        self.watch.end(&mut due);
        perform(due);
    }
}

fn perform(due: Vec<WatchdogAction<Arc<Session>, CancellationToken>>) {
    for action in due {
        match action {
            WatchdogAction::Lose(session) => session.lose(),
            WatchdogAction::Kill(session) => session.kill(),
            WatchdogAction::CutOff(kill) => kill.cancel(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::Deadlines;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    fn span(from: Moment, stop_ms: u64, kill_ms: u64) -> Deadlines {
        let after = |ms| from + Duration::from_millis(ms);
        Deadlines { stop_at: after(stop_ms), kill_at: after(kill_ms), valid_until: after(kill_ms) }
    }

    #[tokio::test(start_paused = true)]
    async fn it_stops_and_kills_at_the_moment() {
        let clock = Clock::virtual_time();
        let calls = Arc::new(AtomicU32::new(0));
        let counted = calls.clone();
        let dog = Watchdog::start(RunsOn::CurrentRuntime, clock.clone(), move || {
            counted.fetch_add(1, Ordering::Relaxed);
        })
        .unwrap();
        let start = clock.now();
        let session = Arc::new(Session::new(clock.clone(), span(start, 100, 150), Duration::ZERO));
        dog.guard(session.clone());
        tokio::time::sleep(Duration::from_millis(50)).await;
        session.extend(span(start, 200, 250)).unwrap();
        session.stopping().cancelled().await;
        assert_eq!(clock.now().since(start), Duration::from_millis(200));
        assert!(session.is_told() && !session.holds());
        session.killed().cancelled().await;
        assert_eq!(clock.now().since(start), Duration::from_millis(250));
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_single_kill_comes_at_its_moment_and_the_end_kills_all() {
        let clock = Clock::virtual_time();
        let dog = Watchdog::start(RunsOn::CurrentRuntime, clock.clone(), || {}).unwrap();
        let start = clock.now();
        let (soon, late) = (CancellationToken::new(), CancellationToken::new());
        dog.kill_at(start + Duration::from_secs(60), late.clone());
        dog.kill_at(start + Duration::from_millis(7), soon.clone());
        soon.cancelled().await;
        assert_eq!(clock.now().since(start), Duration::from_millis(7));
        assert!(!late.is_cancelled());
        let session = Arc::new(Session::new(clock.clone(), span(start, 5000, 6000), Duration::ZERO));
        dog.guard(session.clone());
        drop(dog);
        late.cancelled().await;
        session.killed().cancelled().await;
        assert_eq!(clock.now().since(start), Duration::from_millis(7), "the end does not wait");
    }

    /// The real thing: a thread and a kernel timer, without any runtime.
    #[test]
    fn the_thread_needs_no_runtime() {
        let clock = Clock::boot();
        let (tx, rx) = mpsc::channel();
        let dog = Watchdog::start(RunsOn::OwnThread, clock.clone(), move || tx.send(()).unwrap()).unwrap();
        let start = clock.now();
        let session = Arc::new(Session::new(clock.clone(), span(start, 40, 60), Duration::ZERO));
        dog.guard(session.clone());
        rx.recv_timeout(Duration::from_secs(10)).unwrap();
        assert!(clock.now().since(start) >= Duration::from_millis(40));
        assert!(session.is_told() && session.stopping().is_cancelled());
        while !session.killed().is_cancelled() {
            assert!(clock.now().since(start) < Duration::from_secs(10), "the kill never came");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(clock.now().since(start) >= Duration::from_millis(60));
    }
}
