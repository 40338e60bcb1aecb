//! The process lock: the kernel's own proof that a process is gone, with all that it started.
//!
//! A process locks `<session>.lock` for as long as it lives. The file is not closed on exec, so whatever it starts
//! holds the lock as well; a stopped process (SIGSTOP) holds it too. When the lock is free, none of them is left.
//!
//! The file gets its name only after it is locked, so there is no moment in which a living session's lock can be
//! found free. A process that checks takes a shared lock for an instant, which does not keep others from checking. A file that is not
//! there proves nothing, so files can be removed at any time.

use std::fs;
use std::io::{self, Read};
use std::os::fd::IntoRawFd;
use std::path::Path;
use std::time::{Duration, SystemTime};

use leasehold_core::SessionId;
use leasehold_store::StoreError;
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags};

use crate::clock;
use crate::database_file::DatabaseFile;
use crate::error::refused;

const SUFFIX: &str = ".lock";
/// A free lock file is removed when it is this old: every node has seen by then that its process is gone.
const KEPT_FOR: Duration = Duration::from_secs(3600);

/// A session's lock, held by this process and by all that it starts from now on.
#[derive(Debug)]
pub(crate) struct Claim {
    held: Option<OwnedFd>,
}

/// What a session's lock file shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// Its process is gone, with all that it started.
    Gone,
    /// Nothing: it lives, or its lock cannot tell.
    None,
}

impl Claim {
    /// Locks a file for this session, and removes what sessions long gone have left.
    pub(crate) fn take(db_file: &DatabaseFile, session: SessionId) -> Result<Claim, StoreError> {
        db_file.make_live()?;
        let fresh = db_file.live.join(format!("{session}.claim"));
        let held = lock_and_name(&fresh, &db_file.live.join(format!("{session}{SUFFIX}"))).map_err(|e| {
            let _ = fs::remove_file(&fresh);
            impossible(db_file, &fresh, e)
        })?;
        sweep(db_file, session);
        Ok(Claim { held: Some(held) })
    }

    /// Gives the lock up, for a session that is over. Children that this process started may still hold it.
    pub(crate) fn release(mut self) {
        drop(self.held.take());
    }
}

impl Drop for Claim {
    /// The process may go on working after a handle was dropped, so only its end frees the lock.
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            let _ = held.into_raw_fd();
        }
    }
}

/// Checks that a lock can be created now, with a file that is removed again.
pub(crate) fn rehearse(db_file: &DatabaseFile, session: SessionId) -> Result<(), StoreError> {
    db_file.make_live()?;
    let fresh = db_file.live.join(format!("{session}.claim"));
    let made = lock_and_name(&fresh, &fresh);
    let _ = fs::remove_file(&fresh);
    made.map(drop).map_err(|e| impossible(db_file, &fresh, e))
}

fn impossible(db_file: &DatabaseFile, fresh: &Path, e: rustix::io::Errno) -> StoreError {
    refused(format!(
        "cannot create the process lock {} ({e}): is {} writable, and is the disk full? The session was not opened.",
        fresh.display(),
        db_file.live.display()
    ))
}

/// Whether a file of this name is a session's lock.
pub(crate) fn is_lock_name(name: &str) -> bool {
    name.strip_suffix(SUFFIX).is_some_and(|session| session.parse::<SessionId>().is_ok())
}

/// Asks the kernel whether a session's process is gone.
pub(crate) fn probe(db_file: &DatabaseFile, session: SessionId) -> Proof {
    probe_file(&db_file.live.join(format!("{session}{SUFFIX}")))
}

fn lock_and_name(fresh: &Path, name: &Path) -> rustix::io::Result<OwnedFd> {
    // Without CLOEXEC: children inherit the lock. Open for writing: the kernel tells the others when it is closed.
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
    let file = rustix::fs::open(fresh, flags, Mode::from_raw_mode(0o644))?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    let inode = rustix::fs::fstat(&file)?.st_ino;
    let text = format!(
        "inode {inode}\nboot {}\nmachine {}\npid {}\n",
        clock::boot_id(),
        clock::machine_id(),
        std::process::id()
    );
    let written = rustix::io::pwrite(&file, text.as_bytes(), 0)?;
    if written != text.len() {
        return Err(rustix::io::Errno::NOSPC);
    }
    rustix::fs::rename(fresh, name)?;
    Ok(file)
}

fn probe_file(path: &Path) -> Proof {
    // With CLOEXEC: what this process starts must not hold another's lock.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let Ok(file) = rustix::fs::open(path, flags, Mode::empty()) else { return Proof::None };
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_err() {
        return Proof::None;
    }
    let Ok(inode) = rustix::fs::fstat(&file).map(|found| found.st_ino) else { return Proof::None };
    // If the session has another lock file by now, this one proves nothing about it.
    if rustix::fs::stat(path).map(|found| found.st_ino) != Ok(inode) {
        return Proof::None;
    }
    let mut text = String::new();
    if fs::File::from(file).read_to_string(&mut text).is_err() {
        return Proof::None;
    }
    judge_free(&text, inode, &clock::boot_id(), &clock::machine_id())
}

