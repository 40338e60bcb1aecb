//! Placements of the user's own that do not do as they should.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold_core::ShardId;
use leasehold_core::placement::{Assignment, Placement, Question, Rendezvous};

use crate::world::World;

/// Gives everything to the first node, as long as it works.
struct Own {
    id: &'static str,
    panics: AtomicBool,
    short: AtomicBool,
}

impl Own {
    fn new(id: &'static str) -> Arc<Own> {
        Arc::new(Own { id, panics: AtomicBool::new(false), short: AtomicBool::new(false) })
    }
}

impl Placement for Own {
    fn id(&self) -> String {
        self.id.into()
    }

    fn place(&self, question: &Question) -> Assignment {
        assert!(!self.panics.load(Ordering::Relaxed), "out of luck");
        let short = usize::from(self.short.load(Ordering::Relaxed));
        let first = (!question.nodes.is_empty()).then_some(0);
        Assignment { to: vec![first; question.shards.len() - short] }
    }

    fn rank(&self, question: &Question, shard: &ShardId) -> Vec<u32> {
        assert!(!self.panics.load(Ordering::Relaxed), "out of luck");
        Rendezvous.rank(question, shard)
    }
}

fn tell(world: &mut World, line: &str) -> String {
    world.command(line).expect("a command that is there").join("\n")
}

fn running(world: &World) -> Vec<(&str, usize)> {
    world.processes.iter().map(|(name, process)| (name.as_str(), process.works.len())).collect()
}

#[test]
fn a_placement_that_panics_is_told_and_nothing_stays_unowned() {
    let own = Own::new("first/1");
    let mut world = World::new();
    for node in ["a", "b", "c"] {
        world.placements.insert(node.into(), own.clone());
    }
    tell(&mut world, "node a new groups=orders:6");
    tell(&mut world, "run 5s");
    own.panics.store(true, Ordering::Relaxed);
    let heard = tell(&mut world, "node b groups=orders:6") + &tell(&mut world, "run 10s");
    assert!(heard.contains("a: warning (placement): the placement plug-in panicked"), "{heard}");
    assert!(heard.contains("out of luck"), "{heard}");
    // What it planned last goes on.
    assert_eq!(running(&world), [("a", 6), ("b", 0)]);
    assert!(
        tell(&mut world, "view a").contains("problem placement orders"),
        "{}",
        tell(&mut world, "view a")
    );
    // Whose node is gone is planned by the placement that Leasehold brings along.
    tell(&mut world, "command a leave");
    tell(&mut world, "run 20s");
    assert_eq!(running(&world), [("a", 0), ("b", 6)]);
    own.panics.store(false, Ordering::Relaxed);
    tell(&mut world, "node c groups=orders:6");
    tell(&mut world, "run 5s");
    assert!(!tell(&mut world, "view b").contains("problem placement"));
}

#[test]
fn a_placement_that_answers_for_too_few_shards_is_told() {
    let own = Own::new("first/1");
    own.short.store(true, Ordering::Relaxed);
    let mut world = World::new();
    world.placements.insert("a".into(), own);
    tell(&mut world, "node a new groups=orders:3");
    let heard = tell(&mut world, "run 5s");
    assert!(heard.contains("placed 2 shards of orders, which has 3"), "{heard}");
    assert_eq!(running(&world), [("a", 2)]);
}

#[test]
fn nodes_with_different_placements_are_told() {
    let mut world = World::new();
    world.placements.insert("b".into(), Own::new("first/1"));
    tell(&mut world, "node a new groups=orders:4");
    tell(&mut world, "node b groups=orders:4");
    let heard = tell(&mut world, "run 10s");
    let warning = "nodes use different placements (first/1 on b; rendezvous/1 on a)";
    for node in ["a", "b"] {
        assert!(heard.contains(&format!("{node}: warning (placements_differ): {warning}")), "{heard}");
        assert!(tell(&mut world, &format!("view {node}")).contains("problem placements_differ"));
    }
}
