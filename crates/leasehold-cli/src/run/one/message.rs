//! The lines between supervisor and child, as `docs/one.md` describes them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_core::{Epoch, GroupName, Moment, ShardId, ShardName};
use serde::Deserialize;
use serde_json::json;

use crate::guard::wire::Leash;

/// The version of the protocol. Fields may be added; a child should ignore what it does not know.
pub(super) const PROTOCOL: u32 = 1;

/// Makes the lines for the child, all with the same deadlines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Messages {
    pub(super) stop_at: Moment,
    pub(super) leash: Leash,
}

impl Messages {
    /// The first line.
    pub(super) fn hello(&self, namespace: &str, node: &str) -> String {
        let hello = json!({
            "event": "hello", "protocol": PROTOCOL, "namespace": namespace, "node": node, "clock": "CLOCK_BOOTTIME",
        });
        format!("{hello}\n")
    }

    /// A shard is the child's from now on.
    pub(super) fn grant(&self, shard: &ShardId, epoch: Epoch) -> String {
        let mut line = json!({"event": "grant", "group": shard.group, "shard": shard.name, "epoch": epoch});
        self.add_deadlines(&mut line);
        format!("{line}\n")
    }

    /// The deadlines of all shards moved.
    pub(super) fn deadline(&self) -> String {
        let mut line = json!({"event": "deadline"});
        self.add_deadlines(&mut line);
        format!("{line}\n")
    }

    /// A shard must be stopped, and acknowledged by that moment.
    pub(super) fn stop(&self, shard: &ShardId, epoch: Epoch, by: Moment) -> String {
        let line = json!({
            "event": "stop", "group": shard.group, "shard": shard.name, "epoch": epoch, "by_ns": by.as_nanos(),
        });
        format!("{line}\n")
    }

    fn add_deadlines(&self, line: &mut serde_json::Value) {
        line["stop_at_ns"] = self.stop_at.as_nanos().into();
        line["kill_at_ns"] = self.leash.kill_at.as_nanos().into();
        line["valid_until_ns"] = self.leash.valid_until.as_nanos().into();
    }
}

/// A line that a child printed.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::run) enum ChildLine {
    /// It answers, or reports something.
    Answer(Answer),
    /// A line for people, with its end.
    Output(Vec<u8>),
}

/// What a child says to its supervisor.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::run) enum Answer {
    /// It has stopped a shard.
    Ended(Acknowledgement),
    /// It has stopped a shard, and wants another node to have it for that long.
    Refused(Acknowledgement, Duration),
    /// About the whole node.
    Report(ChildReport),
}

/// What a child says of itself, and so of its node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::run) enum ChildReport {
    /// Its share of the work, relative to other nodes.
    Weight(u32),
    /// How busy it is; for people.
    Load(f64),
    /// Whether it is able to run shards.
    Healthy(bool),
}

/// How long a shard that was refused stays away, if the child does not say.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// A shard of which nothing runs any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::run) struct Acknowledgement {
    pub(super) shard: ShardId,
    pub(super) epoch: Epoch,
    /// Why it failed, if it was not told to stop.
    pub(super) error: Option<String>,
}

#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line {
    Stopped(OfShard),
    Failed(OfShard),
    Refuse(OfShard),
    Weight { weight: u32 },
    Load { load: f64 },
    Health { healthy: bool },
}

#[derive(Deserialize)]
struct OfShard {
    group: GroupName,
    shard: ShardName,
    epoch: Epoch,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    for_ms: Option<u64>,
}

impl OfShard {
    fn acknowledge(self, error: Option<String>) -> Acknowledgement {
        Acknowledgement { shard: ShardId::new(self.group, self.shard), epoch: self.epoch, error }
    }
}

impl From<Line> for Answer {
    fn from(line: Line) -> Self {
        match line {
            Line::Stopped(of) => Answer::Ended(of.acknowledge(None)),
            Line::Failed(mut of) => {
                let error = of.error.take().unwrap_or_else(|| "it failed".to_owned());
                Answer::Ended(of.acknowledge(Some(error)))
            }
            Line::Refuse(of) => {
                let pause = of.for_ms.map_or(REFUSED_FOR, Duration::from_millis);
                Answer::Refused(of.acknowledge(None), pause)
            }
            Line::Weight { weight } => Answer::Report(ChildReport::Weight(weight)),
            Line::Load { load } => Answer::Report(ChildReport::Load(load)),
            Line::Health { healthy } => Answer::Report(ChildReport::Healthy(healthy)),
        }
    }
}

/// The events that a child may send.
const EVENTS: &[&str] = &["stopped", "failed", "refuse", "weight", "load", "health"];

