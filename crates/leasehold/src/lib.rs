//! Leasehold.
mod alarm_clock;
mod builder;
mod chance;
pub mod clock;
pub mod deadman;
mod driver;
mod error;
mod events;
mod grant;
mod group;
mod hooks;
mod launch;
mod locate;
mod node;
pub mod observe;
pub mod registry;
mod session;
pub mod tasks;
mod watchdog;

pub use builder::Builder;
pub use driver::Finish;
pub use error::Error;
pub use events::{Events, Told};
pub use grant::{Grant, Lost, LostReason};
pub use group::{BoxError, Group, Outcome};
pub use hooks::Health;
pub use node::Node;
