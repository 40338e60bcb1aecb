use std::io;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

/// Holds the write lock of an SQLite file, as a careless shell session would, until it is dropped.
#[derive(Debug)]
pub(super) struct Lock {
    end: mpsc::Sender<()>,
}

impl Lock {
    /// Takes the lock as soon as it is free.
    pub(super) fn hold(file: &Path) -> io::Result<Lock> {
        let (end, ended) = mpsc::channel();
        let file = file.to_owned();
        std::thread::Builder::new().name("lh-lock".to_owned()).spawn(move || {
            let Ok(database) = rusqlite::Connection::open(file) else { return };
            let _ = database.busy_timeout(Duration::from_secs(5));
            if database.execute_batch("BEGIN IMMEDIATE").is_ok() {
                // Nothing is ever sent: this ends when the sender is dropped.
                let _ = ended.recv();
                let _ = database.execute_batch("ROLLBACK");
            }
        })?;
        Ok(Lock { end })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.end.send(());
    }
}
