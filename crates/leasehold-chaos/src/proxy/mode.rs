use std::time::Duration;

/// What a gate does with the connections that go through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Everything passes at once.
    Pass,
    /// Everything passes, later.
    Delay {
        /// How much later what the node sends arrives.
        to_store: Duration,
        /// How much later what the store answers arrives.
        from_store: Duration,
    },
    /// New connections are accepted, nothing is read and nothing is answered. Existing ones freeze, and go on where
    /// they were when the mode changes: a hung server, or a partition that TCP outlives.
    Stall,
    /// New connections are refused, and the existing ones are over for good.
    Cut(Existing),
    /// New connections are accepted and reset at once, existing ones are reset.
    Reset,
    /// One direction is held back and the other passes. TCP sends again what was lost, so it arrives when the mode
    /// changes: very late answers, or very late requests.
    OneWay {
        /// The direction in which nothing arrives.
        lost: Direction,
    },
}

/// What becomes of connections that exist when a gate is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Both sides keep an open connection on which nothing ever comes again, as behind a firewall that forgot it.
    Silent,
    /// Both sides are told by a reset.
    Reset,
}

/// A direction of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the node to the store.
    ToStore,
    /// From the store to the node.
    FromStore,
}

impl Mode {
    /// By how much bytes in this direction are delayed; `None` if they do not pass.
    pub(super) fn delay(self, direction: Direction) -> Option<Duration> {
        match (self, direction) {
            (Mode::Pass, _) => Some(Duration::ZERO),
            (Mode::Delay { to_store, .. }, Direction::ToStore) => Some(to_store),
            (Mode::Delay { from_store, .. }, Direction::FromStore) => Some(from_store),
            (Mode::OneWay { lost }, direction) if lost != direction => Some(Duration::ZERO),
            (Mode::OneWay { .. } | Mode::Stall | Mode::Cut(_) | Mode::Reset, _) => None,
        }
    }
}
