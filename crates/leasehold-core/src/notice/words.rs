//! Notices as sentences, for traces and stories. The log has fixed messages and the facts in fields instead.

use std::fmt;

use super::{Differing, Gone, Notice, OperatorCommand, QuarantineEnds};
use crate::span::Span;

/// A number of shards: `1 shard`, `2 shards`.
struct Shards(usize);

impl fmt::Display for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} shard{}", self.0, if self.0 == 1 { "" } else { "s" })
    }
}

/// One sentence with all facts. A session is named by its first eight digits, as in the log.
impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::StateChanged { from, to, cause, after } => {
                write!(f, "{from} -> {to} after {}: {cause}", Span::whole_ms(*after))
            }
            Notice::Waiting { why, for_up_to } => {
                write!(f, "waiting for up to {}: {why}", Span::whole_ms(*for_up_to))
            }
            Notice::NameTaken { node, session } => {
                write!(f, "another live process uses the node name {node} (session {session:?})")
            }
            Notice::Incarnation { why, epoch_floor } => {
                write!(f, "new incarnation of the namespace, epochs above {epoch_floor}: {why}")
            }
            Notice::Renewed { took } => write!(f, "renewed in {}", Span::whole_ms(*took)),
            Notice::RenewalFailed { streak, error } => {
                write!(f, "renewal failed ({streak} in a row): {error}")
            }
            Notice::NodeJoined { node, session } => write!(f, "node {node} joined (session {session:?})"),
            Notice::NodeGone { node, session, how } => write!(f, "node {node} {how} (session {session:?})"),
            Notice::Fenced { node, session, silent_for } => {
                write!(
                    f,
                    "fenced node {node} (session {session:?}), silent for {}",
                    Span::whole_ms(*silent_for)
                )
            }
            Notice::Started { shard, epoch, why, unowned_for } => {
                write!(f, "started {shard} epoch {epoch} ({why}")?;
                if let Some(gap) = unowned_for {
                    write!(f, ", unowned for {}", Span::whole_ms(*gap))?;
                }
                f.write_str(")")
            }
            Notice::Stopping { shard, epoch, why } => write!(f, "stopping {shard} epoch {epoch} ({why})"),
            Notice::WorkEnded { shard, epoch, error, again_after } => {
                write!(f, "work of {shard} epoch {epoch} ")?;
                match error {
                    Some(error) => write!(f, "failed: {error}")?,
                    None => f.write_str("returned")?,
                }
                write!(f, "; next start in {}", Span::whole_ms(*again_after))
            }
            Notice::Released { shard, epoch, why, successor } => {
                write!(f, "released {shard} epoch {epoch} ({why}")?;
                if let Some(node) = successor {
                    write!(f, ", for {node}")?;
                }
                f.write_str(")")
            }
            Notice::Stuck { shard, epoch } => {
                write!(f, "{shard} epoch {epoch} is stuck: its work did not stop within stop_timeout")
            }
            Notice::Quarantined { shard, epoch, error, ends } => {
                write!(f, "{shard} epoch {epoch} is quarantined: its work keeps failing: {error}; {ends}")
            }
            Notice::Finished { shard, epoch, for_good: true } => {
                write!(f, "{shard} epoch {epoch} is done: its work finished, and no node runs it again")
            }
            Notice::Finished { shard, epoch, for_good: false } => {
                write!(f, "{shard} epoch {epoch} finished: this node keeps it and does not run it again")
            }
            Notice::Retried { shards } => write!(f, "polling for {} planned here", Shards(*shards)),
            Notice::RetriesExhausted { shards } => {
                write!(f, "{} planned here did not become free in time", Shards(*shards))
            }
            Notice::NoRoom { group, shards } => {
                write!(f, "no node has room for {} of {group}", Shards(*shards))
            }
            Notice::RoomAgain { group } => write!(f, "all shards of {group} have a node again"),
            Notice::SettingsDiffer { group, settings } => {
                let settings = Differing::in_words(settings);
                write!(f, "settings of {group} in the store override local ones: {settings}")
            }
            Notice::OperatorCommand(command) => command.fmt(f),
            Notice::OtherKind { group, ours, stored } => {
                let (ours, stored) = (ours.kind(), stored.kind());
                write!(f, "takes no shards of {group}: they are {ours} here but {stored} in the store")
            }
            Notice::KindAgrees { group } => {
                write!(f, "serves {group} again: its kind of shards matches the store")
            }
            Notice::Frozen { vanished, of } => {
                write!(f, "froze voluntary moves: {vanished} of {of} nodes vanished at once")
            }
            Notice::Unfrozen => f.write_str("resumed voluntary moves"),
            Notice::NoReceiver { shards } => {
                write!(f, "draining, but no other node can take {}; work goes on here", Shards(*shards))
            }
            Notice::Warning(warning) => write!(f, "warning ({}): {warning}", warning.kind()),
            Notice::CorruptRecord { key, error } => write!(f, "damaged record {key}: {error}"),
            Notice::StoreFailed { error } => write!(f, "store error: {error}"),
        }
    }
}

impl fmt::Display for QuarantineEnds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QuarantineEnds::ByOperator => f.write_str("it does not run until an operator allows it"),
            QuarantineEnds::After(pause) => write!(f, "one try in {}", Span::whole_ms(*pause)),
            QuarantineEnds::Elsewhere(pause) => {
                write!(f, "another node tries it in {}", Span::whole_ms(*pause))
            }
        }
    }
}

impl fmt::Display for OperatorCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OperatorCommand::Drain { note } => write!(f, "an operator drained this node: {note}"),
            OperatorCommand::Undrain => f.write_str("an operator undrained this node"),
            OperatorCommand::Weight(weight) => {
                write!(f, "an operator set the weight of this node to {weight}")
            }
            OperatorCommand::OwnWeight => f.write_str("an operator removed the weight override of this node"),
            OperatorCommand::Freeze { note } => write!(f, "an operator froze voluntary moves: {note}"),
            OperatorCommand::Unfreeze => f.write_str("an operator unfroze voluntary moves"),
            OperatorCommand::FreezeGroup { group, note } => {
                write!(f, "an operator froze voluntary moves of the group {group}: {note}")
            }
            OperatorCommand::UnfreezeGroup { group } => {
                write!(f, "an operator unfroze voluntary moves of the group {group}")
            }
            OperatorCommand::Pin { shard, to } => write!(f, "an operator pinned {shard} to {to}"),
            OperatorCommand::Unpin { shard } => write!(f, "an operator unpinned {shard}"),
        }
    }
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Gone::Left => "left",
            Gone::Fenced => "was fenced",
            Gone::Vanished => "lost its record",
        })
    }
}
