//! What Leasehold asks of a store, and what helps to write and test one.
//!
//! - [`Store`] is what every store must do. What only some can do is in [`DeathProofs`], [`Administration`] and
//!   [`Registry`]; [`StoreExt`] calls them if a store has them.
//! - [`bill`] says what a store costs that charges for requests.
//! - `memory` is a store in the memory of one process (feature `memory`).
//! - `conformance` is the suite that checks a store against the contract, and `wrap` has stores around stores that
//!   inject faults or count calls. Only tests need them: turn the feature `test-util` on in your `[dev-dependencies]`.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod address;
mod administration;
pub mod bill;
#[cfg(feature = "test-util")]
pub mod conformance;
mod death_proofs;
mod extensions;
mod finding;
mod into_store;
#[cfg(feature = "memory")]
pub mod memory;
mod namespace;
mod registry;
pub mod rng;
mod secret;
mod store;
mod store_ext;
mod throwaway;
#[cfg(feature = "test-util")]
pub mod wrap;

pub use address::{Address, AddressError, Host};
pub use administration::{Administration, Charged};
pub use death_proofs::DeathProofs;
pub use extensions::Extensions;
pub use finding::{Finding, Grade};
pub use into_store::IntoStore;
pub use leasehold_core::store::{
    Facts, Freshness, Key, Lane, Listing, Safety, StoreError, StoreErrorKind, Stored, Swap, Swapped, Version,
    WatchEvent,
};
#[cfg(feature = "memory")]
pub use memory::{Memory, MemoryServer};
pub use namespace::check_namespace;
pub use registry::{LeaseId, LeaseState, Registry, values_among};
pub use secret::Secret;
pub use store::{Reading, Store, SwapReply, Watch};
pub use store_ext::StoreExt;
pub use throwaway::Throwaway;
