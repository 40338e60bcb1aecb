use clap::Args;

/// `leasehold sim`. Values are taken as text, so that all that is wrong with them can be told at once.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct Sim {
    /// Run all of these seeds [default: 0..1000]
    #[arg(long, value_name = "A..B", allow_hyphen_values = true)]
    pub(super) seeds: Option<String>,
    /// Run only this seed
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(super) seed: Option<String>,
    /// Print the whole story of that run
    #[arg(long)]
    pub(super) trace: bool,
    /// Of its faults, only those with these numbers, such as 1,4,7, or none
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    pub(super) keep: Option<String>,
    /// How many nodes there are [default: 5]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(super) nodes: Option<String>,
    /// How many shards there are at first [default: 16]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(super) shards: Option<String>,
    /// What the store is shaped like: memory, local, etcd, redis, kubernetes, object, postgres [default: each seed
    /// has its own]
    #[arg(long, value_name = "KIND")]
    pub(super) store_kind: Option<String>,
    /// Which faults strike: all, none, or a list, see below [default: all]
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    pub(super) faults: Option<String>,
    /// For how long faults strike; the time to heal comes after that [default: 120s]
    #[arg(long = "for", value_name = "DURATION", allow_hyphen_values = true)]
    pub(super) faults_for: Option<String>,
    /// How many threads [default: as many as there are cores]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(super) jobs: Option<String>,
    /// Print JSON, for programs
    #[arg(long)]
    pub(super) json: bool,
}

const HELP: &str = "\
A seed decides everything: the same seed is the same run, byte for byte. First faults strike, then all of them end \
and the cluster must heal by itself. What is judged is when work really ran. If a promise is broken, the schedule of \
the first such seed is shrunk to the faults that it takes, and told with the command to see it again; the exit code \
is 6. Ctrl-C begins no more seeds and prints the totals of those that ran; the exit code is then 1, or 6 if one of them \
broke a promise.

Faults are named by kind (crash, pause, cut, slow-store, lost-answers, emptied, ...) or by class (process, network, \
watch, store, loss, operators, records, work, clock), with how many to expect in two minutes if you like. A list that \
begins with - takes away from all.

Examples:
  leasehold sim --seeds 0..20000
  leasehold sim --seed 46 --trace
  leasehold sim --seeds 0..500 --faults crash=3,network --store-kind etcd
  leasehold sim --seeds 0..500 --faults=-loss,-twin";
