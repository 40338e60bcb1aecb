//! A simulated newer version of Leasehold: what it writes that this one does not know, and how a namespace that asks
//! for it keeps this one out.

use std::sync::Arc;

use leasehold_core::record::{Meta, Record};
use leasehold_core::store::{Key, Listing, Stored, Swap};

use crate::faults::{Fault, Raise};
use crate::invariants::unknown_fields_survive;
use crate::world::process::Version;
use crate::world::{World, mentions};

/// How a record says which format it is in: one that is read here, and one that is not.
pub(crate) const READABLE: &str = "\"format\":1,";
pub(crate) const TOO_NEW: &str = "\"format\":99,";

/// How `meta` says which protocols a joining node must speak: one that is spoken here, and one that is not.
const SPOKEN: &str = "\"protocol\":[1,2]";
const UNSPOKEN: &str = "\"protocol\":[2,2]";

/// Whether a `meta` record keeps this version out.
pub(crate) fn refuses(meta: &[u8]) -> bool {
    mentions(meta, UNSPOKEN.as_bytes()) || mentions(meta, TOO_NEW.as_bytes())
}

impl World {
    /// Makes `meta` ask for what it should, by the faults that are on.
    pub(crate) fn raise(&mut self) {
        let wants = |raise: Raise| {
            let wanted = |fault: &usize| matches!(self.faults[*fault].fault, Fault::Protocol { raise: it, .. } if it == raise);
            self.active_faults.iter().any(wanted)
        };
        let (protocol, format) = (wants(Raise::Protocol), wants(Raise::Format));
        let Some(there) = self.store.get(&Key::Meta) else { return };
        let Some(text) = std::str::from_utf8(&there.value).ok() else { return };
        let Ok(mut meta) = Meta::decode(text.replacen(TOO_NEW, READABLE, 1).as_bytes()) else { return };
        meta.protocol = if protocol { (2, 2) } else { (1, 2) };
        let encoded = String::from_utf8(meta.encode()).expect("records are text");
        let asks = if format { encoded.replacen(READABLE, TOO_NEW, 1) } else { encoded };
        self.raised |= protocol || format;
        if self.raised && asks != text {
            self.overwrite(Key::Meta, Some(asks.into_bytes()));
        }
    }

    /// What a process reads of a record: a newer version understands what keeps this one out.
    pub(crate) fn as_read(&self, process: usize, key: &Key, stored: Option<&mut Stored>) {
        let understands = self.raised && self.processes[process].version == Version::Newer;
        if let (true, Key::Meta, Some(stored)) = (understands, key, stored)
            && let Ok(text) = std::str::from_utf8(&stored.value)
        {
            let text = text.replacen(TOO_NEW, READABLE, 1).replacen(UNSPOKEN, SPOKEN, 1);
            stored.value = Arc::from(text.into_bytes());
        }
    }

    /// The same for everything that a process is shown at once.
    pub(crate) fn as_listed(&self, process: usize, listing: &mut Listing) {
        if self.raised {
            for (key, stored) in &mut listing.entries {
                self.as_read(process, key, Some(stored));
            }
        }
    }

    /// What a newer version writes over a `meta` that keeps this one out keeps it out as well.
    pub(crate) fn as_asked_for(&self, swap: &mut Swap) {
        let (Key::Meta, true, Some(value)) = (&swap.key, self.raised, &swap.value) else { return };
        let there = self.store.get(&Key::Meta).filter(|there| Some(&there.version) == swap.expect.as_ref());
        let (Some(there), Ok(text)) = (there, std::str::from_utf8(value)) else { return };
        let mut text = text.to_owned();
        if mentions(&there.value, UNSPOKEN.as_bytes()) {
            text = text.replacen(SPOKEN, UNSPOKEN, 1);
        }
        if mentions(&there.value, TOO_NEW.as_bytes()) {
            text = text.replacen(READABLE, TOO_NEW, 1);
        }
        swap.value = Some(Arc::from(text.into_bytes()));
    }
}

/// What a later version of Leasehold would write: fields that this one does not know, and a wider range of protocols.
pub(crate) fn as_newer_version(swap: &mut Swap) {
    let Some(text) = swap.value.as_deref().and_then(|value| std::str::from_utf8(value).ok()) else { return };
    let Some(rest) = text.strip_prefix('{') else { return };
    if text.contains(unknown_fields_survive::FIELD) {
        return;
    }
    let rest = rest.replace("\"protocol\":[1,1]", "\"protocol\":[1,2]");
    let newer = format!("{{{}:{{\"a\":[1,null]}},{rest}", unknown_fields_survive::FIELD);
    swap.value = Some(Arc::from(newer.into_bytes()));
}
