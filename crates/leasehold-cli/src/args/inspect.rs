//! The commands that inspect a cluster.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use leasehold_core::view::{NodePhase, ShardPhase};

use super::operate::duration;
use super::shared::Shared;

/// A command that only reads.
#[derive(Debug, Args)]
pub(crate) struct Inspect {
    /// Print again every second, with the time, until Ctrl-C; with --json after every change
    #[arg(long, conflicts_with = "quiet")]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) shared: Shared,
}

const CHECK_HELP: &str = "\
With --check the exit code says whether an operator is needed:
  0  no problem; at most --max-unowned shards are unowned; every live node has renewed within --max-age
  3  the store is unreachable
  4  the namespace does not exist
  6  an operator is needed: there is a problem, a limit is exceeded, or no node is live";

/// `leasehold status`
#[derive(Debug, Args)]
#[command(after_help = CHECK_HELP)]
pub(crate) struct Status {
    /// Exit with code 6 if something needs an operator
    #[arg(long, conflicts_with = "watch")]
    pub(crate) check: bool,
    /// With --check, allow so many shards without an owner
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 0,
        requires = "check",
        allow_negative_numbers = true
    )]
    pub(crate) max_unowned: usize,
    /// With --check, allow nodes to be silent for so long [default: two missed renewals]
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "check")]
    pub(crate) max_age: Option<Duration>,
    #[command(flatten)]
    pub(crate) inspect: Inspect,
}

/// `leasehold nodes`
#[derive(Debug, Args)]
pub(crate) struct InspectNodes {
    /// Only nodes in this state: active, not-accepting, draining, drained, silent, left, fenced or gone
    #[arg(long, value_name = "STATE", value_parser = node_phase)]
    pub(crate) state: Option<NodePhase>,
    #[command(flatten)]
    pub(crate) inspect: Inspect,
}

/// `leasehold shards`
#[derive(Debug, Args)]
pub(crate) struct InspectShards {
    /// Only the shards of this group
    #[arg(value_name = "GROUP")]
    pub(crate) group: Option<String>,
    /// Only the shards of this group
    #[arg(long = "group", value_name = "GROUP", conflicts_with = "group")]
    pub(crate) group_flag: Option<String>,
    /// Only the shards that this node holds
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
    /// Only shards in this state: unowned, held, at-risk, stuck, quarantined, done, retired or corrupt
    #[arg(long, value_name = "STATE", value_parser = shard_state)]
    pub(crate) state: Option<ShardState>,
    #[command(flatten)]
    pub(crate) inspect: Inspect,
}

/// A state of shards to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShardState {
    /// As it says.
    Phase(ShardPhase),
    /// Held by a node that is silent.
    AtRisk,
}

/// A state by the word that people type.
fn named<T: Copy>(text: &str, all: &[(&str, T)]) -> Result<T, String> {
    let words: Vec<&str> = all.iter().map(|(word, _)| *word).collect();
    let found = all.iter().find(|(word, _)| *word == text.replace([' ', '_'], "-"));
    found.map(|(_, state)| *state).ok_or_else(|| format!("use one of: {}", words.join(", ")))
}

fn node_phase(text: &str) -> Result<NodePhase, String> {
    use NodePhase::{Active, Drained, Draining, Fenced, Gone, Left, NotAccepting, Silent};
    let all = [
        ("active", Active),
        ("not-accepting", NotAccepting),
        ("draining", Draining),
        ("drained", Drained),
        ("silent", Silent),
        ("left", Left),
        ("fenced", Fenced),
        ("gone", Gone),
    ];
    named(text, &all)
}

fn shard_state(text: &str) -> Result<ShardState, String> {
    use ShardState::{AtRisk, Phase};
    let all = [
        ("unowned", Phase(ShardPhase::Unowned)),
        ("held", Phase(ShardPhase::Held)),
        ("at-risk", AtRisk),
        ("stuck", Phase(ShardPhase::Stuck)),
        ("quarantined", Phase(ShardPhase::Quarantined)),
        ("done", Phase(ShardPhase::Done)),
        ("retired", Phase(ShardPhase::Retired)),
        ("corrupt", Phase(ShardPhase::Corrupt)),
    ];
    named(text, &all)
}

