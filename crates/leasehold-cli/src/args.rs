//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use leasehold_cli_common::failure::EXIT_CODES;
use leasehold_cli_common::settings::{BeforeCommand, Everywhere, ForLog, ForNodes, span};

mod inspect;
mod operate;
mod shared;

pub(crate) use inspect::{
    Change, Explain, Inspect, InspectNodes, InspectShards, Locate, Namespaces, NodeGoal, ShardState, Status,
    Wait, WhatIf, WhatIfAdd,
};
pub(crate) use operate::{
    Asking, Group, GroupChange, GroupCommand, GroupSet, OperatorCommand, OperatorRequest, Timeout,
    Unquarantine,
};
pub(crate) use shared::{Output, Shared};

/// Spread shards of work over processes; at most one process runs a shard at a time.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version = crate::build::VERSION, long_version = crate::build::LONG_VERSION.as_str())]
#[command(after_help = after_help(), max_term_width = 110)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) before: BeforeCommand,
    #[command(subcommand)]
    pub(crate) command: Command,
}

fn after_help() -> String {
    format!(
        "--store, --namespace, --config, --json and --quiet may also stand before the command.\n\n{EXIT_CODES}"
    )
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Watch three nodes share shards, and break them: try this first
    #[cfg(feature = "prove")]
    Demo(leasehold_prove::Demo),
    /// Run a command for every shard that this node holds
    Run(Run),
    /// Show the nodes, groups and problems of the cluster
    Status(Status),
    /// List the nodes
    Nodes(InspectNodes),
    /// List the shards of one group or of all groups
    Shards(InspectShards),
    /// Explain where a shard runs and why
    Explain(Explain),
    /// Wait until all shards are owned, or until a node is attached, drained or gone
    Wait(Wait),
    /// List the namespaces of the store
    Namespaces(Namespaces),
    /// Show which shards a change would move
    WhatIf(WhatIf),
    /// Show which shard a key belongs to and which node holds it
    Locate(Locate),
    #[command(flatten)]
    Operate(OperatorCommand),
    /// Show or change the group settings that all nodes share
    Group(Group),
    /// Repair a damaged shard record or control record
    Repair(Repair),
    /// List the registered keys
    Keys(Keys),
    /// Register keys with their values until Ctrl-C
    Register(Register),
    /// Check this machine, the store and the settings
    Doctor(ForAll),
    /// Ask the node of `run --listen` whether it is alive or ready, for health checks
    Probe(Probe),
    /// Test the core in thousands of simulated clusters with faults
    #[cfg(feature = "prove")]
    Sim(leasehold_prove::Sim),
    /// Break nodes on a store on purpose and verify the promises
    #[cfg(feature = "prove")]
    Check(leasehold_prove::Check),
    /// Benchmark a store and compare with one lease per shard
    #[cfg(feature = "prove")]
    Bench(leasehold_prove::Bench),
    /// Show and check the settings
    Config(Config),
    /// Print the manual page of a command, or write all of them to a directory
    Man {
        /// The command, for example `group set` [default: the program itself]
        #[arg(value_name = "COMMAND")]
        command: Vec<String>,
        /// Write the pages of all commands to this directory, which is created if it is missing
        #[arg(long, value_name = "DIR", conflicts_with = "command")]
        dir: Option<PathBuf>,
    },
    /// Print a shell completion script
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// `leasehold run`
#[derive(Debug, Args)]
#[command(after_help = RUN_HELP)]
pub(crate) struct Run {
    /// Run one child for all shards and send it its shards as JSON lines (docs/one.md)
    #[arg(long)]
    pub(crate) one: bool,
    #[command(flatten)]
    pub(crate) everywhere: Everywhere,
    #[command(flatten)]
    pub(crate) node: ForNodes,
    /// The command and its arguments; {shard}, {group} and {epoch} are replaced. Groups in the settings file can have
    /// commands of their own
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

const RUN_HELP: &str = "\
Each child has LEASEHOLD_NAMESPACE, LEASEHOLD_GROUP, LEASEHOLD_SHARD, LEASEHOLD_EPOCH and LEASEHOLD_NODE in its \
environment. To stop a child, `run` sends SIGTERM to its process group, then SIGKILL after kill_after or before the \
lease ends, whichever comes first. A child that exits is restarted after a pause that doubles each time, up to a limit; \
--on-failure decides what happens to a shard whose child keeps failing.

SIGTERM or Ctrl-C hands all shards over and leaves the cluster. A second signal, at least 1 s later, kills the children \
at once.

Example:
  leasehold run --store local:./leasehold.db --group orders --shards 8 \\
    -- ./worker --slot {shard} --epoch {epoch}";

/// `leasehold repair`
#[derive(Debug, Args)]
#[group(skip)]
#[command(group(clap::ArgGroup::new("record").required(true).args(["shard", "control"])))]
pub(crate) struct Repair {
    /// The shard, for example orders/3
    pub(crate) shard: Option<String>,
    /// Repair the control record: all drains, weights, pins and freezes are undone
    #[arg(long)]
    pub(crate) control: bool,
    #[command(flatten)]
    pub(crate) shared: Shared,
}

/// `leasehold keys`
#[derive(Debug, Args)]
pub(crate) struct Keys {
    /// Print again after every change
    #[arg(long)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) shared: Shared,
}

/// `leasehold register`
#[derive(Debug, Args)]
#[command(after_help = REGISTER_HELP)]
pub(crate) struct Register {
    /// Keys, each followed by its value
    #[arg(value_name = "KEY VALUE", num_args = 0..)]
    pub(crate) keys: Vec<String>,
    /// File with more keys, which is followed: a line is KEY=VALUE, and a line [ttl 60s] sets the ttl of those after it
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<std::path::PathBuf>,
    /// How long the store keeps the keys after this process went silent; they are renewed three times in that time
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration)]
    pub(crate) ttl: std::time::Duration,
    /// Pauses between tries while the store is away; the last one repeats
    #[arg(long, value_name = "DURATION,…", default_value = "1s,2s,4s,8s", value_parser = crate::operate::pauses)]
    pub(crate) retry: leasehold::Backoff,
    /// Time limit of one call to the store
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    pub(crate) call_timeout: std::time::Duration,
    /// Replace keys that another process has registered
    #[arg(long)]
    pub(crate) overwrite: bool,
    #[command(flatten)]
    pub(crate) everywhere: Everywhere,
    #[command(flatten)]
    pub(crate) log: ForLog,
}

