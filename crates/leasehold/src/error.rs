//! The few ways in which a call can fail, each with what to do.

use leasehold_core::record::RecordError;
use leasehold_core::store::{Key, StoreError};
use leasehold_core::view::unusable;

/// Why a call to the library failed. None of these ends ownership by itself: grants go on until they are lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The settings are unsafe or impossible. Nothing was started.
    #[error("nothing was started, because the settings must be changed:{}", Listed(.0))]
    Config(Vec<String>),
    /// The node has left, or its driver ended: it holds nothing and takes no more wishes. Start another one.
    #[error("the node has left and holds nothing: start another one")]
    Left,
    /// The machine could not give what is needed (a thread, a timer). Nothing was started.
    #[error("nothing was started, because the machine refused: {0}")]
    Machine(String),
    /// The store did not do what was asked. Ownership is untouched; try again, or mend the store.
    #[error("{what} failed, and may or may not have happened: {error}")]
    Store {
        /// What was tried.
        what: String,
        /// Why it failed.
        #[source]
        error: StoreError,
    },
    /// The store did not say what is in it. Nothing was changed; try again, or mend the store.
    #[error("{what} failed, and nothing was changed: {error}")]
    Unread {
        /// What was tried.
        what: String,
        /// Why it failed.
        #[source]
        error: StoreError,
    },
    /// A record that is needed for it cannot be read. Nothing was changed; the text says who mends it.
    #[error("{what} was not done, because the record {key} {}", Unreadable(.key, .error))]
    Record {
        /// What was tried.
        what: String,
        /// The record.
        key: Key,
        /// What is wrong with it.
        error: RecordError,
    },
    /// Others wrote the same record each time in between. Nothing was changed; try again.
    #[error(
        "{what} was not done, because others changed the same record {tries} times in between: try again"
    )]
    Contended {
        /// What was tried.
        what: String,
        /// How often.
        tries: u32,
    },
    /// The store has no expiring keys of its own. Use another store for registered keys.
    #[error("a {0} store cannot keep registered keys alive: register them on another store")]
    NoRegistry(&'static str),
    /// There is nothing of that name, or there is already. Nothing was changed; the text says what to do.
    #[error("{0}")]
    Unknown(String),
}

struct Listed<'a>(&'a [String]);

impl std::fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|problem| write!(f, "\n- {problem}"))
    }
}

struct Unreadable<'a>(&'a Key, &'a RecordError);

impl std::fmt::Display for Unreadable<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Unreadable(key, error) = *self;
        let what = if error.is_newer() { "is of a newer version" } else { "is damaged" };
        write!(f, "{what}: {}", unusable(key, error))
    }
}

impl Error {
    pub(crate) fn store(what: impl Into<String>, error: StoreError) -> Self {
        Error::Store { what: what.into(), error }
    }

    pub(crate) fn unread(what: impl Into<String>, error: StoreError) -> Self {
        Error::Unread { what: what.into(), error }
    }

    pub(crate) fn unknown(what: impl std::fmt::Display) -> Self {
        Error::Unknown(format!("{what} is not known here: check the name, or wait until the view is ready"))
    }

    pub(crate) fn machine(error: std::io::Error) -> Self {
        Error::Machine(error.to_string())
    }
}
