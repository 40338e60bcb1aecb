use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::{Mutex, PoisonError};

static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A loopback port that nobody listens on, and that this process was not given before. It is below the range that the
/// kernel takes for outgoing connections, so that none of those can be in its place when the server starts.
pub fn free_port() -> u16 {
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    // Processes that run side by side begin at different places.
    let first = 10_000 + (std::process::id() % 1_000) * 20;
    (0..20_000)
        .map(|step| 10_000 + ((first - 10_000 + step) % 20_000) as u16)
        .find(|port| {
            !given.contains(port) && TcpListener::bind(("127.0.0.1", *port)).is_ok() && given.insert(*port)
        })
        .expect("of 20,000 loopback ports one is free")
}
