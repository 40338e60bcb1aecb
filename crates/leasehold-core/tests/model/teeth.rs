//! Each rule switched off in turn: the search must find what it prevents.

use crate::ALL;
use crate::moves::Violation;
use crate::search::{Symmetry, search};
use crate::setup::{Rule, Setup};

/// Without the rule, one of these must be found; its shortest run is printed.
fn goes_wrong(rule: Rule, setup: Setup, expected: &[Violation]) {
    let found = search(&setup.without(rule), Symmetry::Kept, expected, 4_000_000);
    let counterexample = found.counterexample.unwrap_or_else(|| {
        panic!("without {rule:?} nothing goes wrong in {} states: the model has no teeth there", found.states)
    });
    let (steps, violation) = (counterexample.steps, counterexample.violation);
    println!(
        "\nWithout {rule:?}: {violation:?} after {steps} steps, {} states\n{}",
        found.states, counterexample.trace
    );
}

fn nodes() -> Setup {
    Setup::new(2, 1)
}

/// The store is emptied once, with nothing else going on.
fn emptied(used_before: bool) -> Setup {
    Setup { wipes: 1, used_before, crashes: false, pauses: false, voluntary: false, ..nodes() }
}

/// The record of a shard vanishes once, with nothing else going on but moves.
fn holed() -> Setup {
    Setup { holes: 1, ttl: 2, used_before: true, crashes: false, pauses: false, ..nodes() }
}

const OVERLAP: &[Violation] = &[Violation::TwoHolders, Violation::TwoRunning];

macro_rules! goes_wrong {
    ($($test:ident: $rule:ident, $setup:expr, $expected:expr;)+) => {
        $(#[test]
        fn $test() {
            goes_wrong(Rule::$rule, $setup, $expected);
        })+
    };
}

goes_wrong! {
    deadline_from_the_answer: DeadlineFromSending, nodes(), &[Violation::TwoHolders];
    no_margin: Margin, nodes(), OVERLAP;
    no_detachment: Detach, nodes(), OVERLAP;
    acting_before_comparing: CompareOnWake, nodes(), OVERLAP;
    reviving_a_lost_session: LostIsForEver, nodes(), OVERLAP;
    taking_over_without_a_fence: FenceBeforeTakeover, nodes(), OVERLAP;
    too_short_a_silence: SilenceLastsTtl, nodes(), OVERLAP;
    stealing: NeverStolen, nodes(), &[Violation::TwoHolders];
    absent_taken_for_dead: AbsentIsNotDead, Setup { vanishes: 1, used_before: true, ..nodes() }, OVERLAP;
    created_taken_for_a_proof: CreatedProvesNothing, Setup { vanishes: 1, ..nodes().twins() }, OVERLAP;
    proof_from_an_old_roster: ProofAfterShard, nodes(), OVERLAP;
    release_before_stop: StopBeforeRelease, nodes(), OVERLAP;
    left_before_stop: LeftOnlyWhenStopped, nodes(), OVERLAP;
    unchanged_taken_for_failed: UnchangedIsUnknown, nodes(), OVERLAP;
    unknown_taken_for_applied: UnknownIsResolved, nodes(), OVERLAP;
    adopting_a_former_session: FreshSession, nodes().twins(), OVERLAP;
    epoch_not_raised: EpochRises, nodes(), &[Violation::EpochNotHigher];
    release_that_deletes: RecordsStay, nodes(), &[Violation::EpochNotHigher];
    renewal_without_a_condition: RenewalIsSwap, nodes().twins(), OVERLAP;
    release_without_a_condition: ReleaseIsSwap, nodes(), OVERLAP;
    claiming_before_settling: SettleBeforeClaim, emptied(true), OVERLAP;
    no_epoch_floor: FloorAboveAll, emptied(true), &[Violation::EpochNotHigher];
    started_unpublished: PublishBeforeStart, holed(), OVERLAP;
    started_without_looking: NodesBeforeStart, holed(), OVERLAP;
    started_what_another_publishes: PublishedIsHeld, holed(), OVERLAP;
    trusted_before_it_was_published: PublishedBeforeTrust, holed(), OVERLAP;
    started_on_a_lost_claim: ClaimStillThere, holed(), OVERLAP;
    unstarted_taken_for_a_release: UnstartedIsNoRelease, holed(), OVERLAP;
    created_late_without_looking: NodesBeforeStart, emptied(true), OVERLAP;
    unstarted_late_taken_for_a_release: UnstartedIsNoRelease, Setup { voluntary: true, ..emptied(true) }, OVERLAP;
    restored_from_stale_memory: RestoredByTheRenewed, Setup { damages: 1, ..emptied(true) }, OVERLAP;
    restored_as_read_before_joining: RestoredAsReadSince, Setup { damages: 1, ..emptied(true) }, ALL;
    meta_written_without_a_condition: MetaIsSwap, Setup { damages: 1, late_meta: true, begun: true, ..emptied(true) }, OVERLAP;
    renewing_over_an_older_record: OwnRecordNotOlder, emptied(false), OVERLAP;
}

/// Worth knowing: where the version is read once more after the silence, the fence itself prevents nothing. It is the
/// swap that spares the read, and that tells all others.
#[test]
fn silence_and_a_fresh_read_are_as_good_as_a_fence() {
    let found = search(&nodes().without(Rule::FenceAfterFreshRead), Symmetry::Reduced, ALL, 4_000_000);
    assert!(found.counterexample.is_none(), "{}", found.counterexample.unwrap().trace);
}
