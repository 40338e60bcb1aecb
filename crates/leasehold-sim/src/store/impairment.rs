//! What troubles the store and the network right now.

use crate::faults::FaultKind;
use crate::world::clock::Instant;

/// The troubles that are on, each with the number of the fault that it is from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Weather {
    troubles: Vec<(usize, Trouble)>,
}

/// A trouble of the store or the network that touches all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    Slow(u64),
    Errors(u32),
    LostAnswers(u32),
    DoubledAnswers(u32),
    DoubledWrites(u32),
    StaleLists(Instant),
    /// Writes are refused.
    Full,
    /// Which kind of fault it is down from.
    Down(FaultKind),
}

impl Weather {
    pub(crate) fn begin(&mut self, fault: usize, trouble: Trouble) {
        self.troubles.push((fault, trouble));
    }

    pub(crate) fn end(&mut self, fault: usize) {
        self.troubles.retain(|(from, _)| *from != fault);
    }

    pub(crate) fn clear(&mut self) {
        self.troubles.clear();
    }

    fn worst<T: Ord + Default>(&self, pick: impl Fn(Trouble) -> Option<T>) -> T {
        self.troubles.iter().filter_map(|(_, trouble)| pick(*trouble)).max().unwrap_or_default()
    }

    /// How many times slower everything is.
    pub(crate) fn slow(&self) -> u64 {
        self.worst(|trouble| if let Trouble::Slow(times) = trouble { Some(times) } else { None }).max(1)
    }

    pub(crate) fn errors(&self) -> u32 {
        self.worst(|trouble| if let Trouble::Errors(permille) = trouble { Some(permille) } else { None })
    }

    pub(crate) fn lost_answers(&self) -> u32 {
        self.worst(|trouble| if let Trouble::LostAnswers(permille) = trouble { Some(permille) } else { None })
    }

    pub(crate) fn doubled_answers(&self) -> u32 {
        self.worst(
            |trouble| if let Trouble::DoubledAnswers(permille) = trouble { Some(permille) } else { None },
        )
    }

    pub(crate) fn doubled_writes(&self) -> u32 {
        self.worst(
            |trouble| {
                if let Trouble::DoubledWrites(permille) = trouble { Some(permille) } else { None }
            },
        )
    }

    pub(crate) fn stale_by(&self) -> Instant {
        self.worst(|trouble| if let Trouble::StaleLists(lag) = trouble { Some(lag) } else { None })
    }

    /// Whether the store refuses writes.
    pub(crate) fn full(&self) -> bool {
        self.troubles.iter().any(|(_, trouble)| *trouble == Trouble::Full)
    }

    /// Whether the store is down, and from what.
    pub(crate) fn down_from(&self) -> Option<FaultKind> {
        self.troubles.iter().find_map(|(_, trouble)| match trouble {
            Trouble::Down(kind) => Some(*kind),
            _ => None,
        })
    }

    pub(crate) fn down(&self) -> bool {
        self.down_from().is_some()
    }
}
