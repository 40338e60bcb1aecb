//! What goes wrong with etcd, in words that say what to do.

use leasehold_store::{StoreError, StoreErrorKind};
use tonic::{Code, Status};

/// Whether a member that answered like this should not be asked again next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blame {
    /// It answered, and would answer the same elsewhere.
    Question,
    /// Another connection or member may do better.
    Connection,
    /// The token that says who asks is worn out; the call was not carried out.
    Token,
}

pub(crate) fn blame(status: &Status) -> Blame {
    match status.code() {
        Code::Unauthenticated => Blame::Token,
        // Users or roles were changed; a token of the kind `jwt` is worth nothing then.
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

/// What a member's answer means to whoever asked.
pub(crate) fn status_error(member: &str, status: &Status) -> StoreError {
    let said = status.message();
    let has = |words: &str| said.contains(words);
    let (kind, advice) = match status.code() {
        Code::Unavailable if has("timed out") => (StoreErrorKind::TimedOut, ""),
        Code::Unavailable if has("no leader") => (
            StoreErrorKind::Unreachable,
            "fewer than half of the members can see each other, or one is being elected",
        ),
        Code::DeadlineExceeded => (StoreErrorKind::TimedOut, ""),
        Code::ResourceExhausted if has("space exceeded") => (
            StoreErrorKind::Refused,
            "etcd's quota is used up and it takes no writes: compact, then `etcdctl defrag`, then `etcdctl alarm \
             disarm`, and switch auto-compaction on or raise --quota-backend-bytes",
        ),
        Code::ResourceExhausted if has("too many requests") => (StoreErrorKind::Busy, ""),
        Code::ResourceExhausted => (StoreErrorKind::Refused, ""),
        Code::PermissionDenied => (
            StoreErrorKind::Refused,
            "grant the user's role readwrite on the prefix of the keys: `etcdctl role grant-permission ROLE --prefix=true \
             readwrite /PREFIX/`",
        ),
        Code::InvalidArgument if has("user name is empty") => {
            (StoreErrorKind::Refused, "etcd's auth is on: put user:password@ into the address")
        }
        Code::InvalidArgument if has("authentication failed") => {
            (StoreErrorKind::Refused, "the user or the password is wrong")
        }
        Code::InvalidArgument if has("request is too large") => {
            (StoreErrorKind::Refused, "raise --max-request-bytes, or make the records smaller")
        }
        Code::Unauthenticated => (StoreErrorKind::Refused, "etcd does not take the user's token"),
        Code::DataLoss => (
            StoreErrorKind::Damaged,
            "a member's data is corrupt: look at `etcdctl alarm list` and replace the member",
        ),
        // A revision that was asked for is compacted by now; asking anew helps.
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
