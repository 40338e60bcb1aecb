//! The commands of a story.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::config::{Gate, Namespace};
use leasehold_core::event::{Command, Event, Returning};
use leasehold_core::name::WriteId;
use leasehold_core::record::{FORMAT, Policy, ShardSet};
use leasehold_core::store::{Freshness, Key, WatchEvent};
use leasehold_core::{Config, GroupConfig, ShardId};
use serde_json::{Value, json};

use crate::process::{Fault, FaultKind, GateManner, Manner, Process};
use crate::world::{End, Happening, World};

type Done = Result<Vec<String>, String>;

impl World {
    /// Does what one line says, and gives back what is to be read of it.
    pub(crate) fn command(&mut self, line: &str) -> Done {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (first, more) = rest.trim().split_once(' ').unwrap_or((rest.trim(), ""));
        let shown = match word {
            "shards" => self.shards(),
            "records" => self.records(first),
            "view" => self.view_of(first)?,
            "why" => self.why(first, &shard(more)?)?,
            _ => {
                self.change(word, first, more.trim())?;
                Vec::new()
            }
        };
        let mut lines = std::mem::take(&mut self.log);
        lines.extend(shown);
        Ok(lines)
    }

    fn change(&mut self, word: &str, first: &str, more: &str) -> Result<(), String> {
        match word {
            "run" => self.run(span(first)?),
            "store" => self.describe_store(first, more)?,
            "node" => self.node(first, more)?,
            "crash" => self.end(first),
            "restart" => {
                self.end(first);
                let life = self.process(first)?.life + 1;
                self.begin(first, life);
            }
            "pause" => self.process(first)?.paused = true,
            "resume" => self.resume(first)?,
            "cut" => self.cut(first)?,
            "fault" => self.fault(first, more)?,
            "heal" => self.heal(first)?,
            "watch" => self.watch(first, more)?,
            "clock" => self.process(first)?.wall_off_ms += offset(more)?,
            "gone" => self.gone(first, more)?,
            "corrupt" => self.write(&first.parse()?, Some(Arc::from(b"garbage".as_slice()))),
            "scribble" => self.scribble(&first.parse()?)?,
            "delete" => self.write(&first.parse()?, None),
            "patch" => self.patch(&first.parse()?, more)?,
            "control" => self.control(format!("{first} {more}").trim())?,
            "wipe" => self.wipe(),
            "save" => self.saved = Some(self.store.clone()),
            "restore" => self.restore()?,
            "generation" => self.store.generation = first.to_owned(),
            "command" => {
                let command = command(more)?;
                self.step(first, Event::Command(command));
            }
            "work" => self.work(first, more)?,
            "gate" => self.gate(first, more)?,
            "trace" => self.trace(first, more)?,
            _ => return Err("there is no such command".into()),
        }
        Ok(())
    }

    fn process(&mut self, name: &str) -> Result<&mut Process, String> {
        self.processes.get_mut(name).ok_or_else(|| format!("there is no process {name}"))
    }

    fn describe_store(&mut self, first: &str, more: &str) -> Result<(), String> {
        for word in [first].into_iter().chain(more.split_whitespace()) {
            match word.split_once('=') {
                Some(("watch", "off")) => self.facts.watch = false,
                Some(("poll", every)) => self.facts.poll_every = span(every)?,
                Some(("round_trip", trip)) => self.round_trip = span(trip)?,
                Some(("lists", "lag")) => self.facts.reads = Freshness::ListsMayLag,
                Some(("swaps_max", most)) => self.facts.swaps_max = number(most)?,
                _ => return Err(format!("a store has no {word:?}")),
            }
        }
        Ok(())
    }

    fn node(&mut self, name: &str, settings: &str) -> Result<(), String> {
        let config = config(name, settings)?;
        if let Err(errors) = config.check_on(&self.facts) {
            return Err(errors.to_string());
        }
        let life = self.processes.get(name).map_or(1, |process| process.life + 1);
        let mut process = Process::new(config, life);
        if let Some(former) = self.processes.remove(name) {
            process.manners = former.manners;
            process.gates = former.gates;
        }
        self.processes.insert(name.to_owned(), process);
        self.begin(name, life);
        Ok(())
    }

