//! What is read and written: nothing panics, nothing is lost.

use leasehold_core::name::WriteId;
use leasehold_core::plan::{Member, Roster, apply_control};
use leasehold_core::record::{
    Control, GroupRecord, Heartbeat, Meta, MetaState, NodeRecord, NodeState, Record, RecordError, ShardRecord,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::make;

fn all(bytes: &[u8]) -> [Option<RecordError>; 5] {
    [
        Meta::decode(bytes).err(),
        Control::decode(bytes).err(),
        GroupRecord::decode(bytes).err(),
        NodeRecord::decode(bytes).err(),
        ShardRecord::decode(bytes).err(),
    ]
}

fn samples() -> Vec<Value> {
    let session = make::session(7);
    let value = |bytes: Vec<u8>| serde_json::from_slice(&bytes).expect("records are JSON");
    vec![
        value(make::meta(1, MetaState::Open, 1).encode()),
        value(make::control(1).encode()),
        value(make::group_record(4, 1).encode()),
        value(make::node_record("a", session, 3, NodeState::Active, 1).encode()),
        value(make::shard_record(&make::shard_id(0), 5, make::held("a", session), 1).encode()),
        value(make::shard_record(&make::shard_id(0), 5, make::vacant(), 1).encode()),
    ]
}

/// Any small piece of JSON.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,6}", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn fields_at<'v>(value: &'v mut Value, path: &[usize]) -> &'v mut serde_json::Map<String, Value> {
    let is_leaf = |v: &Value| !v.is_object();
    let object = value.as_object_mut().expect("records are objects");
    let Some((first, rest)) = path.split_first() else { return object };
    let names: Vec<String> =
        object.iter().filter(|(_, v)| !is_leaf(v)).map(|(name, _)| name.clone()).collect();
    if names.is_empty() {
        return object;
    }
    let name = names[first % names.len()].clone();
    fields_at(object.get_mut(&name).expect("it is there"), rest)
}

proptest! {
    #![proptest_config(crate::trying(512))]

    #[test]
    fn any_bytes_are_refused_or_read_but_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        all(&bytes);
    }

    #[test]
    fn any_change_of_a_record_is_refused_or_read_but_never_panics(
        which in 0_usize..6,
        path in prop::collection::vec(0_usize..4, 0..3),
        field in 0_usize..20,
        to in any_json(),
    ) {
        let mut value = samples().swap_remove(which);
        let fields = fields_at(&mut value, &path);
        let names: Vec<String> = fields.keys().cloned().collect();
        if !names.is_empty() {
            fields.insert(names[field % names.len()].clone(), to);
        }
        all(value.to_string().as_bytes());
    }

    #[test]
    fn fields_of_newer_versions_survive(which in 0_usize..6, name in "x_[a-z]{1,6}", field in any_json()) {
        let mut value = samples().swap_remove(which);
        value[&name] = field.clone();
        let bytes = value.to_string().into_bytes();
        let again: Vec<u8> = match which {
            0 => Meta::decode(&bytes).map(|record| record.encode()),
            1 => Control::decode(&bytes).map(|record| record.encode()),
            2 => GroupRecord::decode(&bytes).map(|record| record.encode()),
            3 => NodeRecord::decode(&bytes).map(|record| record.encode()),
            _ => ShardRecord::decode(&bytes).map(|record| record.encode()),
        }.expect("a field more does no harm");
        let again: Value = serde_json::from_slice(&again).expect("records are JSON");
        prop_assert_eq!(&again[&name], &field);
        prop_assert_eq!(again, value);
    }
}

#[test]
fn a_newer_format_is_told_apart_from_damage() {
    for mut value in samples() {
        value["format"] = json!(2);
        value["state"] = json!({"something": "else"});
        let errors = all(value.to_string().as_bytes());
        assert!(errors.iter().flatten().all(RecordError::is_too_new), "{errors:?}");
    }
}

/// What JSON readers can hold exactly is as far as numbers go that only ever rise.
#[test]
fn numbers_that_rise_have_an_end_that_every_reader_can_hold() {
    let node = |seq| make::node_record("a", make::session(7), seq, NodeState::Active, 1);
    assert!(NodeRecord::decode(&node(1 << 53).encode()).is_ok());
    for seq in [(1 << 53) + 1, u64::MAX] {
        let error = NodeRecord::decode(&node(seq).encode()).unwrap_err();
        assert!(error.to_string().contains("seq"), "{error}");
    }
    let shard = |epoch| make::shard_record(&make::shard_id(0), epoch, make::vacant(), 1);
    assert!(ShardRecord::decode(&shard((1 << 53) - 1).encode()).is_ok());
    let last = ShardRecord::decode(&shard(1 << 53).encode()).unwrap_err();
    assert_eq!(last, RecordError::NoEpochLeft);
    assert!(last.is_too_new(), "it is never written over, because nothing higher can be");
    let beyond = ShardRecord::decode(&shard((1 << 53) + 1).encode()).unwrap_err();
    assert!(matches!(beyond, RecordError::Impossible(_)), "{beyond}");
    for floor in [1 << 53, u64::MAX] {
        let mut group = make::group_record(4, 1);
        let mut meta = make::meta(1, MetaState::Open, 1);
        group.epoch_floor = leasehold_core::Epoch(floor);
        meta.epoch_floor = group.epoch_floor;
        assert!(matches!(GroupRecord::decode(&group.encode()), Err(RecordError::Impossible(_))));
        assert!(matches!(Meta::decode(&meta.encode()), Err(RecordError::Impossible(_))));
    }
}

