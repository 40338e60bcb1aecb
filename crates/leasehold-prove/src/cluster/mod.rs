//! Nodes as real processes, to be started, killed, stopped, continued and asked to leave: for `demo`, `check` and
//! `bench`. What their workers did, and what was done to them, is a recorded history.

mod ledger;
mod node;
pub(crate) mod parse;
mod route;
mod scratch;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold::clock;
use leasehold_chaos::history::History;
use leasehold_chaos::process::NodeProcess;
use leasehold_chaos::record::{Recorder, Who};
use leasehold_cli_common::failure::{Code, Failure};
use leasehold_core::Moment;
use leasehold_core::record::Policy;
use serde_json::{Value, json};

pub(crate) use ledger::Ledger;
pub(crate) use node::NodeStatus;
pub use node::hidden_main;
pub(crate) use route::{Kind, Route};
pub(crate) use scratch::Scratch;

use node::{NodeOptions, StoreFailure};

/// The group that the nodes serve.
pub(crate) const GROUP: &str = "work";
/// A refusal that all nodes have met for so long will not go away by itself.
const REFUSED_FOR: Duration = Duration::from_secs(2);

/// What all nodes of a cluster have in common.
#[derive(Clone, Debug)]
pub(crate) struct NodeTemplate {
    pub(crate) namespace: String,
    pub(crate) shards: u32,
    pub(crate) ttl: Duration,
    pub(crate) policy: Policy,
    pub(crate) beat_every: Duration,
    /// Workers go on when their lease is lost, to show that this is noticed.
    pub(crate) misbehaves: bool,
}

/// All nodes, in the order of their first start.
#[derive(Debug)]
pub(crate) struct Cluster {
    folder: PathBuf,
    template: NodeTemplate,
    members: Vec<Member>,
    recorder: Recorder,
    /// Since when the store refuses every node, in a way that only an operator can fix.
    refused_since: Option<Moment>,
}

/// One node.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) weight: u32,
    pub(crate) fate: Fate,
    /// Where it finds the store. It may hold secrets.
    url: String,
    lives: u32,
    process: NodeProcess,
    status: Arc<Mutex<NodeStatus>>,
}

/// What was done to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Running,
    Paused,
    Killed,
    Draining,
    Ended,
}

impl Cluster {
    /// A cluster without nodes, whose history is written into the folder.
    pub(crate) fn new(folder: &Path, template: NodeTemplate) -> io::Result<Cluster> {
        let who = Who { node: "harness".to_owned(), session: String::new() };
        let recorder = Recorder::open(&folder.join("harness.jsonl"), who)?;
        Ok(Cluster {
            folder: folder.to_owned(),
            template,
            members: Vec::new(),
            recorder,
            refused_since: None,
        })
    }

    pub(crate) fn members(&self) -> &[Member] {
        &self.members
    }

    /// Starts a node with a fresh name that finds the store at that URL; the answer is its place.
    pub(crate) fn add(&mut self, url: &str) -> io::Result<usize> {
        let place = self.members.len();
        let name = match u8::try_from(place) {
            Ok(letter @ 0..26) => char::from(b'a' + letter).to_string(),
            _ => format!("n{place}"),
        };
        let member = self.spawn(name, 100, url.to_owned(), 1)?;
        self.members.push(member);
        Ok(place)
    }

    /// Starts a node that is gone again, under its name: a new process, with a new session.
    pub(crate) fn restart(&mut self, place: usize) -> io::Result<()> {
        let Member { name, weight, url, lives, .. } = &self.members[place];
        let member = self.spawn(name.clone(), *weight, url.clone(), lives + 1)?;
        self.members[place] = member;
        Ok(())
    }

