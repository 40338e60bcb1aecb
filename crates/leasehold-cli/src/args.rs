//! The command line.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::failure::EXIT_CODES;
use crate::settings::{Everywhere, ForNodes, span};

/// Every shard of your work run by exactly one live process, and stopped before its lease can be lost.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version = crate::build::VERSION, long_version = crate::build::LONG_VERSION.as_str())]
#[command(after_help = EXIT_CODES, max_term_width = 110)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// See three nodes share shards, and break them: the first thing to try
    Demo(Demo),
    /// Run a command for every shard that this node holds
    Run(Run),
    /// Show the whole cluster at a glance
    Status(Look),
    /// Show the nodes
    Nodes(Look),
    /// Show the shards, of one group or of all
    Shards(LookGroup),
    /// Say why a shard is where it is
    Explain(Explain),
    /// Say what would move if something changed
    WhatIf(WhatIf),
    /// Say which shard a key belongs to, and who has it
    Locate(Locate),
    #[command(flatten)]
    Wish(Wished),
    /// Show or change the settings of groups that all nodes share
    Group(Group),
    /// Mend the damaged record of a shard, or of what operators asked for, safely
    Repair(Repair),
    /// Show the registered keys
    Keys(Keys),
    /// Keep a key and its value registered until Ctrl-C
    Register(Register),
    /// Check this machine, a store and the settings, and say what to change
    Doctor(ForAll),
    /// Prove the core: thousands of simulated clusters under faults, judged by when work ran
    Sim(crate::sim::Sim),
    /// Break nodes on a store of yours on purpose, and judge whether every promise was kept
    Check(crate::check::Check),
    /// Measure a store of yours, beside what a write per shard would cost on it
    Bench(crate::bench::Bench),
    /// Show and judge the settings
    Config(Config),
    /// Print a completion script for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

/// Every wish is a command of its own.
#[derive(Debug, Subcommand)]
pub(crate) enum Wished {
    /// Ask a node to hand everything over and to take nothing
    Drain(With<Drain>),
    /// Ask a node to take shards again
    Undrain(With<OneNode>),
    /// Give a node another weight, or its own again
    Weight(With<Weigh>),
    /// Keep a shard on a certain node while that node is there
    Pin(With<Pin>),
    /// Let a shard go where the plan wants it
    Unpin(With<NamedShard>),
    /// Forbid voluntary moves
    Freeze(With<Note>),
    /// Allow voluntary moves again
    Unfreeze(With<Nothing>),
    /// Ask the holder of a shard to give it up once
    Release(With<NamedShard>),
    /// Let a shard run again whose work kept crashing
    Unquarantine(With<NamedShard>),
}

/// What an operator asks for.
#[derive(Debug)]
pub(crate) enum Wish {
    Drain { node: String, note: String },
    Undrain { node: String },
    Weight { node: String, weight: Weight },
    Pin { shard: String, node: String },
    Unpin { shard: String },
    Freeze { note: String },
    Unfreeze,
    Release { shard: String },
    Unquarantine { shard: String },
}

impl Wished {
    /// The wish, and where it goes.
    pub(crate) fn into_wish(self) -> (Everywhere, Wish) {
        match self {
            Wished::Drain(With { what, everywhere }) => {
                (everywhere, Wish::Drain { node: what.node, note: what.note })
            }
            Wished::Undrain(With { what, everywhere }) => (everywhere, Wish::Undrain { node: what.node }),
            Wished::Weight(With { what, everywhere }) => {
                (everywhere, Wish::Weight { node: what.node, weight: what.weight })
            }
            Wished::Pin(With { what, everywhere }) => {
                (everywhere, Wish::Pin { shard: what.shard, node: what.node })
            }
            Wished::Unpin(With { what, everywhere }) => (everywhere, Wish::Unpin { shard: what.shard }),
            Wished::Freeze(With { what, everywhere }) => (everywhere, Wish::Freeze { note: what.note }),
            Wished::Unfreeze(With { what: Nothing {}, everywhere }) => (everywhere, Wish::Unfreeze),
            Wished::Release(With { what, everywhere }) => (everywhere, Wish::Release { shard: what.shard }),
            Wished::Unquarantine(With { what, everywhere }) => {
                (everywhere, Wish::Unquarantine { shard: what.shard })
            }
        }
    }
}