    fn resume(&mut self, name: &str) -> Result<(), String> {
        let process = self.process(name)?;
        process.paused = false;
        let (life, held) = (process.life, std::mem::take(&mut process.held));
        for what in held {
            self.happens(name, life, what);
        }
        self.step(name, Event::Tick);
        Ok(())
    }

    fn cut(&mut self, name: &str) -> Result<(), String> {
        let fault = Fault { kind: FaultKind::Cut, only: None, times: None };
        self.process(name)?.faults.insert(0, fault);
        let event = Event::Watched(WatchEvent::Interrupted("cut off".into()));
        self.after(Duration::from_millis(1), name, Happening::Event(event));
        Ok(())
    }

    fn fault(&mut self, name: &str, more: &str) -> Result<(), String> {
        let mut words = more.split_whitespace();
        let kind = words.next().ok_or("which fault?")?;
        let (kind, value) = kind.split_once('=').unwrap_or((kind, ""));
        let kind = match kind {
            "stall" => FaultKind::Stall,
            "lose-answers" => FaultKind::LoseAnswers,
            "say-unknown" => FaultKind::SayUnknown,
            "delay" => FaultKind::Delay(span(value)?),
            "slow" => FaultKind::Slow(span(value)?),
            "twice" => FaultKind::Twice,
            "again" => FaultKind::Again(span(value)?),
            "late" => FaultKind::Late(span(value)?),
            _ => return Err("there is no such fault".into()),
        };
        let mut fault = Fault { kind, only: None, times: None };
        for word in words {
            match word.split_once('=') {
                Some(("only", only)) => fault.only = Some(only.into()),
                Some(("times", times)) => fault.times = Some(number(times)?),
                _ => return Err(format!("a fault has no {word:?}")),
            }
        }
        self.process(name)?.faults.push(fault);
        Ok(())
    }

    fn heal(&mut self, name: &str) -> Result<(), String> {
        let process = self.process(name)?;
        let was_deaf = process.faults.iter().any(Fault::hides_changes);
        process.faults.clear();
        if was_deaf && self.process(name)?.watching && self.facts.watch {
            self.snapshot(name);
        }
        Ok(())
    }

    fn watch(&mut self, name: &str, on: &str) -> Result<(), String> {
        if let Some(late) = on.strip_prefix("late=") {
            self.process(name)?.watch_late = span(late)?;
            return Ok(());
        }
        self.process(name)?.watching = on == "on";
        if on == "on" {
            self.snapshot(name);
        }
        Ok(())
    }

    /// The kernel proves to everybody that the process of a node is gone.
    fn gone(&mut self, name: &str, session: &str) -> Result<(), String> {
        let id = self.names.find(session).ok_or("there was no such session")?;
        let others: Vec<String> = self.processes.keys().filter(|other| *other != name).cloned().collect();
        for other in others {
            let event = Event::Watched(WatchEvent::ProcessGone(id));
            self.after(Duration::from_millis(1), &other, Happening::Event(event));
        }
        Ok(())
    }

    /// Changes some fields of a record, as a person with an editor would.
    fn patch(&mut self, key: &Key, fields: &str) -> Result<(), String> {
        let stored = self.store.records.get(key).ok_or("there is no such record")?;
        let mut value: Value = serde_json::from_slice(&stored.value).map_err(|e| e.to_string())?;
        let fields: Value = serde_json::from_str(fields).map_err(|e| e.to_string())?;
        merge(&mut value, fields);
        value["write"] = json!(WriteId::from_bits(self.store.revision.into()));
        self.write(key, Some(value.to_string().into_bytes().into()));
        Ok(())
    }

    fn control(&mut self, fields: &str) -> Result<(), String> {
        let mut value: Value = serde_json::from_str(fields).map_err(|e| e.to_string())?;
        value["format"] = json!(FORMAT);
        value["write"] = json!(WriteId::from_bits(self.store.revision.into()));
        self.write(&Key::Control, Some(value.to_string().into_bytes().into()));
        Ok(())
    }

