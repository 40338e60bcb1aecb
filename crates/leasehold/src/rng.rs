//! The library's use of the system's randomness. Panics if there is none, which does not happen on a supported system.

use leasehold_core::name::WriteId;
pub(crate) use leasehold_store::rng::up_to;

fn bits() -> u128 {
    leasehold_store::rng::bits().expect("the system has randomness")
}

/// A seed for the core.
pub(crate) fn seed() -> [u8; 32] {
    let mut seed = [0; 32];
    seed[..16].copy_from_slice(&bits().to_ne_bytes());
    seed[16..].copy_from_slice(&bits().to_ne_bytes());
    seed
}

/// A write id.
pub(crate) fn write_id() -> WriteId {
    WriteId::from_bits(bits())
}
