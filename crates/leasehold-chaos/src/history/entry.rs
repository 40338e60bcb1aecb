use std::fmt;

use serde_json::{Map, Value};

/// The position of a line in its file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// The file's name.
    pub file: std::sync::Arc<str>,
    /// The line, counted from 1.
    pub line: usize,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A problem with a line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Where.
    pub location: Location,
    /// What.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.location, self.what)
    }
}

/// The events of a history. All others are ignored, because a history may be part of a longer log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The work of a shard begins.
    Started,
    /// It still runs. Needed only after a pause, to show that it went on.
    Beat,
    /// Nothing of it ran after that moment.
    Stopped,
    /// The same, because of an error.
    Failed,
    /// A process has ended: all its work ended no later.
    Gone,
    /// A signal paused a process; nothing of it runs from then on.
    Paused,
    /// It may run again.
    Resumed,
}

impl Event {
    fn of(word: &str) -> Option<Event> {
        Some(match word {
            "started" => Event::Started,
            "beat" => Event::Beat,
            "stopped" => Event::Stopped,
            "failed" => Event::Failed,
            "gone" => Event::Gone,
            "paused" => Event::Paused,
            "resumed" => Event::Resumed,
            _ => return None,
        })
    }

    /// Whether it is about one shard, not about a whole process.
    fn has_shard(self) -> bool {
        !matches!(self, Event::Gone | Event::Paused | Event::Resumed)
    }
}

/// One line of a history.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Where the line is.
    pub location: Location,
    /// What happened.
    pub event: Event,
    /// `group/shard`, or the shard alone if no group was given; empty if the event is about a process.
    pub shard: String,
    /// Which node.
    pub node: String,
    /// Which session of the node.
    pub session: String,
    /// Under which epoch.
    pub epoch: u64,
    /// When, in nanoseconds on the boot clock.
    pub at_ns: u64,
    /// Which boot of which machine.
    pub boot: String,
    /// When the work had to stop, as known then.
    pub stop_at_ns: Option<u64>,
    /// When the grant ended, as known then.
    pub valid_until_ns: Option<u64>,
    /// When the work had really ended, if that was noted.
    pub ended_ns: Option<u64>,
    /// Why the work stopped.
    pub why: Option<String>,
}

impl Entry {
    /// Parses a line; `None` if it has another event.
    pub(super) fn parse(text: &str, location: Location) -> Result<Option<Entry>, Problem> {
        let wrong = |what: String| Problem { location: location.clone(), what };
        let object: Map<String, Value> =
            serde_json::from_str(text).map_err(|error| wrong(format!("not a JSON object: {error}")))?;
        let Some(word) = object.get("event").and_then(Value::as_str) else {
            return Err(wrong("\"event\" is missing".into()));
        };
        let Some(event) = Event::of(word) else { return Ok(None) };
        let mut fields = Fields { object: &object, problems: Vec::new() };
        let entry = fields.entry(event, location.clone());
        match fields.problems.is_empty() {
            true => Ok(Some(entry)),
            false => Err(wrong(fields.problems.join("; "))),
        }
    }
}

/// Reads the fields of an object and collects every missing or invalid one.
struct Fields<'a> {
    object: &'a Map<String, Value>,
    problems: Vec<String>,
}

impl Fields<'_> {
    fn entry(&mut self, event: Event, location: Location) -> Entry {
        let (mut shard, mut epoch) = (String::new(), 0);
        if event.has_shard() {
            shard = self.needed_text("shard");
            if let Some(group) = self.text("group") {
                shard = format!("{group}/{shard}");
            }
            epoch = self.needed_number("epoch");
        }
        Entry {
            location,
            event,
            shard,
            node: self.needed_text("node"),
            session: self.text("session").unwrap_or_default(),
            epoch,
            at_ns: self.needed_number("at_ns"),
            boot: self.text("boot").unwrap_or_default(),
            stop_at_ns: self.number("stop_at_ns"),
            valid_until_ns: self.number("valid_until_ns"),
            ended_ns: self.number("ended_ns"),
            why: self.text("why"),
        }
    }

    /// Slots may be written as numbers.
    fn text(&mut self, name: &str) -> Option<String> {
        match self.object.get(name) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text.clone()),
            Some(Value::Number(number)) if number.is_u64() => Some(number.to_string()),
            Some(other) => {
                self.problems.push(format!("\"{name}\" is not a string: {other}"));
                None
            }
        }
    }

    fn number(&mut self, name: &str) -> Option<u64> {
        let value = self.object.get(name).filter(|value| !value.is_null())?;
        let number = value.as_u64();
        if number.is_none() {
            self.problems.push(format!("\"{name}\" is not a whole number: {value}"));
        }
        number
    }

    fn needed_text(&mut self, name: &str) -> String {
        if self.object.get(name).is_none_or(Value::is_null) {
            self.problems.push(format!("\"{name}\" is missing"));
        }
        self.text(name).unwrap_or_default()
    }

    fn needed_number(&mut self, name: &str) -> u64 {
        if self.object.get(name).is_none_or(Value::is_null) {
            self.problems.push(format!("\"{name}\" is missing"));
        }
        self.number(name).unwrap_or_default()
    }
}