    fn wipe(&mut self) {
        let keys: Vec<Key> = self.store.records.keys().cloned().collect();
        for key in keys {
            self.write(&key, None);
        }
    }

    /// The store is as it was when it was saved. Nobody is told: a restored store has no memory of its watchers.
    fn restore(&mut self) -> Result<(), String> {
        self.store = self.saved.clone().ok_or("nothing was saved")?;
        Ok(())
    }

    fn work(&mut self, name: &str, more: &str) -> Result<(), String> {
        let (id, manner) = more.split_once(' ').ok_or("which work, and what?")?;
        let id = shard(id)?;
        let (manner, value) = manner.split_once('=').unwrap_or((manner, ""));
        let process = self.process(name)?;
        let work = process.works.get(&id).copied();
        let end = match manner {
            "refuses-to-stop" => {
                process.manners.insert(id, Manner::Refuses);
                return Ok(());
            }
            "stops-after" => {
                process.manners.insert(id, Manner::StopsAfter(span(value)?));
                return Ok(());
            }
            "fails-after" => {
                process.manners.insert(id.clone(), Manner::FailsAfter(span(value)?));
                End::Failed("boom".into())
            }
            "stops" => {
                process.manners.remove(&id);
                End::Stopped
            }
            "fails" => End::Failed("boom".into()),
            "finishes" => End::Finished,
            _ => return Err("work does no such thing".into()),
        };
        let told = work.is_some_and(|work| work.told_to_stop);
        if let Some(work) = work.filter(|_| manner != "stops" || told) {
            self.after(Duration::ZERO, name, Happening::Ends { shard: id, epoch: work.epoch, how: end });
        }
        Ok(())
    }

    fn gate(&mut self, name: &str, more: &str) -> Result<(), String> {
        let (id, manner) = more.split_once(' ').ok_or("which shard, and what?")?;
        let manner = match manner {
            "take" => GateManner::Take,
            "refuse" => GateManner::Refuse,
            "silent" => GateManner::Silent,
            _ => match manner.split_once('=') {
                Some(("take-after", value)) => GateManner::TakeAfter(span(value)?),
                _ => return Err("a gate says take, take-after=SPAN, refuse, or is silent".into()),
            },
        };
        self.process(name)?.gates.insert(shard(id)?, manner);
        Ok(())
    }

    fn trace(&mut self, what: &str, on: &str) -> Result<(), String> {
        match (what, on) {
            ("asks" | "renewals" | "deadlines", "on") => self.traced.insert(what.to_owned()),
            ("asks" | "renewals" | "deadlines", "off") => self.traced.remove(what),
            _ => return Err("asks, renewals or deadlines can be traced: on or off".into()),
        };
        Ok(())
    }
}

fn merge(into: &mut Value, fields: Value) {
    match (into, fields) {
        (Value::Object(into), Value::Object(fields)) => {
            for (name, field) in fields {
                match (into.get_mut(&name), field) {
                    (Some(known), field) => merge(known, field),
                    (None, field) => {
                        into.insert(name, field);
                    }
                }
            }
        }
        (into, field) => *into = field,
    }
}

