//! The events of the simulated world.

use leasehold_core::event::{Command, Verdict};
use leasehold_core::store::{Answer, Request, RequestId, Swap};
use leasehold_core::{Epoch, SessionId, ShardId};

use crate::workload::WorkEvent;
use crate::world::clock::Instant;
use crate::world::network::RepeatedWrite;

/// Something that will happen. Numbers are those of processes, workers, slots and faults.
#[derive(Debug)]
pub(crate) enum WorldEvent {
    /// A process's core wants to be called.
    Tick { process: usize, number: u64 },
    /// A process's watchdog takes a turn.
    Watchdog { process: usize },
    /// The kernel's timer for a process may be due.
    DeadManTimer { process: usize },
    /// A request arrives at the store.
    RequestArrives { process: usize, request: Box<Request>, sent_at: Instant },
    /// A write arrives at the store once more, if the store is still the one that it was sent to.
    RepeatedWrite { process: usize, repeated: Box<RepeatedWrite> },
    /// An answer arrives at a process.
    AnswerArrives { process: usize, id: RequestId, answer: Box<Answer>, copy: AnswerCopy },
    /// A process has waited long enough for an answer.
    GiveUp { process: usize, id: RequestId },
    /// A watch tells a process what changed.
    WatchDelivery { process: usize, number: u32 },
    /// A process tries to watch.
    WatchConnect { process: usize, number: u32 },
    /// The kernel tells a process that another one's session is gone.
    ProcessGone { process: usize, session: SessionId },
    /// The acquire gate answers.
    GateAnswers { process: usize, shard: ShardId, verdict: Verdict },
    /// A process's core hears that work has ended.
    WorkEnded { process: usize, worker: usize },
    /// User code does something.
    Work { worker: usize, what: WorkEvent },
    /// A write of user code arrives at the sink.
    SinkWrite { run: usize, shard: usize, epoch: Epoch },
    /// A paused process resumes.
    Resume { process: usize, pause: u32 },
    /// A new process begins in a slot.
    Spawn { slot: usize },
    /// A user gives its node a command.
    Command { process: usize, command: Box<Command> },
    /// A fault strikes.
    FaultBegins(usize),
    /// A fault is over.
    FaultEnds(usize),
    /// What an operator wrote arrives.
    OperatorWrite { swap: Box<Swap> },
    /// A machine is frozen once more.
    FreezeMachine { slot: usize, times: u32, fault: usize },
    /// One more node of a rolling restart.
    RollingStep { slot: usize, fault: usize },
    /// The oracle looks at the world.
    Look,
}

/// Which copy of an answer it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerCopy {
    /// The one that the driver waits for.
    Awaited,
    /// One that reaches the core even though it no longer waits.
    Extra,
}
