//! The notify file: a small file that is rewritten after each commit, so that the kernel wakes all processes that watch it.
//!
//! It also holds the last revision, which shows when the database was restored from an older copy while no process ran.

use std::fs;

use rustix::fs::{Mode, OFlags};

use crate::database_file::DatabaseFile;

/// What the notify file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotifyFile {
    /// The database that was written.
    pub(crate) id: String,
    /// A revision that was committed in it.
    pub(crate) revision: u64,
}

/// Its name in the live directory.
pub(crate) const NAME: &str = "notify";

impl NotifyFile {
    /// Reads the notify file, if there is a readable one.
    pub(crate) fn read(db_file: &DatabaseFile) -> Option<NotifyFile> {
        let text = fs::read_to_string(db_file.live.join(NAME)).ok()?;
        let (id, revision) = text.lines().next()?.split_once(' ')?;
        Some(NotifyFile { id: id.to_owned(), revision: revision.trim().parse().ok()? })
    }

    /// Rewrites the notify file. Only the speed of others depends on it, so a failure is not an error: they poll a
    /// little later.
    pub(crate) fn rewrite(&self, db_file: &DatabaseFile) {
        let path = db_file.live.join(NAME);
        let open = || {
            // Closing a file that was open for writing is what the watchers notice.
            rustix::fs::open(
                &path,
                OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC,
                Mode::from_raw_mode(0o666),
            )
        };
        let opened = open().or_else(|_| {
            let _ = db_file.make_live();
            open()
        });
        let text = format!("{} {:>20}\n", self.id, self.revision);
        if let Err(error) = opened.and_then(|file| rustix::io::pwrite(&file, text.as_bytes(), 0)) {
            tracing::debug!(path = %path.display(), %error, "cannot write the notify file; other processes poll instead");
        }
    }
}
