//! Leasehold on etcd.
//!
//! [`Etcd`] is a [`leasehold_store::Store`] over etcd 3.4 or newer. Ownership rests on compare-and-swap of single keys
//! by their `mod_revision`; a renewal is one put. etcd's own leases keep registered keys and nothing else: an expired
//! lease is never taken as proof that a node is dead.
//!
//! The client is our own and small: `tonic` for the gRPC framing, `hyper` for the connections, `rustls` with ring
//! for TLS, and a dozen hand-written messages. `docs/etcd.md` in the repository has the layout of the keys, the
//! required permissions, and what this store promises.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod connection;
mod dial;
mod error;
mod etcd;
mod examine;
mod high_water;
mod lane;
mod layout;
mod options;
mod proto;
mod records;
mod registry;
mod tls;
mod watch;

pub use etcd::Etcd;
pub use options::{Login, Options};
pub use tls::Tls;