fn config(name: &str, settings: &str) -> Result<Config, String> {
    let words: Vec<&str> = settings.split_whitespace().collect();
    let setting = |wanted: &str| {
        words.iter().filter_map(|word| word.split_once('=')).find(|(name, _)| *name == wanted).map(|(_, v)| v)
    };
    let ttl = setting("ttl").map_or(Ok(Duration::from_secs(10)), span)?;
    let mut config = Config::with_ttl(name.parse().map_err(text)?, ttl);
    let policy: Policy = match setting("policy") {
        Some(json) => serde_json::from_str(json).map_err(text)?,
        None => Policy::default(),
    };
    for word in words {
        match word.split_once('=').unwrap_or((word, "")) {
            ("ttl" | "policy", _) => {}
            ("name", value) => config.node = value.parse().map_err(text)?,
            ("weight", value) => config.weight = number(value)?,
            ("capacity", value) => config.capacity = Some(number(value)?),
            ("kept_min", value) => config.kept_min = number(value)?,
            ("zone", value) => config.zone = Some(value.into()),
            ("address", value) => config.address = Some(value.into()),
            ("groups", value) => {
                for group in value.split(',') {
                    config.groups.push(group_config(group, &policy)?);
                }
            }
            ("ttl_max", value) => config.ttl_max = span(value)?,
            ("takeover_delay", value) => config.takeover_delay = span(value)?,
            ("gather", value) => config.gather = Some(span(value)?),
            ("recover_window", value) => config.recover_window = span(value)?,
            ("retry_interval", value) => config.acquire_retry_interval = span(value)?,
            ("retry_window", value) => config.acquire_retry_window = span(value)?,
            ("list_every", value) => config.list_every = span(value)?,
            ("give_up_at_once", value) => config.give_up_at_once = number(value)?,
            ("retired_kept", value) => config.retired_kept = span(value)?,
            ("gate", _) => config.gate = Gate::Ask,
            ("new", _) => config.namespace = Namespace::New,
            _ => return Err(format!("a node has no {word:?}")),
        }
    }
    Ok(config)
}

/// `orders:4` has slots, `tenants:named` has names, and `/2` behind it is this node's capacity for it.
fn group_config(group: &str, policy: &Policy) -> Result<GroupConfig, String> {
    let (group, shards) = group.split_once(':').ok_or("a group is written as name:slots or name:named")?;
    let (shards, capacity) = match shards.split_once('/') {
        Some((shards, capacity)) => (shards, Some(number(capacity)?)),
        None => (shards, None),
    };
    let shards = if shards == "named" { ShardSet::Named } else { ShardSet::Numbered(number(shards)?) };
    Ok(GroupConfig { group: group.parse().map_err(text)?, shards, policy: policy.clone(), capacity })
}

fn command(words: &str) -> Result<Command, String> {
    let (word, value) = words.split_once(' ').unwrap_or((words, ""));
    Ok(match word {
        "drain" => Command::Drain,
        "undrain" => Command::Undrain,
        "leave" | "restart" => Command::Leave {
            within: if value.is_empty() { Duration::from_secs(30) } else { span(value)? },
            returning: if word == "restart" { Returning::Soon } else { Returning::No },
        },
        "weight" => Command::Weight(number(value)?),
        "capacity" => Command::Capacity(if value == "none" { None } else { Some(number(value)?) }),
        "accepting" => Command::Accepting(value == "true"),
        "engage" => Command::Engage(shard(value)?),
        "disengage" => Command::Disengage(shard(value)?),
        "unquarantine" => Command::Unquarantine(shard(value)?),
        "unserve" => Command::Unserve(value.parse().map_err(text)?),
        "serve_stored" => Command::ServeStored(group_config(value, &Policy::default())?),
        "serve" => Command::Serve(group_config(value, &Policy::default())?),
        _ => return Err("there is no such command".into()),
    })
}

fn shard(name: &str) -> Result<ShardId, String> {
    name.trim().parse().map_err(text)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn number<N: std::str::FromStr>(digits: &str) -> Result<N, String> {
    digits.parse().map_err(|_| format!("invalid number {digits:?}"))
}

fn span(words: &str) -> Result<Duration, String> {
    let digits = words.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let each = match &words[digits.len()..] {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(format!("invalid duration {words:?}: use for example 500ms, 10s or 2m")),
    };
    Ok(Duration::from_millis(number::<u64>(digits)? * each))
}

/// `wall +1h` or `wall -5s`.
fn offset(words: &str) -> Result<i64, String> {
    let step = words.strip_prefix("wall ").ok_or("only the wall clock can be set")?;
    let sign = if step.starts_with('-') { -1 } else { 1 };
    Ok(sign * span(step.trim_start_matches(['+', '-']))?.as_millis() as i64)
}
