//! The demo's nodes as processes: started, killed, stopped, continued and asked to leave.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::diary::{self, Ran};
use super::node::{Birth, Says, diary_file};

/// The most nodes that a demo has over its life.
pub(super) const NODES_MAX: usize = 12;

/// All nodes of the demo, in the order of their birth.
#[derive(Debug)]
pub(super) struct Cluster {
    folder: PathBuf,
    shards: u32,
    ttl: Duration,
    members: Vec<Member>,
}

/// One node.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) weight: u32,
    pub(super) fate: Fate,
    process: Child,
    /// Closed when this is dropped, and the node leaves then.
    _tie: Option<ChildStdin>,
    says: Arc<Mutex<Says>>,
}

/// What was done to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Running,
    Paused,
    Killed,
    Draining,
    Ended,
}

impl Cluster {
    pub(super) fn new(folder: &Path, shards: u32, ttl: Duration) -> Cluster {
        Cluster { folder: folder.to_owned(), shards, ttl, members: Vec::new() }
    }

    pub(super) fn members(&self) -> &[Member] {
        &self.members
    }

    /// Starts a node with a fresh name; the answer is its place, or why it cannot be.
    pub(super) fn add(&mut self) -> io::Result<usize> {
        let place = self.members.len();
        if place >= NODES_MAX {
            return Err(io::Error::other(format!("a demo has at most {NODES_MAX} nodes")));
        }
        let name = char::from(b'a' + place as u8).to_string();
        let member = self.spawn(name, 100)?;
        self.members.push(member);
        Ok(place)
    }

    /// Starts a node that is gone again, under its name: a new process, with a new session.
    pub(super) fn restart(&mut self, place: usize) -> io::Result<()> {
        let (name, weight) = (self.members[place].name.clone(), self.members[place].weight);
        self.members[place] = self.spawn(name, weight)?;
        Ok(())
    }

    fn spawn(&self, name: String, weight: u32) -> io::Result<Member> {
        let birth = Birth {
            folder: self.folder.clone(),
            name: name.clone(),
            shards: self.shards,
            ttl_ms: u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX),
            weight,
        };
        let mut process = Command::new("/proc/self/exe")
            .arg("demo-node")
            .arg(serde_json::to_string(&birth)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let says = Arc::new(Mutex::new(Says::default()));
        let (tie, stdout) = (process.stdin.take(), process.stdout.take());
        if let Some(stdout) = stdout {
            let says = says.clone();
            std::thread::Builder::new().name("lh-demo-ear".to_owned()).spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    if let Ok(said) = serde_json::from_str(&line) {
                        *says.lock().unwrap_or_else(PoisonError::into_inner) = said;
                    }
                }
            })?;
        }
        Ok(Member { name, weight, fate: Fate::Running, process, _tie: tie, says })
    }

    /// Kills a node with SIGKILL.
    pub(super) fn kill(&mut self, place: usize) {
        let member = &mut self.members[place];
        if member.is_there() {
            let _ = member.process.kill();
            let _ = member.process.wait();
            member.fate = Fate::Killed;
        }
    }

    /// Stops a node's process with SIGSTOP.
    pub(super) fn pause(&mut self, place: usize) {
        let member = &mut self.members[place];
        if member.fate == Fate::Running {
            member.signal(Signal::SIGSTOP);
            member.fate = Fate::Paused;
        }
    }

    /// Lets it go on.
    pub(super) fn resume(&mut self, place: usize) {
        let member = &mut self.members[place];
        if member.fate == Fate::Paused {
            member.signal(Signal::SIGCONT);
            member.fate = Fate::Running;
        }
    }

    /// Asks a node to hand everything over and leave.
    pub(super) fn drain(&mut self, place: usize) {
        self.resume(place);
        let member = &mut self.members[place];
        if member.fate == Fate::Running {
            member.signal(Signal::SIGTERM);
            member.fate = Fate::Draining;
        }
    }

    /// Notes which processes have ended.
    pub(super) fn look(&mut self) {
        for member in &mut self.members {
            if member.is_there() && matches!(member.process.try_wait(), Ok(Some(_))) {
                member.fate = Fate::Ended;
            }
        }
    }

    /// Asks all nodes to leave and waits for them, though not for long.
    pub(super) fn end(&mut self) {
        (0..self.members.len()).for_each(|place| self.drain(place));
        for _ in 0..600 {
            self.look();
            if !self.members.iter().any(Member::is_there) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What all workers noted.
    pub(super) fn ran(&self) -> Vec<Ran> {
        let names: BTreeMap<usize, &str> =
            self.members.iter().enumerate().map(|(place, member)| (place, member.name.as_str())).collect();
        names.iter().flat_map(|(place, name)| diary::read(&diary_file(&self.folder, name), *place)).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for member in &mut self.members {
            let _ = member.process.kill();
            let _ = member.process.wait();
        }
    }
}

impl Member {
    /// Whether its process is there, running or stopped.
    pub(super) fn is_there(&self) -> bool {
        matches!(self.fate, Fate::Running | Fate::Paused | Fate::Draining)
    }

    /// What it last said of itself.
    pub(super) fn says(&self) -> Says {
        self.says.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn signal(&self, signal: Signal) {
        let _ = kill(Pid::from_raw(self.process.id() as i32), signal);
    }
}
