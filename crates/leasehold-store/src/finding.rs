/// What an examination of a store's set-up found, for people: `leasehold doctor` prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// As it should be, or good to know.
    Good,
    /// It works, but something will hurt one day.
    Doubtful,
    /// It must not be used like this.
    Bad,
}

impl Finding {
    /// Something that is as it should be.
    pub fn good(what: impl Into<String>) -> Self {
        Finding { grade: Grade::Good, what: what.into(), advice: String::new() }
    }

    /// Something that will hurt one day, and what to do about it.
    pub fn doubtful(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Finding { grade: Grade::Doubtful, what: what.into(), advice: advice.into() }
    }

    /// Something that must not stay, and what to do about it.
    pub fn bad(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Finding { grade: Grade::Bad, what: what.into(), advice: advice.into() }
    }
}
