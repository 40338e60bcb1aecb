/// A registered key.
pub(super) struct Wanted {
    pub(super) owner: u64,
    pub(super) value: Vec<u8>,
    /// Whether it is in the store.
    pub(super) stand: Stand,
    /// The previous registration of this key, until the store has had this one.
    pub(super) before: Before,
}

/// The state of a key in the store. Registering takes a key from its current owner; keeping it alive never does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stand {
    /// It must be written, replacing whatever is there.
    Wished,
    /// It was there before an outage, and must be written again unless another process owns it now.
    Lost,
    /// It is there, under the current lease.
    There,
    /// Another process overwrote it: it is left alone until it is free.
    Taken,
}

/// The previous registration of a key.
pub(super) enum Before {
    /// The store has had this one, and its registrant was told so.
    Confirmed,
    /// The store has not had it, and there was nothing else.
    Nothing,
    /// The store has not had it; this was there, from this owner.
    Other(u64, Vec<u8>),
}

impl Wanted {
    /// A registration that overwrites this one.
    pub(super) fn overwritten(self, owner: u64, value: Vec<u8>) -> Wanted {
        let before = match self.before {
            Before::Confirmed => Before::Other(self.owner, self.value),
            unconfirmed => unconfirmed,
        };
        Wanted { owner, value, stand: Stand::Wished, before }
    }

    /// The owner of the previous registration no longer wants it.
    pub(super) fn forget_before(&mut self, owner: u64) {
        if matches!(self.before, Before::Other(before, _) if before == owner) {
            self.before = Before::Nothing;
        }
    }

    pub(super) fn is_confirmed(&self) -> bool {
        matches!(self.before, Before::Confirmed)
    }
}