/// What a free lock proves. Its owner must have locked this very file (a copy was never locked) under this kernel, or
/// in an earlier boot of this machine: another machine's locks cannot be seen from here.
fn judge_free(text: &str, inode: u64, boot: &str, machine: &str) -> Proof {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.filter(|value| !value.is_empty())
    };
    let own_file = field("inode") == Some(inode.to_string().as_str());
    let own_kernel = field("boot") == Some(boot);
    let own_machine = field("boot").is_some() && field("machine") == Some(machine);
    if own_file && (own_kernel || own_machine) { Proof::Gone } else { Proof::None }
}

/// Removes lock files that are old and free. The new lock file shows what time it is for the file system.
fn sweep(db_file: &DatabaseFile, session: SessionId) {
    let changed_at = |path: &Path| -> io::Result<SystemTime> { fs::metadata(path)?.modified() };
    let Ok(now) = changed_at(&db_file.live.join(format!("{session}{SUFFIX}"))) else { return };
    let Ok(files) = fs::read_dir(&db_file.live) else { return };
    for path in files.flatten().map(|file| file.path()) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let ours = is_lock_name(name) || name.ends_with(".claim");
        let old = changed_at(&path).is_ok_and(|at| now.duration_since(at).is_ok_and(|age| age > KEPT_FOR));
        if ours && old && is_free(&path) {
            let _ = fs::remove_file(&path);
        }
    }
}

fn is_free(path: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::open(path, flags, Mode::empty())
        .is_ok_and(|file| rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "inode 7\nboot b1\nmachine m1\npid 42\n";

    #[test]
    fn a_free_lock_proves_death_only_for_this_file_and_machine() {
        assert_eq!(judge_free(TEXT, 7, "b1", "m1"), Proof::Gone);
        assert_eq!(judge_free(TEXT, 7, "b2", "m1"), Proof::Gone, "an earlier boot of this machine");
        assert_eq!(judge_free(TEXT, 7, "b1", "m2"), Proof::Gone, "another container under the same kernel");
        assert_eq!(judge_free(TEXT, 7, "b2", "m2"), Proof::None, "another machine");
        assert_eq!(judge_free(TEXT, 8, "b1", "m1"), Proof::None, "a copy of the file");
        assert_eq!(judge_free("", 7, "b1", "m1"), Proof::None, "cut short by a full disk or a power cut");
        let nameless = "inode 7\nboot b1\nmachine \npid 42\n";
        assert_eq!(
            judge_free(nameless, 7, "b2", ""),
            Proof::None,
            "machines without a name are not the same one"
        );
        assert_eq!(
            judge_free("inode 7\nboot \nmachine m1\n", 7, "", "m1"),
            Proof::None,
            "no boot id was known"
        );
    }

    #[test]
    fn names_of_locks_are_told_from_other_files() {
        assert!(is_lock_name("00000000000000000000000000000001.lock"));
        for other in ["notify", "open", "file", "00000000000000000000000000000001.claim", "x.lock", ".lock"] {
            assert!(!is_lock_name(other), "{other}");
        }
    }

    #[test]
    fn a_living_session_is_never_found_gone_however_early_one_looks() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let db_file = DatabaseFile::new(&folder.path().join("x.db")).expect("a path");
        db_file.make_live().expect("made");
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let looker = scope.spawn(|| {
                let mut looks = 0u64;
                while !done.load(std::sync::atomic::Ordering::Acquire) {
                    for file in fs::read_dir(&db_file.live).expect("a folder").flatten() {
                        if file.file_name().to_str().is_some_and(is_lock_name) {
                            assert_eq!(probe_file(&file.path()), Proof::None, "{:?}", file.path());
                            looks += 1;
                        }
                    }
                }
                looks
            });
            let claims: Vec<_> = (1..300)
                .map(|number| Claim::take(&db_file, SessionId::from_bits(number)).expect("it is claimed"))
                .collect();
            done.store(true, std::sync::atomic::Ordering::Release);
            assert!(looker.join().expect("no living session was found gone") > 300);
            for (number, claim) in (1..300).zip(claims) {
                claim.release();
                assert_eq!(probe(&db_file, SessionId::from_bits(number)), Proof::Gone);
            }
        });
    }

    #[test]
    fn only_old_and_free_lock_files_are_swept_away() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let db_file = DatabaseFile::new(&folder.path().join("x.db")).expect("a path");
        let old = |number: u128| {
            let claim = Claim::take(&db_file, SessionId::from_bits(number)).expect("it is claimed");
            let path = db_file.live.join(format!("{}.lock", SessionId::from_bits(number)));
            let times = fs::FileTimes::new().set_modified(SystemTime::UNIX_EPOCH);
            fs::File::open(&path).expect("there").set_times(times).expect("set");
            (path, claim)
        };
        let ((dead, first), (alive, second)) = (old(1), old(2));
        first.release();
        let third = Claim::take(&db_file, SessionId::from_bits(3)).expect("it is claimed");
        assert!(!dead.exists() && alive.exists());
        third.release();
        Claim::take(&db_file, SessionId::from_bits(4)).expect("it is claimed").release();
        assert!(db_file.live.join(format!("{}.lock", SessionId::from_bits(3))).exists(), "young files stay");
        second.release();
    }
}
