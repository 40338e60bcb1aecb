use std::fmt;

use super::{Failure, Note, Unmet, Verdict};

/// What the suite found. A property that could not be tried counts as skipped, never as passed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The properties that hold, by name, with what they had to say.
    pub passed: Vec<(&'static str, Note)>,
    /// Those that don't.
    pub failed: Vec<(&'static str, Failure)>,
    /// Those that could not be tried, and why.
    pub skipped: Vec<(&'static str, String)>,
}

impl Report {
    /// Whether nothing failed. Look at `skipped` as well.
    pub fn is_good(&self) -> bool {
        self.failed.is_empty()
    }

    /// Panics with the whole report if anything failed, for use in tests.
    #[track_caller]
    pub fn assert_good(&self) {
        assert!(self.is_good(), "the store breaks the contract\n{self}");
    }

    pub(super) fn add(&mut self, name: &'static str, verdict: Verdict) {
        match verdict {
            Ok(note) => self.passed.push((name, note)),
            Err(Unmet::Failed(failure)) => self.failed.push((name, failure)),
            Err(Unmet::Skipped(why)) => self.skipped.push((name, why)),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, note) in &self.passed {
            match note.0.as_str() {
                "" => writeln!(f, "passed   {name}")?,
                note => writeln!(f, "passed   {name} ({note})")?,
            }
        }
        for (name, why) in &self.skipped {
            writeln!(f, "skipped  {name}: {why}")?;
        }
        for (name, failure) in &self.failed {
            writeln!(f, "FAILED   {name}")?;
            writeln!(f, "         expected  {}", failure.expected)?;
            writeln!(f, "         seen      {}", failure.seen)?;
            writeln!(f, "         matters   {}", failure.why)?;
        }
        let counts = (self.passed.len(), self.failed.len(), self.skipped.len());
        write!(f, "{} passed, {} failed, {} skipped", counts.0, counts.1, counts.2)
    }
}
