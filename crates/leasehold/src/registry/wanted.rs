/// A key that somebody registered.
pub(super) struct Wanted {
    pub(super) owner: u64,
    pub(super) value: Vec<u8>,
    /// Whether it is under the lease that there is now.
    pub(super) written: bool,
    /// What was registered under this key before, until the store has had this.
    pub(super) before: Before,
}

/// What was registered under a key before.
pub(super) enum Before {
    /// The store has had this one: whoever registered it was told so.
    Settled,
    /// It has not, and there was nothing else.
    Nothing,
    /// It has not; this was there, of this owner.
    Other(u64, Vec<u8>),
}

impl Wanted {
    /// A wish to overwrite this one.
    pub(super) fn overwritten(self, owner: u64, value: Vec<u8>) -> Wanted {
        let before = match self.before {
            Before::Settled => Before::Other(self.owner, self.value),
            unsettled => unsettled,
        };
        Wanted { owner, value, written: false, before }
    }

    /// The owner of what was there before wants it no more.
    pub(super) fn forget_before(&mut self, owner: u64) {
        if matches!(self.before, Before::Other(before, _) if before == owner) {
            self.before = Before::Nothing;
        }
    }

    pub(super) fn is_settled(&self) -> bool {
        matches!(self.before, Before::Settled)
    }
}
