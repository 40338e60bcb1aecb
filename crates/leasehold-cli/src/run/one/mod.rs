//! One child for all shards of this node, told what it owns by lines of JSON (`docs/one.md`).
//!
//! A separate thread looks after the child, so that callers can wait for its end without blocking it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc as blocking;
use std::time::Duration;

use leasehold::tasks::Tasks;
use leasehold::{Grant, Outcome, clock};
use leasehold_core::{Epoch, ShardId};
use rustix::pipe::PipeFlags;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot};

use super::reports::{ChildId, FromChild};
use super::{GroupWork, Haste};
use crate::guard::wire::{Exit, Leash, Report};
use crate::guard::{Guarded, Launch, Stdin};

pub(super) mod message;

use message::{Acknowledgement, Answer, Messages};

/// How many lines may wait for a child that does not read them, before it counts as stuck and is killed.
const WAITING_MAX: usize = 20_000;
/// How long the last lines of a dead child may take to be read.
const LAST_WORDS_WITHIN: Duration = Duration::from_millis(200);

/// The way to the one child of this node.
#[derive(Clone, Debug)]
pub(super) struct OneChild {
    instructions: mpsc::UnboundedSender<Instruction>,
}

/// What the handlers of shards want.
#[derive(Debug)]
enum Instruction {
    /// Tell the child that it holds a shard.
    Hold { grant: Grant, ended: oneshot::Sender<Outcome> },
    /// Tell the child to stop a shard.
    Stop(ShardId, Epoch),
    /// A shard's time is over and the child has not acknowledged: kill the child, and say when it is dead.
    CutOff(ShardId, Epoch, blocking::Sender<()>),
}

impl OneChild {
    /// Starts the thread; the child itself starts with the first shard.
    pub(super) fn start(work: Arc<GroupWork>) -> io::Result<OneChild> {
        let (instructions, inbox) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("lh-one".to_owned()).spawn(move || {
            runtime.block_on(
                Carer {
                    id: ChildId::new(),
                    work,
                    inbox,
                    held: BTreeMap::new(),
                    later: BTreeMap::new(),
                    waiting: Vec::new(),
                }
                .run(),
            );
        })?;
        Ok(OneChild { instructions })
    }
}

/// Runs one shard in the child until the child says that it has stopped it, or is dead. Dropped earlier, it kills the
/// child and waits for its death.
pub(super) async fn work(child: OneChild, grant: Grant) -> Outcome {
    let (ended, waiting) = oneshot::channel();
    let mut hold = Hold { child, shard: grant.shard().clone(), epoch: grant.epoch(), over: false };
    hold.send(Instruction::Hold { grant: grant.clone(), ended });
    let mut waiting = std::pin::pin!(waiting);
    let mut told = false;
    loop {
        tokio::select! {
            outcome = &mut waiting => {
                hold.over = true;
                return outcome.unwrap_or_else(|_| Err("the child exited".into()));
            }
            () = grant.stopping().cancelled(), if !told => {
                told = true;
                hold.send(Instruction::Stop(grant.shard().clone(), grant.epoch()));
            }
        }
    }
}

/// A shard that the child holds.
struct Hold {
    child: OneChild,
    shard: ShardId,
    epoch: Epoch,
    over: bool,
}

impl Hold {
    fn send(&self, instruction: Instruction) {
        let _ = self.child.instructions.send(instruction);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.over {
            let (dead, waiting) = blocking::channel();
            self.send(Instruction::CutOff(self.shard.clone(), self.epoch, dead));
            let _ = waiting.recv();
        }
    }
}

/// What the child holds.
struct Held {
    grant: Grant,
    ended: oneshot::Sender<Outcome>,
    /// The child knows that it must stop it.
    stop_told: bool,
}

/// Cares for the child, one life after another.
struct Carer {
    id: ChildId,
    work: Arc<GroupWork>,
    inbox: mpsc::UnboundedReceiver<Instruction>,
    held: BTreeMap<ShardId, Held>,
    /// Shards that came while the child was ending: they begin its next life.
    later: BTreeMap<ShardId, Held>,
    /// Callers that wait for the end of the child.
    waiting: Vec<blocking::Sender<()>>,
}

/// One life of the child.
struct Life {
    guarded: Guarded,
    leash: Leash,
    orders: mpsc::Sender<String>,
    answers: mpsc::Receiver<Answer>,
    /// Writes to its standard input; ends with it.
    tasks: Tasks,
    exit: Option<Exit>,
    failed: Option<String>,
    ending: bool,
}

