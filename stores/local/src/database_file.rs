//! The paths of a store, and which file is at its path now.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use leasehold_store::{StoreError, StoreErrorKind};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

use crate::busy_timeout;
use crate::error::refused;

/// The paths of one store. They are absolute, so that a change of the working directory moves nothing.
#[derive(Clone, Debug)]
pub(crate) struct DatabaseFile {
    /// The database.
    pub(crate) file: Arc<Path>,
    /// The folder beside it, for the notify file and the locks.
    pub(crate) live: Arc<Path>,
}

/// Which file is at a path: equal as long as it was not replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

/// What is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileState {
    /// This file.
    File(Identity),
    /// This file, and it is empty: no database was created in it yet, or it was truncated.
    Empty(Identity),
    /// Nothing.
    Nothing,
}

impl Identity {
    /// The number that the file system gives to the file. The device is left out, as it may change at a boot.
    pub(crate) fn inode(self) -> u64 {
        self.inode
    }
}

impl DatabaseFile {
    /// Resolves a path that a user gave.
    pub(crate) fn new(path: &Path) -> Result<Self, StoreError> {
        let name = path.file_name().ok_or_else(|| refused(format!("{path:?} is not the name of a file")))?;
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let folder = fs::canonicalize(folder).map_err(|e| {
            let message = format!(
                "the directory {} of the store cannot be used ({e}): create it first",
                folder.display()
            );
            match e.kind() {
                // It may be mounted or created in a moment.
                std::io::ErrorKind::NotFound => StoreError::new(StoreErrorKind::Unreachable, message),
                _ => refused(message),
            }
        })?;
        let named = folder.join(name);
        let file = match fs::symlink_metadata(&named) {
            Ok(found) if found.is_symlink() => fs::canonicalize(&named)
                .map_err(|e| refused(format!("{} is a link to a missing file ({e})", named.display())))?,
            _ => named,
        };
        let mut live = file.as_os_str().to_owned();
        live.push("-live");
        Ok(DatabaseFile { file: file.into(), live: PathBuf::from(live).into() })
    }

    /// What is at the database's path now. One system call.
    pub(crate) fn file_state(&self) -> Result<FileState, StoreError> {
        match rustix::fs::stat(&*self.file) {
            Ok(found) => match rustix::fs::FileType::from_raw_mode(found.st_mode) {
                rustix::fs::FileType::RegularFile => {
                    let identity = Identity { device: found.st_dev, inode: found.st_ino };
                    Ok(if found.st_size > 0 { FileState::File(identity) } else { FileState::Empty(identity) })
                }
                rustix::fs::FileType::Directory => {
                    Err(refused(format!("{} is a directory: name a file in it", self.file.display())))
                }
                _ => Err(refused(format!("{} is not a regular file", self.file.display()))),
            },
            Err(Errno::NOENT) => Ok(FileState::Nothing),
            Err(e) => Err(refused(format!("{} is not accessible ({e})", self.file.display()))),
        }
    }

    /// Refuses a network file system: SQLite's shared memory and our locks do not reach over one.
    pub(crate) fn refuse_network(&self) -> Result<(), StoreError> {
        let folder = self.file.parent().unwrap_or(Path::new("/"));
        // A file system that does not say what it is gets the benefit of the doubt.
        let Ok(found) = rustix::fs::statfs(folder) else { return Ok(()) };
        match network_name(found.f_type as u32) {
            None => Ok(()),
            Some(name) => Err(refused(format!(
                "{} is on {name}: the local store needs a disk of this machine, since locks and shared memory do not \
                 work over a network. Use a local directory, or another store.",
                folder.display()
            ))),
        }
    }

    /// Refuses a file that has a second name, or that is mounted here by itself: SQLite's files beside it and our locks are
    /// found by name, so that users of two names would not see each other.
    pub(crate) fn refuse_second_name(&self) -> Result<(), StoreError> {
        let Ok(found) = rustix::fs::stat(&*self.file) else { return Ok(()) };
        let folder = self.file.parent().unwrap_or(Path::new("/"));
        let why = if found.st_nlink > 1 {
            format!("has {} names (hard links)", found.st_nlink)
        } else if mount_of(&self.file).zip(mount_of(folder)).is_some_and(|(file, folder)| file != folder) {
            "is mounted into its directory by itself".to_owned()
        } else {
            return Ok(());
        };
        Err(refused(format!(
            "{} {why}: processes that use it under another name would not be seen from here, and two nodes could hold one shard. \
             Nothing was written. Use one name (a symbolic link is fine), and mount the whole directory.",
            self.file.display()
        )))
    }

