//! How long a call waits for other processes' locks: until its time is over, or until its caller stops waiting.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use leasehold_core::Moment;

use crate::clock;

/// How long one call may wait.
#[derive(Clone, Debug)]
pub(crate) struct BusyTimeout {
    until: Moment,
    abandoned: Arc<AtomicBool>,
    waits: Arc<Waits>,
}

/// When a call of a store last waited for another process's lock.
#[derive(Debug, Default)]
pub(crate) struct Waits(AtomicU64);

impl Waits {
    /// Whether a call has been waiting until a moment ago.
    pub(crate) fn are_recent(&self) -> bool {
        let last = self.0.load(Ordering::Acquire);
        last > 0 && clock::now().since(Moment::from_nanos(last)) < RECENTLY
    }

    fn note(&self) {
        self.0.store(clock::now().as_nanos(), Ordering::Release);
    }
}

/// Longer than the pause between two looks at a lock.
const RECENTLY: Duration = Duration::from_millis(100);

thread_local! {
    // SQLite's busy handler is a plain function, so it finds the current call here.
    static CURRENT: RefCell<Option<BusyTimeout>> = const { RefCell::new(None) };
}

impl BusyTimeout {
    /// Waits for that long, or until `abandoned` is set, and leaves a note of it.
    pub(crate) fn new(busy_for: Duration, abandoned: Arc<AtomicBool>, waits: Arc<Waits>) -> Self {
        BusyTimeout { until: clock::now() + busy_for, abandoned, waits }
    }

    /// Waits for that long.
    pub(crate) fn of(busy_for: Duration) -> Self {
        BusyTimeout::new(busy_for, Arc::default(), Arc::default())
    }

    /// Runs `work` with this limit in its SQLite calls.
    pub(crate) fn during<T>(self, work: impl FnOnce() -> T) -> T {
        let before = CURRENT.replace(Some(self));
        let result = work();
        CURRENT.set(before);
        result
    }

    /// Whether it still makes sense to go on.
    fn left(&self) -> bool {
        !self.abandoned.load(Ordering::Acquire) && clock::now() < self.until
    }
}

/// SQLite's busy handler. Writers hold the lock for a few milliseconds, so short sleeps find the gap between them;
/// the uneven steps keep two waiters from meeting again and again.
pub(crate) fn wait_for_lock(tries: i32) -> bool {
    let left = CURRENT.with_borrow(|current| {
        current.as_ref().inspect(|current| current.waits.note()).is_some_and(BusyTimeout::left)
    });
    if left {
        let step = [300, 700, 1100, 1900, 2900][usize::try_from(tries).unwrap_or(0).min(4)];
        thread::sleep(Duration::from_micros(step + u64::from(std::process::id() % 7) * 50));
    }
    left
}

/// Tries to get something until it is there or the current call may wait no longer.
pub(crate) fn until_some<T>(mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    for tries in 0.. {
        if let Some(got) = attempt() {
            return Some(got);
        }
        if !wait_for_lock(tries) {
            return None;
        }
    }
    None
}