/// Something, and where.
#[derive(Debug, Args)]
pub(crate) struct With<T: Args> {
    #[command(flatten)]
    pub(crate) what: T,
    #[command(flatten)]
    pub(crate) everywhere: Everywhere,
}

#[derive(Debug, Args)]
pub(crate) struct Nothing {}

#[derive(Debug, Args)]
pub(crate) struct OneNode {
    /// The node's name
    pub(crate) node: String,
}

#[derive(Debug, Args)]
pub(crate) struct Drain {
    /// The node's name
    pub(crate) node: String,
    /// Who wants it and why, shown by `nodes`
    #[arg(long, default_value = "")]
    pub(crate) note: String,
}

#[derive(Debug, Args)]
pub(crate) struct Weigh {
    /// The node's name
    pub(crate) node: String,
    /// The weight, or `own` for the node's own
    #[arg(value_parser = weight)]
    pub(crate) weight: Weight,
}

/// A weight, or the node's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weight(pub(crate) Option<u32>);

fn weight(text: &str) -> Result<Weight, String> {
    match text {
        "own" => Ok(Weight(None)),
        _ => text
            .parse()
            .map(|weight| Weight(Some(weight)))
            .map_err(|_| format!("write a whole number up to {}, or `own`", u32::MAX)),
    }
}

#[derive(Debug, Args)]
pub(crate) struct Pin {
    /// The shard, such as orders/3
    pub(crate) shard: String,
    /// The node's name
    pub(crate) node: String,
}

#[derive(Debug, Args)]
pub(crate) struct NamedShard {
    /// The shard, such as orders/3
    pub(crate) shard: String,
}

#[derive(Debug, Args)]
pub(crate) struct Note {
    /// Who wants it and why, shown by `status`
    #[arg(long, default_value = "by an operator")]
    pub(crate) note: String,
}

/// `leasehold demo`
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// How long it runs, and what has begun by then is brought to its end; without a terminal 10s, otherwise until
    /// you quit
    #[arg(long = "for", value_name = "DURATION", value_parser = span::parse)]
    pub(crate) run_for: Option<Duration>,
    /// How many shards there are
    #[arg(long, default_value_t = 48, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) shards: u32,
    /// How many nodes there are at first
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=12))]
    pub(crate) nodes: u32,
    /// The nodes' ttl
    #[arg(long, default_value = "2s", value_parser = span::parse)]
    pub(crate) ttl: Duration,
    /// Print lines instead of drawing, also on a terminal
    #[arg(long)]
    pub(crate) plain: bool,
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
SIGTERM or Ctrl-C hands everything over and leaves; a second one, a second later or more, hurries.

Example:
  leasehold run --store local:./leasehold.db --group orders --shards 8 -- ./worker --slot {shard} --epoch {epoch}";

/// For people or programs, once or always.
#[derive(Debug, Args)]
pub(crate) struct Manner {
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// Print again at every change
    #[arg(long)]
    pub(crate) watch: bool,
}

/// A command that looks.
#[derive(Debug, Args)]
pub(crate) struct Look {
    #[command(flatten)]
    pub(crate) manner: Manner,
    #[command(flatten)]
    pub(crate) everywhere: Everywhere,
}

/// `leasehold shards`
#[derive(Debug, Args)]
pub(crate) struct LookGroup {
    /// Only the shards of this group
    pub(crate) group: Option<String>,
    #[command(flatten)]
    pub(crate) look: Look,
}

/// `leasehold explain`
#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// The shard, such as orders/3
    pub(crate) shard: String,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) everywhere: Everywhere,
}

