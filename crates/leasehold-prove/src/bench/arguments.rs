use clap::Args;
use leasehold_cli_common::settings::Everywhere;

/// `leasehold bench`. Numbers are taken as text, so that all problems are reported together.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Bench {
    /// Number of nodes, each a separate process [default: 3]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) nodes: Option<String>,
    /// Number of shards [default: 2048]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) shards: Option<String>,
    /// ttl of the nodes [default: the default of the store]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) ttl: Option<String>,
    /// How long to measure the cost at rest [default: 20s]
    #[arg(long = "rest-for", value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) rest_for: Option<String>,
    /// Measure only the cold start and the cost at rest
    #[arg(long)]
    pub(crate) cost_only: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) everywhere: Everywhere,
}

const HELP: &str = "\
`bench` measures the time until a new cluster owns all shards, how long a shard is interrupted by a planned move and \
by kill -9, and the load on the store during the start and at rest, in calls, writes and bytes. For comparison it then \
performs one write per shard every 10 s on the same store, as a lease per shard would. It uses a temporary namespace \
(on a local store, a temporary file) and deletes it afterwards. Use a release build.

Examples:
  leasehold bench --store etcd://127.0.0.1:2379
  leasehold bench --store etcd://127.0.0.1:2379 --nodes 10 --shards 10000 --cost-only";
