use crate::{Administration, DeathProofs, Registry};

/// What a store can do beyond [`Store`](crate::Store). `None` means that it cannot.
///
/// A wrapper that changes nothing returns the value of the store inside. One that intercepts calls names every
/// field, so that a new extension does not compile until the wrapper has it.
#[derive(Clone, Copy)]
pub struct Extensions<'store> {
    /// The store can prove that a process is gone.
    pub death_proofs: Option<&'store dyn DeathProofs>,
    /// Operators can examine the store, try it out and clean up after that.
    pub administration: Option<&'store dyn Administration>,
    /// The store keeps keys for other programs.
    pub registry: Option<&'store dyn Registry>,
}

impl Extensions<'_> {
    /// A store that has the records and nothing else.
    pub fn none() -> Self {
        Extensions { death_proofs: None, administration: None, registry: None }
    }
}