#[test]
fn a_renewal_differs_in_its_heartbeat_alone() {
    let mut record = make::node_record("a", make::session(7), 3, NodeState::Active, 1);
    record.labels = [("rack".to_owned(), "\",\"node\":\"b\"".to_owned())].into();
    let first = record.encode();
    let next = NodeRecord { seq: 4, write: WriteId::from_bits(2), written_unix_ms: 17, ..record.clone() };
    let second = next.encode();
    let (_, rest) = Heartbeat::split(&first).expect("written by this version");
    let (heartbeat, same_rest) = Heartbeat::split(&second).expect("written by this version");
    assert_eq!(rest, same_rest);
    assert_eq!(next.heartbeat().join(rest), second, "encoded in two parts, it is the same");
    record.renew(heartbeat);
    assert_eq!(record, next);
    assert_eq!(record, NodeRecord::decode(&second).expect("a record"));
}

/// The same by a whole JSON parser, which takes more forms of it than this version writes.
fn heartbeat_slowly(head: &str) -> Option<(u64, WriteId, u64, u64)> {
    let all: Value = serde_json::from_str(&format!("{head}}}")).ok()?;
    let number = |field: &str| all.get(field)?.as_u64();
    let write = all.get("write")?.as_str()?.parse().ok()?;
    Some((number("format")?, write, number("seq")?, number("written_unix_ms")?))
}

proptest! {
    #[test]
    fn a_heartbeat_is_read_as_a_json_parser_reads_it(
        write: u128, seq in 0_u64..=1 << 53, at: u64, wrong in any::<prop::sample::Index>(), byte in b' '..=b'~',
    ) {
        let write = WriteId::from_bits(write);
        let head = format!(r#"{{"format":1,"write":"{write}","seq":{seq},"written_unix_ms":{at}"#);
        let node = NodeRecord {
            write, seq, written_unix_ms: at, ..make::node_record("a", make::session(7), 3, NodeState::Active, 1)
        };
        let bytes = node.encode();
        prop_assert_eq!(Heartbeat::split(&bytes).map(|(heartbeat, _)| heartbeat), Some(node.heartbeat()));
        // With one byte wrong it is another heartbeat, or none.
        let mut damaged = head.into_bytes();
        let wrong = wrong.index(damaged.len());
        damaged[wrong] = byte;
        let slowly = heartbeat_slowly(std::str::from_utf8(&damaged).expect("ASCII"));
        damaged.extend_from_slice(b",\"node\":\"a\"}");
        if let Some((heartbeat, rest)) = Heartbeat::split(&damaged) {
            prop_assert_eq!(rest, b",\"node\":\"a\"}");
            let mut read = node.clone();
            read.renew(heartbeat);
            let quickly = (u64::from(read.format), read.write, read.seq, read.written_unix_ms);
            prop_assert_eq!(Some(quickly), slowly);
        }
    }
}

#[test]
fn a_member_is_compared_with_a_record_as_with_the_member_of_that_record() {
    let base = make::node_record("a", make::session(7), 3, NodeState::Active, 1);
    let mut control = make::control(1);
    let changes: [fn(&mut NodeRecord); 13] = [
        |_| {},
        |record| record.seq += 1,
        |record| record.session = make::session(8),
        |record| record.state = NodeState::Draining,
        |record| record.accepting = !record.accepting,
        |record| record.returning = !record.returning,
        |record| record.weight += 1,
        |record| record.capacity = Some(9),
        |record| record.zone = Some("z".to_owned()),
        |record| record.groups.clear(),
        |record| record.declined = vec![make::shard_id(2), make::shard_id(1)],
        |record| record.view += 1,
        |record| record.ttl_ms += 1,
    ];
    let member = |record: &NodeRecord, control: &Control| {
        let mut roster: Roster = [(record.node.clone(), Member::of(record))].into();
        apply_control(&mut roster, Some(control));
        roster.remove(&record.node).expect("it is still there")
    };
    for overridden in [None, Some(base.weight), Some(base.weight + 1)] {
        control.weights = overridden.map(|weight| (base.node.clone(), weight)).into_iter().collect();
        for drained in [false, true] {
            control.drain = drained.then(|| (base.node.clone(), Default::default())).into_iter().collect();
            let known = member(&base, &control);
            for (number, change) in changes.iter().enumerate() {
                let mut record = base.clone();
                change(&mut record);
                let same = Member { view: record.view, ..known.clone() } == member(&record, &control);
                let case = format!("change {number}, weight {overridden:?}, drained {drained}");
                assert_eq!(known.is_shown_by(&record, Some(&control)), same, "{case}");
            }
        }
    }
}

#[test]
fn what_this_version_does_not_write_has_no_heartbeat() {
    let write = WriteId::from_bits(2);
    let head = format!(r#"{{"format":1,"write":"{write}","seq":4,"written_unix_ms":17"#);
    assert!(Heartbeat::split(format!(r#"{head},"node":"a"}}"#).as_bytes()).is_some());
    for other in [
        // A newer format, a field that we do not know, fields in another order, or no JSON.
        format!(r#"{},"node":"a"}}"#, head.replace("\"format\":1", "\"format\":2")),
        format!(r#"{head},"later":1,"node":"a"}}"#),
        format!(r#"{head},"later":{{"x":1,"node":"a"}}}}"#),
        format!(r#"{head},"later":"x,"node":"a"}}"#),
        format!(r#"{},"node":"a","seq":4}}"#, head.replace("\"seq\":4,", "")),
        format!(r#"{},"node":"a"}}"#, head.replace(":4", ":9007199254740993")),
        "garbage,\"node\":".to_owned(),
    ] {
        assert_eq!(Heartbeat::split(other.as_bytes()), None, "{other}");
    }
}
