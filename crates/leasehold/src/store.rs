//! Opens a store by its address; also the types that describe a store.
//!
//! The crate `leasehold-store` says how to write a store, and has the conformance suite that it must pass.

use std::sync::Arc;

pub use leasehold_store::{
    Administration, Charged, DeathProofs, Extensions, Facts, Finding, Freshness, Grade, IntoStore, Key, Lane,
    LeaseId, LeaseState, Listing, Reading, Registry, Safety, Store, StoreError, StoreErrorKind, StoreExt,
    Stored, Swap, SwapReply, Swapped, Throwaway, Version, Watch, WatchEvent,
};

#[cfg(feature = "memory")]
pub use leasehold_store::{Memory, MemoryServer};

/// The schemes of the built-in stores.
pub const SCHEMES: &[&str] = &[
    #[cfg(feature = "local")]
    "local",
    #[cfg(feature = "etcd")]
    "etcd",
    #[cfg(feature = "redis")]
    "redis",
    #[cfg(feature = "redis")]
    "rediss",
    #[cfg(feature = "redis")]
    "redis+sentinel",
    #[cfg(feature = "redis")]
    "rediss+sentinel",
    #[cfg(feature = "redis")]
    "redis+cluster",
    #[cfg(feature = "redis")]
    "rediss+cluster",
    #[cfg(feature = "kubernetes")]
    "k8s",
    #[cfg(feature = "object")]
    "s3",
    #[cfg(feature = "object")]
    "gs",
    #[cfg(feature = "object")]
    "az",
];

/// Opens one namespace of the store at an address such as `local:./work.db`.
///
/// | address | store | feature |
/// | --- | --- | --- |
/// | `local:PATH` | an SQLite file, shared by the processes of one machine | `local` |
/// | `etcd://HOST:PORT,HOST:PORT/PREFIX` | etcd 3.4 or newer, see `docs/etcd.md` | `etcd` |
/// | `redis://HOST:PORT/DB`, `redis+sentinel://…`, `redis+cluster://…`, `rediss…` for TLS | Redis or Valkey, see `docs/redis.md` | `redis` |
/// | `k8s://NAMESPACE?prefix=…&kubeconfig=…&context=…` | Leases on a Kubernetes API, see `docs/kubernetes.md` | `kubernetes` |
/// | `s3://BUCKET/PREFIX`, `gs://…`, `az://…` | a bucket of an object store, see `docs/object.md` | `object` |
///
/// No feature is on by default: `cargo add leasehold --features local`. Open other stores with their own crates; anything that implements [`Store`] can be used.
pub fn open(address: &str, namespace: &str) -> Result<Arc<dyn Store>, StoreError> {
    let refused = |message: String| StoreError::new(StoreErrorKind::Refused, message);
    let Some((scheme, rest)) = address.split_once(':') else {
        return Err(refused("invalid store URL: use for example local:./work.db".to_owned()));
    };
    // For builds without any store.
    let _ = namespace;
    // Each store is one line here, one in `SCHEMES`, and one in the table above.
    match scheme {
        #[cfg(feature = "local")]
        "local" => Ok(Arc::new(leasehold_local::Local::open(rest, namespace)?)),
        #[cfg(feature = "etcd")]
        "etcd" => Ok(Arc::new(leasehold_etcd::Etcd::open(address, namespace)?)),
        #[cfg(feature = "redis")]
        scheme if scheme.starts_with("redis") => {
            Ok(Arc::new(leasehold_redis::Redis::open(address, namespace)?))
        }
        #[cfg(feature = "kubernetes")]
        "k8s" => Ok(Arc::new(leasehold_kubernetes::Kubernetes::open(address, namespace)?)),
        // The rest of the address may hold a password.
        #[cfg(feature = "object")]
        "s3" | "gs" | "az" => Ok(Arc::new(leasehold_object::Bucket::open(address, namespace)?)),
        #[cfg(not(feature = "local"))]
        "local" => Err(not_built_in(scheme)),
        // It is shared by those who share the server, so an address cannot open it.
        "memory" => Err(refused(
            "a store in memory has no address: open it with leasehold::store::MemoryServer (feature \"memory\")".to_owned(),
        )),
        _ if rest.starts_with("//") => Err(not_built_in(scheme)),
        _ => Err(refused("invalid store URL: use for example local:./work.db".to_owned())),
    }
}

fn not_built_in(scheme: &str) -> StoreError {
    let feature = match scheme {
        "local" | "etcd" => Some(scheme),
        "k8s" => Some("kubernetes"),
        "s3" | "gs" | "az" => Some("object"),
        redis if redis.starts_with("redis") => Some("redis"),
        _ => None,
    };
    let message = match feature {
        Some(feature) => {
            format!(
                "the store {scheme:?} is not built in: enable the feature {feature:?} of the crate leasehold"
            )
        }
        None => format!(
            "there is no built-in store {scheme:?}: check the address, or open the store with its own crate"
        ),
    };
    StoreError::new(StoreErrorKind::Refused, message)
}

/// The host and port of the one server that clients at an address connect to, if the address itself does not name it:
/// on Kubernetes and object stores. With `via=host:port` added to the address, they connect to that host instead,
/// which must forward everything: a tunnel, or a proxy that breaks connections on purpose. `None` where that is not
/// possible.
pub async fn server(address: &str) -> Result<Option<String>, StoreError> {
    match address.split_once(':').map(|(scheme, _)| scheme) {
        #[cfg(feature = "kubernetes")]
        Some("k8s") => leasehold_kubernetes::Kubernetes::server_of(address).await,
        #[cfg(feature = "object")]
        Some("s3" | "gs" | "az") => leasehold_object::Bucket::server_of(address),
        _ => Ok(None),
    }
}

/// The zone of the machine with that name, if the store knows machines: on Kubernetes the label
/// `topology.kubernetes.io/zone` of the node. `None` if the machine has none.
pub async fn zone_of(address: &str, machine: &str) -> Result<Option<String>, StoreError> {
    // For builds without it.
    let _ = machine;
    match address.split_once(':').map(|(scheme, _)| scheme) {
        #[cfg(feature = "kubernetes")]
        Some("k8s") => leasehold_kubernetes::Kubernetes::open(address, "zone")?.zone_of(machine).await,
        _ => Err(StoreError::new(
            StoreErrorKind::Refused,
            "only a Kubernetes store (k8s://…) can look up the zone of a machine: set the zone itself",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_store_says_what_to_write() {
        let error = open("work.db", "demo").err().unwrap();
        assert!(error.message.contains("local:./work.db"), "{error}");
        let error = open("carrier-pigeon://coop", "demo").err().unwrap();
        assert!(error.message.contains("carrier-pigeon"), "{error}");
        let error = open("memory:", "demo").err().unwrap();
        assert!(error.message.contains("MemoryServer"), "{error}");
        let _ = namespace_is_used();
    }

    #[test]
    fn a_store_that_is_not_built_in_names_its_feature() {
        let features = [
            ("local", "local"),
            ("etcd", "etcd"),
            ("k8s", "kubernetes"),
            ("gs", "object"),
            ("rediss", "redis"),
        ];
        for (scheme, feature) in features {
            let error = not_built_in(scheme);
            assert!(error.message.contains(&format!("the feature {feature:?}")), "{error}");
        }
    }

    #[cfg(feature = "local")]
    fn namespace_is_used() -> Arc<dyn Store> {
        let folder = tempfile::tempdir().unwrap();
        let address = format!("local:{}/work.db", folder.path().display());
        open(&address, "demo").unwrap()
    }

    #[cfg(not(feature = "local"))]
    fn namespace_is_used() {}
}
