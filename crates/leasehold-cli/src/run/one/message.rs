//! The lines between supervisor and child, as `docs/one.md` describes them.

use std::sync::atomic::{AtomicBool, Ordering};

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::run) enum ChildLine {
    /// It has stopped a shard.
    Acknowledged(Acknowledgement),
    /// A line for people, with its end.
    Output(Vec<u8>),
}

/// A shard of which nothing runs any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::run) struct Acknowledgement {
    pub(super) shard: ShardId,
    pub(super) epoch: Epoch,
    /// Why it failed, if it was not told to stop.
    pub(super) error: Option<String>,
}

#[derive(Deserialize)]
struct Answer {
    event: String,
    group: GroupName,
    shard: ShardName,
    epoch: Epoch,
    #[serde(default)]
    error: Option<String>,
}

impl ChildLine {
    /// Reads a line: an acknowledgement, or else something for people.
    pub(in crate::run) fn read(mut line: Vec<u8>) -> ChildLine {
        if let Ok(read) = serde_json::from_slice::<Answer>(&line)
            && matches!(read.event.as_str(), "stopped" | "failed")
        {
            let error =
                (read.event == "failed").then(|| read.error.unwrap_or_else(|| "it failed".to_owned()));
            let shard = ShardId::new(read.group, read.shard);
            return ChildLine::Acknowledged(Acknowledgement { shard, epoch: read.epoch, error });
        }
        if let Some(why) = malformed(&line)
            && !MALFORMED_TOLD.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                why,
                line = %String::from_utf8_lossy(&line),
                "the child printed an invalid acknowledgement, so its shard still counts as running; see docs/one.md (this \
                 is logged once)"
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
    if !matches!(value.get("event")?.as_str()?, "stopped" | "failed") {
        return None;
    }
    serde_json::from_value::<Answer>(value).err().map(|error| error.to_string())
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
            ChildLine::Acknowledged(Acknowledgement {
                shard: "orders/3".parse().unwrap(),
                epoch: Epoch(7),
                error: error.map(str::to_owned),
            })
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
