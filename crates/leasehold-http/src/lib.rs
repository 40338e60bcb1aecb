//! What the program `leasehold` serves over HTTP. It is part of the program, not of the library: nothing here is stable.
//!
//! ```text
//!   Listener ──> serve ──> access ──> router of the pages
//!   TCP, Unix    limits    Host, Origin, token
//! ```
//!
//! - [`Listener`] binds a TCP address or a Unix socket, [`serve`] accepts connections within [`Limits`] until it is told to
//!   stop.
//! - [`Access`] says who may ask: it checks `Host` and `Origin`, so that no web page can read what only this machine may
//!   see, and a bearer token where one is set.
//! - A set of pages is a table of [`Route`]s, from which [`router`] is made; [`node`] has those of one node.
//! - [`problem`] has every error answer.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod access;
mod listener;
pub mod node;
pub mod problem;
mod routes;
mod server;
#[cfg(test)]
mod tests;

pub use access::{Access, Caller, Token};
pub use listener::{BindError, Listener};
pub use routes::{Reader, Route, router};
pub use server::{Limits, serve};
