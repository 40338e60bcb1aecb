use std::path::PathBuf;

use clap::Args;

use crate::settings::Everywhere;

/// `leasehold check`. Numbers are taken as text, so that all that is wrong with them can be told at once.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct Check {
    /// How many nodes take part [default: 3]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) nodes: Option<String>,
    /// How many shards they share [default: 48; of a scenario 2048]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) shards: Option<String>,
    /// For how long things are broken [default: 60s; of a scenario its own time]
    #[arg(long = "for", value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) run_for: Option<String>,
    /// The nodes' ttl [default: 3s, or the store's own where that is too fast for it; of a scenario 10s]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) ttl: Option<String>,
    /// What is done to them: kill, stop, restart, drain; on servers cut, stall, one-way, delay, reset; on a file lock
    /// [default: all that the store allows]
    #[arg(long, value_name = "FAULT,FAULT")]
    pub(crate) faults: Option<String>,
    /// Decides what is done to whom, and when [default: a new one, which is printed]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) seed: Option<String>,
    /// One exact story instead of chance: cut-off (a node's connections stall for 70s), blip (for 5s) or outage (no node
    /// reaches the store for two ttls)
    #[arg(long, value_name = "NAME")]
    pub(crate) scenario: Option<String>,
    /// Write a report with pictures
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
    /// Write the recorded history, which --history judges again
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Judge recorded histories instead, of any program (docs/check.md); needs no store
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = OF_A_STORE)]
    pub(crate) history: Vec<PathBuf>,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// Workers ignore their lease, to show that this is noticed
    #[arg(long, hide = true)]
    pub(crate) misbehave: bool,
    #[command(flatten)]
    pub(crate) everywhere: Everywhere,
}

/// What means nothing where histories are judged that were recorded elsewhere.
const OF_A_STORE: [&str; 13] = [
    "nodes",
    "shards",
    "run_for",
    "ttl",
    "faults",
    "seed",
    "scenario",
    "report",
    "record",
    "misbehave",
    "config",
    "setting-store",
    "setting-namespace",
];

const HELP: &str = "\
It starts nodes as processes of their own in a namespace of its own (on a local store in a file of its own \
beside the one that is named), breaks them and their connections, heals everything, and judges by when their \
workers ran. What it made in the store is removed afterwards.

Exit code 0: every promise was kept. 6: one was broken. 1, 2, 3: nothing could be judged.

Examples:
  leasehold check --store local:./leasehold.db --for 30s --report check.html
  leasehold check --store etcd://127.0.0.1:2379 --faults stall,kill --seed 7
  leasehold check --history worker-1.jsonl worker-2.jsonl";
