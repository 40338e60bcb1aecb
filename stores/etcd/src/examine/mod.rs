//! Checks the configuration of etcd for common mistakes, and says what it costs.

mod members;
mod metrics;
mod release;
mod upkeep;

use std::sync::Arc;
use std::time::Duration;

use leasehold_store::{Finding, Key, StoreError, StoreErrorKind};

use crate::etcd::{Shared, txn};
use crate::lane::Switch;
use crate::records;
use members::Members;

/// How many requests are timed.
const TIMED: usize = 5;
/// A write that takes longer leaves a renewal, which may take a second, little room.
const SLOW: Duration = Duration::from_millis(100);

/// Everything that can be found out. What cannot is a finding too.
pub(crate) async fn examine(shared: &Shared, switch: &Arc<Switch>) -> Vec<Finding> {
    let members = Members::ask(&shared.options).await;
    let mut findings = members.findings(&shared.options);
    findings.extend(security(shared, members.any_answered()));
    if !members.any_answered() {
        return findings;
    }
    let listing = match shared.list(switch).await {
        Ok(listing) => listing,
        Err(error) => {
            findings.push(Finding::bad(
                format!("the keys under {} cannot be read: {}", shared.layout.root(), error.message),
                unread_advice(&error),
            ));
            return findings;
        }
    };
    findings.extend(speed(shared, switch).await);
    findings.extend(upkeep::findings(shared, switch, &members, &listing).await);
    findings
}

/// What helps when the keys cannot be read. The message itself says what etcd's own words mean.
fn unread_advice(error: &StoreError) -> &'static str {
    match error.kind {
        StoreErrorKind::Refused if error.message.contains("permission denied") => {
            "grant the user's role readwrite on this prefix, as docs/etcd.md shows"
        }
        StoreErrorKind::Unreachable | StoreErrorKind::TimedOut | StoreErrorKind::Busy => {
            "fix this first: no node can renew"
        }
        _ => "",
    }
}

/// How members are reached, as far as any was.
fn security(shared: &Shared, any_answered: bool) -> Vec<Finding> {
    let options = &shared.options;
    let near = options.hosts.iter().all(|host| {
        host.name == "localhost" || host.name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
    });
    match (&options.tls, &options.login) {
        (None, Some(_)) if !near => vec![Finding::doubtful(
            "the password crosses the network unencrypted",
            "use TLS: start etcd with --cert-file and --key-file, and add ca=FILE to the address",
        )],
        (None, None) if !near => vec![Finding::doubtful(
            "etcd is used without TLS and without auth: anyone who reaches its ports can write",
            "use TLS with client certificates, enable etcd's auth, or restrict access to its ports",
        )],
        (None, _) => Vec::new(),
        // The address asks for TLS, but no member answered, so it is not known to work.
        (Some(_), _) if !any_answered => Vec::new(),
        (Some(tls), _) => {
            let who = if tls.identity.is_some() { " and a client certificate" } else { "" };
            vec![Finding::good(format!("TLS{who}"))]
        }
    }
}

/// How long a read and a write take. The write is one that cannot succeed: it goes through etcd's log and changes
/// nothing.
async fn speed(shared: &Shared, switch: &Arc<Switch>) -> Vec<Finding> {
    let read = records::reading(&shared.layout, &[Key::Meta]);
    let never = leasehold_store::Swap {
        key: Key::Meta,
        expect: Some(records::version(i64::MAX)),
        value: Some(Vec::new().into()),
    };
    let write = match records::swapping(&shared.layout, &[never]) {
        Ok(write) => write,
        Err(error) => return vec![Finding::bad(error.to_string(), "")],
    };
    let mut medians = Vec::new();
    for question in [read, write] {
        let mut times = Vec::new();
        for _ in 0..TIMED {
            let stopwatch = Stopwatch::start();
            if let Err(failed) = txn(switch, question.clone()).await {
                return vec![Finding::bad(
                    format!("etcd refuses writes: {}", failed.error.message),
                    "fix this first: no node can renew",
                )];
            }
            times.push(stopwatch.elapsed());
        }
        times.sort();
        medians.push(times[TIMED / 2]);
    }
    let what = format!("a read takes {:.1?} and a write {:.1?} (median of {TIMED})", medians[0], medians[1]);
    match medians[1] < SLOW {
        true => vec![Finding::good(what)],
        false => vec![Finding::doubtful(
            what,
            "etcd needs a fast disk (`etcd_disk_wal_fsync_duration_seconds`); if writes stay slow, use a longer ttl",
        )],
    }
}

/// Measures how long something took, for people.
struct Stopwatch(std::time::Instant);

impl Stopwatch {
    #[allow(clippy::disallowed_methods, reason = "for display: a suspended machine only spoils a number")]
    fn start() -> Self {
        Stopwatch(std::time::Instant::now())
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use tonic::{Code, Status};

    use super::unread_advice;
    use crate::error::status_error;

    #[test]
    fn rights_are_advised_only_where_they_lack() {
        let advice = |code, said: &str| {
            unread_advice(&status_error("m", &Status::new(code, format!("etcdserver: {said}"))))
        };
        assert!(advice(Code::PermissionDenied, "permission denied").contains("readwrite"));
        for (code, said) in [
            (Code::Unavailable, "no leader"),
            (Code::Unavailable, "request timed out"),
            (Code::InvalidArgument, "user name is empty"),
            (Code::DataLoss, "corrupt cluster"),
        ] {
            assert!(!advice(code, said).contains("role"), "{said}");
        }
        assert!(advice(Code::Unavailable, "no leader").contains("no node can renew"));
    }
}
