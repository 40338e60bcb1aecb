//! Hooks as commands: the health and the weight of this node, and whether it takes a shard (`docs/hooks.md`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold::{Builder, Health, Verdict};
use leasehold_cli_common::sanitize::sanitize;
use leasehold_cli_common::settings::{GroupOfNode, Problem, Settings};
use leasehold_core::{GroupName, ShardId};
use tokio::sync::Semaphore;

use crate::guard::run_briefly;

const EVERY: Duration = Duration::from_secs(10);
const WITHIN: Duration = Duration::from_secs(5);
/// More often, or with less time, the commands would cost more than the work.
const SHORTEST: Duration = Duration::from_millis(100);
/// The most gates that are asked at once. The others wait for their turn.
const GATES_AT_ONCE: usize = 16;
/// The library's own limit on a hook. Each command has its limit here; a gate may also have to wait for its turn.
const LIBRARY_WITHIN: Duration = Duration::from_secs(600);

/// A shell command that answers a question.
#[derive(Clone, Debug)]
struct Hook {
    command: String,
    env: Vec<(&'static str, String)>,
    within: Duration,
}

/// What a command said.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reply {
    /// It exited with 0, and printed this first.
    Yes(String),
    /// It said no, with a code from 1 to 125, and this is what it said about it.
    No(String),
    /// It gave no answer: it could not be started, took too long or was killed.
    Nothing(String),
}

impl Hook {
    async fn ask(&self, shard: Option<&ShardId>) -> Reply {
        let mut env = self.env.clone();
        if let Some(shard) = shard {
            env.push(("LEASEHOLD_GROUP", shard.group.to_string()));
            env.push(("LEASEHOLD_SHARD", shard.name.to_string()));
        }
        let ended = match run_briefly(&self.command, &env, self.within).await {
            Ok(Some(ended)) => ended,
            Ok(None) => return Reply::Nothing(format!("no answer within {:?}", self.within)),
            Err(error) => return Reply::Nothing(format!("it cannot be started: {error}")),
        };
        let first = |text: &str| text.lines().next().map(|line| sanitize(line.trim()).into_owned());
        let said = first(&ended.stdout).filter(|line| !line.is_empty());
        let said = said.or_else(|| first(&ended.stderr)).unwrap_or_default();
        let with = |what: String| if said.is_empty() { what } else { format!("{what}: {said}") };
        match ended.status.code() {
            Some(0) => Reply::Yes(first(&ended.stdout).unwrap_or_default()),
            Some(code @ 1..=125) => Reply::No(with(format!("exit code {code}"))),
            Some(code) => Reply::Nothing(with(format!("the shell cannot run it, exit code {code}"))),
            None => Reply::Nothing(with(format!("it was killed ({})", ended.status))),
        }
    }
}

/// Remembers an answer, so that only changes are told.
#[derive(Debug)]
struct Last<T>(Mutex<Option<T>>);

impl<T: PartialEq + Clone> Last<T> {
    fn nothing() -> Self {
        Last(Mutex::new(None))
    }

    /// Whether this answer is another one than the last.
    fn is_new(&self, answer: &T) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.replace(answer.clone()).as_ref() != Some(answer)
    }
}

/// The hooks of a node.
#[derive(Clone, Debug, Default)]
pub(super) struct Hooks {
    health: Option<Hook>,
    weight: Option<Hook>,
    gates: BTreeMap<GroupName, Hook>,
    /// For groups that come from the store.
    gate: Option<Hook>,
    pub(super) every: Duration,
}

impl Hooks {
    /// The hooks in the settings.
    pub(super) fn of(settings: &Settings, groups: &[GroupOfNode], node: &str) -> Self {
        let within = settings.span("hook_timeout").unwrap_or(WITHIN);
        let env =
            [("LEASEHOLD_NAMESPACE", settings.namespace().to_owned()), ("LEASEHOLD_NODE", node.to_owned())];
        let hook = |settings: &Settings, key: &str| {
            let command = settings.text(key)?.to_owned();
            Some(Hook { command, env: env.to_vec(), within })
        };
        let gate = |group: &GroupOfNode| {
            let name = GroupName::new(group.settings.text("group")?).ok()?;
            Some((name, hook(&group.settings, "gate_command")?))
        };
        Hooks {
            health: hook(settings, "health_command"),
            weight: hook(settings, "weight_command"),
            gates: groups.iter().filter_map(gate).collect(),
            gate: hook(settings, "gate_command"),
            every: settings.span("hook_every").unwrap_or(EVERY),
        }
    }

    /// Sets them. `weight` counts until the command has said otherwise.
    pub(super) fn set(self, mut builder: Builder, weight: u32) -> Builder {
        builder = builder.hook_every(self.every).hook_timeout(LIBRARY_WITHIN);
        if let Some(hook) = self.health {
            let (hook, last) = (Arc::new(hook), Arc::new(Last::nothing()));
            builder = builder.health(move || health(hook.clone(), last.clone()));
        }
        if let Some(hook) = self.weight {
            let state = Arc::new(Weighing { hook, weight: Mutex::new(weight), last: Last::nothing() });
            builder = builder.weigh(move || weigh(state.clone()));
        }
        if !self.gates.is_empty() || self.gate.is_some() {
            let gates = Arc::new(Gates {
                hooks: self.gates,
                other: self.gate,
                turns: Semaphore::new(GATES_AT_ONCE),
                last: Mutex::default(),
            });
            builder = builder.gate(move |shard| ask_gate(gates.clone(), shard));
        }
        builder
    }
}