impl ChildLine {
    /// Reads a line: an answer, or else something for people.
    pub(in crate::run) fn read(mut line: Vec<u8>) -> ChildLine {
        if let Ok(read) = serde_json::from_slice::<Line>(&line) {
            return ChildLine::Answer(read.into());
        }
        if let Some(why) = malformed(&line)
            && !MALFORMED_TOLD.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                why,
                line = %String::from_utf8_lossy(&line),
                "the child printed an invalid answer, which changes nothing: a shard that it was about still counts as running; \
                 see docs/one.md (this is logged once)"
            );
        }
        line.push(b'\n');
        ChildLine::Output(line)
    }
}

static MALFORMED_TOLD: AtomicBool = AtomicBool::new(false);

/// What is wrong with a line that was meant to be an answer and cannot be read as one.
fn malformed(line: &[u8]) -> Option<String> {
    if line.first() != Some(&b'{') {
        return None;
    }
    let value: serde_json::Value = serde_json::from_slice(line).ok()?;
    if !EVENTS.contains(&value.get("event")?.as_str()?) {
        return None;
    }
    serde_json::from_value::<Line>(value).err().map(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_an_answer_is_found() {
        let wrong = |text: &str| malformed(text.as_bytes());
        assert_eq!(wrong(r#"{"event":"stopped","group":"g"}"#).as_deref(), Some("missing field `shard`"));
        assert!(wrong(r#"{"event":"failed","group":"g","shard":"1","epoch":"x"}"#).is_some());
        assert_eq!(wrong(r#"{"event":"stopped","group":"g","shard":"1","epoch":3}"#), None);
        assert_eq!(wrong(r#"{"event":"progress","group":"g"}"#), None);
        assert_eq!(wrong("stopped"), None);
    }

    #[test]
    fn acknowledgements_are_told_from_lines_for_people() {
        let read = |text: &str| ChildLine::read(text.as_bytes().to_vec());
        let acknowledged = |error: Option<&str>| {
            ChildLine::Answer(Answer::Ended(Acknowledgement {
                shard: "orders/3".parse().unwrap(),
                epoch: Epoch(7),
                error: error.map(str::to_owned),
            }))
        };
        assert_eq!(read(r#"{"event":"stopped","group":"orders","shard":"3","epoch":7}"#), acknowledged(None));
        assert_eq!(
            read(r#"{"event":"failed","group":"orders","shard":"3","epoch":7,"error":"x","more":1}"#),
            acknowledged(Some("x"))
        );
        for text in
            ["hello", r#"{"event":"stopped"}"#, r#"{"event":"other","group":"a","shard":"1","epoch":1}"#, ""]
        {
            assert_eq!(read(text), ChildLine::Output(format!("{text}\n").into_bytes()));
        }
    }

    #[test]
    fn a_child_reports_on_itself_and_refuses_shards() {
        let read = |text: &str| match ChildLine::read(text.as_bytes().to_vec()) {
            ChildLine::Answer(answer) => Some(answer),
            ChildLine::Output(_) => None,
        };
        let report = |report| Some(Answer::Report(report));
        assert_eq!(read(r#"{"event":"weight","weight":7}"#), report(ChildReport::Weight(7)));
        assert_eq!(read(r#"{"event":"load","load":0.5,"more":1}"#), report(ChildReport::Load(0.5)));
        assert_eq!(read(r#"{"event":"health","healthy":false}"#), report(ChildReport::Healthy(false)));
        let of = || Acknowledgement { shard: "g/1".parse().unwrap(), epoch: Epoch(2), error: None };
        let refuse = r#"{"event":"refuse","group":"g","shard":"1","epoch":2"#;
        let second = Duration::from_secs(1);
        assert_eq!(read(&format!("{refuse}}}")), Some(Answer::Refused(of(), REFUSED_FOR)));
        assert_eq!(read(&format!("{refuse},\"for_ms\":1000}}")), Some(Answer::Refused(of(), second)));
        assert_eq!(read(r#"{"event":"weight","weight":-1}"#), None);
        assert!(malformed(br#"{"event":"weight","weight":-1}"#).is_some());
    }

    #[test]
    fn lines_carry_absolute_moments_only() {
        let leash = Leash { kill_at: Moment::from_nanos(20), valid_until: Moment::from_nanos(30) };
        let messages = Messages { stop_at: Moment::from_nanos(10), leash };
        let line = messages.grant(&"orders/3".parse().unwrap(), Epoch(7));
        let read: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(read["kill_at_ns"], 20);
        assert_eq!(read["stop_at_ns"], 10);
        assert_eq!(read["shard"], "3");
        assert!(line.ends_with('\n'));
    }
}
