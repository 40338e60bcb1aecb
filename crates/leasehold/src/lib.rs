//! Leasehold.
mod alarm_clock;
pub mod clock;
pub mod deadman;
mod grant;
mod session;
pub mod tasks;
mod watchdog;

pub use grant::{Grant, Lost, LostReason};
