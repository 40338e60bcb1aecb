//! The published test vectors are what this implementation answers.
//!
//! `REWRITE=1 cargo test -p leasehold-core --test placement_vectors` writes them again.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use leasehold_core::name::{GroupName, NodeName, ShardId, ShardName};
use leasehold_core::placement::{
    Candidate, Planner, Question, cost, node_hash, pair_hash, shard_hash, slot_of_key,
};
use leasehold_core::record::{Policy, ZoneRule};
use serde_json::{Value, json};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hex64(hash: u64) -> String {
    format!("{hash:016x}")
}

/// Bytes that look like nothing in particular.
fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|i| (pair_hash(i as u64, 7) >> 24) as u8).collect()
}

/// A key's slot among 2^32 − 1 does not show its whole hash, so the hashes are taken from xxh3 itself.
fn hashes() -> Vec<Value> {
    let lengths =
        [0, 1, 2, 3, 4, 5, 8, 9, 15, 16, 17, 32, 33, 64, 65, 96, 97, 128, 129, 144, 239, 240, 241, 255, 256];
    let long = [257, 511, 512, 1_023, 1_024, 1_025, 1_088, 2_048, 2_049, 3_000];
    let hash = |length| {
        let bytes = bytes(length);
        json!({ "bytes": hex(&bytes), "hash": hex64(xxhash_rust::xxh3::xxh3_64(&bytes)) })
    };
    lengths.into_iter().chain(long).map(hash).collect()
}

fn names() -> Vec<Value> {
    let nodes = ["a", "worker-0", "worker-1", "ip-10-0-3-17.ec2.internal", "knödel", &"n".repeat(200)];
    let shards = ["g/0", "jobs/0", "jobs/10", "jobs/1048575", "tenants/a/b", "größe/ß"];
    let long = format!("{}/{}", "g".repeat(200), "s".repeat(200));
    let node = |name: &str| json!({ "node": name, "hash": hex64(node_hash(&name.parse().unwrap())) });
    let shard = |id: &str| json!({ "shard": id, "hash": hex64(shard_hash(&id.parse().unwrap())) });
    nodes.into_iter().map(node).chain(shards.into_iter().chain([long.as_str()]).map(shard)).collect()
}

/// Hashes that show every turn of an algorithm: ends, powers of two, and some in between.
fn telling() -> Vec<u64> {
    let mut telling =
        vec![0, 1, 2, 3, u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1, u64::MAX << 53, !(u64::MAX << 53)];
    telling.extend((0..24).map(|i| pair_hash(i, 1) >> (i * 2)));
    telling.extend((0..24).map(|i| !(pair_hash(i, 2) >> (i * 2))));
    telling
}

fn pairs() -> Vec<Value> {
    let pair = |(shard, node)| json!({ "shard": hex64(shard), "node": hex64(node), "hash": hex64(pair_hash(shard, node)) });
    telling().into_iter().zip(telling().into_iter().rev()).map(pair).collect()
}

/// The table is read off the costs: where nothing is left to interpolate, a cost is 2^48 less the entry.
fn log2() -> Vec<Value> {
    let entry = |i: u64| {
        let value = (1u64 << 48) - cost((1024 + i) << 53);
        // Hashes have their lowest bit set, which is too little to show here.
        json!({ "index": i, "value": value.to_string() })
    };
    [0, 1, 2, 3, 100, 255, 256, 341, 511, 512, 513, 682, 767, 1_000, 1_021, 1_022, 1_023]
        .into_iter()
        .map(entry)
        .collect()
}

fn costs() -> Vec<Value> {
    telling().into_iter().map(|hash| json!({ "hash": hex64(hash), "cost": cost(hash).to_string() })).collect()
}

fn slots() -> Vec<Value> {
    let mut slots = Vec::new();
    for key in ["", "a", "user:17", "user:18", "ключ", "a key that is somewhat longer than the others"] {
        for count in [0, 1, 3, 1_000, 10_000_000, u32::MAX] {
            let slot = slot_of_key(key.as_bytes(), count);
            slots.push(json!({ "key": hex(key.as_bytes()), "slots": count, "slot": slot }));
        }
    }
    slots
}

/// Builds a question in few words.
struct Ask(Question);

