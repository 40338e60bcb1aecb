use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    Extra, FORMAT, MetaMark, Published, Record, RecordError, SlotSet, check_floor, check_ttl, record,
};
use crate::name::{GroupName, NodeName, SessionId, ShardId, ShardName, WriteId};
use crate::placement::RENDEZVOUS;

/// `nodes/<name>`: a node's session. Written only by that session, or by the node that fences it.
///
/// The fields that every renewal changes come first ([`Heartbeat`]), and `node` is the first of the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// The format of this record.
    pub format: u32,
    /// The id of the write that produced this state.
    pub write: WriteId,
    /// Counts the renewals of the session.
    pub seq: u64,
    /// When it was written, for people.
    #[serde(default)]
    pub written_unix_ms: u64,
    /// The node.
    pub node: NodeName,
    /// Its session.
    pub session: SessionId,
    /// Alive or over.
    pub state: NodeState,
    /// Whether it takes new shards.
    pub accepting: bool,
    /// It lost a session and takes nothing yet, but will once its new one has been healthy for a while. Until then the
    /// others count it in their plans, so that the first one back does not take everything.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub returning: bool,
    /// How much of the work it takes, relative to the others; 0 takes nothing.
    pub weight: u32,
    /// The most shards that it holds in all groups together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<u32>,
    /// Its zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The address at which callers reach it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Labels for the user's own purposes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The groups whose shards it can run.
    pub groups: BTreeMap<GroupName, Served>,
    /// Shards that its acquire gate refuses or that it does not know, so that the others plan around it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub declined: Vec<ShardId>,
    /// How long the session lives after a renewal, in milliseconds.
    pub ttl_ms: u64,
    /// There was no record of this name when the session began, or not long before. Sessions of this name whose
    /// record was lost may still be alive, until their ttl after this session was first seen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unproved: bool,
    /// What the session may be running. A record without it may stand for anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publishes: Option<Published>,
    /// Shards that the session has claimed and does not start because another session publishes them, or some of them if
    /// they are many. A node that only plans to take one of them stops publishing it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub awaits: Vec<ShardId>,
    /// What the node knows of `meta`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<MetaMark>,
    /// Hash of the view that the node plans with: nodes with the same one agree on the plan.
    pub view: u64,
    /// The placement that the node plans with, unless it is Leasehold's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<String>,
    /// The protocol versions that the node speaks, oldest and newest.
    pub protocol: (u32, u32),
    /// Information for people. No decision depends on it.
    #[serde(default, skip_serializing_if = "Report::is_empty")]
    pub report: Report,
    /// Fields of newer versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The fields of a node record that every renewal changes. Most renewals change nothing else, and every node reads every
/// renewal: so only this part of them is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Heartbeat {
    format: u32,
    write: WriteId,
    /// Counts the renewals of the session.
    pub seq: u64,
    written_unix_ms: u64,
}

/// What separates the heartbeat from the rest of a node record, as this version writes it.
const REST: &[u8] = b",\"node\":";

impl Heartbeat {
    /// The heartbeat of a stored node record, and the bytes of the rest. `None` if it is not written as this version writes
    /// it: then the whole record must be parsed.
    pub fn split(bytes: &[u8]) -> Option<(Heartbeat, &[u8])> {
        let (format, bytes) = number(bytes.strip_prefix(b"{\"format\":")?)?;
        let (write, bytes) = bytes.strip_prefix(b",\"write\":\"")?.split_at_checked(32)?;
        let (seq, bytes) = number(bytes.strip_prefix(b"\",\"seq\":")?)?;
        let (written_unix_ms, rest) = number(bytes.strip_prefix(b",\"written_unix_ms\":")?)?;
        let (format, write) = (u32::try_from(format).ok()?, WriteId::from_digits(write)?);
        let heartbeat = Heartbeat { format, write, seq, written_unix_ms };
        (rest.starts_with(REST) && format <= FORMAT && seq <= SEQ_MAX).then_some((heartbeat, rest))
    }

    /// The record with this heartbeat, as it is stored, of which the rest was encoded before.
    pub fn join(self, rest: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(128 + rest.len());
        serde_json::to_writer(&mut bytes, &self).expect("a heartbeat is plain data");
        bytes.pop();
        bytes.extend_from_slice(rest);
        bytes
    }
}

