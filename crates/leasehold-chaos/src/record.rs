//! Writes a history so that it is complete up to the moment of a kill: one write to the file per line, without a
//! buffer.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::{Epoch, Moment, ShardId};
use serde_json::{Value, json};

use crate::measure::CUT_OFF;

/// The process that a history is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// The node.
    pub node: String,
    /// Which session of the node.
    pub session: String,
}

/// Writes the history of one process.
#[derive(Debug)]
pub struct Recorder {
    file: Mutex<File>,
    who: Who,
    boot: String,
}

impl Recorder {
    /// Goes on with a file, or begins it.
    pub fn open(path: &Path, who: Who) -> io::Result<Recorder> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Recorder { file: Mutex::new(file), who, boot: boot_id() })
    }

    /// Writes a line about this process.
    pub fn note(&self, event: &str, at: Moment, more: Value) -> io::Result<()> {
        self.note_of(&self.who, event, at, more)
    }

    /// Writes a line about another process: that it is gone, or stopped.
    pub fn note_of(&self, who: &Who, event: &str, at: Moment, more: Value) -> io::Result<()> {
        let mut line = json!({
            "event": event, "node": who.node, "session": who.session, "boot": self.boot, "at_ns": at.as_nanos(),
        });
        if let (Some(line), Value::Object(more)) = (line.as_object_mut(), more) {
            line.extend(more);
        }
        let text = format!("{line}\n");
        self.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(text.as_bytes())
    }

    /// Writes that work begins. `at` must have been read before the grant was found good.
    pub fn begin(self: &Arc<Self>, work: WorkStart) -> io::Result<Recording> {
        self.note("started", work.beat_at, work.fields())?;
        Ok(Recording { recorder: self.clone(), work, why: CUT_OFF, ended: false })
    }
}

/// What is known of a piece of work that runs.
#[derive(Clone, Debug)]
pub struct WorkStart {
    /// Which shard.
    pub shard: ShardId,
    /// Under which epoch.
    pub epoch: Epoch,
    /// The last moment at which it certainly ran.
    pub beat_at: Moment,
    /// When it had to stop, as known then.
    pub stop_at: Moment,
    /// How long after that its grant ends.
    pub margin: Duration,
    /// How often it beats. A beat that is late by twice that is recorded, because the process may have been paused.
    pub beat_every: Duration,
}

impl WorkStart {
    fn fields(&self) -> Value {
        json!({
            "group": self.shard.group, "shard": self.shard.name, "epoch": self.epoch,
            "stop_at_ns": self.stop_at.as_nanos(), "valid_until_ns": (self.stop_at + self.margin).as_nanos(),
        })
    }
}

/// A piece of work that is being recorded. Dropped without an end, it was cut off.
#[derive(Debug)]
pub struct Recording {
    recorder: Arc<Recorder>,
    work: WorkStart,
    why: &'static str,
    ended: bool,
}

impl Recording {
    /// It runs at this moment, and this is when it has to stop. Recorded if the process may have been paused before, or if
    /// its grant is over.
    pub fn beat(&mut self, at: Moment, stop_at: Moment) -> io::Result<()> {
        let late = at.since(self.work.beat_at) > self.work.beat_every * 3;
        let past = at > self.work.stop_at.max(stop_at) + self.work.margin;
        self.work.beat_at = self.work.beat_at.max(at);
        self.work.stop_at = self.work.stop_at.max(stop_at);
        if late || past { self.recorder.note("beat", at, self.work.fields()) } else { Ok(()) }
    }

    /// It has ended just now: its last beat was the last moment at which its grant was certainly good.
    pub fn end(mut self, why: &'static str) -> io::Result<()> {
        self.why = why;
        self.finish()
    }

    fn finish(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.ended, true) {
            return Ok(());
        }
        let ended_at = leasehold::clock::now();
        let mut fields = self.work.fields();
        fields["why"] = self.why.into();
        fields["ended_ns"] = ended_at.as_nanos().into();
        self.recorder.note("stopped", self.work.beat_at, fields)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let _ = self.finish();
    }
}

/// Which boot of which machine this is. Boot clocks may be compared only where this is the same.
fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::History;
    use crate::judge::judge;
    use leasehold::clock;

    const MS: Duration = Duration::from_millis(1);

    /// The promises that are broken by work that began three seconds ago, with a grant that ends after so long.
    fn broken(good_for: Duration, work: impl FnOnce(Recording)) -> Vec<&'static str> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.jsonl");
        let who = Who { node: "a".into(), session: "a-1".into() };
        let recorder = Arc::new(Recorder::open(&path, who).unwrap());
        let beat_at = clock::now() - MS * 3000;
        let stop_at = beat_at + good_for - MS * 10;
        let shard = "g/0".parse().unwrap();
        let beat_every = MS * 10_000;
        work(
            recorder
                .begin(WorkStart { shard, epoch: Epoch(1), beat_at, stop_at, margin: MS * 10, beat_every })
                .unwrap(),
        );
        let text = std::fs::read_to_string(&path).unwrap();
        let history = History::read([("log.jsonl", text.as_str())]);
        assert!(history.problems.is_empty(), "{:?}", history.problems);
        judge(&history).iter().map(|violation| violation.invariant).collect()
    }

    #[test]
    fn work_that_really_ended_after_its_grant_is_caught() {
        let late = ["stopped_before_deadline"];
        assert!(broken(MS * 60_000, |recording| recording.end("moving").unwrap()).is_empty());
        assert_eq!(broken(MS * 900, |recording| recording.end("detached").unwrap()), late);
        assert_eq!(broken(MS * 900, drop), late, "cut off too late");
    }

    #[test]
    fn every_beat_past_its_grant_is_written_down() {
        let go_on = |mut recording: Recording| {
            recording.beat(clock::now(), Moment::ZERO).unwrap();
            // A process that is killed writes nothing more.
            recording.ended = true;
        };
        assert_eq!(broken(MS * 900, go_on), ["stopped_before_deadline"]);
        assert!(broken(MS * 60_000, go_on).is_empty());
    }
}
