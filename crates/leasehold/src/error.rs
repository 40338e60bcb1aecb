//! The few ways in which a call can fail, each with what to do.

use std::sync::Arc;

use leasehold_core::GroupName;
use leasehold_core::config::{ConfigError, ConfigErrors};
use leasehold_core::name::NameError;
use leasehold_core::record::RecordError;
use leasehold_core::store::{Key, StoreError};
use leasehold_core::view::unusable;

/// Why a call to the library failed. None of these ends ownership by itself: grants stay valid until they are lost.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The settings are unsafe or impossible: all problems at once. Nothing was started or changed.
    #[error("invalid settings; nothing was started or changed:{}", Listed(.0))]
    Config(ConfigErrors),
    /// A name is invalid. Nothing was started or changed.
    #[error("{0}; nothing was started or changed: choose another name")]
    Name(#[from] NameError),
    /// The store could not be opened. Nothing was started or changed.
    #[error("cannot open the store; nothing was started or changed: {0}")]
    Open(#[from] StoreError),
    /// The node has left, or its driver ended: it holds nothing and takes no more commands. Start another one.
    #[error("the node has left and holds nothing: start a new one")]
    Left,
    /// The machine could not provide what is needed (a thread, a timer). Nothing was started.
    #[error("cannot start a thread or timer on this machine; nothing was started: {0}")]
    Machine(#[source] Arc<std::io::Error>),
    /// There is no tokio runtime to run handlers on. Nothing was started.
    #[error(
        "there is no tokio runtime here; nothing was started: call start inside one, or set Builder::runtime"
    )]
    NoRuntime,
    /// The store has not been read yet, or this node has not joined yet, so the view says nothing. Wait, for example with
    /// `attached` or `until`.
    #[error(
        "the store has not been read yet; nothing was changed: wait until the view is ready, then try again"
    )]
    NotReady,
    /// No node serves this group, and the store has no settings of it. Nothing was changed.
    #[error("unknown group {0:?}; nothing was changed: check the name")]
    UnknownGroup(String),
    /// The group has no such shard. Nothing was changed.
    #[error("unknown shard {0:?}; nothing was changed: check the name")]
    UnknownShard(String),
    /// This node does not serve the group. Nothing was changed.
    #[error(
        "this node does not serve the group {0}; nothing was changed: add the group to the builder, or call serve first"
    )]
    NotServed(GroupName),
    /// Only shards of named groups can be engaged and disengaged. Nothing was changed.
    #[error(
        "the group {group} has numbered slots (0 to {}), which cannot be engaged or disengaged; nothing was changed: \
         use a named group",
        .slots.saturating_sub(1)
    )]
    Numbered {
        /// The group.
        group: GroupName,
        /// How many slots it has.
        slots: u32,
    },
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
        #[source]
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
    /// The question or request names something that does not exist, or is empty. Nothing was changed; the text says
    /// what to do.
    #[error("{0}")]
    Invalid(String),
}

struct Listed<'a>(&'a ConfigErrors);

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

    pub(crate) fn machine(error: std::io::Error) -> Self {
        Error::Machine(Arc::new(error))
    }

    /// One invalid setting.
    pub(crate) fn setting(
        setting: impl Into<String>,
        message: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        ConfigError::new("library", setting, message, advice).into()
    }
}

impl From<ConfigErrors> for Error {
    fn from(errors: ConfigErrors) -> Self {
        Error::Config(errors)
    }
}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        std::io::Error::other(error)
    }
}

impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Self {
        Error::Config(error.into())
    }
}
