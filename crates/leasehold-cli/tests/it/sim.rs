//! `leasehold sim`, for programs and for people without a terminal.

use std::io::Read;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::process::{LEASEHOLD, send, terminal, to_its_end, wait_for};

fn sim(arguments: &[&str]) -> Output {
    let small = ["--nodes", "3", "--shards", "4", "--for", "20s"];
    to_its_end(Command::new(LEASEHOLD).arg("sim").args(arguments).args(small))
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
    let told = sim(&["--seed", "7", "--trace"]);
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

#[test]
fn an_interrupt_begins_no_more_seeds_and_tells_what_ran() {
    for (json, signal) in [(false, Signal::SIGINT), (true, Signal::SIGTERM)] {
        let mut command = Command::new(LEASEHOLD);
        let seeds = ["sim", "--seeds", "0..100000000", "--nodes", "1", "--shards", "1", "--for", "5s"];
        command.args(seeds).args(json.then_some("--json"));
        let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // A process that has used some CPU time has started, and listens for signals.
        let pid = running.id();
        wait_for("it runs", Duration::from_secs(120), || (ticks(pid) > 30).then_some(()));
        send(pid, signal);
        let output = running.wait_with_output().unwrap();
        let (text, told) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert_eq!(output.status.code(), Some(1), "{text}{told}");
        assert!(told.starts_with("leasehold: interrupted after "), "{told}");
        assert!(told.ends_with(" of 100000000 schedules; no promise was broken\n"), "{told}");
        if json {
            let totals: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(totals["interrupted"], true);
            assert!(totals["seeds"].as_u64() > Some(0), "{totals:#}");
        } else {
            assert!(text.contains(" schedules, 0 broke a promise\n"), "{text}");
        }
    }
}

/// How much time of a core a process has used, in hundredths of a second.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let used = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(11)?.parse().ok());
    used.unwrap_or(0)
}

#[test]
fn the_bar_fits_a_narrow_terminal() {
    for columns in [30, 60, 120] {
        let (mut screen, terminal) = terminal(columns);
        let small = ["--nodes", "1", "--shards", "1", "--for", "5s"];
        let mut command = Command::new(LEASEHOLD);
        command.args(["sim", "--seeds", "0..30"]).args(small);
        let mut running = command.stdout(Stdio::null()).stderr(terminal).spawn().unwrap();
        // It holds the terminal open as long as it can start something.
        drop(command);
        let mut shown = Vec::new();
        // Reading fails when nobody has the terminal open any more.
        let _ = screen.read_to_end(&mut shown);
        assert!(running.wait().unwrap().success());
        let shown = String::from_utf8_lossy(&shown);
        let lines: Vec<&str> = shown
            .split(['\r', '\n'])
            .map(|line| line.trim_start_matches("\x1b[K"))
            .filter(|l| !l.is_empty())
            .collect();
        assert!(lines[0].contains("0 of 30"), "{shown}");
        assert!(lines.last().unwrap().contains("30 of 30"), "{shown}");
        for line in lines {
            assert!(line.chars().count() < columns.into(), "{line}");
        }
    }
}
