//! Leasehold on Redis and Valkey: one server, a master with replicas and Sentinel, or a cluster.
//!
//! [`Redis`] is a [`leasehold_store::Store`] over the hash slot of one namespace. Records are compared and swapped by
//! scripts, which publish what they changed; no record of ownership ever expires. What Redis can and cannot
//! promise is in `GUARANTEES.md`, the layout of the keys in `docs/redis.md`.
//!
//! The client is our own and small: one connection for renewals and one for everything else, each on a thread of
//! its own, so that one [`Redis`] serves any number of async runtimes. It never repeats a command that may have been
//! carried out.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod discovery;
mod engine;
mod error;
mod examine;
mod high_water;
mod options;
mod pipeline;
mod records;
mod redis;
mod registry;
mod resp;
mod script;
mod socket;
mod tls;
mod watch;

pub use redis::Redis;
