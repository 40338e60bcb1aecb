//! Waits until the kernel reports a write, or that the last holder of a lock is gone.
//!
//! Both show as "a file that was open for writing was closed" in the live directory: the notify file after each commit, and a
//! session's lock file when the last process that has it ends. So one inotify watch hears both.

use std::mem::MaybeUninit;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

use crate::claim;
use crate::database_file::DatabaseFile;

/// How often to poll if the kernel gives no notice (for example if its inotify instances are used up).
const DEAF_LOOK_EVERY: Duration = Duration::from_millis(20);

/// What there is to look at after a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wakeup {
    /// Perhaps a commit, perhaps nothing.
    AnythingElse,
    /// A lock file was closed: its lock is free in a moment.
    LockClosed,
}

/// An inotify watch on the live directory.
#[derive(Debug)]
pub(crate) struct Listener {
    db_file: DatabaseFile,
    inotify: Option<OwnedFd>,
    /// Whether the directory that is there now is watched.
    listening: bool,
}

impl Listener {
    /// Starts to listen. Every write from now on is noticed.
    pub(crate) fn new(db_file: DatabaseFile) -> Self {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
            .inspect_err(|error| {
                tracing::warn!(
                    %error,
                    "no inotify instance is left (see fs.inotify.max_user_instances): polling for changes instead"
                );
            })
            .ok();
        let mut listener = Listener { db_file, inotify, listening: false };
        listener.listen();
        listener
    }

    /// Waits until something was written, at most for that long.
    pub(crate) fn wait(&mut self, at_most: Duration) -> Wakeup {
        if !self.listening {
            thread::sleep(at_most.min(DEAF_LOOK_EVERY));
            self.listen();
            return Wakeup::AnythingElse;
        }
        let Some(inotify) = &self.inotify else { return Wakeup::AnythingElse };
        let timeout = Timespec { tv_sec: at_most.as_secs() as i64, tv_nsec: at_most.subsec_nanos().into() };
        match poll(&mut [PollFd::new(inotify, PollFlags::IN)], Some(&timeout)) {
            Ok(0) | Err(_) => Wakeup::AnythingElse,
            Ok(_) => self.take_in(),
        }
    }

    fn listen(&mut self) {
        let Some(inotify) = &self.inotify else { return };
        let what = WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        self.listening = inotify::add_watch(inotify, &*self.db_file.live, what).is_ok();
    }

    /// Reads all that the kernel has to say.
    fn take_in(&mut self) -> Wakeup {
        let mut heard = Wakeup::AnythingElse;
        let Some(inotify) = &self.inotify else { return heard };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(inotify, &mut buffer);
        while let Ok(event) = reader.next() {
            let gone = ReadFlags::IGNORED | ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF;
            if event.events().intersects(gone) {
                self.listening = false;
            }
            let lock = event.file_name().and_then(|name| name.to_str().ok()).is_some_and(claim::is_lock_name);
            if lock || event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                heard = Wakeup::LockClosed;
            }
        }
        heard
    }
}
