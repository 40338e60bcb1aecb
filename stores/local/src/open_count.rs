//! How many databases this process has open. SQLite removes `-wal` and `-shm` when the last connection of all processes is
//! closed in order, and a process that just ends closes nothing.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

static OPEN: Mutex<usize> = Mutex::new(0);
static ALL_CLOSED: Condvar = Condvar::new();

/// Counts one open database for as long as it lives.
#[derive(Debug)]
pub(crate) struct Opened(());

impl Opened {
    pub(crate) fn one_more() -> Self {
        *OPEN.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Opened(())
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        *open -= 1;
        if *open == 0 {
            ALL_CLOSED.notify_all();
        }
    }
}

/// Waits until this process has closed all its databases, though not for longer than this; `true` if it has. Call it at
/// the end of a program, after the last handle was dropped: their threads close them a moment later.
pub fn wait_until_closed(within: Duration) -> bool {
    let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = ALL_CLOSED.wait_timeout_while(open, within, |open| *open > 0);
    !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
}
