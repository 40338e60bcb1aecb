use std::fmt;

/// Something that is done to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// Its process is killed with SIGKILL, and started again later.
    Kill,
    /// Its process is stopped with SIGSTOP, and continued later.
    Stop,
    /// It is cut off from the store: connections are refused, those that exist are dropped.
    Cut,
    /// Its connections to the store stall: accepted, and nothing is answered.
    Stall,
    /// What it sends, or what the store answers, does not arrive, while the other way works.
    OneWay,
    /// Everything between it and the store is late.
    Delay,
    /// Its connections to the store are reset.
    Reset,
    /// It is asked to leave with SIGTERM, and started again later.
    Restart,
    /// An operator drains it, and takes that back later.
    Drain,
    /// Another process holds the write lock of the store's file.
    Lock,
}

impl Fault {
    /// All of them.
    pub(crate) const ALL: [Fault; 10] = [
        Fault::Kill,
        Fault::Stop,
        Fault::Cut,
        Fault::Stall,
        Fault::OneWay,
        Fault::Delay,
        Fault::Reset,
        Fault::Restart,
        Fault::Drain,
        Fault::Lock,
    ];

    /// The word for it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Fault::Kill => "kill",
            Fault::Stop => "stop",
            Fault::Cut => "cut",
            Fault::Stall => "stall",
            Fault::OneWay => "one-way",
            Fault::Delay => "delay",
            Fault::Reset => "reset",
            Fault::Restart => "restart",
            Fault::Drain => "drain",
            Fault::Lock => "lock",
        }
    }

    /// Whether it is done to the connections between a node and its store.
    pub(crate) fn needs_network(self) -> bool {
        matches!(self, Fault::Cut | Fault::Stall | Fault::OneWay | Fault::Delay | Fault::Reset)
    }

    /// Whether it is done to the store's file.
    pub(crate) fn needs_file(self) -> bool {
        self == Fault::Lock
    }

    /// Whether a node that suffers it long enough loses its session.
    pub(crate) fn takes_the_session(self) -> bool {
        self.needs_network() || matches!(self, Fault::Stop | Fault::Lock)
    }

    /// What it is, in words.
    pub(crate) fn description(self) -> &'static str {
        match self {
            Fault::Kill => "killed (SIGKILL)",
            Fault::Stop => "stopped (SIGSTOP)",
            Fault::Cut => "cut off from the store",
            Fault::Stall => "connections to the store stall",
            Fault::OneWay => "one direction of its connections is blocked",
            Fault::Delay => "connections to the store are slow",
            Fault::Reset => "connections to the store are reset",
            Fault::Restart => "restarted (SIGTERM)",
            Fault::Drain => "drained by an operator",
            Fault::Lock => "another process locks the store file",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
