//! The command line.

use std::ffi::OsString;

use clap::{Args, Parser, Subcommand};

use crate::failure::EXIT_CODES;
use crate::settings::{Everywhere, ForNodes};

/// Every shard of your work run by exactly one live process, and stopped before its lease can be lost.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version = crate::build::VERSION, long_version = crate::build::LONG_VERSION)]
#[command(after_help = EXIT_CODES, max_term_width = 110, infer_subcommands = false)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command for every shard that this node holds
    Run(Run),
}

/// `leasehold run`
#[derive(Debug, Args)]
#[command(after_help = RUN_HELP)]
pub(crate) struct Run {
    /// One child for all shards, told what it owns by lines of JSON (docs/one.md)
    #[arg(long)]
    pub(crate) one: bool,
    #[command(flatten)]
    pub(crate) everywhere: Everywhere,
    #[command(flatten)]
    pub(crate) node: ForNodes,
    /// The command and its arguments; {shard}, {group} and {epoch} are replaced
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

const RUN_HELP: &str = "\
Each child finds LEASEHOLD_NAMESPACE, LEASEHOLD_GROUP, LEASEHOLD_SHARD, LEASEHOLD_EPOCH and LEASEHOLD_NODE in its
environment. To stop it gets SIGTERM (with its process group), and SIGKILL after kill_after or before its lease ends.
A child that ends is started again with a growing pause; one that keeps failing is quarantined.
SIGTERM or Ctrl-C hands everything over and leaves; a second one hurries.

Example:
  leasehold run --store local:./leasehold.db --group orders --shards 8 -- ./worker --slot {shard} --epoch {epoch}";
