//! Files that are written at the end, and are checked to be writable before anything starts.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};

use leasehold_cli_common::failure::{Code, Failure};

/// A file that will be written. If it was not there before and never is written, it goes away again.
#[derive(Debug)]
pub(super) struct Written {
    path: PathBuf,
    ours: bool,
}

impl Written {
    /// Makes sure that the file can be written. What is in it stays until then.
    pub(super) fn prepare(path: &Path) -> Result<Written, Failure> {
        let ours = match OpenOptions::new().write(true).create_new(true).open(path) {
            Ok(_) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                OpenOptions::new().write(true).open(path).map_err(|error| refused(path, &error))?;
                false
            }
            Err(error) => return Err(refused(path, &error)),
        };
        Ok(Written { path: path.to_owned(), ours })
    }

    /// Writes it; what went wrong is told in words, because by then there is a verdict to tell as well.
    pub(super) fn write(mut self, text: &str) -> Result<(), String> {
        self.ours = false;
        std::fs::write(&self.path, text)
            .map_err(|error| format!("cannot write {}: {error}", self.path.display()))
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        if self.ours {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn refused(path: &Path, error: &io::Error) -> Failure {
    let message = format!("cannot write {}: {error}; nothing was started", path.display());
    Failure::new(Code::Usage, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_of_a_file_that_was_not_written_and_nothing_is_lost_of_one_that_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let (new, old) = (folder.path().join("new"), folder.path().join("old"));
        std::fs::write(&old, "before").unwrap();
        drop([Written::prepare(&new).unwrap(), Written::prepare(&old).unwrap()]);
        assert!(!new.exists());
        assert_eq!(std::fs::read_to_string(&old).unwrap(), "before");
        for path in [&new, &old] {
            Written::prepare(path).unwrap().write("after").unwrap();
            assert_eq!(std::fs::read_to_string(path).unwrap(), "after");
        }
    }

    #[test]
    fn a_file_that_cannot_be_written_any_more_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sub").join("file");
        assert!(Written::prepare(&path).is_err());
        std::fs::create_dir(folder.path().join("sub")).unwrap();
        let written = Written::prepare(&path).unwrap();
        std::fs::remove_dir_all(folder.path().join("sub")).unwrap();
        assert!(written.write("x").unwrap_err().contains("cannot write"));
    }
}