/// `leasehold repair`
#[derive(Debug, Args)]
#[group(skip)]
#[command(group(clap::ArgGroup::new("record").required(true).args(["shard", "control"])))]
pub(crate) struct Repair {
    /// The shard, such as orders/3
    pub(crate) shard: Option<String>,
    /// Mend the record of what operators asked for: all that they asked for is undone
    #[arg(long)]
    pub(crate) control: bool,
    #[command(flatten)]
    pub(crate) everywhere: Everywhere,
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
    /// A node is gone
    Down(WhatIfNode),
    /// A node hands everything over
    Drain(WhatIfNode),
    /// A node is added
    Add(WhatIfAdd),
    /// A node has another weight
    Weight(WhatIfWeight),
}

#[derive(Debug, Args)]
pub(crate) struct WhatIfNode {
    /// The node's name
    pub(crate) node: String,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) everywhere: Everywhere,
}

#[derive(Debug, Args)]
pub(crate) struct WhatIfAdd {
    #[command(flatten)]
    pub(crate) node: WhatIfNode,
    /// Its weight
    #[arg(long, default_value_t = 100)]
    pub(crate) weight: u32,
    /// Its capacity
    #[arg(long)]
    pub(crate) capacity: Option<u32>,
    /// Where it stands
    #[arg(long)]
    pub(crate) zone: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct WhatIfWeight {
    /// The node's name
    pub(crate) node: String,
    /// The weight
    pub(crate) weight: u32,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) everywhere: Everywhere,
}

/// `leasehold locate`
#[derive(Debug, Args)]
pub(crate) struct Locate {
    /// The key: of a request, a customer, whatever the group is split by
    pub(crate) key: String,
    /// The group; not needed when there is only one
    #[arg(long)]
    pub(crate) group: Option<String>,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) everywhere: Everywhere,
}

/// `leasehold group`
#[derive(Debug, Args)]
pub(crate) struct Group {
    #[command(subcommand)]
    pub(crate) what: GroupCommand,
}

/// What to do with groups.
#[derive(Debug, Subcommand)]
pub(crate) enum GroupCommand {
    /// Show all groups
    List(Look),
    /// Show one group in full
    Show(GroupNamed),
    /// Change settings of a group for all nodes, such as shards=64 balance=1.2
    Set(GroupSet),
    /// Remove the settings of a group that nobody serves any more
    Delete(GroupNamed),
}

#[derive(Debug, Args)]
pub(crate) struct GroupNamed {
    /// The group's name
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) everywhere: Everywhere,
}

#[derive(Debug, Args)]
pub(crate) struct GroupSet {
    /// The group's name
    pub(crate) name: String,
    /// The changes: shards, balance, zones, cooldown, min_run, moves_max, move_window, kept_min, restart_grace,
    /// stop_timeout
    #[arg(required = true, value_name = "SETTING=VALUE")]
    pub(crate) changes: Vec<String>,
    #[command(flatten)]
    pub(crate) everywhere: Everywhere,
}

/// `leasehold keys`
#[derive(Debug, Args)]
pub(crate) struct Keys {
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) everywhere: Everywhere,
}

/// `leasehold register`
#[derive(Debug, Args)]
pub(crate) struct Register {
    /// The key
    pub(crate) key: String,
    /// Its value
    pub(crate) value: String,
    /// Take the key over if somebody else has registered it
    #[arg(long)]
    pub(crate) overwrite: bool,
    #[command(flatten)]
    pub(crate) everywhere: Everywhere,
}

/// All settings.
#[derive(Debug, Args)]
pub(crate) struct ForAll {
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
    /// Print every setting in force, and where it came from
    Show {
        /// Print JSON, for programs
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        all: ForAll,
    },
    /// Say whether the settings are safe
    Check(ForAll),
    /// Say what the settings amount to: outage survived, failover, cost, how many shards
    Explain {
        /// For how many nodes [default: 3]
        #[arg(long)]
        nodes: Option<u64>,
        #[command(flatten)]
        all: ForAll,
    },
    /// Say where settings files are looked for
    Paths(ForAll),
    /// Print the reference of all settings
    Reference,
}
