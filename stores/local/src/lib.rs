//! Leasehold on one machine: several processes share shards through an SQLite file, without a server.
//!
//! [`Local`] is a [`leasehold_store::Store`] over one file in WAL mode with `synchronous=FULL`: an answered write
//! survives kill -9 and a power cut. Calls run on threads of their own, one for renewals and one for all other work,
//! so that no async task ever waits for a disk. Other processes' changes arrive within a few milliseconds.
//!
//! What lies on the disk, for a store at `x.db`:
//!
//! | file | what it is |
//! | --- | --- |
//! | `x.db`, `x.db-wal`, `x.db-shm` | SQLite's; read them with `sqlite3 x.db 'select * from live'` |
//! | `x.db-live/notify` | rewritten after each commit, so that the kernel wakes the other processes |
//! | `x.db-live/<session>.lock` | locked by the process of that session and by all that it started |
//! | `x.db-live/open`, `x.db-live/file` | keep two processes from creating or adopting the file at once |
//!
//! What this store does not do: it is not for network file systems, which are refused where they can be recognised. A
//! process that is stopped (SIGSTOP) in the middle of a write holds SQLite's write lock, and all nodes detach, safely,
//! until it goes on or is killed.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(not(target_os = "linux"))]
compile_error!(
    "leasehold-local, and with it the program leasehold, runs only on Linux (inotify, CLOCK_BOOTTIME, boot_id): elsewhere, \
     depend on the library leasehold without the feature local, and use another store"
);

mod busy_timeout;
mod claim;
mod clock;
mod connection;
mod database;
mod database_file;
mod error;
mod lane;
mod listener;
mod live_sessions;
mod local;
mod notify_file;
mod open_count;
mod options;
mod records;
mod registry;
mod watch;

pub use local::Local;
pub use open_count::wait_until_closed;
pub use options::{Create, Options};