impl Carer {
    async fn run(mut self) {
        loop {
            self.held = std::mem::take(&mut self.later);
            if self.held.is_empty() {
                match self.inbox.recv().await {
                    None => return,
                    Some(Instruction::Hold { grant, ended }) => {
                        self.held.insert(grant.shard().clone(), Held { grant, ended, stop_told: false });
                    }
                    // There is no child that could hold it.
                    Some(Instruction::Stop(..) | Instruction::CutOff(..)) => continue,
                }
            }
            let leashes = self.held.values().filter_map(|held| self.work.supervisor.rule.leash(&held.grant));
            match leashes.max_by_key(|leash| leash.kill_at) {
                Some(leash) => self.live(leash).await,
                None => self.end_all("the session was lost before the child was started"),
            }
        }
    }

    /// One life of the child, from its start until it is dead.
    async fn live(&mut self, leash: Leash) {
        let mut life = match self.launch(leash) {
            Ok(life) => life,
            Err(error) => return self.end_all(&format!("cannot start the child: {error}")),
        };
        self.tell_all(&mut life);
        let mut haste = self.work.supervisor.haste.clone();
        let (mut hurried, mut silent) = (false, false);
        loop {
            tokio::select! {
                report = life.guarded.next() => match report {
                    Some(Report::Gone) | None => break,
                    Some(report) => life.hear(report),
                },
                instruction = self.inbox.recv() => match instruction {
                    Some(instruction) => self.on_instruction(&mut life, instruction),
                    None => break,
                },
                answer = life.answers.recv(), if !silent => match answer {
                    Some(answer) => self.on_answer(&mut life, answer),
                    None => silent = true,
                },
                Ok(_) = haste.wait_for(|haste| *haste == Haste::Hurry), if !hurried => {
                    hurried = true;
                    life.guarded.kill();
                }
                () = tokio::time::sleep(self.work.supervisor.rule.look_every) => self.extend(&mut life),
            }
        }
        // The last lines of its output: the pipe has ended, because all its writers are gone.
        while let Ok(Some(answer)) = tokio::time::timeout(LAST_WORDS_WITHIN, life.answers.recv()).await {
            self.on_answer(&mut life, answer);
        }
        self.bury(life);
    }

    fn launch(&self, leash: Leash) -> io::Result<Life> {
        let (stdin, to_child) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let (from_child, stdout) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let mut guarded = Guarded::start(Launch {
            command: self.work.template.plain(),
            env: vec![
                ("LEASEHOLD_NAMESPACE", self.work.supervisor.namespace.clone()),
                ("LEASEHOLD_NODE", self.work.supervisor.node.clone()),
                ("LEASEHOLD_PROTOCOL", message::PROTOCOL.to_string()),
            ],
            leash,
            isolation: self.work.supervisor.isolation,
            stdin: Stdin::From(stdin),
            stdout: stdout.into(),
            stderr: self.work.supervisor.printer.stdio(),
        })?;
        self.work.supervisor.printer.follow(guarded.take_output(), "");
        let tasks = Tasks::on(tokio::runtime::Handle::current());
        let ((orders, queue), (heard, answers)) = (mpsc::channel(WAITING_MAX), mpsc::channel(256));
        tasks.spawn(write_orders(pipe::Sender::from_owned_fd(to_child)?, queue));
        self.work.supervisor.printer.follow_answers(from_child, heard);
        Ok(Life { guarded, leash, orders, answers, tasks, exit: None, failed: None, ending: false })
    }

    /// What a new child must know.
    fn tell_all(&mut self, life: &mut Life) {
        let messages = self.messages(life.leash);
        life.order(messages.hello(&self.work.supervisor.namespace, &self.work.supervisor.node));
        for held in self.held.values() {
            life.order(messages.grant(held.grant.shard(), held.grant.epoch()));
        }
    }

    fn messages(&self, leash: Leash) -> Messages {
        Messages { stop_at: self.work.supervisor.rule.stop_at(leash), leash }
    }

    fn on_instruction(&mut self, life: &mut Life, instruction: Instruction) {
        match instruction {
            Instruction::Hold { grant, ended } => {
                let shard = grant.shard().clone();
                if life.ending {
                    self.later.insert(shard, Held { grant, ended, stop_told: false });
                    return;
                }
                self.extend(life);
                life.order(self.messages(life.leash).grant(&shard, grant.epoch()));
                self.held.insert(shard, Held { grant, ended, stop_told: false });
            }
            Instruction::Stop(shard, epoch) => self.stop(life, &shard, epoch),
            Instruction::CutOff(shard, epoch, dead) => {
                if self.held.get(&shard).is_some_and(|held| held.grant.epoch() == epoch) {
                    tracing::warn!(%shard, %epoch, "the child did not stop a shard in time: killing it");
                    life.ending = true;
                    life.guarded.kill();
                    self.waiting.push(dead);
                } else if self.later.get(&shard).is_some_and(|held| held.grant.epoch() == epoch) {
                    self.later.remove(&shard);
                }
            }
        }
    }

