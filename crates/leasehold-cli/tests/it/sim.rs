//! `leasehold sim`, for programs and for people without a terminal.

use std::process::{Command, Output};

use crate::process::LEASEHOLD;

fn sim(arguments: &[&str]) -> Output {
    let small = ["--nodes", "3", "--shards", "4", "--for", "20s"];
    Command::new(LEASEHOLD).arg("sim").args(arguments).args(small).output().unwrap()
}

#[test]
fn the_same_seeds_give_the_same_totals_on_any_number_of_threads() {
    let one = sim(&["--seeds", "0..6", "--json", "--jobs", "1"]);
    let two = sim(&["--seeds", "0..6", "--json", "--jobs", "2"]);
    assert!(one.status.success(), "{}", String::from_utf8_lossy(&one.stdout));
    assert_eq!(one.stdout, two.stdout);
    let totals: serde_json::Value = serde_json::from_slice(&one.stdout).unwrap();
    assert_eq!(totals["seeds"], 6);
    assert_eq!(totals["failures"], serde_json::json!([]));
    assert!(totals["stats"]["starts"].as_u64() > Some(20), "{totals:#}");
}

#[test]
fn a_story_is_told_and_no_bar_is_drawn_without_a_terminal() {
    let told = sim(&["--seed", "3", "--trace"]);
    let text = String::from_utf8(told.stdout).unwrap();
    assert!(told.status.success(), "{text}");
    assert!(text.lines().count() > 100, "{text}");
    for part in ["opens session", "starts work/0 under epoch", "all faults are over", "all promises kept"] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    let many = sim(&["--seeds", "0..40"]);
    assert!(many.stderr.is_empty(), "{}", String::from_utf8_lossy(&many.stderr));
    let text = String::from_utf8(many.stdout).unwrap();
    assert!(text.starts_with("40 schedules, 0 broke a promise\n"), "{text}");
}
