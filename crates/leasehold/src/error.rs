//! The few ways in which a call can fail, each with what to do.

use leasehold_core::record::RecordError;
use leasehold_core::store::{Key, StoreError};
use leasehold_core::view::unusable;

/// Why a call to the library failed. None of these ends ownership by itself: grants stay valid until they are lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The settings are unsafe or impossible. Nothing was started.
    #[error("invalid settings; nothing was started:{}", Listed(.0))]
    Config(Vec<String>),
    /// The node has left, or its driver ended: it holds nothing and takes no more commands. Start another one.
    #[error("the node has left and holds nothing: start a new one")]
    Left,
    /// The machine could not provide what is needed (a thread, a timer). Nothing was started.
    #[error("cannot start a thread or timer on this machine; nothing was started: {0}")]
    Machine(String),
    /// The store did not confirm the request. Ownership is not affected; try again, or repair the store.
    #[error("{what} failed and may or may not have taken effect: {error}")]
    Store {
        /// What was tried.
        what: String,
        /// Why it failed.
        #[source]
        error: StoreError,
    },
    /// The store could not be read. Nothing was changed; try again, or repair the store.
    #[error("{what} failed; nothing was changed: {error}")]
    Unread {
        /// What was tried.
        what: String,
        /// Why it failed.
        #[source]
        error: StoreError,
    },
    /// A record that the request needs cannot be read. Nothing was changed; the text says what repairs it.
    #[error("{what} failed; nothing was changed: the record {key} {}", Unreadable(.key, .error))]
    Record {
        /// What was tried.
        what: String,
        /// The record.
        key: Key,
        /// What is wrong with it.
        error: RecordError,
    },
    /// Others kept writing the same record in between. Nothing was changed; try again.
    #[error(
        "{what} failed; nothing was changed: others wrote the same record at the same time ({tries} tries); try again"
    )]
    Contended {
        /// What was tried.
        what: String,
        /// How many times.
        tries: u32,
    },
    /// The store cannot expire keys by itself. Use another store for registered keys.
    #[error("a {0} store does not support registered keys: use another store for them")]
    NoRegistry(&'static str),
    /// The name does not exist, or exists already. Nothing was changed; the text says what to do.
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
        let what = if error.is_newer() { "has a newer format" } else { "is damaged" };
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
        Error::Unknown(format!("unknown {what}: check the name, or wait until the view is ready"))
    }

    pub(crate) fn machine(error: std::io::Error) -> Self {
        Error::Machine(error.to_string())
    }
}
