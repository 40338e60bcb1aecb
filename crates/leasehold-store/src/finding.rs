/// A result of a check of a store's configuration, for people: `leasehold doctor` prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How bad it is.
    pub grade: Grade,
    /// What was seen, with its numbers.
    pub what: String,
    /// What to do about it; empty if nothing.
    pub advice: String,
}

/// How bad a [`Finding`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// Correct, or good to know.
    Good,
    /// It works, but will cause problems later.
    Doubtful,
    /// The store must not be used like this.
    Bad,
}

impl Finding {
    /// Something that is correct.
    pub fn good(what: impl Into<String>) -> Self {
        Finding { grade: Grade::Good, what: what.into(), advice: String::new() }
    }

    /// Something that will cause problems later, and what to do about it.
    pub fn doubtful(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Finding { grade: Grade::Doubtful, what: what.into(), advice: advice.into() }
    }

    /// Something that must be changed, and how.
    pub fn bad(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Finding { grade: Grade::Bad, what: what.into(), advice: advice.into() }
    }
}