    fn stop(&mut self, life: &mut Life, shard: &ShardId, epoch: Epoch) {
        if let Some(held) = self.later.remove(shard) {
            let _ = held.ended.send(Ok(()));
            return;
        }
        let messages = self.messages(life.leash);
        let Some(held) = self.held.get_mut(shard).filter(|held| held.grant.epoch() == epoch) else { return };
        if std::mem::replace(&mut held.stop_told, true) {
            return;
        }
        let last_call = self.work.supervisor.rule.last_call(life.leash);
        if held.grant.is_lost() {
            life.guarded.kill_at(last_call);
            life.order(messages.stop(shard, epoch, last_call));
        } else {
            life.order(messages.stop(shard, epoch, clock::now() + self.work.kill_after));
        }
    }

    fn on_answer(&mut self, life: &mut Life, answer: Answer) {
        let (Acknowledgement { shard, epoch, error }, refused_for) = match answer {
            Answer::Ended(of) => (of, None),
            Answer::Refused(of, pause) => (of, Some(pause)),
            Answer::Report(report) => {
                let _ = self.work.supervisor.reports.send((self.id, FromChild::Report(report)));
                return;
            }
        };
        if self.held.get(&shard).is_none_or(|held| held.grant.epoch() != epoch) {
            tracing::warn!(%shard, %epoch, "ignored an acknowledgement for a shard that the child does not hold");
            return;
        }
        let held = self.held.remove(&shard).expect("it is known");
        if let Some(pause) = refused_for
            && !held.stop_told
        {
            tracing::info!(%shard, %epoch, ?pause, "the child refused a shard: another node takes it if one can");
            // It is sent before the end of the work, so the shard is given up and not started again.
            let _ = held.grant.step_down(pause);
        }
        let outcome = match error {
            Some(error) if !held.stop_told => Err(error.into()),
            _ => Ok(()),
        };
        let _ = held.ended.send(outcome);
        if self.held.is_empty() && !life.ending {
            // A child that holds nothing has no lease to live under. It is started again with the next shard.
            life.ending = true;
            life.guarded.terminate(clock::now() + self.work.kill_after);
        }
    }

    /// Passes on a renewal.
    fn extend(&mut self, life: &mut Life) {
        let leashes = self.held.values().filter_map(|held| self.work.supervisor.rule.leash(&held.grant));
        if let Some(later) =
            leashes.max_by_key(|leash| leash.kill_at).filter(|later| later.kill_at > life.leash.kill_at)
        {
            life.leash = later;
            life.guarded.extend(later);
            life.order(self.messages(later).deadline());
        }
    }

    /// The child is dead, and all that it started.
    fn bury(&mut self, life: Life) {
        let Life { guarded, tasks, exit, failed, .. } = life;
        drop((tasks, guarded));
        let _ = self.work.supervisor.reports.send((self.id, FromChild::Ended));
        let why = match (failed, exit) {
            (Some(why), _) => why,
            (None, Some(exit)) => format!("the command {exit}"),
            (None, None) => "the guard process was killed, and the child with it".to_owned(),
        };
        self.end_all(&why);
    }

    fn end_all(&mut self, why: &str) {
        for held in std::mem::take(&mut self.held).into_values() {
            let outcome = if held.stop_told { Ok(()) } else { Err(why.to_owned().into()) };
            let _ = held.ended.send(outcome);
        }
        // Their senders are dropped, which tells the receivers that the child is dead.
        self.waiting.clear();
    }
}

impl Life {
    fn order(&mut self, line: String) {
        if self.orders.try_send(line).is_err() && !self.ending {
            tracing::warn!("the child does not read its standard input: killing it");
            self.ending = true;
            self.guarded.kill();
        }
    }

    fn hear(&mut self, report: Report) {
        match report {
            Report::Started(pid) => tracing::info!(pid, "the child started"),
            Report::Exited(exit) => {
                self.ending = true;
                self.exit = Some(exit);
            }
            Report::Killing(why) => {
                self.ending = true;
                tracing::warn!(why, "killing the child");
            }
            Report::Failed(why) => {
                self.ending = true;
                self.failed = Some(why);
            }
            Report::Gone => {}
        }
    }
}

/// Writes to the child what it is told.
async fn write_orders(mut pipe: pipe::Sender, mut queue: mpsc::Receiver<String>) {
    while let Some(line) = queue.recv().await {
        if pipe.write_all(line.as_bytes()).await.is_err() {
            return;
        }
    }
}
