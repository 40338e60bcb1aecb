use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_store::conformance::{self, Fixture, MemoryFixture, PROPERTIES, Unmet};
use leasehold_store::wrap::{Latency, Slow};
use leasehold_store::{Facts, Freshness, Store, StoreError};

use crate::broken::BrokenFixture;
use crate::flaw::Flaw;

#[tokio::test(start_paused = true)]
async fn the_memory_store_keeps_the_contract() {
    let report = conformance::all(&MemoryFixture::default()).await;
    println!("{report}");
    report.assert_good();
    assert_eq!(report.skipped, [], "the memory store has all levers");
    assert_eq!(report.passed.len(), PROPERTIES.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_memory_store_keeps_the_contract_on_real_threads() {
    let fixture = MemoryFixture::default();
    for name in [
        "one_creator_wins",
        "racing_writers_lose_no_update",
        "lists_are_whole_while_others_write",
        "nothing_is_lost_after_the_snapshot",
    ] {
        let property = PROPERTIES.iter().find(|property| property.name == name).expect(name);
        let verdict = property.check(&fixture).await;
        assert!(verdict.is_ok(), "{name}: {verdict:?}");
    }
}

/// Each flaw, and the property that is meant to notice it.
const FLAWS: &[(Flaw, &str)] = &[
    (Flaw::SwallowsReplacements, "creates_replaces_removes"),
    (Flaw::IgnoresExpect, "applies_only_to_what_it_expects"),
    (Flaw::LostWithoutCurrent, "lost_shows_what_is_there"),
    (Flaw::VersionsByContents, "versions_never_repeat"),
    (Flaw::ListedVersionsDiffer, "versions_agree_everywhere"),
    (Flaw::AllOrNothing, "swaps_stand_for_themselves"),
    (Flaw::OutcomesReversed, "swaps_stand_for_themselves"),
    (Flaw::ForgetsSurplusSwaps, "keeps_to_its_most_swaps"),
    (Flaw::RemovesBlindly, "removes_as_it_says"),
    (Flaw::LanesApart, "lanes_share_the_records"),
    (Flaw::WritesInTwoSteps, "dropped_calls_do_no_harm"),
    (Flaw::CreatesWithoutCondition, "one_creator_wins"),
    (Flaw::LostWithoutCurrent, "one_creator_wins"),
    (Flaw::ReplacesWithoutCondition, "racing_writers_lose_no_update"),
    (Flaw::AnswersEarly, "a_lost_answer_can_be_resolved"),
    (Flaw::IgnoresExpect, "a_late_write_loses_to_a_swap_past_it"),
    (Flaw::IgnoresExpect, "a_doubled_write_applies_once"),
    (Flaw::RetriesByItself, "a_bad_day_loses_nothing"),
    (Flaw::StaleReads, "reads_are_never_stale"),
    (Flaw::ListMissesTheLast, "lists_show_what_was_applied"),
    (Flaw::ListFlickers, "lists_are_whole_while_others_write"),
    (Flaw::ListsOnePage, "large_lists_are_whole"),
    (Flaw::ListsOnePage, "nodes_are_listed_whole"),
    (Flaw::NodesAreListedWithShards, "nodes_are_listed_whole"),
    (Flaw::NodeListsForgetMeta, "nodes_are_listed_whole"),
    (Flaw::NodeListsMayLag, "nodes_are_listed_whole"),
    (Flaw::NodeListsHaveNoGeneration, "nodes_are_listed_whole"),
    (Flaw::NodesListedFromACache, "nodes_are_never_listed_stale"),
    (Flaw::MetaListedFirst, "lists_read_meta_last"),
    (Flaw::MetaListedBeforeNodes, "node_lists_read_meta_last"),
    (Flaw::LastKeyReadFirst, "reads_end_with_the_last_key"),
    (Flaw::CutsValues, "values_are_carried_faithfully"),
    (Flaw::FoldsCase, "odd_names_are_carried_faithfully"),
    (Flaw::NamespaceIsAPrefix, "namespaces_are_apart"),
    (Flaw::WatchLeaks, "namespaces_are_apart"),
    (Flaw::DamageSpoilsTheListing, "corrupt_records_are_shown_as_they_are"),
    (Flaw::HidesForeignKeys, "foreign_keys_are_reported"),
    (Flaw::ForeignKeysSpoilTheListing, "foreign_keys_are_reported"),
    (Flaw::NoSnapshot, "watches_begin_with_a_snapshot"),
    (Flaw::WatchForgets, "watches_tell_every_change_in_order"),
    (Flaw::WatchReorders, "watches_tell_every_change_in_order"),
    (Flaw::WatchHidesRemovals, "watches_tell_every_change_in_order"),
    (Flaw::WatchBeginsLate, "nothing_is_lost_after_the_snapshot"),
    (Flaw::OneWatchOnly, "watches_can_be_opened_again"),
    (Flaw::HidesGaps, "a_broken_watch_resumes_with_a_snapshot"),
    (Flaw::WatchEnds, "a_broken_watch_resumes_with_a_snapshot"),
    (Flaw::HidesGaps, "a_slow_reader_sees_the_truth"),
    (Flaw::Resurrects, "vanished_records_are_absent"),
    (Flaw::GenerationsDiffer, "generation_is_steady"),
    (Flaw::VersionsByContents, "an_emptied_store_is_noticed"),
    (Flaw::VersionsByRevision, "a_rolled_back_store_is_noticed"),
    (Flaw::ForgetsOnRestart, "acknowledged_writes_survive_a_restart"),
    (Flaw::KeysUnordered, "registered_keys_are_there"),
    (Flaw::RemembersValues, "revoking_removes_its_keys_only"),
    (Flaw::RenewsTheDead, "leases_expire_unless_renewed"),
    (Flaw::NeverExpires, "leases_expire_unless_renewed"),
    (Flaw::RevokesNothing, "revoking_removes_its_keys_only"),
    (Flaw::RemovesAnyKey, "only_its_own_keys_are_removed"),
    (Flaw::KeysShared, "registered_keys_keep_to_themselves"),
];

#[tokio::test(start_paused = true)]
async fn every_flaw_is_noticed_by_the_property_meant_for_it() {
    let mut unnoticed = Vec::new();
    for (flaw, name) in FLAWS {
        let property = PROPERTIES.iter().find(|property| property.name == *name).expect(name);
        match property.check(&BrokenFixture::new(*flaw)).await {
            Err(Unmet::Failed(failure)) => println!("{flaw:?}: {name}: {failure}"),
            other => unnoticed.push((flaw, name, other)),
        }
    }
    assert!(unnoticed.is_empty(), "{unnoticed:#?}");
}

#[tokio::test(start_paused = true)]
async fn the_same_store_without_a_flaw_passes() {
    conformance::all(&BrokenFixture::new(Flaw::None)).await.assert_good();
}

#[test]
fn every_property_has_been_seen_to_fail() {
    for property in PROPERTIES {
        assert!(
            FLAWS.iter().any(|(_, name)| *name == property.name),
            "no flaw shows that {} can fail",
            property.name
        );
    }
}

/// A store without a watch, without removal, with listings that may lag, far away, and without any lever.
struct Plain(MemoryFixture);

#[async_trait]
impl Fixture for Plain {
    async fn open(&self, namespace: &str) -> Result<Arc<dyn Store>, StoreError> {
        let memory = self.0.server.open(namespace);
        let facts = Facts {
            watch: false,
            removes: false,
            swaps_max: 1,
            reads: Freshness::ListsMayLag,
            ..memory.facts()
        };
        let latency = Latency { least: Duration::from_millis(1), most: Duration::from_millis(30) };
        Ok(Arc::new(Slow::new(Arc::new(memory.with_facts(facts)), latency, 1)))
    }

    async fn let_pass(&self, time: Duration) {
        self.0.let_pass(time).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_tried_is_reported_as_skipped() {
    let report = conformance::all(&Plain(MemoryFixture::default())).await;
    println!("{report}");
    report.assert_good();
    let skipped: Vec<_> = report.skipped.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        skipped,
        [
            "swaps_stand_for_themselves",
            "corrupt_records_are_shown_as_they_are",
            "foreign_keys_are_reported",
            "watches_begin_with_a_snapshot",
            "watches_tell_every_change_in_order",
            "nothing_is_lost_after_the_snapshot",
            "watches_can_be_opened_again",
            "a_broken_watch_resumes_with_a_snapshot",
            "a_slow_reader_sees_the_truth",
            "vanished_records_are_absent",
            "an_emptied_store_is_noticed",
            "a_rolled_back_store_is_noticed",
            "acknowledged_writes_survive_a_restart",
        ]
    );
    let text = report.to_string();
    assert!(
        text.contains("skipped  an_emptied_store_is_noticed: the fixture cannot empty the store"),
        "{text}"
    );
    assert!(text.ends_with(&format!("{} passed, 0 failed, 13 skipped", PROPERTIES.len() - 13)), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_report_says_what_was_expected_what_was_seen_and_why_it_matters() {
    let report = conformance::all(&BrokenFixture::new(Flaw::LostWithoutCurrent)).await;
    assert!(!report.is_good());
    let text = report.to_string();
    for part in [
        "FAILED   lost_shows_what_is_there",
        "expected  Lost(Some(",
        "seen      Lost(None)",
        "matters   a loser",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn the_readme_names_every_property() {
    let readme = include_str!("../../README.md");
    for property in PROPERTIES {
        assert!(
            readme.contains(&format!("`{}`", property.name)),
            "README.md has no rule for {}",
            property.name
        );
    }
}
