//! One server of each kind for all tests of this binary.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use leasehold_object::{Bucket, Options};
use leasehold_servers::{Program, S3Server};

pub(crate) const BUCKET: &str = "work";

/// A server with a bucket, shared by all tests of this binary; it ends with the process.
pub(crate) fn server(program: Program) -> Option<&'static S3Server> {
    static SEAWEED: OnceLock<Option<S3Server>> = OnceLock::new();
    static MOTO: OnceLock<Option<S3Server>> = OnceLock::new();
    let slot = match program {
        Program::SeaweedFs => &SEAWEED,
        _ => &MOTO,
    };
    let start = || {
        let server = S3Server::start(program)?;
        server.make_bucket(BUCKET);
        Some(server)
    };
    slot.get_or_init(start).as_ref()
}

/// A name that no other test of this run uses.
pub(crate) fn fresh(hint: &str) -> String {
    static NAMES: AtomicU64 = AtomicU64::new(0);
    format!("{hint}-{}-{}", std::process::id(), NAMES.fetch_add(1, Ordering::Relaxed))
}

/// A client that looks often, so that tests need not wait.
pub(crate) fn open(server: &S3Server, namespace: &str) -> Arc<Bucket> {
    open_at(&server.address(BUCKET, "&poll=300ms&timeout=3s"), namespace)
}

pub(crate) fn open_at(address: &str, namespace: &str) -> Arc<Bucket> {
    Arc::new(Bucket::open_with(address, namespace, quick()).expect("the address is right"))
}

pub(crate) fn quick() -> Options {
    Options { poll_first: std::time::Duration::from_millis(50), ..Options::default() }
}
