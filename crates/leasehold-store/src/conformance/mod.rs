//! The contract of a store as public functions over any store: one for each property, and [`all`] of them.
//!
//! The author of a store writes a [`Fixture`] for it and calls [`assert_all`] in a test. A property that needs a lever which
//! the fixture does not have is reported as skipped. A property that fails says what was expected, what was seen, and
//! what goes wrong in a cluster on such a store.
//!
//! ```
//! use leasehold_store::conformance::{self, MemoryFixture};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
//! conformance::assert_all(&MemoryFixture::default()).await;
//! # });
//! ```

mod contents;
mod data_loss;
mod fixture;
mod lists;
mod memory_fixture;
mod nodes;
mod order;
mod races;
mod registries;
mod report;
mod stopwatch;
mod swaps;
mod trial;
mod unknowns;
mod verdict;
mod watches;
mod watching;

use futures::future::BoxFuture;

pub use contents::{
    corrupt_records_are_shown_as_they_are, foreign_keys_are_reported, namespaces_are_apart,
    odd_names_are_carried_faithfully, values_are_carried_faithfully,
};
pub use data_loss::{
    a_rolled_back_store_is_noticed, acknowledged_writes_survive_a_restart, an_emptied_store_is_noticed,
    generation_is_steady, vanished_records_are_absent,
};
pub use fixture::{Fixture, Saved, Scale, Step};
pub use lists::{
    large_lists_are_whole, lists_are_whole_while_others_write, lists_show_what_was_applied,
    reads_are_never_stale,
};
pub use memory_fixture::MemoryFixture;
pub use nodes::{nodes_are_listed_whole, nodes_are_never_listed_stale};
pub use order::{lists_read_meta_last, node_lists_read_meta_last, reads_end_with_the_last_key};
pub use races::{one_creator_wins, racing_writers_lose_no_update};
pub use registries::{
    leases_expire_unless_renewed, only_its_own_keys_are_removed, registered_keys_are_there,
    registered_keys_keep_to_themselves, revoking_removes_its_keys_only,
};
pub use report::Report;
pub use swaps::{
    applies_only_to_what_it_expects, creates_replaces_removes, dropped_calls_do_no_harm,
    keeps_to_its_most_swaps, lanes_share_the_records, lost_shows_what_is_there, removes_as_it_says,
    swaps_stand_for_themselves, versions_agree_everywhere, versions_never_repeat,
};
pub use unknowns::{
    a_bad_day_loses_nothing, a_doubled_write_applies_once, a_late_write_loses_to_a_swap_past_it,
    a_lost_answer_can_be_resolved,
};
pub use verdict::{Failure, Note, Unmet, Verdict};
pub use watches::{
    a_broken_watch_resumes_with_a_snapshot, a_slow_reader_sees_the_truth, nothing_is_lost_after_the_snapshot,
    watches_begin_with_a_snapshot, watches_can_be_opened_again, watches_tell_every_change_in_order,
};

/// One property of the contract.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Property {
    /// The name of the function that checks it.
    pub name: &'static str,
    check: for<'f> fn(&'f dyn Fixture) -> BoxFuture<'f, Verdict>,
}

impl Property {
    /// Checks it, and gives up after the scale's timeout.
    pub async fn check(&self, fixture: &dyn Fixture) -> Verdict {
        let timeout = fixture.scale().property_timeout;
        match tokio::time::timeout(timeout, (self.check)(fixture)).await {
            Ok(verdict) => verdict,
            Err(_) => Err(Unmet::failed(
                format!("an end within {timeout:?}"),
                "calls that are still not answered",
                "a call that hangs blocks its caller; errors are better",
            )),
        }
    }
}

macro_rules! properties {
    ($($name:ident),* $(,)?) => {
        /// All properties, in the order in which they are best fixed.
        pub const PROPERTIES: &[Property] = &[
            $(Property { name: stringify!($name), check: |fixture| Box::pin($name(fixture)) }),*
        ];
    };
}

properties![
    creates_replaces_removes,
    applies_only_to_what_it_expects,
    lost_shows_what_is_there,
    versions_never_repeat,
    versions_agree_everywhere,
    swaps_stand_for_themselves,
    keeps_to_its_most_swaps,
    removes_as_it_says,
    lanes_share_the_records,
    dropped_calls_do_no_harm,
    one_creator_wins,
    racing_writers_lose_no_update,
    a_lost_answer_can_be_resolved,
    a_late_write_loses_to_a_swap_past_it,
    a_doubled_write_applies_once,
    a_bad_day_loses_nothing,
    reads_are_never_stale,
    lists_show_what_was_applied,
    lists_are_whole_while_others_write,
    large_lists_are_whole,
    nodes_are_listed_whole,
    nodes_are_never_listed_stale,
    lists_read_meta_last,
    node_lists_read_meta_last,
    reads_end_with_the_last_key,
    values_are_carried_faithfully,
    odd_names_are_carried_faithfully,
    namespaces_are_apart,
    corrupt_records_are_shown_as_they_are,
    foreign_keys_are_reported,
    watches_begin_with_a_snapshot,
    watches_tell_every_change_in_order,
    nothing_is_lost_after_the_snapshot,
    watches_can_be_opened_again,
    a_broken_watch_resumes_with_a_snapshot,
    a_slow_reader_sees_the_truth,
    vanished_records_are_absent,
    generation_is_steady,
    an_emptied_store_is_noticed,
    a_rolled_back_store_is_noticed,
    acknowledged_writes_survive_a_restart,
    registered_keys_are_there,
    leases_expire_unless_renewed,
    revoking_removes_its_keys_only,
    only_its_own_keys_are_removed,
    registered_keys_keep_to_themselves,
];

/// Checks all properties, prints the report, and panics if anything failed: the whole test of a store.
pub async fn assert_all(fixture: &dyn Fixture) {
    let report = all(fixture).await;
    println!("{report}");
    report.assert_good();
}

/// Checks all properties, one after the other.
pub async fn all(fixture: &dyn Fixture) -> Report {
    let mut report = Report::default();
    for property in PROPERTIES {
        report.add(property.name, property.check(fixture).await);
    }
    report
}
