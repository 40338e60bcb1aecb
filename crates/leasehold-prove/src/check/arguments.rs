use std::path::PathBuf;

use clap::Args;
use leasehold_cli_common::settings::Everywhere;

/// `leasehold check`. Numbers are taken as text, so that all problems are reported together.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Check {
    /// Number of nodes [default: 3]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) nodes: Option<String>,
    /// Number of shards [default: 48; scenarios 2048]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) shards: Option<String>,
    /// How long to inject faults [default: 60s; scenarios have their own]
    #[arg(long = "for", value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) run_for: Option<String>,
    /// ttl of the nodes [default: 3s, or the default of the store if it needs longer; scenarios 10s]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) ttl: Option<String>,
    /// Faults to inject: kill, stop, restart, drain; for servers also cut, stall, one-way, delay, reset; for files
    /// also lock [default: all that the store supports]
    #[arg(long, value_name = "FAULT,FAULT")]
    pub(crate) faults: Option<String>,
    /// Seed of the fault schedule [default: a random one, which is printed]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) seed: Option<String>,
    /// Run a fixed scenario instead: cut-off (the connections of a node stall for 70 s), blip (for 5 s) or outage
    /// (no node reaches the store for two ttls)
    #[arg(long, value_name = "NAME")]
    pub(crate) scenario: Option<String>,
    /// Write an HTML report with charts
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
    /// Write the recorded history, which --history can judge again
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Judge recorded histories of any program instead (docs/check.md); needs no store
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = OF_A_STORE)]
    pub(crate) history: Vec<PathBuf>,
    /// Print JSON
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
`check` starts nodes as separate processes in a temporary namespace (on a local store, in a temporary file next to \
the given one). It injects faults into the nodes and their connections, ends all faults, and judges by when the workers \
ran. Afterwards it deletes its data from the store.

Exit code 0: all promises were kept. 6: a promise was broken. 1, 2, 3: the check could not be completed.

Examples:
  leasehold check --store local:./leasehold.db --for 30s --report check.html
  leasehold check --store etcd://127.0.0.1:2379 --faults stall,kill --seed 7
  leasehold check --history worker-1.jsonl worker-2.jsonl";
