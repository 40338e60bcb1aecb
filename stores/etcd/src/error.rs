//! Turns etcd's errors into store errors that say what to do.

use leasehold_store::{StoreError, StoreErrorKind};
use tonic::{Code, Status};

/// What an error is about, and so whether another connection or member may do better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blame {
    /// The request: every member would answer the same.
    Question,
    /// The connection or the member: another one may do better.
    Connection,
    /// The auth token: it has expired, and the call was not carried out.
    Token,
}

pub(crate) fn blame(status: &Status) -> Blame {
    match status.code() {
        Code::Unauthenticated => Blame::Token,
        // Users or roles were changed; a `jwt` token is invalid then.
        Code::InvalidArgument if status.message().contains("revision of auth store is old") => Blame::Token,
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::DataLoss => Blame::Question,
        _ => Blame::Connection,
    }
}

/// The store error for a member's answer.
pub(crate) fn status_error(member: &str, status: &Status) -> StoreError {
    let said = status.message();
    let has = |words: &str| said.contains(words);
    let (kind, advice) = match status.code() {
        Code::Unavailable if has("timed out") => (StoreErrorKind::TimedOut, ""),
        Code::Unavailable if has("no leader") => {
            (StoreErrorKind::Unreachable, "the cluster has no quorum, or an election is under way")
        }
        Code::DeadlineExceeded => (StoreErrorKind::TimedOut, ""),
        Code::ResourceExhausted if has("space exceeded") => (
            StoreErrorKind::Refused,
            "etcd's quota is used up and it refuses writes: compact, run `etcdctl defrag`, then `etcdctl alarm disarm`, \
             and enable auto-compaction or raise --quota-backend-bytes",
        ),
        Code::ResourceExhausted if has("too many requests") => (StoreErrorKind::Busy, ""),
        Code::ResourceExhausted => (StoreErrorKind::Refused, ""),
        Code::PermissionDenied => (
            StoreErrorKind::Refused,
            "grant the user's role readwrite on the prefix of the keys: `etcdctl role grant-permission ROLE --prefix=true \
             readwrite /PREFIX/`",
        ),
        Code::InvalidArgument if has("user name is empty") => {
            (StoreErrorKind::Refused, "etcd's auth is enabled: add user:password@ to the address")
        }
        Code::InvalidArgument if has("authentication failed") => {
            (StoreErrorKind::Refused, "wrong user or password")
        }
        Code::InvalidArgument if has("request is too large") => {
            (StoreErrorKind::Refused, "raise --max-request-bytes, or make the records smaller")
        }
        Code::Unauthenticated => (StoreErrorKind::Refused, "etcd rejected the user's token"),
        Code::DataLoss => (
            StoreErrorKind::Damaged,
            "a member's data is corrupt: run `etcdctl alarm list` and replace that member",
        ),
        // The requested revision has been compacted; a retry helps.
        Code::OutOfRange => (StoreErrorKind::Busy, ""),
        Code::InvalidArgument | Code::FailedPrecondition | Code::NotFound | Code::Unimplemented => {
            (StoreErrorKind::Refused, "")
        }
        _ => (StoreErrorKind::Unreachable, ""),
    };
    let advice = if advice.is_empty() { String::new() } else { format!(" ({advice})") };
    StoreError::new(kind, format!("{member}: {said}{advice}"))
}

pub(crate) fn refused(message: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Refused, message)
}

pub(crate) fn damaged(message: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Damaged, message)
}

pub(crate) fn timed_out(message: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::TimedOut, message)
}
