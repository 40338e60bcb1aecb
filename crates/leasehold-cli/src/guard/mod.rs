//! The dead-man guard: a child never outlives its lease, whatever happens to its supervisor.
//!
//! Each child has a guard process between it and the supervisor ([`keeper`]). The supervisor's end is [`Guarded`].
//!
//! ```text
//! leasehold run ──socket── leasehold guard ──parent-death signal── the command ── what it starts
//! ```
//!
//! The guard is started after the session was opened, so on the local store it holds the session's process lock as
//! well: the lock is free only when everything that ran under the session is dead.

mod brief;
mod descriptor;
mod guarded;
pub(crate) mod init;
mod inside;
mod isolation;
pub(crate) mod keeper;
pub(crate) mod stage;
mod tree;
pub(crate) mod wire;

pub(crate) use brief::run_briefly;
pub(crate) use guarded::{Guarded, Launch, Stdin, adopt_orphans};
pub(crate) use isolation::Isolation;

/// Where a command has its standard input from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StdinPlan {
    /// Nothing to read.
    Null,
    /// The supervisor sends a descriptor over the socket.
    Sent,
}

impl StdinPlan {
    fn read(word: &str) -> Option<StdinPlan> {
        match word {
            "null" => Some(StdinPlan::Null),
            "sent" => Some(StdinPlan::Sent),
            _ => None,
        }
    }
}

/// The hidden ways to start this program, `guard`, `guard-init`, `guard-stage` and `guard-nothing`. They are looked at
/// before anything else, so that a child starts fast and depends on no settings.
pub(crate) fn hidden_main() -> Option<std::process::ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next()?;
    let mut text = || arguments.next()?.into_string().ok();
    match first.to_str()? {
        "guard" => {
            let mut moment = || Some(leasehold_core::Moment::from_nanos(text()?.parse().ok()?));
            let leash = wire::Leash { kill_at: moment()?, valid_until: moment()? };
            let (stdin, isolation) = (StdinPlan::read(&text()?)?, Isolation::read(&text()?)?);
            arguments.next().filter(|word| word == "--")?;
            let command = arguments.collect();
            Some(keeper::main(keeper::Plan { leash, stdin, isolation, command }))
        }
        "guard-init" => {
            let stdin = StdinPlan::read(&text()?)?;
            arguments.next().filter(|word| word == "--")?;
            Some(init::main(stdin, &arguments.collect::<Vec<_>>()))
        }
        "guard-stage" => {
            let guard = text()?.parse().ok()?;
            arguments.next().filter(|word| word == "--")?;
            Some(stage::main(guard, &arguments.collect::<Vec<_>>()))
        }
        isolation::NOTHING => Some(std::process::ExitCode::SUCCESS),
        _ => None,
    }
}
