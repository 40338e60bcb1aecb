use std::fmt;
use std::path::{Path, PathBuf};

/// A password or token. It is never shown: `Debug` and `Display` print stars.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    text: String,
    /// Where it was read, and may be replaced.
    file: Option<PathBuf>,
}

impl Secret {
    /// A secret with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Secret { text: text.into(), file: None }
    }

    /// What a file holds, without the line end that editors leave behind.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, String> {
        // What was given instead of a path may be the secret itself.
        let text = std::fs::read_to_string(path.as_ref())
            .map_err(|e| format!("cannot read the file with the secret: {e}"))?;
        let text = text.trim_end_matches(['\r', '\n']).to_owned();
        Ok(Secret { text, file: Some(path.as_ref().to_owned()) })
    }

    /// The secret as it is by now: what its file holds, if it came from one, so that it can be replaced while we run. A
    /// file that cannot be read leaves it as it was.
    #[must_use]
    pub fn current(&self) -> Secret {
        let read = self.file.as_ref().and_then(|file| Secret::from_file(file).ok());
        read.unwrap_or_else(|| self.clone())
    }

    /// The text itself, for the one place that sends it.
    pub fn reveal(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::Secret;

    #[test]
    fn a_secret_in_a_file_is_the_one_that_is_there_now() {
        let file = std::env::temp_dir().join(format!("leasehold-secret-{}", std::process::id()));
        std::fs::write(&file, "old\n").unwrap();
        let secret = Secret::from_file(&file).unwrap();
        std::fs::write(&file, "new\n").unwrap();
        assert_eq!((secret.reveal(), secret.current().reveal()), ("old", "new"));
        std::fs::remove_file(&file).unwrap();
        assert_eq!(secret.current().reveal(), "old", "what cannot be read leaves it as it was");
        assert_eq!(Secret::new("said").current().reveal(), "said");
    }
}
