use clap::Args;

/// `leasehold sim`. Values are taken as text, so that all problems are reported together.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Sim {
    /// Range of seeds to run [default: 0..1000]
    #[arg(long, value_name = "A..B", allow_hyphen_values = true)]
    pub(super) seeds: Option<String>,
    /// Run a single seed
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(super) seed: Option<String>,
    /// Print every event of that run
    #[arg(long)]
    pub(super) trace: bool,
    /// Inject only the faults with these numbers, for example 1,4,7 or none
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    pub(super) keep: Option<String>,
    /// Number of nodes [default: 5]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(super) nodes: Option<String>,
    /// Number of shards at the start [default: 16]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(super) shards: Option<String>,
    /// Store to simulate: memory, local, etcd, redis, kubernetes, object, postgres [default: chosen by the
    /// seed]
    #[arg(long, value_name = "KIND")]
    pub(super) store_kind: Option<String>,
    /// Faults to inject: all, none, or a list (see below) [default: all]
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    pub(super) faults: Option<String>,
    /// How long to inject faults; the time to recover comes after that [default: 120s]
    #[arg(long = "for", value_name = "DURATION", allow_hyphen_values = true)]
    pub(super) faults_for: Option<String>,
    /// Number of threads [default: number of cores]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(super) jobs: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

const HELP: &str = "\
A seed determines the whole run: the same seed always gives the same run, byte for byte. Faults are injected first; \
then all faults end, and the cluster must recover by itself. The promises are judged by when work ran. If a seed breaks \
a promise, its fault schedule is reduced to the faults that are needed, and printed with the command that reproduces \
the run; the exit code is 6. Ctrl-C starts no more seeds and prints the totals; the exit code is then 1, or 6 if a \
promise was broken.

Name faults by kind (crash, pause, cut, slow-store, lost-answers, emptied, ...) or by class (process, network, watch, \
store, loss, operators, records, work, clock). Append =N to expect N of them in two minutes. Prefix a name with - to \
exclude it from all faults.

Examples:
  leasehold sim --seeds 0..20000
  leasehold sim --seed 46 --trace
  leasehold sim --seeds 0..500 --faults crash=3,network --store-kind etcd
  leasehold sim --seeds 0..500 --faults=-loss,-twin";
