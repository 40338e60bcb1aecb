//! Settings and plug-ins that do not fit together: nothing is broken yet, but an operator should know.

use std::collections::BTreeMap;
use std::fmt;

use crate::mirror::Mirror;
use crate::name::{GroupName, NodeName};
use crate::view::ProblemKind;

/// A mismatch: reported once when it is found, and shown as a problem while it lasts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Warning {
    /// The user's own placement panicked. What it planned last goes on, and Leasehold's placement plans the rest.
    PlacementPanicked {
        /// The group that it was asked about.
        group: GroupName,
        /// What the panic said.
        panic: String,
    },
    /// The user's own placement answered for another number of shards than it was asked about.
    PlacementLength {
        /// The group that it was asked about.
        group: GroupName,
        /// How many answers it gave.
        answered: usize,
        /// How many shards it was asked about.
        asked: usize,
    },
    /// Nodes plan with different placements, so that shards do not move between them.
    PlacementsDiffer(
        /// The nodes that use each.
        BTreeMap<String, Vec<NodeName>>,
    ),
    /// A node's ttl is above the longest that this node knows of.
    TtlAboveMax {
        /// The node.
        node: NodeName,
        /// Its ttl, in milliseconds.
        ttl_ms: u64,
        /// This node's `ttl_max`, in milliseconds.
        max_ttl_ms: u64,
    },
    /// A group's record was deleted, and this node wrote it again with its own settings.
    GroupRecreated(
        /// The group.
        GroupName,
    ),
}

impl Warning {
    /// A fixed word for it.
    pub fn kind(&self) -> ProblemKind {
        match self {
            Warning::PlacementPanicked { .. } | Warning::PlacementLength { .. } => ProblemKind::Placement,
            Warning::PlacementsDiffer(_) => ProblemKind::PlacementsDiffer,
            Warning::TtlAboveMax { .. } => ProblemKind::TtlAboveMax,
            Warning::GroupRecreated(_) => ProblemKind::GroupRecreated,
        }
    }

    /// What it is about.
    pub fn subject(&self) -> String {
        match self {
            Warning::PlacementPanicked { group, .. } | Warning::PlacementLength { group, .. } => {
                group.to_string()
            }
            Warning::PlacementsDiffer(_) => "placement".into(),
            Warning::TtlAboveMax { node, .. } => node.to_string(),
            Warning::GroupRecreated(group) => group.to_string(),
        }
    }

    /// The placements that live nodes use, if they do not all use the same one.
    pub fn of_placements(mirror: &Mirror) -> Option<Warning> {
        let mut used: BTreeMap<String, Vec<NodeName>> = BTreeMap::new();
        for (name, node) in mirror.nodes() {
            let record = node.record();
            let Some(record) = record.filter(|record| record.state.is_alive() && mirror.may_live(node))
            else {
                continue;
            };
            used.entry(record.placement().to_owned()).or_default().push(name.clone());
        }
        (used.len() > 1).then_some(Warning::PlacementsDiffer(used))
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::PlacementPanicked { group, panic } => write!(
                f,
                "the placement plug-in panicked for {group} ({panic}): shards stay where it last planned them, and the \
                 built-in placement plans the others; fix the plug-in and restart this node"
            ),
            Warning::PlacementLength { group, answered, asked } => write!(
                f,
                "the placement plug-in placed {answered} shards of {group}, which has {asked}: the others have no \
                 node; fix the plug-in and restart this node"
            ),
            Warning::PlacementsDiffer(used) => {
                let each = used.iter().map(|(id, nodes)| {
                    let nodes: Vec<&str> = nodes.iter().map(NodeName::as_str).collect();
                    format!("{id} on {}", nodes.join(", "))
                });
                let each: Vec<String> = each.collect();
                write!(
                    f,
                    "nodes use different placements ({}): shards do not move between them; use the same one on all nodes",
                    each.join("; ")
                )
            }
            Warning::TtlAboveMax { node, ttl_ms, max_ttl_ms } => write!(
                f,
                "{node} has a ttl of {ttl_ms} ms, above the ttl_max of {max_ttl_ms} ms here: if the store is emptied, this \
                 node does not wait long enough for that session to end; set ttl_max on every node to the longest ttl"
            ),
            Warning::GroupRecreated(group) => write!(
                f,
                "the record of {group} was deleted: this node wrote it again with its own settings; changes by operators \
                 are lost; set them again with: leasehold group set {group}"
            ),
        }
    }
}
