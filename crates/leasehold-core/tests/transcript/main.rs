//! Runs the stories under `tests/transcripts`: readable text in, readable text out.
//!
//! A story is a comment that says what is shown and why, then blocks of commands, `----`, and what they print. The
//! world that they run in is in memory and under virtual time, so the same story always prints the same. After a
//! wanted change of behaviour, `REWRITE=1 cargo test -p leasehold-core --test transcript` writes the new outputs into
//! the files, to be read and judged like any other change. A line with `!!` is a broken promise: two holders, an epoch
//! that did not rise, a node that spins. No story may have one, whatever its file says.

mod commands;
mod declines;
mod memory_store;
mod names;
mod placements;
mod print;
mod process;
mod script;
mod tables;
mod world;

use std::path::{Path, PathBuf};

fn stories() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let files = std::fs::read_dir(folder).expect("the folder of stories is there");
    let mut paths: Vec<PathBuf> = files.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    paths.sort();
    paths
}

#[test]
fn every_story_goes_as_written() {
    let rewrite = std::env::var_os("REWRITE").is_some();
    let only = std::env::var("STORY").unwrap_or_default();
    let mut wrong = Vec::new();
    let mut told = 0;
    for path in stories().into_iter().filter(|path| path.to_string_lossy().contains(&only)) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let written = std::fs::read_to_string(&path).expect("a story can be read");
        let heard = script::retell(&written);
        told += 1;
        let broken: Vec<&str> = heard.lines().filter(|line| line.contains("!!")).collect();
        if !broken.is_empty() {
            wrong.push(format!("{name} breaks a promise:\n  {}", broken.join("\n  ")));
        }
        if heard != written && rewrite {
            std::fs::write(&path, &heard).expect("a story can be written");
        } else if heard != written {
            wrong.push(format!(
                "{name} (- as written, + as it went):\n{}",
                script::difference(&written, &heard)
            ));
        }
    }
    assert!(told > 0, "no story was found");
    assert!(wrong.is_empty(), "\n{}\n(REWRITE=1 writes the new outputs)", wrong.join("\n"));
}

#[test]
fn a_story_goes_the_same_way_twice() {
    for path in stories() {
        let written = std::fs::read_to_string(&path).expect("a story can be read");
        assert!(script::retell(&written) == script::retell(&written), "{} is left to chance", path.display());
    }
}

/// `cargo test -p leasehold-core --features sabotage --test transcript`
#[cfg(feature = "sabotage")]
#[test]
fn without_its_rule_a_story_breaks_a_promise() {
    use leasehold_core::rules::{Rule, Rules};
    for (rule, story) in [
        (Rule::PublishBeforeStart, "published"),
        (Rule::NodesBeforeStart, "published"),
        (Rule::PublishedBeforeTrust, "published_late"),
        (Rule::ClaimStillThere, "published_late"),
        (Rule::PublishedIsHeld, "published"),
        (Rule::MetaRestoredByTheLiving, "damaged_meta_revives_an_old_incarnation"),
        (Rule::TtlMaxIsHeard, "ttl_longer"),
        (Rule::TtlMaxIsHeard, "ttl_heard"),
        (Rule::AbsentIsNotDead, "evidence"),
        (Rule::PublishedIsHeld, "evidence_of_its_own_name"),
    ] {
        let path = stories().into_iter().find(|path| path.file_stem().is_some_and(|stem| stem == story));
        let written = std::fs::read_to_string(path.expect("the story is there")).expect("it can be read");
        let sabotaged = || {
            let mut world = world::World::new();
            world.rules = Rules::without(rule);
            world
        };
        let heard = script::retell_in(sabotaged, &written);
        let overlaps = heard.lines().filter(|line| line.contains("!!") && line.contains("still runs on"));
        let overlaps: Vec<&str> = overlaps.collect();
        println!("without {rule:?}, in {story}:\n  {}", overlaps.join("\n  "));
        assert!(!overlaps.is_empty(), "{story} goes well without {rule:?}: it shows nothing");
    }
}

/// Rules behind which other rules stand: without them a story breaks no promise, but goes otherwise.
#[cfg(feature = "sabotage")]
#[test]
fn without_its_rule_a_story_goes_otherwise() {
    use leasehold_core::rules::{Rule, Rules};
    for (rule, story) in [(Rule::GateAsksAgain, "gate_late"), (Rule::WatchSettlesNoClaim, "unknown_claim")] {
        let path = stories().into_iter().find(|path| path.file_stem().is_some_and(|stem| stem == story));
        let written = std::fs::read_to_string(path.expect("the story is there")).expect("it can be read");
        let sabotaged = || {
            let mut world = world::World::new();
            world.rules = Rules::without(rule);
            world
        };
        let heard = script::retell_in(sabotaged, &written);
        println!("without {rule:?}, in {story}:\n{}", script::difference(&written, &heard));
        assert!(heard != written, "{story} goes as written without {rule:?}: it shows nothing");
    }
}
