use std::time::Duration;

use super::fault::Fault;
use super::schedule::Step;

/// One exact story, as it broke other systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scenario {
    /// One node's connections to the store stall for many ttls. Others must take over, and nothing may run twice.
    CutOff,
    /// They stall for less than a ttl. Nothing may be lost.
    Blip,
}

/// How long the cluster is left alone before.
const BEFORE: Duration = Duration::from_secs(3);

impl Scenario {
    pub(super) const ALL: [Scenario; 2] = [Scenario::CutOff, Scenario::Blip];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Scenario::CutOff => "cut-off",
            Scenario::Blip => "blip",
        }
    }

    /// How long it takes in all, and what is done.
    pub(super) fn steps(self, stall_for: Option<Duration>) -> (Duration, Vec<Step>) {
        let usual = match self {
            Scenario::CutOff => Duration::from_secs(70),
            Scenario::Blip => Duration::from_secs(5),
        };
        let until = BEFORE + stall_for.unwrap_or(usual);
        (until, vec![Step { fault: Fault::Stall, node: 1, from: BEFORE, until, flavour: 0 }])
    }
}
