//! A planted bug is found, and shrunk to what it takes.

use leasehold_sim::{Duty, Options, Sabotage, Tracing, report, run, shrink};

fn first_failure(options: &Options) -> leasehold_sim::Outcome {
    (0..500)
        .map(|seed| run(options, seed))
        .find(|outcome| outcome.violation.is_some())
        .expect("a planted bug is found")
}

#[test]
fn a_planted_bug_is_shrunk_to_what_it_takes() {
    let options = Options {
        sabotage: Some(Sabotage::Driver(Duty::ClockCountsSleep)),
        tracing: Tracing::On,
        ..Options::default()
    };
    let failed = first_failure(&options);
    let shrunk = shrink(&options, &failed);
    let invariant = |outcome: &leasehold_sim::Outcome| outcome.violation.as_ref().map(|it| it.invariant);
    assert_eq!(invariant(&shrunk), invariant(&failed));
    assert!(shrunk.faults.len() < failed.faults.len(), "{} of {}", shrunk.faults.len(), failed.faults.len());
    assert!(!shrunk.faults.is_empty(), "it takes a pause");

    // None of what is left can be left out.
    let keep: Vec<usize> = shrunk.faults.iter().map(|planned| planned.number).collect();
    for left_out in &keep {
        let fewer = keep.iter().copied().filter(|number| number != left_out).collect();
        let outcome = run(&Options { keep: Some(fewer), ..options.clone() }, failed.seed);
        assert_ne!(invariant(&outcome), invariant(&failed), "fault #{left_out} is not needed");
    }

    // The command in the report leads to the same run.
    let again = run(&Options { keep: Some(keep.clone()), ..options.clone() }, failed.seed);
    assert_eq!(again.stats, shrunk.stats);
    let text = report::failure(&options, &shrunk);
    let numbers: Vec<String> = keep.iter().map(usize::to_string).collect();
    assert!(text.contains(&format!("--seed {} ", failed.seed)), "{text}");
    assert!(text.contains(&format!("--keep {} --trace", numbers.join(","))), "{text}");
    assert!(text.contains("is paused"), "{text}");
}

#[test]
fn a_run_that_keeps_all_promises_stays_as_it_is() {
    let outcome = run(&Options::default(), 1);
    assert_eq!(shrink(&Options::default(), &outcome).stats, outcome.stats);
}
