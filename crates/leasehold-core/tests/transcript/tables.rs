//! What a story looks at: the store's records, the shards, and a node's own view.

use leasehold_core::store::Key;
use leasehold_core::{ShardId, record};
use record::{Record, ShardRecord, ShardState, WorkState};
use serde_json::Value;

use crate::print::span;
use crate::world::World;

impl World {
    /// Who holds what, as the store says, and where work really runs.
    pub(crate) fn shards(&mut self) -> Vec<String> {
        let mut rows = vec![["shard", "epoch", "state", "why", "runs on"].map(String::from)];
        let mut ids: std::collections::BTreeSet<ShardId> =
            self.processes.values().flat_map(|process| process.works.keys().cloned()).collect();
        ids.extend(self.store.records.keys().filter_map(|key| match key {
            Key::Shard(shard) => Some(shard.clone()),
            _ => None,
        }));
        for id in ids {
            let stored = self.store.records.get(&Key::Shard(id.clone()));
            let (epoch, state, why) = match stored.map(|stored| ShardRecord::decode(&stored.value)) {
                None => ("-".into(), "no record".into(), "-".into()),
                Some(Err(_)) => ("-".into(), "corrupt".into(), "-".into()),
                Some(Ok(record)) => {
                    let work = match record.work {
                        WorkState::Runs => "",
                        WorkState::Trial => " trial",
                        WorkState::Quarantined => " quarantined",
                        WorkState::Done => " done",
                        _ => " ?",
                    };
                    let state = match &record.state {
                        ShardState::Held { holder } => {
                            format!("held by {}{work}", self.names.session(holder.session))
                        }
                        ShardState::Vacant { successor, reserved_ms } => {
                            let to = successor.as_ref().map_or(String::new(), |to| format!(" for {to}"));
                            let reserved = reserved_ms.map_or(String::new(), |ms| format!(" ({ms}ms)"));
                            format!("vacant{to}{reserved}{work}")
                        }
                        ShardState::Retired => "retired".into(),
                    };
                    (record.epoch.to_string(), state, record.why.to_string())
                }
            };
            let running = self.processes.iter().filter_map(|(name, process)| {
                let work = process.works.get(&id)?;
                let stopping = if work.told_to_stop { " (stopping)" } else { "" };
                Some(format!("{name} epoch {}{stopping}", work.epoch))
            });
            let running: Vec<String> = running.collect();
            let running = if running.is_empty() { "-".into() } else { running.join(", ") };
            rows.push([id.to_string(), epoch, state, why, running]);
        }
        table(&rows)
    }

    /// Every record under a prefix, as it is in the store, without what is only noise.
    pub(crate) fn records(&mut self, prefix: &str) -> Vec<String> {
        let mut lines = Vec::new();
        for (key, stored) in &self.store.records {
            if !key.to_string().starts_with(prefix) {
                continue;
            }
            match serde_json::from_slice::<Value>(&stored.value) {
                Ok(mut value) => {
                    self.names.gc(&mut value);
                    lines.push(format!("{key} {value}"));
                }
                Err(_) => lines.push(format!("{key} {:?}", String::from_utf8_lossy(&stored.value))),
            }
        }
        lines
    }

    /// What a node knows of itself, the others, and what is wrong.
    pub(crate) fn view_of(&mut self, name: &str) -> Result<Vec<String>, String> {
        let now = self.now_of(name);
        let process = self.processes.get(name).ok_or("there is no such process")?;
        let node = process.node.as_ref().ok_or("it is not running")?;
        let view = node.view(now);
        let mut lines = Vec::new();
        if let Some(me) = &view.me {
            let stop_in = me.stop_in_ms.map_or("-".into(), |ms| span(std::time::Duration::from_millis(ms)));
            let session = me.session.map_or("no session".into(), |session| self.names.session(session));
            let draining = if me.draining { ", draining" } else { "" };
            lines.push(format!(
                "{}: {}, {session}{draining}, holds {} of {} wanted, stops in {stop_in}",
                me.node, me.session_state, me.held, me.wanted
            ));
            lines.push(format!("cause: {}", me.cause));
            lines.extend(me.waiting_for.iter().map(|why| format!("waits: {why}")));
        }
        lines.extend(view.frozen.iter().map(|why| format!("frozen: {why}")));
        for node in &view.nodes {
            let state = format!("{:?}", node.state).to_lowercase();
            let accepting = if node.accepting { "" } else { ", not accepting" };
            let commands: String =
                node.commands.iter().map(|command| format!(", command: {command}")).collect();
            lines.push(format!(
                "node {} {}: {state}{accepting}, weight {}, holds {} of {}{commands}",
                node.name,
                self.names.session(node.session),
                node.weight,
                node.shards,
                node.wanted
            ));
        }
        for shard in &view.shards {
            let or_nobody = |node: &Option<leasehold_core::NodeName>| {
                node.as_ref().map_or("nobody".into(), |node| node.to_string())
            };
            let state = format!("{:?}", shard.state).to_lowercase();
            lines.push(format!(
                "shard {}: {state}, epoch {}, holder {}, wanted {}",
                shard.id.0,
                shard.epoch,
                or_nobody(&shard.holder),
                or_nobody(&shard.wanted)
            ));
        }
        for problem in &view.problems {
            lines.push(format!("problem {} {}: {}", problem.kind, problem.subject, problem.message));
        }
        Ok(lines)
    }

    /// Why a shard has not moved from the node that runs it.
    pub(crate) fn why(&self, name: &str, shard: &ShardId) -> Result<Vec<String>, String> {
        let process = self.processes.get(name).ok_or("there is no such process")?;
        let node = process.node.as_ref().ok_or("it is not running")?;
        let explained = node.explain(shard).ok_or("there is no such shard")?;
        let wanted = explained.wanted.as_ref().map_or("nobody".into(), ToString::to_string);
        let why = explained.unmoved_because.as_ref().map_or("nothing keeps it".into(), ToString::to_string);
        Ok(vec![format!("{shard} is wanted on {wanted}: {why}")])
    }
}

fn table(rows: &[[String; 5]]) -> Vec<String> {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    rows.iter()
        .map(|row| {
            let cells = row.iter().enumerate().map(|(at, cell)| format!("{cell:<width$}", width = width(at)));
            cells.collect::<Vec<_>>().join("  ")
        })
        .collect()
}