/// The number that begins here, as JSON writes it, and what follows it.
fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (digits, rest) = bytes.split_at(bytes.iter().take_while(|byte| byte.is_ascii_digit()).count());
    if digits.is_empty() || (digits.len() > 1 && digits[0] == b'0') {
        return None;
    }
    let add = |sum: u64, digit: &u8| sum.checked_mul(10)?.checked_add(u64::from(digit - b'0'));
    Some((digits.iter().try_fold(0, add)?, rest))
}

/// What a node reports about itself with its renewals.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The state of its session while it is `recovering`; otherwise `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_state: Option<String>,
    /// Shards whose work was told to stop and has not, or some of them if they are many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stuck: Vec<ShardId>,
    /// Shards that the plan wants elsewhere and why they have not moved, or some of them if they are many.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unmoved: BTreeMap<ShardId, String>,
    /// Groups that it serves but takes no shards of, with the reason, or some of them if they are many.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unserved: BTreeMap<GroupName, String>,
    /// When its process last had no session, after it had had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outage: Option<Outage>,
    /// How often it renews, in milliseconds, unless that is a fifth of its ttl.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew_every_ms: Option<u64>,
    /// Fields of newer versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A time in which a node owned nothing, because it could not prove its session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outage {
    /// Why.
    pub cause: String,
    /// When it began, on the node's own clock.
    pub unix_ms: u64,
    /// How long it took to have a session again, in milliseconds.
    pub for_ms: u64,
}

impl Report {
    fn is_empty(&self) -> bool {
        *self == Report::default()
    }
}

/// How a node serves one group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// The most shards of this group that it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<u32>,
    /// It takes no new shard of this group. Written by older versions only, where their gate refused too many to list.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub declined: bool,
    /// The slots of this group that it declines, where those are too many for the record's own list.
    #[serde(default, skip_serializing_if = "SlotSet::is_empty")]
    pub slots_declined: SlotSet,
    /// The same of a named group.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub names_declined: BTreeSet<ShardName>,
    /// The only shards of this named group that it takes, if these are fewer than those that it does not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names_known: Option<BTreeSet<ShardName>>,
    /// Fields of newer versions.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Served {
    /// Whether it declines a shard of the group, by what is said of the group.
    pub fn declines(&self, shard: &ShardName) -> bool {
        self.declined
            || self.names_known.as_ref().is_some_and(|known| !known.contains(shard))
            || self.names_declined.contains(shard)
            || (!self.slots_declined.is_empty()
                && shard.as_slot().is_some_and(|slot| self.slots_declined.contains(slot)))
    }

    /// Whether it declines what it is said to decline here, and nothing else.
    pub fn declines_as(&self, other: &Served) -> bool {
        self.declined == other.declined
            && self.slots_declined == other.slots_declined
            && self.names_declined == other.names_declined
            && self.names_known == other.names_known
    }
}

/// Alive or over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// Alive, and part of the plan.
    Active,
    /// Alive, handing its shards over.
    Draining,
    /// Over: it said so itself, with all its work stopped.
    Left,
    /// Over: another node proved it dead.
    Fenced,
}

impl NodeState {
    /// Whether the session may still hold shards.
    pub fn is_alive(self) -> bool {
        matches!(self, NodeState::Active | NodeState::Draining)
    }
}

impl NodeRecord {
    /// The placement that the node plans with.
    pub fn placement(&self) -> &str {
        self.placement.as_deref().unwrap_or(RENDEZVOUS)
    }

    /// The fields that every renewal changes.
    pub fn heartbeat(&self) -> Heartbeat {
        let NodeRecord { format, write, seq, written_unix_ms, .. } = *self;
        Heartbeat { format, write, seq, written_unix_ms }
    }

    /// The same record with the heartbeat of a later renewal.
    pub fn renew(&mut self, heartbeat: Heartbeat) {
        let Heartbeat { format, write, seq, written_unix_ms } = heartbeat;
        (self.format, self.write, self.seq, self.written_unix_ms) = (format, write, seq, written_unix_ms);
    }

    /// How long the session lives after a renewal.
    pub fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }
}

/// More renewals than any session can have, and still exact in every JSON reader.
const SEQ_MAX: u64 = 1 << 53;

impl Record for NodeRecord {
    record!();
    fn validate(&self) -> Result<(), RecordError> {
        check_ttl("ttl_ms", self.ttl_ms)?;
        if let Some(meta) = &self.meta {
            check_floor(meta.epoch_floor)?;
            check_ttl("max_ttl_ms", meta.max_ttl_ms)?;
        }
        if self.seq > SEQ_MAX {
            return Err(RecordError::impossible(format!("seq {} is above {SEQ_MAX}", self.seq)));
        }
        Ok(())
    }
}
