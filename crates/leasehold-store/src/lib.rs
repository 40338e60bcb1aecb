//! What Leasehold asks of a store ([`Store`], [`Registry`]), and what helps to write and test one: an in-memory store
//! ([`memory`]), stores around stores that make trouble or take notes ([`wrap`]), the suite that checks a store
//! against the contract ([`conformance`]), and what a store that charges for requests costs ([`bill`]).

mod address;
pub mod bill;
pub mod conformance;
mod finding;
pub mod memory;
mod namespace;
mod registry;
pub mod rng;
mod secret;
mod store;
mod throwaway;
pub mod wrap;

pub use address::{Address, AddressError, Host};
pub use finding::{Finding, Grade};
pub use leasehold_core::store::{
    Facts, Freshness, Key, Lane, Listing, Safety, StoreError, StoreErrorKind, Stored, Swap, Swapped, Version,
    WatchEvent,
};
pub use memory::{Memory, MemoryServer};
pub use namespace::check_namespace;
pub use registry::{LeaseId, LeaseState, Registry};
pub use secret::Secret;
pub use store::{Charged, Reading, Store, SwapReply, Watch};
pub use throwaway::Throwaway;
