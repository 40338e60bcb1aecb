//! Records to play with, from small sets of names, so that they meet each other.

use leasehold_core::name::{Incarnation, WriteId};
use leasehold_core::record::{
    Control, FORMAT, GroupRecord, Holder, Meta, MetaState, MoveReason, NodeRecord, NodeState, PROTOCOL,
    Policy, Record, Served, ShardRecord, ShardSet, ShardState, WorkState,
};
use leasehold_core::store::{Key, Stored, Version};
use leasehold_core::{Epoch, SessionId, ShardId};

pub(crate) fn shard_id(number: u32) -> ShardId {
    format!("g/{number}").parse().expect("a shard's name")
}

pub(crate) fn session(number: u128) -> SessionId {
    SessionId::from_bits(number)
}

pub(crate) fn node_record(
    name: &str,
    session: SessionId,
    seq: u64,
    state: NodeState,
    write: u128,
) -> NodeRecord {
    NodeRecord {
        format: FORMAT,
        write: WriteId::from_bits(write),
        node: name.parse().expect("a node's name"),
        session,
        state,
        accepting: true,
        returning: false,
        placement: None,
        weight: 100,
        capacity: None,
        zone: None,
        address: None,
        labels: Default::default(),
        groups: [("g".parse().expect("a group's name"), Served::default())].into(),
        declined: Vec::new(),
        ttl_ms: 10_000,
        seq,
        unproved: false,
        publishes: Some(Default::default()),
        awaits: Vec::new(),
        meta: None,
        view: 0,
        protocol: PROTOCOL,
        report: Default::default(),
        written_unix_ms: 0,
        extra: Default::default(),
    }
}

pub(crate) fn shard_record(shard: &ShardId, epoch: u64, state: ShardState, write: u128) -> ShardRecord {
    ShardRecord {
        format: FORMAT,
        write: WriteId::from_bits(write),
        shard: shard.clone(),
        epoch: Epoch(epoch),
        state,
        work: WorkState::Runs,
        why: MoveReason::Planned,
        written_unix_ms: 0,
        extra: Default::default(),
    }
}

pub(crate) fn held(node: &str, session: SessionId) -> ShardState {
    let node = node.parse().expect("a node's name");
    ShardState::Held { holder: Holder { node, session, ttl_ms: 10_000 } }
}

pub(crate) fn vacant() -> ShardState {
    ShardState::Vacant { successor: None, reserved_ms: None }
}

pub(crate) fn group_record(slots: u32, write: u128) -> GroupRecord {
    GroupRecord {
        format: FORMAT,
        write: WriteId::from_bits(write),
        group: "g".parse().expect("a group's name"),
        shards: ShardSet::Numbered(slots),
        policy: Policy::default(),
        epoch_floor: Epoch(0),
        filled: Default::default(),
        written_unix_ms: 0,
        extra: Default::default(),
    }
}

pub(crate) fn meta(incarnation: u128, state: MetaState, write: u128) -> Meta {
    Meta {
        format: FORMAT,
        write: WriteId::from_bits(write),
        incarnation: Incarnation::from_bits(incarnation),
        state,
        seq: 1,
        max_ttl_ms: 10_000,
        epoch_floor: Epoch(0),
        generation: "g1".into(),
        protocol: PROTOCOL,
        written_unix_ms: 0,
        extra: Default::default(),
    }
}

pub(crate) fn control(write: u128) -> Control {
    Control::empty(WriteId::from_bits(write))
}

pub(crate) fn stored(version: u64, record: &impl Record) -> Stored {
    Stored { version: Version::new(version.to_string()), value: record.encode().into() }
}

pub(crate) fn garbage(version: u64) -> Stored {
    Stored { version: Version::new(version.to_string()), value: (*b"garbage").into() }
}

pub(crate) fn shard_key(number: u32) -> Key {
    Key::Shard(shard_id(number))
}

pub(crate) fn node_key(name: &str) -> Key {
    Key::Node(name.parse().expect("a node's name"))
}
