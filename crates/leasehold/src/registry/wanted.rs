/// A key that somebody registered.
pub(super) struct Wanted {
    pub(super) owner: u64,
    pub(super) value: Vec<u8>,
    /// Whether it is in the store.
    pub(super) stand: Stand,
    /// What was registered under this key before, until the store has had this.
    pub(super) before: Before,
}

/// How a key stands in the store. Registering takes a key from whoever has it; keeping it never does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stand {
    /// It is to be written, over whatever is there.
    Wished,
    /// It was there before an outage, and is to be written again unless somebody else has it now.
    Lost,
    /// It is there, under the lease that there is now.
    There,
    /// Somebody else wrote over it: it is left alone until it is free.
    Taken,
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
        Wanted { owner, value, stand: Stand::Wished, before }
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
