//! What supervisor and guard tell each other: short lines of text over a socket. Moments are absolute nanoseconds on
//! the boot clock, which all processes of a machine share, so a line that arrives late says nothing wrong.

use leasehold_core::Moment;

/// Until when the child may live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leash {
    /// The guard begins to kill here.
    pub(crate) kill_at: Moment,
    /// Everything must be dead by here.
    pub(crate) valid_until: Moment,
}

/// What the supervisor wants of the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuardCommand {
    /// The lease was renewed.
    Extend(Leash),
    /// Ask the child to end (SIGTERM to its process group), and kill what is left at that moment.
    Terminate(Moment),
    /// Kill what is left at that moment, without asking again.
    KillAt(Moment),
    /// Kill everything now.
    Kill,
}

/// What the guard tells the supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The child runs under this process id.
    Started(u32),
    /// The child ended like this. Processes that it left behind may still be there.
    Exited(Exit),
    /// The guard kills, for this reason.
    Killing(String),
    /// Nothing of the child runs any more. The last report.
    Gone,
    /// The child was not started.
    Failed(String),
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exited with code {code}"),
            Exit::Signal(number) => match nix::sys::signal::Signal::try_from(*number) {
                Ok(signal) => write!(f, "was killed by {signal}"),
                Err(_) => write!(f, "was killed by signal {number}"),
            },
        }
    }
}

impl GuardCommand {
    /// The line for it, with its end.
    pub(crate) fn line(self) -> String {
        match self {
            GuardCommand::Extend(leash) => {
                format!("extend {} {}\n", leash.kill_at.as_nanos(), leash.valid_until.as_nanos())
            }
            GuardCommand::Terminate(kill_at) => format!("terminate {}\n", kill_at.as_nanos()),
            GuardCommand::KillAt(kill_at) => format!("kill-at {}\n", kill_at.as_nanos()),
            GuardCommand::Kill => "kill\n".to_owned(),
        }
    }

    /// Reads a line; `None` is nothing that we know.
    pub(crate) fn parse(line: &str) -> Option<GuardCommand> {
        let mut words = line.split_ascii_whitespace();
        let command = match words.next()? {
            "extend" => {
                GuardCommand::Extend(Leash { kill_at: moment(&mut words)?, valid_until: moment(&mut words)? })
            }
            "terminate" => GuardCommand::Terminate(moment(&mut words)?),
            "kill-at" => GuardCommand::KillAt(moment(&mut words)?),
            "kill" => GuardCommand::Kill,
            _ => return None,
        };
        words.next().is_none().then_some(command)
    }
}

fn moment<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<Moment> {
    words.next()?.parse().ok().map(Moment::from_nanos)
}

impl Report {
    /// The line for it, with its end.
    pub(crate) fn line(&self) -> String {
        match self {
            Report::Started(pid) => format!("started {pid}\n"),
            Report::Exited(Exit::Code(code)) => format!("exited {code}\n"),
            Report::Exited(Exit::Signal(signal)) => format!("signalled {signal}\n"),
            Report::Killing(why) => format!("killing {}\n", why.replace('\n', " ")),
            Report::Gone => "gone\n".to_owned(),
            Report::Failed(why) => format!("failed {}\n", why.replace('\n', " ")),
        }
    }

    /// Reads a line; `None` is nothing that we know.
    pub(crate) fn parse(line: &str) -> Option<Report> {
        let (word, rest) = line.trim_end().split_once(' ').unwrap_or((line.trim_end(), ""));
        Some(match word {
            "started" => Report::Started(rest.parse().ok()?),
            "exited" => Report::Exited(Exit::Code(rest.parse().ok()?)),
            "signalled" => Report::Exited(Exit::Signal(rest.parse().ok()?)),
            "killing" => Report::Killing(rest.to_owned()),
            "gone" => Report::Gone,
            "failed" => Report::Failed(rest.to_owned()),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let leash = Leash { kill_at: Moment::from_nanos(5), valid_until: Moment::from_nanos(7) };
        for command in [
            GuardCommand::Extend(leash),
            GuardCommand::Terminate(Moment::from_nanos(9)),
            GuardCommand::KillAt(Moment::from_nanos(9)),
            GuardCommand::Kill,
        ] {
            assert_eq!(GuardCommand::parse(&command.line()), Some(command));
        }
        for report in [
            Report::Started(12),
            Report::Exited(Exit::Code(3)),
            Report::Exited(Exit::Signal(9)),
            Report::Killing("two words".into()),
            Report::Gone,
            Report::Failed("no such file".into()),
        ] {
            assert_eq!(Report::parse(&report.line()), Some(report));
        }
        for nonsense in ["", "extend", "extend 1", "extend 1 2 3", "terminate x", "kill now"] {
            assert_eq!(GuardCommand::parse(nonsense), None, "{nonsense:?}");
        }
    }
}
