use std::time::Duration;

use leasehold_chaos::rng::Rng;

use super::fault::Fault;
use super::schedule::Step;
use crate::cluster::Kind;

/// A fixed scenario that has broken other systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scenario {
    /// One node's connections to the store stall for many ttls. Others must take over, and nothing may run twice.
    CutOff,
    /// They stall for less than a ttl. Nothing may be lost.
    Blip,
    /// No node reaches the store for longer than the ttl. Afterwards each must take its own share, once.
    Outage,
}

/// How long the cluster is left alone before.
const BEFORE: Duration = Duration::from_secs(3);

impl Scenario {
    pub(super) const ALL: [Scenario; 3] = [Scenario::CutOff, Scenario::Blip, Scenario::Outage];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Scenario::CutOff => "cut-off",
            Scenario::Blip => "blip",
            Scenario::Outage => "outage",
        }
    }

    /// What it does to nodes on that kind of store. A file cannot be cut off, but no node can write to it while another process
    /// holds its lock.
    pub(super) fn fault(self, kind: &Kind) -> Fault {
        match (self, kind) {
            (Scenario::CutOff | Scenario::Blip, _) => Fault::Stall,
            (Scenario::Outage, Kind::File(_)) => Fault::Lock,
            (Scenario::Outage, Kind::Network { .. } | Kind::Via { .. } | Kind::Other(_)) => Fault::Cut,
        }
    }

    /// Its default duration.
    pub(super) fn usual(self, ttl: Duration) -> Duration {
        match self {
            Scenario::CutOff => Duration::from_secs(70),
            Scenario::Blip => Duration::from_secs(5),
            Scenario::Outage => ttl * 2,
        }
    }

    /// How long it takes in total, and its faults for this many nodes.
    pub(super) fn steps(self, fault: Fault, nodes: usize, last: Duration) -> (Duration, Vec<Step>) {
        let until = BEFORE + last;
        let step = |node: usize, flavour: u64| Step { fault, node, from: BEFORE, until, flavour };
        let steps = match (self, fault) {
            (Scenario::CutOff | Scenario::Blip, _) => vec![step(1, 0)],
            (Scenario::Outage, Fault::Lock) => vec![step(nodes, 0)],
            (Scenario::Outage, _) => (0..nodes).map(|node| step(node, resets())).collect(),
        };
        (until, steps)
    }
}

/// The flavour of a cut that resets the connections that exist, as a server does that goes away.
fn resets() -> u64 {
    (0..).find(|flavour| Rng::of(*flavour).roll(2) == 1).unwrap_or(0)
}