async fn health(hook: Arc<Hook>, last: Arc<Last<Result<(), String>>>) -> Health {
    let answer = match hook.ask(None).await {
        Reply::Yes(_) => Ok(()),
        Reply::No(why) | Reply::Nothing(why) => Err(why),
    };
    match (&answer, last.is_new(&answer)) {
        (_, false) => {}
        (Ok(()), true) => tracing::info!("the health command says that this node is healthy"),
        (Err(why), true) => tracing::warn!(
            why,
            "the health command says that this node is unhealthy: it takes no new shards and hands over those that others can \
             take"
        ),
    }
    match answer {
        Ok(()) => Health::Healthy,
        Err(_) => Health::Unhealthy,
    }
}

/// The weight command, and the weight that counts until it says otherwise.
struct Weighing {
    hook: Hook,
    weight: Mutex<u32>,
    last: Last<Result<u32, String>>,
}

async fn weigh(state: Arc<Weighing>) -> u32 {
    let Weighing { hook, weight, last } = &*state;
    let answer = match hook.ask(None).await {
        Reply::Yes(text) => {
            text.parse::<u32>().map_err(|_| format!("it printed {text:?}, which is no whole number"))
        }
        Reply::No(why) | Reply::Nothing(why) => Err(why),
    };
    match (&answer, last.is_new(&answer)) {
        (_, false) => {}
        (Ok(weight), true) => tracing::info!(weight, "the weight command set the weight of this node"),
        (Err(why), true) => tracing::warn!(why, "the weight command failed: the weight stays as it is"),
    }
    let mut weight = weight.lock().unwrap_or_else(PoisonError::into_inner);
    *weight = answer.unwrap_or(*weight);
    *weight
}

/// The gates of all groups, and what each shard was told last.
struct Gates {
    hooks: BTreeMap<GroupName, Hook>,
    other: Option<Hook>,
    turns: Semaphore,
    last: Mutex<BTreeMap<ShardId, Result<(), String>>>,
}

async fn ask_gate(gates: Arc<Gates>, shard: ShardId) -> Verdict {
    let Some(hook) = gates.hooks.get(&shard.group).or(gates.other.as_ref()) else { return Verdict::Take };
    let answer = {
        let _turn = gates.turns.acquire().await;
        match hook.ask(Some(&shard)).await {
            Reply::Yes(_) => Ok(()),
            Reply::No(why) | Reply::Nothing(why) => Err(why),
        }
    };
    let mut last = gates.last.lock().unwrap_or_else(PoisonError::into_inner);
    let before = last.insert(shard.clone(), answer.clone());
    match answer {
        Ok(()) => {
            if matches!(before, Some(Err(_))) {
                tracing::info!(%shard, "the gate command lets the shard in");
            }
            Verdict::Take
        }
        Err(why) => {
            if before.as_ref() != Some(&Err(why.clone())) {
                tracing::info!(
                    %shard,
                    why,
                    "the gate command refuses the shard: another node takes it if one can; it is asked again after a ttl"
                );
            }
            Verdict::Refuse
        }
    }
}

/// What is wrong with the settings of hooks.
pub(super) fn problems(settings: &Settings) -> Vec<Problem> {
    let short = |key: &str| {
        let span = settings.span(key).filter(|span| *span < SHORTEST)?;
        let what = format!("{key}: {span:?} is below {SHORTEST:?}");
        Some(Problem::new(settings.place_of(key), what, "raise it"))
    };
    let empty = |key: &str| {
        settings.text(key).filter(|command| command.trim().is_empty())?;
        let what = format!("`{key}` is empty");
        Some(Problem::new(settings.place_of(key), what, "give it a command, or remove it"))
    };
    let spans = ["hook_every", "hook_timeout"].into_iter().filter_map(short);
    spans.chain(["health_command", "weight_command", "gate_command"].into_iter().filter_map(empty)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn hook(command: &str, within: Duration) -> Hook {
        Hook { command: command.to_owned(), env: vec![("LEASEHOLD_NODE", "a".to_owned())], within }
    }

    #[tokio::test]
    async fn exit_codes_are_told_apart() {
        let ask = async |command: &str| hook(command, LONG).ask(None).await;
        assert_eq!(ask("echo ' 7 '; echo more").await, Reply::Yes("7".to_owned()));
        assert_eq!(ask("echo full; exit 1").await, Reply::No("exit code 1: full".to_owned()));
        assert_eq!(ask("echo $LEASEHOLD_NODE >&2; exit 3").await, Reply::No("exit code 3: a".to_owned()));
        assert!(matches!(ask("/no/such/program").await, Reply::Nothing(_)));
        assert!(matches!(ask("kill -9 $$").await, Reply::Nothing(_)));
        let shard = "g/7".parse().unwrap();
        let said = hook("echo $LEASEHOLD_GROUP-$LEASEHOLD_SHARD", LONG).ask(Some(&shard)).await;
        assert_eq!(said, Reply::Yes("g-7".to_owned()));
        let late = hook("sleep 1000", Duration::from_millis(50)).ask(None).await;
        assert_eq!(late, Reply::Nothing("no answer within 50ms".to_owned()));
    }

    #[tokio::test]
    async fn a_weight_stays_while_the_command_gives_none() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let hook = hook(&format!("cat {}", file.path().display()), LONG);
        let state = Arc::new(Weighing { hook, weight: Mutex::new(100), last: Last::nothing() });
        assert_eq!(weigh(state.clone()).await, 100, "an empty answer is not a weight");
        std::fs::write(file.path(), "40\n").unwrap();
        assert_eq!(weigh(state.clone()).await, 40);
        std::fs::write(file.path(), "many\n").unwrap();
        assert_eq!(weigh(state).await, 40);
    }
}
