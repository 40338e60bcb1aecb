//! Leasehold on a bucket: S3, Google Cloud Storage, Azure Blob Storage and compatible servers.
//!
//! [`Bucket`] is a [`leasehold_store::Store`] over objects of readable JSON. Records are swapped by conditional writes
//! (`If-None-Match`, `If-Match`); a bucket that does not honour them is refused before anything is written to it. Shards
//! are packed into a few objects per group, each row with a version of its own, so that a cold start takes few writes.
//! Every change but a plain renewal rewrites a small marker object: at rest a node pays one write per renewal, one small
//! read per look, and a read of the others' sessions per half a ttl.
//!
//! The objects in the bucket, for the namespace `shop` under `s3://bucket/prefix`:
//!
//! | object | what it is |
//! | --- | --- |
//! | `prefix/shop/meta.json`, `control.json` | the namespace, and what operators asked for |
//! | `prefix/shop/groups/G.json`, `nodes/N.json` | groups and sessions |
//! | `prefix/shop/shards/G/00.json` … `15.json` | the shards of a group, one row each |
//! | `prefix/shop/changed.json` | the marker |
//! | `prefix/leasehold-probe/` | what the check of the bucket writes |
//!
//! What this store does not do: it never deletes an object (a removed record leaves an object without rows), and it does
//! not survive a bucket that loses acknowledged writes.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod access;
mod bucket;
mod cache;
mod client;
mod date;
mod error;
mod examine;
mod http;
mod layout;
mod marker;
mod namespace;
mod options;
mod page;
mod probe;
mod registry;
mod swapping;
mod target;
mod watch;

pub use bucket::Bucket;
pub use client::Requests;
pub use object_store;
pub use options::Options;
