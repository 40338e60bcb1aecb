//! What Leasehold asks of a store ([`Store`], [`Registry`]), and an in-memory store ([`memory`]).

pub mod memory;
mod registry;
mod store;

pub use leasehold_core::store::{
    Facts, Freshness, Key, Lane, Listing, Safety, StoreError, StoreErrorKind, Stored, Swap, Swapped, Version,
    WatchEvent,
};
pub use memory::{Memory, MemoryServer};
pub use registry::{LeaseId, LeaseState, Registry};
pub use store::{Reading, Store, SwapReply, Watch};
