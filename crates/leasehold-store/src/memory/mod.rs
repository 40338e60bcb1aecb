//! A store in the memory of one process, for tests and simulation.
//!
//! A [`MemoryServer`] plays the server: it keeps the records and offers the levers that tests pull (wipe, roll back,
//! corrupt, break the watches). Any number of [`Memory`] handles are opened on it, each on one namespace. It reads no
//! clock of its own: leases of registered keys expire by the clock that the test supplies.

mod handle;
mod leases;
mod server;
mod space;
mod watch;

pub use handle::Memory;
pub use server::{MemoryServer, MemorySnapshot};
