//! The dead-man timer: the kernel kills the process if its session was not renewed in time.
//!
//! Everything else that stops work from inside needs a thread that still runs. This does not: a POSIX timer on the
//! boot clock with SIGKILL fires on a process whose threads are all stuck, and on one that was stopped with SIGSTOP.
//! It is moved forward before the grants learn of a later deadline, so it is never later than they allow, and it is
//! off while the node runs nothing. It is set to the earliest moment by which anything that still runs must be gone: a
//! new session gives no more time to work that is stuck under a former one.

use std::io;

use leasehold_core::Moment;

/// Kills the process at a moment, unless the moment is moved forward in time.
pub(crate) trait Alarm {
    /// Kills the process at this moment, unless it is set again or switched off earlier.
    fn set(&mut self, at: Moment) -> io::Result<()>;
    /// Kills nothing.
    fn off(&mut self) -> io::Result<()>;
}

/// An alarm that outlives its owner while it is set: however the driver ends, the alarm stays set for work that still
/// runs.
#[derive(Debug)]
pub(crate) struct Leash<A> {
    alarm: Option<A>,
    set: bool,
}

impl<A: Alarm> Leash<A> {
    pub(crate) fn new(alarm: A) -> Self {
        Leash { alarm: Some(alarm), set: false }
    }

    /// Kills the process at this moment, or never.
    pub(crate) fn set(&mut self, at: Option<Moment>) -> io::Result<()> {
        let Some(alarm) = &mut self.alarm else { return Ok(()) };
        match at {
            Some(at) => alarm.set(at)?,
            None => alarm.off()?,
        }
        self.set = at.is_some();
        Ok(())
    }
}

impl<A> Drop for Leash<A> {
    fn drop(&mut self) {
        if self.set {
            std::mem::forget(self.alarm.take());
        }
    }
}

/// For nodes without a dead-man timer.
#[derive(Debug)]
pub(crate) struct NoAlarm;

impl Alarm for NoAlarm {
    fn set(&mut self, _: Moment) -> io::Result<()> {
        Ok(())
    }
    fn off(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A kernel timer that kills this process with SIGKILL at a moment on the boot clock.
///
/// Dropping it switches it off. It survives neither `exec` nor `fork`: it watches this process only.
#[cfg(target_os = "linux")]
#[derive(Debug)]
pub struct DeadMan {
    timer: nix::sys::timer::Timer,
}

#[cfg(target_os = "linux")]
impl DeadMan {
    /// A timer that is not set.
    pub fn new() -> io::Result<Self> {
        use nix::sys::signal::{SigEvent, SigevNotify, Signal};
        let kill = SigEvent::new(SigevNotify::SigevSignal { signal: Signal::SIGKILL, si_value: 0 });
        let timer = nix::sys::timer::Timer::new(nix::time::ClockId::CLOCK_BOOTTIME, kill)?;
        Ok(DeadMan { timer })
    }

    /// Kills the process at this moment, or at once if the moment has passed. Replaces the previous setting.
    pub fn set(&mut self, at: Moment) -> io::Result<()> {
        // Zero would switch it off.
        self.write(at.as_nanos().max(1))
    }

    /// Kills nothing until it is set again.
    pub fn off(&mut self) -> io::Result<()> {
        self.write(0)
    }

    fn write(&mut self, nanos: u64) -> io::Result<()> {
        use nix::sys::timer::{Expiration, TimerSetTimeFlags};
        let seconds = i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX);
        let at = nix::sys::time::TimeSpec::new(seconds as _, (nanos % 1_000_000_000) as _);
        Ok(self.timer.set(Expiration::OneShot(at), TimerSetTimeFlags::TFD_TIMER_ABSTIME)?)
    }
}

#[cfg(target_os = "linux")]
impl Alarm for DeadMan {
    fn set(&mut self, at: Moment) -> io::Result<()> {
        DeadMan::set(self, at)
    }
    fn off(&mut self) -> io::Result<()> {
        DeadMan::off(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Notes when it is dropped, which would switch a real timer off.
    struct Noted(Arc<AtomicBool>);

    impl Alarm for Noted {
        fn set(&mut self, _: Moment) -> io::Result<()> {
            Ok(())
        }
        fn off(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Drop for Noted {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// A panic drops the driver and everything that it owns: the timer of work that still runs must stay set.
    #[test]
    fn a_timer_that_is_set_outlives_a_panic_of_its_owner() {
        for (at, switched_off) in [(Some(Moment::from_millis(7)), false), (None, true)] {
            let dropped = Arc::new(AtomicBool::new(false));
            let noted = Noted(dropped.clone());
            let died = std::thread::Builder::new().spawn(move || {
                let mut leash = Leash::new(noted);
                leash.set(Some(Moment::from_millis(1))).unwrap();
                leash.set(at).unwrap();
                panic!("a bug");
            });
            died.unwrap().join().unwrap_err();
            assert_eq!(dropped.load(Ordering::Relaxed), switched_off);
        }
    }
}
