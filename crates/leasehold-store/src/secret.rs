use std::fmt;
use std::path::Path;

/// A password or token. It is never shown: `Debug` and `Display` print stars.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps this text to itself.
    pub fn new(text: impl Into<String>) -> Self {
        Secret(text.into())
    }

    /// What a file holds, without the line end that editors leave behind.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, String> {
        // What was given instead of a path may be the secret itself.
        let text = std::fs::read_to_string(path.as_ref())
            .map_err(|e| format!("the file that should hold the secret cannot be read: {e}"))?;
        Ok(Secret(text.trim_end_matches(['\r', '\n']).to_owned()))
    }

    /// The text itself, for the one place that sends it.
    pub fn reveal(&self) -> &str {
        &self.0
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
