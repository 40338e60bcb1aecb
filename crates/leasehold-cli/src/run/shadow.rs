//! Shadow mode: the node takes part in a namespace beside the real one and starts no command. It says and counts what it
//! would have done (`docs/shadow.md`).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use leasehold::clock::{self, Clock};
use leasehold::{Grant, Outcome};
use leasehold_cli_common::plural::count;
use leasehold_core::Moment;

use super::template::Template;

/// What is put behind the name of the namespace.
pub(super) const SUFFIX: &str = "-shadow";

/// How often the counts are told, if they have changed.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// What would have happened so far.
#[derive(Debug, Default)]
pub(super) struct Shadow {
    counts: Mutex<Counts>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counts {
    started: usize,
    /// By the reason.
    stopped: BTreeMap<String, usize>,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stopped: usize = self.stopped.values().sum();
        write!(f, "{} would have been started and {stopped} stopped", count(self.started, "command"))?;
        if stopped > 0 {
            let reasons: Vec<String> = self.stopped.iter().map(|(why, n)| format!("{n} {why}")).collect();
            write!(f, " ({})", reasons.join(", "))?;
        }
        write!(f, "; {} would run now", self.started - stopped)
    }
}

impl Shadow {
    /// Holds one shard, in place of its command.
    pub(super) async fn work(&self, command: &Template, grant: Grant) -> Outcome {
        let (shard, epoch) = (grant.shard().clone(), grant.epoch());
        let words: Vec<String> = command.fill(&shard, epoch).iter().map(|word| quoted(word)).collect();
        let since = clock::now();
        self.change(|counts| counts.started += 1);
        tracing::info!(%shard, %epoch, command = words.join(" "), "shadow: the command would start");
        let _stop = Stop { shadow: self, grant: &grant, since };
        grant.stopped().await;
        Ok(())
    }

    fn change(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn counts(&self) -> Counts {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells the counts now and then, for as long as it is polled.
    pub(super) async fn tell(&self) {
        let (mut told, clock) = (Counts::default(), Clock::boot());
        loop {
            clock.sleep(TOLD_EVERY).await;
            let now = self.counts();
            if now != told {
                self.tell_now();
                told = now;
            }
        }
    }

    /// Tells the counts.
    pub(super) fn tell_now(&self) {
        tracing::info!("shadow: {}", self.counts());
    }
}

/// Counts the end, however it comes.
struct Stop<'a> {
    shadow: &'a Shadow,
    grant: &'a Grant,
    since: Moment,
}

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        let (shard, epoch) = (self.grant.shard(), self.grant.epoch());
        let why = self.grant.stop_reason().map_or_else(|| "detached".to_owned(), |why| why.to_string());
        let ran_for = clock::now().since(self.since);
        tracing::info!(%shard, %epoch, why, ?ran_for, "shadow: the command would be stopped");
        self.shadow.change(|counts| *counts.stopped.entry(why).or_default() += 1);
    }
}

/// A word of a command as a shell would take it.
fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.into_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_read_as_a_sentence() {
        let mut counts = Counts { started: 1, ..Counts::default() };
        assert_eq!(counts.to_string(), "1 command would have been started and 0 stopped; 1 would run now");
        counts.started = 9;
        counts.stopped = BTreeMap::from([("moving".to_owned(), 3), ("detached".to_owned(), 2)]);
        assert_eq!(
            counts.to_string(),
            "9 commands would have been started and 5 stopped (2 detached, 3 moving); 4 would run now"
        );
    }

    #[test]
    fn commands_are_shown_as_a_shell_takes_them() {
        let shown = ["./a", "--x=1", "a b", "it's", ""].map(|word| quoted(OsStr::new(word)));
        assert_eq!(shown, ["./a", "--x=1", "'a b'", "'it'\\''s'", "''"]);
    }
}
