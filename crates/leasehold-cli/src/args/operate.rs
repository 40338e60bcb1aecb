//! The commands that operators give.

use std::time::Duration;

use clap::{Args, Subcommand};
use leasehold_cli_common::settings::span;

use super::inspect::Inspect;
use super::shared::Shared;

/// A duration in a flag.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    span::parse(text)
}

/// One command per kind of operator request.
#[derive(Debug, Subcommand)]
pub(crate) enum OperatorCommand {
    /// Hand over all shards of a node and give it no new ones
    Drain(With<Drain>),
    /// Let a drained node take shards again
    Undrain(With<OneNode>),
    /// Override the weight of a node, or remove the override
    Weight(With<Weigh>),
    /// Pin a shard to a node
    Pin(With<Pin>),
    /// Remove the pin of a shard
    Unpin(With<NamedShard>),
    /// Suspend voluntary moves, of one group or of all
    #[command(after_help = FREEZE_HELP)]
    Freeze(With<Freeze>),
    /// Resume voluntary moves, of one group or of all
    Unfreeze(With<FrozenGroup>),
    /// Make the holder of a shard give it up once
    Release(With<Release>),
    /// Let quarantined shards run again
    Unquarantine(With<Unquarantine>),
}

/// What an operator asks for.
#[derive(Debug)]
pub(crate) enum OperatorRequest {
    Drain { node: String, note: String },
    Undrain { node: String },
    Weight { node: String, weight: Weight },
    Pin { shard: String, node: String },
    Unpin { shard: String },
    Freeze { group: Option<String>, note: String },
    Unfreeze { group: Option<String> },
    Release { shard: String },
    Unquarantine { which: Unquarantine },
}

impl OperatorCommand {
    /// The request, how long to wait until it is carried out, and where and how.
    pub(crate) fn into_request(self) -> (OperatorRequest, Option<Timeout>, Asking) {
        use OperatorRequest as Ask;
        match self {
            OperatorCommand::Drain(With { what: Drain { node, note, wait }, asking }) => {
                (Ask::Drain { node, note }, wait.asked(), asking)
            }
            OperatorCommand::Undrain(With { what: OneNode { node }, asking }) => {
                (Ask::Undrain { node }, None, asking)
            }
            OperatorCommand::Weight(With { what: Weigh { node, weight }, asking }) => {
                (Ask::Weight { node, weight }, None, asking)
            }
            OperatorCommand::Pin(With { what: Pin { shard, node, wait }, asking }) => {
                (Ask::Pin { shard, node }, wait.asked(), asking)
            }
            OperatorCommand::Unpin(With { what: NamedShard { shard }, asking }) => {
                (Ask::Unpin { shard }, None, asking)
            }
            OperatorCommand::Freeze(With { what: Freeze { group, note }, asking }) => {
                (Ask::Freeze { group, note }, None, asking)
            }
            OperatorCommand::Unfreeze(With { what: FrozenGroup { group }, asking }) => {
                (Ask::Unfreeze { group }, None, asking)
            }
            OperatorCommand::Release(With { what: Release { shard, wait }, asking }) => {
                (Ask::Release { shard }, wait.asked(), asking)
            }
            OperatorCommand::Unquarantine(With { what, asking }) => {
                (Ask::Unquarantine { which: what }, None, asking)
            }
        }
    }
}

/// Whether to do it, and where.
#[derive(Debug, Args)]
pub(crate) struct Asking {
    /// Change nothing; show what the plan would be
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) shared: Shared,
}

/// Something, and where.
#[derive(Debug, Args)]
pub(crate) struct With<T: Args> {
    #[command(flatten)]
    pub(crate) what: T,
    #[command(flatten)]
    pub(crate) asking: Asking,
}

/// Whether to wait until a request is carried out.
#[derive(Debug, Args)]
pub(crate) struct WaitFlags {
    /// Wait until it is done; exit with code 8 if that takes longer than --timeout
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) wait: bool,
    /// With --wait, give up after this time
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration, requires = "wait")]
    pub(crate) timeout: Duration,
}

/// How long to wait at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timeout(pub(crate) Duration);