    fn spawn(&self, name: String, weight: u32, url: String, lives: u32) -> io::Result<Member> {
        let session = format!("{name}-{lives}");
        let options = NodeOptions {
            url: url.clone(),
            namespace: self.template.namespace.clone(),
            name: name.clone(),
            shards: self.template.shards,
            ttl_ms: u64::try_from(self.template.ttl.as_millis()).unwrap_or(u64::MAX),
            weight,
            policy: self.template.policy.clone(),
            log: self.folder.join(format!("{session}.jsonl")),
            session,
            beat_every_ms: u64::try_from(self.template.beat_every.as_millis()).unwrap_or(u64::MAX),
            misbehaves: self.template.misbehaves,
        };
        let complaints = File::options().create(true).append(true).open(self.complaints_file(&name))?;
        let mut command = Command::new("/proc/self/exe");
        command.arg(node::HIDDEN).stdout(Stdio::piped()).stderr(complaints);
        let mut process = NodeProcess::start(command, &serde_json::to_string(&options)?)?;
        let status = Arc::new(Mutex::new(NodeStatus::default()));
        if let Some(stdout) = process.stdout() {
            let status = status.clone();
            std::thread::Builder::new().name("lh-ear".to_owned()).spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    if let Ok(said) = serde_json::from_str(&line) {
                        *status.lock().unwrap_or_else(PoisonError::into_inner) = said;
                    }
                }
            })?;
        }
        Ok(Member { name, weight, fate: Fate::Running, url, lives, process, status })
    }

    fn complaints_file(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.err"))
    }

    /// Writes a line of our own into the history.
    pub(crate) fn note(&self, event: &str, at: Moment, more: Value) -> io::Result<()> {
        self.recorder.note(event, at, more)
    }

    fn note_of(&self, place: usize, event: &str, at: Moment) -> io::Result<()> {
        self.recorder.note_of(&self.members[place].who(), event, at, json!({}))
    }

    /// Kills a node with SIGKILL.
    pub(crate) fn kill(&mut self, place: usize) -> io::Result<()> {
        let member = &mut self.members[place];
        if !member.is_there() {
            return Ok(());
        }
        let at = member.process.kill()?;
        member.fate = Fate::Killed;
        self.note_of(place, "gone", at)
    }

    /// Stops a node's process with SIGSTOP.
    pub(crate) fn pause(&mut self, place: usize) -> io::Result<()> {
        let member = &mut self.members[place];
        if member.fate != Fate::Running {
            return Ok(());
        }
        let at = member.process.pause()?;
        member.fate = Fate::Paused;
        self.note_of(place, "paused", at)
    }

    /// Lets it go on.
    pub(crate) fn resume(&mut self, place: usize) -> io::Result<()> {
        let member = &mut self.members[place];
        if member.fate != Fate::Paused {
            return Ok(());
        }
        let at = member.process.resume()?;
        member.fate = Fate::Running;
        self.note_of(place, "resumed", at)
    }

    /// Asks a node to hand everything over and leave.
    pub(crate) fn drain(&mut self, place: usize) -> io::Result<()> {
        self.resume(place)?;
        let member = &mut self.members[place];
        if member.fate == Fate::Running {
            member.fate = Fate::Draining;
            member.process.terminate()?;
        }
        Ok(())
    }

    /// Notes which processes have ended, and returns those that ended unasked.
    pub(crate) fn look(&mut self) -> io::Result<Vec<String>> {
        let mut unasked = Vec::new();
        for place in 0..self.members.len() {
            let member = &mut self.members[place];
            if member.is_there() && member.process.ended().is_some() {
                if member.fate != Fate::Draining {
                    let name = member.name.clone();
                    unasked.push(format!("node {name} exited unexpectedly{}", self.complaints(place)));
                }
                self.members[place].fate = Fate::Ended;
                self.note_of(place, "gone", clock::now())?;
            }
        }
        let refused =
            self.members.iter().all(|member| member.store_failure().is_some_and(|it| it.needs_operator));
        self.refused_since = refused.then(|| self.refused_since.unwrap_or_else(clock::now));
        Ok(unasked)
    }

    /// What the store refuses all nodes, if it does so for good.
    pub(crate) fn refusal(&self) -> Option<String> {
        let lasts = clock::now().since(self.refused_since?) >= REFUSED_FOR;
        lasts.then(|| self.store_failures())
    }

    /// The current store errors of all nodes, each once.
    pub(crate) fn store_failures(&self) -> String {
        let errors = self.members.iter().filter_map(|member| Some(member.store_failure()?.error));
        errors.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join("; ")
    }

    /// The last line of a node on its standard error.
    fn complaints(&self, place: usize) -> String {
        let text = std::fs::read_to_string(self.complaints_file(&self.members[place].name));
        let text = text.unwrap_or_default();
        text.lines().last().map_or_else(String::new, |line| format!(": {line}"))
    }

    /// Asks all nodes to leave, waits for them a short time, and kills the rest.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        (0..self.members.len()).try_for_each(|place| self.drain(place))?;
        for _ in 0..700 {
            self.look()?;
            if !self.members.iter().any(Member::is_there) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        (0..self.members.len()).try_for_each(|place| self.kill(place))
    }

    /// The history up to now, each file with its name.
    pub(crate) fn files(&self) -> io::Result<Vec<(String, String)>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|ending| ending == "jsonl") {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                files.push((name, String::from_utf8_lossy(&std::fs::read(&path)?).into_owned()));
            }
        }
        files.sort();
        Ok(files)
    }

    /// The history up to now, understood.
    pub(crate) fn history(&self) -> io::Result<History> {
        let files = self.files()?;
        Ok(History::read(files.iter().map(|(name, text)| (name.as_str(), text.as_str()))))
    }
}

/// The end of whatever needs a store that refuses all nodes.
pub(crate) fn refused(why: &str, so: &str) -> Failure {
    Failure::new(
        Code::Store,
        format!("the store refuses every node, and {so}: {why}\n  run `leasehold doctor` to find the cause"),
    )
}

impl Member {
    /// Whether its process is there, running or stopped.
    pub(crate) fn is_there(&self) -> bool {
        matches!(self.fate, Fate::Running | Fate::Paused | Fate::Draining)
    }

    /// The last status that it printed.
    pub(crate) fn status(&self) -> NodeStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn store_failure(&self) -> Option<StoreFailure> {
        self.status().store_failure
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    fn who(&self) -> Who {
        Who { node: self.name.clone(), session: format!("{}-{}", self.name, self.lives) }
    }
}
