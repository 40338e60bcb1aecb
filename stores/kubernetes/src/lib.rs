//! Leasehold on the Kubernetes API: controllers and workers own shards without another server.
//!
//! [`Kubernetes`] is a [`leasehold_store::Store`] of `coordination.k8s.io/v1` Leases, one for each record. All records
//! are of one kind in one Kubernetes namespace, so one rule of RBAC is enough, and `kubectl get leases` shows who holds
//! what:
//!
//! | record | Lease `<prefix>-…` | what its fields say |
//! | --- | --- | --- |
//! | `nodes/<node>` | `node-<name>-<hash>` | holder, duration and renew time: a living session, or no holder |
//! | `shards/<group>/<shard>` | `shard-<name>-<hash>` | holder, acquire time; transitions are the epoch; never renewed |
//! | `groups/<group>`, `meta`, `control` | `group-…`, `meta-…`, `control-…` | nothing |
//! | (a lease of registered keys) | `lease-<id>-<hash>` | holder, duration and renew time: of the lease |
//! | (a registered key) | `key-<name>-<hash>` | holder: the lease that keeps it |
//! | (none) | `store-…` | its uid is the generation: it changes if the Leases were removed and created again |
//!
//! The record itself is the annotation `leasehold.dev/record`. The fields of the Lease are for people and other
//! tools; Leasehold never reads them, and ownership never depends on another machine's clock. Leases of registered keys
//! are ended by the API server's own clock.
//!
//! A swap is a replacement on condition of uid and resourceVersion, a creation, or a deletion with both as
//! preconditions. Reads and listings ask for the newest state; only the watch may be late. Nothing is retried in here.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod api_types;
mod client;
mod clock;
mod error;
mod examine;
mod kubernetes;
mod layout;
mod leases;
mod naming;
mod options;
#[cfg(feature = "provider")]
mod provider;
mod rate_limit;
mod references;
mod registered;
mod registry;
mod watch;
mod zone;

pub use kubernetes::Kubernetes;
pub use options::Options;
#[cfg(feature = "provider")]
pub use provider::{Cluster, ClusterChange, Clusters};
