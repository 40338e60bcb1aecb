//! The options of a run.

use std::fmt;
use std::time::Duration;

use crate::faults::{Fault, Profile};
use crate::sabotage::Sabotage;
use crate::store::shape::StoreKind;
use crate::world::clock::Instant;

/// The options of a run. The seed decides everything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How many nodes there are.
    pub nodes: usize,
    /// How many shards the group has at first.
    pub shards: u32,
    /// Which kind of store is simulated; `None` lets the seed choose.
    pub store: Option<StoreKind>,
    /// Which faults may strike.
    pub faults: Profile,
    /// For how long faults may strike. The healing phase comes after that.
    pub faults_for: Duration,
    /// These faults, at these instants, instead of those that the seed would draw.
    pub script: Option<Vec<(Instant, Fault)>>,
    /// Of the schedule, only the faults with these numbers; `None` is all of them.
    pub keep: Option<Vec<usize>>,
    /// What the runs are drawn without.
    pub without: Vec<Circumstance>,
    /// The safety rule that is switched off.
    pub sabotage: Option<Sabotage>,
    /// Whether the run is traced.
    pub tracing: Tracing,
}

/// Something that is no fault, that the seed draws for a run or for the work in it, and that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Circumstance {
    /// Listings and reads of several keys that are not of one instant.
    ReadsApart,
    /// Different ttls, with and without `ttl_max`.
    MixedTtls,
    /// Work with parts that its grant owns.
    OwnedParts,
    /// Parts of work that go on for a while when it is killed.
    Outlasting,
    /// User code that runs between waking up and the first look of its driver.
    FirstOnWaking,
    /// A policy with zones.
    Zones,
}

/// Whether a run is traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracing {
    /// No: faster.
    Off,
    /// Yes.
    On,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            nodes: 5,
            shards: 16,
            store: None,
            faults: Profile::all(),
            faults_for: Duration::from_secs(120),
            script: None,
            keep: None,
            without: Vec::new(),
            sabotage: None,
            tracing: Tracing::Off,
        }
    }
}

/// An invalid option, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionError {
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub advice: String,
}

impl OptionError {
    pub(crate) fn new(what: impl Into<String>, advice: impl Into<String>) -> Self {
        OptionError { what: what.into(), advice: advice.into() }
    }
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.advice)
    }
}

/// Words in quotes, one after the other.
pub(crate) fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(", ")
}

/// Reads the numbers of faults to keep, such as `1,4,7`, or `none`.
pub fn parse_keep(text: &str) -> Result<Vec<usize>, OptionError> {
    if text == "none" {
        return Ok(Vec::new());
    }
    let words: Vec<&str> = text.split(',').map(str::trim).collect();
    let wrong: Vec<&str> = words.iter().copied().filter(|word| word.parse::<usize>().is_err()).collect();
    if wrong.is_empty() {
        return Ok(words.iter().filter_map(|word| word.parse().ok()).collect());
    }
    let what = format!("invalid fault numbers {}", quoted(&wrong));
    Err(OptionError::new(what, "use numbers from the schedule, for example 1,4,7, or none"))
}

impl Options {
    /// Whether the faults to keep are in the schedule of that seed.
    pub fn check_keep(&self, seed: u64) -> Result<(), OptionError> {
        let whole = Options { keep: None, ..self.clone() };
        let count = crate::schedule(&whole, seed).len();
        let beyond: Vec<String> =
            self.keep.iter().flatten().filter(|number| **number >= count).map(usize::to_string).collect();
        if beyond.is_empty() {
            return Ok(());
        }
        let numbered = match count {
            0 => "the schedule is empty".to_owned(),
            _ => format!("use numbers from 0 to {}", count - 1),
        };
        let what = format!("the schedule of seed {seed} has no fault {}", beyond.join(", "));
        Err(OptionError::new(what, numbered))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_to_keep_are_those_of_the_schedule() {
        assert_eq!(parse_keep("none"), Ok(Vec::new()));
        assert_eq!(parse_keep("1, 4,7"), Ok(vec![1, 4, 7]));
        for wrong in ["", ",", "a", "-1", "1,,2", "1.5"] {
            assert!(parse_keep(wrong).is_err(), "{wrong:?}");
        }
        assert!(parse_keep("a,1,b").unwrap_err().what.contains("\"a\", \"b\""));
        let keeping = |keep| Options { keep: Some(keep), ..Options::default() };
        let count = crate::schedule(&Options::default(), 3).len();
        assert_eq!(keeping(vec![0, count - 1]).check_keep(3), Ok(()));
        assert!(keeping(vec![0, count]).check_keep(3).unwrap_err().what.contains(&count.to_string()));
    }
}
