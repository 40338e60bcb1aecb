//! Lets a thread sleep until a moment on the boot clock, and be woken earlier.

use std::io;
use std::sync::Arc;

use leasehold_core::Moment;

#[cfg(any(target_os = "linux", target_os = "android"))]
mod imp {
    use super::*;
    use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
    use rustix::fd::OwnedFd;
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };

    /// A kernel timer on the boot clock. After a suspend that lasted longer than the rest of the sleep, it fires at
    /// once.
    #[derive(Debug)]
    pub(crate) struct AlarmClock {
        timer: OwnedFd,
        waker: Waker,
    }

    /// Wakes the sleeper.
    #[derive(Clone, Debug)]
    pub(crate) struct Waker(Arc<OwnedFd>);

    impl AlarmClock {
        pub(crate) fn new() -> io::Result<Self> {
            let timer =
                timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
            let waker = Waker(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?));
            Ok(AlarmClock { timer, waker })
        }

        pub(crate) fn waker(&self) -> Waker {
            self.waker.clone()
        }

        /// Sleeps until the moment, or until it is woken. It may also return early for no reason.
        pub(crate) fn wait_until(&self, at: Moment) -> io::Result<()> {
            let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
            let it_value = if at == Moment::NEVER {
                zero
            } else {
                let nanos = at.as_nanos().max(1);
                Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as _ }
            };
            let setting = Itimerspec { it_interval: zero, it_value };
            timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &setting)?;
            let mut sources =
                [PollFd::new(&self.timer, PollFlags::IN), PollFd::new(&*self.waker.0, PollFlags::IN)];
            match poll(&mut sources, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            // Both are non-blocking: reading only resets them.
            let mut count = [0u8; 8];
            let _ = rustix::io::read(&self.timer, &mut count);
            let _ = rustix::io::read(&*self.waker.0, &mut count);
            Ok(())
        }
    }

    impl Waker {
        pub(crate) fn wake(&self) {
            // This fails only if the counter is full, and then the sleeper is already being woken.
            let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod imp {
    use super::*;
    use std::sync::{Condvar, Mutex};
    use std::time::Duration;

    /// Sleeps in short slices, because condition variables stand still while the machine is suspended.
    #[derive(Debug)]
    pub(crate) struct AlarmClock {
        waker: Waker,
    }

    /// Wakes the sleeper.
    #[derive(Clone, Debug)]
    pub(crate) struct Waker(Arc<(Mutex<bool>, Condvar)>);

    impl AlarmClock {
        pub(crate) fn new() -> io::Result<Self> {
            Ok(AlarmClock { waker: Waker(Arc::new((Mutex::new(false), Condvar::new()))) })
        }

        pub(crate) fn waker(&self) -> Waker {
            self.waker.clone()
        }

        /// Sleeps until the moment, or until it is woken. It may also return early for no reason.
        pub(crate) fn wait_until(&self, at: Moment) -> io::Result<()> {
            let (woken, waker) = &*self.waker.0;
            let slice = at.since(crate::clock::now()).min(Duration::from_millis(50));
            let woken = woken.lock().unwrap_or_else(|e| e.into_inner());
            let (mut woken, _) =
                waker.wait_timeout_while(woken, slice, |woken| !*woken).unwrap_or_else(|e| e.into_inner());
            *woken = false;
            Ok(())
        }
    }

    impl Waker {
        pub(crate) fn wake(&self) {
            *self.0.0.lock().unwrap_or_else(|e| e.into_inner()) = true;
            self.0.1.notify_one();
        }
    }
}

pub(crate) use imp::{AlarmClock, Waker};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use std::time::Duration;

    #[test]
    fn it_wakes_at_the_moment_and_at_the_bell() {
        let alarm = AlarmClock::new().unwrap();
        let at = clock::now() + Duration::from_millis(30);
        while clock::now() < at {
            alarm.wait_until(at).unwrap();
        }
        assert!(clock::now().since(at) < Duration::from_secs(5));

        let waker = alarm.waker();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(20));
                waker.wake();
            });
            let start = clock::now();
            let mut woken = start;
            while woken.since(start) < Duration::from_millis(10) {
                alarm.wait_until(Moment::NEVER).unwrap();
                woken = clock::now();
            }
            assert!(woken.since(start) < Duration::from_secs(5), "the waker ends a wait without end");
        });
    }
}
