//! What impairs the store, or the network in front of it, for all nodes right now.

use crate::faults::FaultKind;
use crate::world::clock::Instant;

/// The impairments in force, each with the number of the fault that causes it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Impairments {
    active: Vec<(usize, Impairment)>,
}

/// Something that every request to the store suffers from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Impairment {
    /// Everything takes this many times as long.
    Slow(u64),
    /// This many requests in a thousand fail.
    Errors(u32),
    /// This many answers in a thousand are lost.
    LostAnswers(u32),
    /// This many answers in a thousand come twice, or late.
    DoubledAnswers(u32),
    /// This many writes in a thousand arrive again later.
    DoubledWrites(u32),
    /// Listings are up to this old.
    StaleLists(Instant),
    /// Writes are refused.
    Full,
    /// The store is down, because of a fault of this kind.
    Down(FaultKind),
}

impl Impairments {
    pub(crate) fn begin(&mut self, fault: usize, impairment: Impairment) {
        self.active.push((fault, impairment));
    }

    pub(crate) fn end(&mut self, fault: usize) {
        self.active.retain(|(from, _)| *from != fault);
    }

    pub(crate) fn clear(&mut self) {
        self.active.clear();
    }

    fn worst<T: Ord + Default>(&self, pick: impl Fn(Impairment) -> Option<T>) -> T {
        self.active.iter().filter_map(|(_, impairment)| pick(*impairment)).max().unwrap_or_default()
    }

    /// How many times slower everything is.
    pub(crate) fn slow(&self) -> u64 {
        self.worst(|it| if let Impairment::Slow(times) = it { Some(times) } else { None }).max(1)
    }

    pub(crate) fn errors(&self) -> u32 {
        self.worst(|it| if let Impairment::Errors(permille) = it { Some(permille) } else { None })
    }

    pub(crate) fn lost_answers(&self) -> u32 {
        self.worst(|it| if let Impairment::LostAnswers(permille) = it { Some(permille) } else { None })
    }

    pub(crate) fn doubled_answers(&self) -> u32 {
        self.worst(|it| if let Impairment::DoubledAnswers(permille) = it { Some(permille) } else { None })
    }

    pub(crate) fn doubled_writes(&self) -> u32 {
        self.worst(|it| if let Impairment::DoubledWrites(permille) = it { Some(permille) } else { None })
    }

    /// How old listings may be.
    pub(crate) fn stale_by(&self) -> Instant {
        self.worst(|it| if let Impairment::StaleLists(lag) = it { Some(lag) } else { None })
    }

    /// Whether the store refuses writes.
    pub(crate) fn full(&self) -> bool {
        self.active.iter().any(|(_, impairment)| *impairment == Impairment::Full)
    }

    /// Which kind of fault the store is down from, if it is down.
    pub(crate) fn down_from(&self) -> Option<FaultKind> {
        self.active.iter().find_map(|(_, impairment)| match impairment {
            Impairment::Down(kind) => Some(*kind),
            _ => None,
        })
    }

    pub(crate) fn down(&self) -> bool {
        self.down_from().is_some()
    }
}