/// `leasehold probe`
#[derive(Debug, Args)]
#[command(after_help = PROBE_HELP)]
pub(crate) struct Probe {
    /// The question
    pub(crate) what: ProbeWhat,
    /// For `ready`: the share of its planned shards that the node must hold, for example 0.9
    #[arg(long, value_name = "FACTOR", value_parser = share)]
    pub(crate) share: Option<f64>,
    /// Address where the node listens [default: the setting `listen`, or 127.0.0.1:9464]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
    /// Time limit for the answer
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = span::parse)]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) everywhere: Everywhere,
}

/// What to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProbeWhat {
    /// Does the node make progress?
    Live,
    /// Is it attached, does the store answer, and does it hold its shards?
    Ready,
}

const PROBE_HELP: &str = "\
Exits with 0 if the answer is yes, and with 6 if it is no or there is none. It asks over loopback or a Unix socket, so a \
container or service needs no open port for its health checks.

Example:
  LEASEHOLD_LISTEN=127.0.0.1:9464 leasehold probe ready";

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "expected a number from 0 to 1, for example 0.9".to_owned())
}

const REGISTER_HELP: &str = "\
All keys with the same ttl share one lease. It is renewed while this process lives, and revoked when the last of its keys \
is unregistered. Keys that leave the file are unregistered; all are at Ctrl-C or SIGTERM.

Example:
  leasehold register services/orders 10.0.0.7:80 services/admin 10.0.0.7:81 --ttl 30s";

fn duration(text: &str) -> Result<std::time::Duration, String> {
    leasehold_cli_common::settings::span::parse(text)
}

/// All settings.
#[derive(Debug, Args)]
pub(crate) struct ForAll {
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) everywhere: Everywhere,
    #[command(flatten)]
    pub(crate) node: ForNodes,
}

/// `leasehold config`
#[derive(Debug, Args)]
pub(crate) struct Config {
    #[command(subcommand)]
    pub(crate) what: ConfigCommand,
}

/// What to do with the settings.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print every setting and where its value comes from
    Show(ForAll),
    /// Check whether the settings are safe
    Check(ForAll),
    /// Show the failover times, tolerated outages and costs
    Explain {
        /// Number of nodes [default: 3]
        #[arg(long)]
        nodes: Option<u64>,
        #[command(flatten)]
        all: ForAll,
    },
    /// Show where settings files are looked for
    Paths(ForAll),
    /// Print the reference page of all settings
    Reference,
    /// Print a settings file with every setting and its default, commented out
    Sample,
}
