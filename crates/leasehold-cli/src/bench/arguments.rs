use clap::Args;

use crate::settings::Everywhere;

/// `leasehold bench`. Numbers are taken as text, so that all that is wrong with them can be told at once.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct Bench {
    /// How many nodes take part, each a process of its own [default: 3]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) nodes: Option<String>,
    /// How many shards they share [default: 2048]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) shards: Option<String>,
    /// The nodes' ttl [default: the store's own]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) ttl: Option<String>,
    /// For how long what it costs at rest is measured [default: 20s]
    #[arg(long = "rest-for", value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) rest_for: Option<String>,
    /// Measure only the cold start and the cost at rest: no moves, no failover, no write per shard
    #[arg(long)]
    pub(crate) cost_only: bool,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) everywhere: Everywhere,
}

const HELP: &str = "\
It measures how long a cluster takes to own everything, how long a shard stands still in a planned move and \
after kill -9, and what the cluster asks of the store until then and at rest, in calls, writes and bytes. Beside that it really does what others do, one \
write per shard every 10 s, on the same store in the same run. It uses a namespace of its own (on a local store \
a file of its own) and removes what it made. Use a release build.

Examples:
  leasehold bench --store etcd://127.0.0.1:2379
  leasehold bench --store etcd://127.0.0.1:2379 --nodes 10 --shards 10000 --cost-only";