impl Ask {
    fn slots(group: &str, shards: u32) -> Self {
        let group = GroupName::new(group).unwrap();
        Ask(Question {
            nodes: Vec::new(),
            shards: (0..shards).map(|slot| ShardId::slot(&group, slot)).collect(),
            policy: Policy { balance_permille: 1100, ..Policy::default() },
            pins: BTreeMap::new(),
            declined: BTreeMap::new(),
        })
    }

    fn named(group: &str, names: &[&str]) -> Self {
        let mut ask = Ask::slots(group, 0);
        let group = GroupName::new(group).unwrap();
        ask.0.shards =
            names.iter().map(|name| ShardId::new(group.clone(), ShardName::new(name).unwrap())).collect();
        ask
    }

    fn node(mut self, name: &str, weight: u32, capacity: Option<u32>, zone: Option<&str>) -> Self {
        let (name, zone) = (NodeName::new(name).unwrap(), zone.map(str::to_owned));
        self.0.nodes.push(Candidate { name, weight, capacity, zone });
        self
    }

    fn workers(self, weights: &[u32]) -> Self {
        let worker =
            |ask: Self, (i, weight): (usize, &u32)| ask.node(&format!("worker-{i}"), *weight, None, None);
        weights.iter().enumerate().fold(self, worker)
    }

    fn balance(mut self, permille: u32) -> Self {
        self.0.policy.balance_permille = permille;
        self
    }

    fn zones(mut self, rule: ZoneRule) -> Self {
        self.0.policy.zones = rule;
        self
    }

    fn pin(mut self, shards: impl IntoIterator<Item = usize>, node: &str) -> Self {
        for shard in shards {
            self.0.pins.insert(self.0.shards[shard].clone(), node.parse().unwrap());
        }
        self
    }

    fn decline(mut self, shards: impl IntoIterator<Item = usize>, node: &str) -> Self {
        for shard in shards {
            self.0.declined.entry(self.0.shards[shard].clone()).or_default().push(node.parse().unwrap());
        }
        self
    }

    fn answer(self, what: &str) -> Value {
        let question = self.0;
        let mut planner = Planner::rendezvous();
        let name = |node: u32| &question.nodes[node as usize].name;
        let to: Vec<Option<&NodeName>> =
            planner.plan(question.clone()).to.iter().map(|to| to.map(name)).collect();
        let ranks: Vec<Vec<&NodeName>> = (question.shards.iter().take(5))
            .map(|shard| planner.rank(&question, shard).into_iter().map(name).collect())
            .collect();
        let node = |node: &Candidate| json!({ "name": node.name, "weight": node.weight, "capacity": node.capacity, "zone": node.zone });
        let by_name = |id: &ShardId| id.name.to_string();
        json!({
            "what": what,
            "group": question.shards.first().map_or("empty", |id| id.group.as_str()),
            "shards": question.shards.iter().map(|id| &id.name).collect::<Vec<_>>(),
            "nodes": question.nodes.iter().map(node).collect::<Vec<_>>(),
            "balance": question.policy.balance_permille,
            "zones": question.policy.zones,
            "pins": question.pins.iter().map(|(id, node)| (by_name(id), node)).collect::<BTreeMap<_, _>>(),
            "declines": question.declined.iter().map(|(id, by)| (by_name(id), by)).collect::<BTreeMap<_, _>>(),
            "caps": planner.caps(&question),
            "to": to,
            "ranks": ranks,
        })
    }
}

