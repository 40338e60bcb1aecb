//! What Leasehold asks of a store, and what helps to write and test one.
//!
//! - [`Store`] is what every store must do. What only some can do is in [`DeathProofs`], [`Administration`] and
//!   [`Registry`]; [`StoreExt`] calls them if a store has them.
//! - [`memory`] is a store in memory, [`wrap`] has stores around stores that inject faults or count calls, and
//!   [`conformance`] is the suite that checks a store against the contract.
//! - [`bill`] says what a store costs that charges for requests.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod address;
mod administration;
pub mod bill;
pub mod conformance;
mod death_proofs;
mod extensions;
mod finding;
mod into_store;
pub mod memory;
mod namespace;
mod registry;
pub mod rng;
mod secret;
mod store;
mod store_ext;
mod throwaway;
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
pub use memory::{Memory, MemoryServer};
pub use namespace::check_namespace;
pub use registry::{LeaseId, LeaseState, Registry, values_among};
pub use secret::Secret;
pub use store::{Reading, Store, SwapReply, Watch};
pub use store_ext::StoreExt;
pub use throwaway::Throwaway;