    /// Makes the folder beside the file.
    pub(crate) fn make_live(&self) -> Result<(), StoreError> {
        match fs::create_dir(&self.live) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => Err(match e.kind() {
                std::io::ErrorKind::NotFound => refused(format!(
                    "the directory of {} is gone. Nothing was written. Restore it.",
                    self.file.display()
                )),
                _ => refused(format!(
                    "cannot create {} ({e}): this user must be able to write to the directory of the store",
                    self.live.display()
                )),
            }),
            _ => Ok(()),
        }
    }

    /// Lets the users who may use the database use the files beside it, as SQLite does with its own. Best effort:
    /// only the owner can.
    pub(crate) fn share_like_file(&self) {
        let Ok(mode) = fs::metadata(&self.file).map(|file| file.permissions().mode() & 0o666) else { return };
        let wish = |path: &Path, mode: u32| {
            let found = fs::metadata(path).map(|found| found.permissions().mode() & 0o777);
            if found.is_ok_and(|found| found != mode) {
                let _ = fs::set_permissions(path, fs::Permissions::from_mode(mode));
            }
        };
        wish(&self.live, mode | (mode & 0o444) >> 2);
        for name in ["open", "notify", "file"] {
            wish(&self.live.join(name), mode);
        }
    }

    /// Keeps all other processes from opening the store until the guard is dropped.
    pub(crate) fn open_alone(&self) -> Result<Alone, StoreError> {
        let path = self.live.join("open");
        let too_long = || {
            StoreError::new(
                leasehold_store::StoreErrorKind::Busy,
                format!(
                    "another process has been opening {} for too long; was it stopped? Find it with fuser -v '{}'",
                    self.file.display(),
                    path.display()
                ),
            )
        };
        match busy_timeout::until_some(|| lock_standing(&path).transpose()) {
            Some(locked) => locked.map_err(|e| refused(format!("{} cannot be opened ({e})", path.display()))),
            None => Err(too_long()),
        }
    }

    /// A file of SQLite's beside the database: `-wal` or `-shm`.
    pub(crate) fn beside(&self, suffix: &str) -> PathBuf {
        let mut path = self.file.as_os_str().to_owned();
        path.push(suffix);
        path.into()
    }
}

/// Locks the file at this path, unless another process has. The lock of a file that was deleted meanwhile does not count.
fn lock_standing(path: &Path) -> rustix::io::Result<Option<Alone>> {
    let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::from_raw_mode(0o666))?;
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(None);
    }
    let locked = rustix::fs::fstat(&file)?;
    let stands = rustix::fs::stat(path)
        .is_ok_and(|found| (found.st_dev, found.st_ino) == (locked.st_dev, locked.st_ino));
    Ok(stands.then_some(Alone { _locked: file }))
}

/// No other process opens the store while this lives.
#[derive(Debug)]
pub(crate) struct Alone {
    _locked: rustix::fd::OwnedFd,
}

/// Which mount a path is on, if the kernel says so.
fn mount_of(path: &Path) -> Option<u64> {
    let wanted = StatxFlags::MNT_ID;
    let found = rustix::fs::statx(rustix::fs::CWD, path, AtFlags::empty(), wanted).ok()?;
    StatxFlags::from_bits_retain(found.stx_mask).contains(wanted).then_some(found.stx_mnt_id)
}

/// The magic numbers of statfs(2) for file systems that reach over a network or are shared by machines.
fn network_name(magic: u32) -> Option<&'static str> {
    Some(match magic {
        0x6969 => "NFS",
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => "SMB",
        0x0102_1997 => "9p",
        0x00c3_6400 => "CephFS",
        0x0bd0_0bd0 => "Lustre",
        0x4750_4653 => "GPFS",
        0x7461_636f => "OCFS2",
        0x0116_1970 => "GFS2",
        0x5346_414f | 0x6b41_4653 => "AFS",
        0x7375_7245 => "Coda",
        0x564c => "NCP",
        0x0131_11a8 => "IBRIX",
        0x1983_0326 => "BeeGFS",
        0x2003_0528 => "OrangeFS",
        0xaad7_aaea => "PanFS",
        0xbeef_dead => "StorNext",
        0x786f_4256 => "vboxsf, a VirtualBox shared folder",
        0xbacb_acbc => "hgfs, a VMware shared folder",
        0x7c7c_6673 => "prl_fs, a Parallels shared folder",
        // sshfs, GlusterFS, JuiceFS, s3fs and many more. The kernel tells none of them apart from one that is only of this
        // machine, and a virtual machine's virtiofs has the same number.
        0x6573_5546 => "FUSE or virtiofs, which several machines may share",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that waits for a lock file which is deleted with its directory must not bypass the one in the new directory.
    #[test]
    fn a_lock_that_was_deleted_keeps_nobody_out_and_lets_nobody_in() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let db_file = DatabaseFile::new(&folder.path().join("x.db")).expect("a path");
        let alone = |millis| {
            let busy_timeout = busy_timeout::BusyTimeout::of(std::time::Duration::from_millis(millis));
            busy_timeout.during(|| db_file.open_alone())
        };
        db_file.make_live().expect("made");
        let former = alone(0).expect("nobody else");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| alone(20_000));
            assert!(alone(50).is_err(), "it keeps everybody out");
            let fresh = db_file.live.join("fresh");
            let present = lock_standing(&fresh).expect("made").expect("nobody else");
            fs::rename(&fresh, db_file.live.join("open")).expect("replaced");
            drop(former);
            assert!(alone(50).is_err(), "so does the one that stands there now");
            assert!(!waiting.is_finished(), "also the process that waited for the old one");
            drop(present);
            assert!(waiting.join().expect("no panic").is_ok());
        });
    }

    #[test]
    fn mounts_are_told_apart() {
        assert_eq!(mount_of(Path::new("/proc/self")), mount_of(Path::new("/proc")));
        assert_ne!(mount_of(Path::new("/proc")), mount_of(Path::new("/")));
    }

    #[test]
    fn network_file_systems_are_known_and_local_ones_are_not() {
        assert_eq!(network_name(0x6969), Some("NFS"));
        // As in linux/magic.h and in the sources of each.
        let shared = [
            (0x6573_5546, "FUSE"),
            (0x6573_5546, "virtiofs"),
            (0x786f_4256, "vboxsf"),
            (0xbacb_acbc, "hgfs"),
            (0x1983_0326, "BeeGFS"),
        ];
        for (magic, name) in shared {
            assert!(network_name(magic).is_some_and(|told| told.contains(name)), "{name}");
        }
        for local in [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0x2fc1_2fc1] {
            assert_eq!(network_name(local), None, "{local:x}");
        }
    }
}
