//! What a run is asked to be.

use std::time::Duration;

use crate::clock::Instant;
use crate::faults::Fault;
use crate::profile::Profile;
use crate::sabotage::Sabotage;
use crate::shape::StoreKind;

/// What a run is asked to be. The seed decides everything that is not said here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How many nodes there are.
    pub nodes: usize,
    /// How many shards the group has at first.
    pub shards: u32,
    /// What the store is shaped like; `None` lets the seed choose.
    pub store: Option<StoreKind>,
    /// Which faults may strike.
    pub faults: Profile,
    /// For how long faults may strike. The healing phase comes after that.
    pub faults_for: Duration,
    /// These faults, at these instants, instead of those that the seed would draw.
    pub script: Option<Vec<(Instant, Fault)>>,
    /// Of the schedule, only the faults with these numbers; `None` is all of them.
    pub keep: Option<Vec<usize>>,
    /// The rule that is switched off.
    pub sabotage: Option<Sabotage>,
    /// Whether the story of the run is written down.
    pub tracing: Tracing,
}

/// Whether the story of a run is written down.
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
            sabotage: None,
            tracing: Tracing::Off,
        }
    }
}

/// Reads the numbers of faults to keep, such as `1,4,7`, or `none`.
pub fn parse_keep(text: &str) -> Result<Vec<usize>, String> {
    if text == "none" {
        return Ok(Vec::new());
    }
    let number = |word: &str| {
        word.trim().parse().map_err(|_| {
            format!("{word:?} is no number of a fault; the schedule of a run numbers them, such as 1,4,7")
        })
    };
    text.split(',').map(number).collect()
}
