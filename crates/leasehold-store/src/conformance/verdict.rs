use std::fmt;

use leasehold_core::store::StoreError;

/// What a property that holds has to say beyond that, such as a measured time. Mostly nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Note(pub String);

/// Why a property was not shown to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unmet {
    /// It does not hold.
    Failed(Failure),
    /// It could not be tried, and why: a lever or a part of the store is not there.
    Skipped(String),
}

/// How a store broke a property.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// What should have happened.
    pub expected: String,
    /// What did.
    pub seen: String,
    /// What goes wrong in a cluster on such a store.
    pub why: String,
}

/// Whether a property holds.
pub type Verdict = Result<Note, Unmet>;

impl Unmet {
    pub(super) fn failed(
        expected: impl Into<String>,
        seen: impl Into<String>,
        why: impl Into<String>,
    ) -> Self {
        Unmet::Failed(Failure { expected: expected.into(), seen: seen.into(), why: why.into() })
    }

    pub(super) fn no_lever(what: &str) -> Self {
        Unmet::Skipped(format!("the fixture cannot {what}"))
    }
}

impl From<StoreError> for Unmet {
    fn from(error: StoreError) -> Self {
        Unmet::failed(
            "the store to answer, since nothing is wrong with it in this test",
            error.to_string(),
            "a node that cannot reach its store detaches",
        )
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}; saw {}. It matters because {}", self.expected, self.seen, self.why)
    }
}

/// Ends the property as failed unless the condition holds: what was expected, what was seen, why it matters.
macro_rules! ensure {
    ($holds:expr, $expected:expr, $seen:expr, $why:expr $(,)?) => {
        if !$holds {
            return Err($crate::conformance::Unmet::failed($expected, $seen, $why));
        }
    };
}
pub(super) use ensure;
