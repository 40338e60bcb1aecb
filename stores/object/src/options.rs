use std::time::Duration;

use crate::layout;

/// How a [`crate::Bucket`] behaves. The defaults suit almost all uses; the name in parentheses is the parameter in an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How often a bucket at rest is looked at (`poll`). After every change that is seen it is looked at sooner.
    pub poll_every: Duration,
    /// The pause before the look that follows a change. It grows by half with each look, up to `poll_every`.
    pub poll_first: Duration,
    /// How long one request may take (`timeout`).
    pub request_within: Duration,
    /// How long the marker may hold up the answer to a write.
    pub marker_within: Duration,
    /// How many objects the shards of a group are packed into. For measurements only: every client of a namespace
    /// must have the same number forever.
    pub pages: u32,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            poll_every: Duration::from_secs(6),
            poll_first: Duration::from_millis(500),
            request_within: Duration::from_secs(10),
            marker_within: Duration::from_millis(1000),
            pages: layout::PAGES,
        }
    }
}