fn plans() -> Vec<Value> {
    let zoned = |ask: Ask| {
        ask.node("n1", 1, None, Some("a"))
            .node("n2", 2, Some(9), Some("a"))
            .node("n3", 1, None, Some("b"))
            .node("n4", 4, Some(3), Some("b"))
            .node("n5", 2, None, Some("c"))
            .node("n6", 1, None, None)
            .node("n7", 0, None, Some("c"))
    };
    let weights: Vec<u32> = (0..20).map(|i| 1 + i % 4).collect();
    vec![
        Ask::slots("jobs", 24).workers(&[1, 1, 1]).answer("equal weights"),
        Ask::slots("jobs", 24).workers(&[1, 1, 1]).balance(1000).answer("as even as can be"),
        Ask::slots("jobs", 40).workers(&[1, 2, 4]).balance(u32::MAX).answer("weights without a bound"),
        Ask::slots("jobs", 40).workers(&[1, 2, 4]).answer("weights with a bound"),
        Ask::slots("jobs", 40).workers(&[1, 1, 100]).answer("one heavy node"),
        Ask::slots("jobs", 40)
            .workers(&[u32::MAX, u32::MAX - 1, 1 << 31, 1, 0])
            .answer("the largest weights"),
        Ask::slots("wide", 200).workers(&weights).answer("many nodes"),
        Ask::named("tenants", &["acme", "größe", "a/b", "10", "9", "z z", "Ω", "acme2"])
            .workers(&[1, 1, 1])
            .answer("named shards, not in order"),
        Ask::slots("jobs", 30)
            .node("small", 4, Some(2), None)
            .node("middle", 1, Some(8), None)
            .node("large", 1, None, None)
            .node("full", 1, Some(0), None)
            .answer("capacities raise the shares of the others"),
        Ask::slots("jobs", 20)
            .node("a", 1, Some(5), None)
            .node("b", 3, Some(6), None)
            .answer("more shards than room"),
        zoned(Ask::slots("jobs", 48)).answer("zones ignored"),
        zoned(Ask::slots("jobs", 48)).zones(ZoneRule::Spread).answer("zones spread over"),
        zoned(Ask::slots("jobs", 48)).zones(ZoneRule::Prefer("a".into())).answer("a zone preferred"),
        zoned(Ask::slots("jobs", 48))
            .node("n8", 1, None, Some("b"))
            .zones(ZoneRule::Prefer("b".into()))
            .pin(0..4, "n5")
            .answer("a zone preferred, with pins outside"),
        zoned(Ask::slots("jobs", 14))
            .zones(ZoneRule::Prefer("nowhere".into()))
            .answer("a zone without nodes preferred"),
        zoned(Ask::slots("jobs", 48))
            .zones(ZoneRule::Spread)
            .pin(0..7, "n4")
            .pin(7..11, "n7")
            .pin(11..30, "n1")
            .pin([31], "gone")
            .answer("pins above cap, above capacity, without weight, to an absent node"),
        Ask::slots("jobs", 20)
            .workers(&[1, 1, 1])
            .decline(0..15, "worker-0")
            .decline(0..12, "worker-1")
            .pin(0..2, "worker-0")
            .answer("declines push a node above its cap"),
        Ask::slots("jobs", 9)
            .node("a", 1, Some(3), None)
            .node("b", 1, Some(3), None)
            .node("c", 1, Some(3), None)
            .decline(0..4, "a")
            .decline(0..3, "b")
            .decline(4..9, "c")
            .answer("declines and capacities need repair"),
        Ask::slots("repair", 12)
            .node("a", 1, Some(4), None)
            .node("b", 2, Some(4), None)
            .node("c", 1, None, None)
            .pin(0..2, "a")
            .decline(6..12, "c")
            .decline(8..12, "b")
            .answer("repair around pins, with shards that cannot be placed"),
        Ask::slots("jobs", 3).answer("nobody"),
        Ask::slots("jobs", 0).workers(&[1]).answer("nothing"),
    ]
}

/// One line for each vector, so that a change can be read.
fn written() -> String {
    let lists = [
        ("hashes", hashes()),
        ("names", names()),
        ("pairs", pairs()),
        ("log2", log2()),
        ("costs", costs()),
        ("slots", slots()),
        ("plans", plans()),
    ];
    let mut text = format!("{{\n\"algorithm\": {}", json!(Planner::rendezvous().id()));
    for (name, vectors) in lists {
        let lines: Vec<String> = vectors.iter().map(Value::to_string).collect();
        write!(text, ",\n\"{name}\": [\n{}\n]", lines.join(",\n")).unwrap();
    }
    text + "\n}\n"
}

#[test]
fn the_published_vectors_are_what_we_answer() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../spec/placement-vectors.json");
    let now = written();
    if std::env::var_os("REWRITE").is_some() {
        std::fs::write(&path, &now).unwrap();
    }
    let published = std::fs::read_to_string(&path).unwrap();
    for (line, (published, now)) in published.lines().zip(now.lines()).enumerate() {
        assert_eq!(published, now, "line {} of {} is another", line + 1, path.display());
    }
    assert_eq!(published.lines().count(), now.lines().count());
    serde_json::from_str::<Value>(&published).unwrap();
}
