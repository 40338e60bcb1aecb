//! A store with known records, so that what commands print is always the same.

use std::path::Path;

use leasehold_core::name::{Incarnation, SessionId, WriteId};
use leasehold_core::record::{
    FORMAT, GroupRecord, Holder, Meta, MetaState, MoveReason, NodeRecord, NodeState, PROTOCOL, Policy,
    Record, Served, ShardRecord, ShardSet, ShardState, Slots, WorkState,
};
use leasehold_core::store::{Key, Lane, Swap, Swapped};
use leasehold_core::{Epoch, GroupName, NodeName, ShardId};
use leasehold_local::Local;
use leasehold_store::Store;

/// Writes two live nodes, one that left, and a group of six shards, one of them damaged, one quarantined, one vacant.
pub(crate) fn set(file: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Local::open(file, "default").unwrap();
        let group = GroupName::new("orders").unwrap();
        put(&store, Key::Meta, meta().encode()).await;
        put(&store, Key::Group(group.clone()), group_record(&group).encode()).await;
        for (name, session, state) in
            [("alpha", 1, NodeState::Active), ("beta", 2, NodeState::Active), ("gamma", 3, NodeState::Left)]
        {
            put(&store, Key::Node(NodeName::new(name).unwrap()), node(name, session, state, &group).encode())
                .await;
        }
        for slot in 0..6 {
            let shard = ShardId::slot(&group, slot);
            let value =
                if slot == 4 { b"{\"epoch\":9,torn".to_vec() } else { shard_record(&shard, slot).encode() };
            put(&store, Key::Shard(shard), value).await;
        }
    });
}

/// Puts any value in the place of a record, as nobody should; nothing at all removes it.
pub(crate) fn spoil(file: &Path, key: &str, value: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Local::open(file, "default").unwrap();
        let key: Key = key.parse().unwrap();
        let there = store.read(std::slice::from_ref(&key)).await.unwrap().found.pop().flatten();
        let value = (!value.is_empty()).then(|| value.as_bytes().into());
        let swap = Swap { key, expect: there.map(|there| there.version), value };
        let reply = store.swap(Lane::Work, &[swap]).await.unwrap();
        assert!(matches!(reply.outcomes[0], Swapped::Applied(_)));
    });
}

async fn put(store: &Local, key: Key, value: Vec<u8>) {
    let swap = Swap { key, expect: None, value: Some(value.into()) };
    let reply = store.swap(Lane::Work, &[swap]).await.unwrap();
    assert!(matches!(reply.outcomes[0], Swapped::Applied(_)));
}

fn meta() -> Meta {
    Meta {
        format: FORMAT,
        write: WriteId::from_bits(1),
        incarnation: Incarnation::from_bits(7),
        state: MetaState::Open,
        seq: 1,
        max_ttl_ms: 500,
        epoch_floor: Epoch(0),
        generation: String::new(),
        protocol: PROTOCOL,
        written_unix_ms: 0,
        extra: Default::default(),
    }
}

fn group_record(group: &GroupName) -> GroupRecord {
    GroupRecord {
        format: FORMAT,
        write: WriteId::from_bits(2),
        group: group.clone(),
        shards: ShardSet::Numbered(6),
        policy: Policy::default(),
        epoch_floor: Epoch(0),
        filled: Slots::below(6),
        written_unix_ms: 0,
        extra: Default::default(),
    }
}

fn node(name: &str, session: u128, state: NodeState, group: &GroupName) -> NodeRecord {
    NodeRecord {
        format: FORMAT,
        write: WriteId::from_bits(100 + session),
        node: NodeName::new(name).unwrap(),
        session: SessionId::from_bits(session << 96),
        state,
        accepting: true,
        returning: false,
        placement: None,
        weight: 100,
        capacity: (name == "beta").then_some(10),
        zone: Some(format!("zone-{session}")),
        address: (name == "alpha").then(|| "10.0.0.1:80".to_owned()),
        labels: Default::default(),
        groups: [(group.clone(), Served::default())].into(),
        declined: Vec::new(),
        ttl_ms: 500,
        seq: 1,
        unproved: false,
        publishes: None,
        awaits: Vec::new(),
        meta: None,
        view: 0,
        protocol: PROTOCOL,
        report: Default::default(),
        written_unix_ms: 0,
        extra: Default::default(),
    }
}

fn shard_record(shard: &ShardId, slot: u32) -> ShardRecord {
    let session = if slot.is_multiple_of(2) { 1 } else { 2 };
    let name = if session == 1 { "alpha" } else { "beta" };
    let holder = Holder {
        node: NodeName::new(name).unwrap(),
        session: SessionId::from_bits(session << 96),
        ttl_ms: 500,
    };
    let vacant = ShardState::Vacant { successor: None, reserved_ms: None };
    ShardRecord {
        format: FORMAT,
        write: WriteId::from_bits(200 + u128::from(slot)),
        shard: shard.clone(),
        epoch: Epoch(u64::from(slot) + 1),
        state: if slot == 5 { vacant } else { ShardState::Held { holder } },
        work: if slot == 3 { WorkState::Quarantined } else { WorkState::Runs },
        why: MoveReason::Planned,
        written_unix_ms: 0,
        extra: Default::default(),
    }
}