impl WaitFlags {
    pub(crate) fn asked(&self) -> Option<Timeout> {
        self.wait.then_some(Timeout(self.timeout))
    }
}

#[derive(Debug, Args)]
pub(crate) struct OneNode {
    /// The node's name
    pub(crate) node: String,
}

#[derive(Debug, Args)]
pub(crate) struct Drain {
    /// The node's name
    pub(crate) node: String,
    /// Who drains it and why; shown by `nodes`
    #[arg(long, default_value = "")]
    pub(crate) note: String,
    #[command(flatten)]
    pub(crate) wait: WaitFlags,
}

#[derive(Debug, Args)]
pub(crate) struct Weigh {
    /// The node's name
    pub(crate) node: String,
    /// The weight, or `own` to use the weight that the node was started with
    #[arg(value_parser = weight, allow_negative_numbers = true)]
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
            .map_err(|_| format!("expected a whole number from 0 to {}, or `own`", u32::MAX)),
    }
}

#[derive(Debug, Args)]
pub(crate) struct Pin {
    /// The shard, for example orders/3
    pub(crate) shard: String,
    /// The node's name
    pub(crate) node: String,
    #[command(flatten)]
    pub(crate) wait: WaitFlags,
}

#[derive(Debug, Args)]
pub(crate) struct Release {
    /// The shard, for example orders/3
    pub(crate) shard: String,
    #[command(flatten)]
    pub(crate) wait: WaitFlags,
}

#[derive(Debug, Args)]
pub(crate) struct NamedShard {
    /// The shard, for example orders/3
    pub(crate) shard: String,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Unquarantine {
    /// The shard, for example orders/3; also one whose work is done
    pub(crate) shard: Option<String>,
    /// All quarantined shards of this group
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<String>,
    /// All quarantined shards of all groups
    #[arg(long)]
    pub(crate) all: bool,
}

const FREEZE_HELP: &str = "\
Failover continues: shards without an owner are still taken. Nodes of a version that does not know frozen groups go on moving \
the shards of a frozen GROUP; `freeze` without a group holds on all of them.";

#[derive(Debug, Args)]
pub(crate) struct Freeze {
    /// Only the moves of this group
    pub(crate) group: Option<String>,
    /// Who froze the moves and why; shown by `status`
    #[arg(long, default_value = "by an operator")]
    pub(crate) note: String,
}

#[derive(Debug, Args)]
pub(crate) struct FrozenGroup {
    /// Only this group. Without it the general freeze ends, and frozen groups stay frozen
    pub(crate) group: Option<String>,
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
    /// List all groups
    List(Inspect),
    /// Show all settings of a group
    Show(GroupNamed),
    /// Create a group, for example orders shards=64
    Create(GroupChange),
    /// Change settings of a group, for example shards=64 balance=1.2
    Set(GroupSet),
    /// Delete the settings of a group that no node serves
    Delete(GroupDelete),
}

#[derive(Debug, Args)]
pub(crate) struct GroupNamed {
    /// The group's name
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) shared: Shared,
}

#[derive(Debug, Args)]
pub(crate) struct GroupDelete {
    /// The group's name
    pub(crate) name: String,
    /// Delete it although nodes hold shards of it: those that serve it from the store (`run --serve`) stop them
    #[arg(long)]
    pub(crate) stop: bool,
    #[command(flatten)]
    pub(crate) asking: Asking,
}

#[derive(Debug, Args)]
pub(crate) struct GroupChange {
    /// The group's name
    pub(crate) name: String,
    /// Settings: shards, balance, zones, cooldown, min_run, moves_max, move_window, kept_min, restart_grace,
    /// stop_timeout, on_failure, on_finish. A new group needs shards=NUMBER or shards=named
    #[arg(required = true, value_name = "SETTING=VALUE")]
    pub(crate) changes: Vec<String>,
    #[command(flatten)]
    pub(crate) asking: Asking,
}

#[derive(Debug, Args)]
pub(crate) struct GroupSet {
    #[command(flatten)]
    pub(crate) change: GroupChange,
    /// Change the number of shards although keys move to other shards
    #[arg(long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) wait: WaitFlags,
}
