//! What can be in the queue.

use leasehold_core::event::{Command, Verdict};
use leasehold_core::store::{Answer, Request, RequestId, Swap};
use leasehold_core::{Epoch, SessionId, ShardId};

use crate::workload::WorkDue;
use crate::world::clock::Instant;
use crate::world::network::Echo;

/// Something that will happen. Numbers are those of processes, workers, slots and faults.
#[derive(Debug)]
pub(crate) enum Due {
    /// A process's core wants to be called.
    Tick { process: usize, number: u64 },
    /// A process's watchdog takes a turn.
    Guard { process: usize },
    /// The kernel's timer for a process may be due.
    DeadMan { process: usize },
    /// A request arrives at the store.
    Arrive { process: usize, request: Box<Request>, sent_at: Instant },
    /// A write arrives at the store once more, if the store is still the one that it was sent to.
    Echo { process: usize, echo: Box<Echo> },
    /// An answer arrives at a process.
    Answer { process: usize, id: RequestId, answer: Box<Answer>, copy: Copy },
    /// A process has waited long enough for an answer.
    GiveUp { process: usize, id: RequestId },
    /// A watch tells a process what changed.
    Told { process: usize, number: u32 },
    /// A process tries to watch.
    Connect { process: usize, number: u32 },
    /// The kernel tells a process that another one's session is gone.
    Gone { process: usize, session: SessionId },
    /// The acquire gate has made up its mind.
    Gate { process: usize, shard: ShardId, verdict: Verdict },
    /// A process's core hears that work has ended.
    Ended { process: usize, worker: usize },
    /// User code does something.
    Work { worker: usize, what: WorkDue },
    /// A write of user code arrives at the sink.
    Write { run: usize, shard: usize, epoch: Epoch },
    /// A process goes on.
    Resume { process: usize, pause: u32 },
    /// A new process begins in a slot.
    Spawn { slot: usize },
    /// A user wants something of its node.
    Command { process: usize, command: Box<Command> },
    /// A fault strikes.
    Strike(usize),
    /// A fault is over.
    Relent(usize),
    /// What an operator wrote arrives.
    Operator { swap: Box<Swap> },
    /// A machine is frozen once more.
    Freeze { slot: usize, times: u32, fault: usize },
    /// One more node of a rolling restart.
    Roll { slot: usize, fault: usize },
    /// Somebody looks at the world from outside.
    Look,
}

/// Which copy of an answer it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copy {
    /// The one that the driver waits for.
    Awaited,
    /// One that reaches the core even though it no longer waits.
    Extra,
}