const WAIT_HELP: &str = "\
The command also waits for a store or a namespace that is not there yet. It exits with code 0 once the condition is met, and \
with code 8 if it is not met in time.

Examples:
  leasehold wait --owned --timeout 2m
  leasehold wait --node worker-1 drained";

/// `leasehold wait`
#[derive(Debug, Args)]
#[command(after_help = WAIT_HELP)]
#[command(group(clap::ArgGroup::new("condition").required(true).args(["owned", "node"])))]
pub(crate) struct Wait {
    /// Wait until every shard is held by a node that renews
    #[arg(long)]
    pub(crate) owned: bool,
    /// With --owned, look only at the shards of this group
    #[arg(long, value_name = "GROUP", conflicts_with = "node")]
    pub(crate) group: Option<String>,
    /// Wait until a node is attached, drained or gone
    #[arg(long, num_args = 2, value_names = ["NAME", "STATE"])]
    pub(crate) node: Vec<String>,
    /// Give up after this time
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) shared: Shared,
}

/// What to wait for in a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NodeGoal {
    /// It has a session, and was seen to renew it.
    Attached,
    /// It holds nothing and takes nothing.
    Drained,
    /// Its session is over.
    Gone,
}

impl std::fmt::Display for NodeGoal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            NodeGoal::Attached => "attached",
            NodeGoal::Drained => "drained",
            NodeGoal::Gone => "gone",
        })
    }
}

/// `leasehold namespaces`
#[derive(Debug, Args)]
pub(crate) struct Namespaces {
    #[command(flatten)]
    pub(crate) shared: Shared,
}

/// `leasehold explain`
#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// The shard, for example orders/3
    pub(crate) shard: String,
    #[command(flatten)]
    pub(crate) shared: Shared,
}

/// `leasehold what-if`
#[derive(Debug, Args)]
pub(crate) struct WhatIf {
    #[command(subcommand)]
    pub(crate) change: Change,
}

/// A change to try out.
#[derive(Debug, Subcommand)]
pub(crate) enum Change {
    /// Remove a node
    Down(WhatIfNode),
    /// Drain a node
    Drain(WhatIfNode),
    /// Add a node
    Add(WhatIfAdd),
    /// Change the weight of a node
    Weight(WhatIfWeight),
}

#[derive(Debug, Args)]
pub(crate) struct WhatIfNode {
    /// The node's name
    pub(crate) node: String,
    #[command(flatten)]
    pub(crate) shared: Shared,
}

#[derive(Debug, Args)]
pub(crate) struct WhatIfAdd {
    #[command(flatten)]
    pub(crate) node: WhatIfNode,
    /// The weight of the node
    #[arg(long, default_value_t = 100, allow_negative_numbers = true)]
    pub(crate) weight: u32,
    /// The capacity of the node
    #[arg(long, allow_negative_numbers = true)]
    pub(crate) capacity: Option<u32>,
    /// The zone of the node
    #[arg(long)]
    pub(crate) zone: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct WhatIfWeight {
    /// The node's name
    pub(crate) node: String,
    /// The weight
    #[arg(allow_negative_numbers = true)]
    pub(crate) weight: u32,
    #[command(flatten)]
    pub(crate) shared: Shared,
}

/// `leasehold locate`
#[derive(Debug, Args)]
pub(crate) struct Locate {
    /// The key that the group is split by, for example a customer id; GROUP/KEY if GROUP is a group and --group is not given
    pub(crate) key: String,
    /// The group; the whole KEY is then the key
    #[arg(long)]
    pub(crate) group: Option<String>,
    #[command(flatten)]
    pub(crate) shared: Shared,
}
