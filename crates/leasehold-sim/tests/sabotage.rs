//! Every rule that is switched off is noticed. Those of the core need `--features sabotage`; the driver's duties can
//! be broken in any build.

use leasehold_sim::{AfterFailure, Need, Options, Sabotage, run_many};

/// Within how many seeds, from 0 on, a broken rule must be noticed. CHAOS.md says how many it took.
const SEEDS_MAX: u64 = 400;
/// How many schedules without what shows a rule to be missing must not miss it.
const SEEDS_WITHOUT: u64 = 60;

#[test]
fn every_rule_that_is_switched_off_is_noticed() {
    let mut unnoticed = Vec::new();
    for sabotage in Sabotage::all() {
        let options = sabotage.options(&Options::default());
        let summary = run_many(&options, 0..SEEDS_MAX, 2, AfterFailure::Stop, |_| {});
        match summary.failures.first() {
            Some((seed, violation)) => println!("{sabotage}: {} at seed {seed}", violation.invariant),
            None => unnoticed.push(sabotage.to_string()),
        }
    }
    assert!(unnoticed.is_empty(), "switched off and not noticed within {SEEDS_MAX} seeds: {unnoticed:?}");
}

/// Otherwise a script would break any design, and say nothing about its rule.
#[test]
fn scripts_made_for_a_rule_break_nothing_while_it_holds() {
    for sabotage in Sabotage::all() {
        let options = Options { sabotage: None, ..sabotage.options(&Options::default()) };
        if options.script.is_some() {
            let summary = run_many(&options, 0..SEEDS_MAX, 2, AfterFailure::Stop, |_| {});
            let first = summary.failures.first();
            assert!(first.is_none(), "the script for {sabotage} with all rules in force: {first:?}");
        }
    }
}

/// Otherwise the rule would be missed in any schedule, and would say nothing about what this one contains.
#[test]
fn what_only_some_schedules_show_is_shown_by_no_others() {
    for need in Need::all() {
        let noticed = |options: Options, seeds: u64| {
            let summary = run_many(&options, 0..seeds, 2, AfterFailure::Stop, |_| {});
            summary.failures.into_iter().next()
        };
        assert!(
            noticed(need.with(&Options::default()), SEEDS_MAX).is_some(),
            "{} with {}",
            need.sabotage,
            need.what
        );
        let without = noticed(need.without(&Options::default()), SEEDS_WITHOUT);
        assert!(without.is_none(), "{} without {}: {without:?}", need.sabotage, need.what);
    }
}

#[test]
fn every_need_has_its_row_in_the_table() {
    let text = include_str!("../../../CHAOS.md");
    for need in Need::all() {
        let row = format!("| {} | `{}` |", need.what, need.sabotage);
        assert!(text.contains(&row), "CHAOS.md lacks the row {row}");
    }
}

#[test]
fn every_rule_has_its_row_in_the_table() {
    let text = include_str!("../../../CHAOS.md");
    let (_, rest) = text.split_once("<!-- sabotage table -->").expect("the table begins");
    let (table, _) = rest.split_once("<!-- end -->").expect("the table ends");
    for sabotage in Sabotage::all() {
        assert!(table.contains(&format!("| `{sabotage}` |")), "{sabotage} is not in the table of CHAOS.md");
    }
    assert!(!table.contains("not caught"), "{table}");
}

#[test]
fn names_are_read_back() {
    for sabotage in Sabotage::all() {
        assert_eq!(sabotage.to_string().parse(), Ok(sabotage));
    }
    assert!("no-such-rule".parse::<Sabotage>().unwrap_err().contains("kill-at-deadline"));
}
