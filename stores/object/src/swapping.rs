//! Compare-and-swap of records by compare-and-swap of the objects that contain them.
//!
//! An object is written on condition that it is what we read. If it is not, another client wrote a row of it: it is read
//! again, and as long as our own rows are what they were expected to be, tried again. A write of unknown outcome is
//! looked for by the fresh versions that it gave to its rows.

use std::time::Duration;

use leasehold_core::name::WriteId;
use leasehold_core::record::{NodeRecord, Record, Report};
use leasehold_store::{Key, Lane, StoreError, StoreErrorKind, Stored, Swap, Swapped, Version, rng};

use crate::cache::Held;
use crate::client::{Condition, Refusal};
use crate::namespace::Namespace;
use crate::page::{Content, FORMAT};

/// How often an object is written because another client wrote another row of it.
const TRIES_MAX: u32 = 24;
/// The pause after the first and after any later such loss.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(250));

/// The swaps of one call that fall on one object, each with its place in the call.
pub(crate) struct Task {
    pub(crate) object: String,
    pub(crate) swaps: Vec<(usize, Swap)>,
}

/// What became of them.
pub(crate) struct Done {
    pub(crate) outcomes: Vec<(usize, Swapped)>,
    /// Why some are unknown, if some are.
    pub(crate) error: Option<StoreError>,
    /// Something was written that other clients should learn of.
    pub(crate) news: bool,
}

/// A write that was sent: the versions that it gives to its rows, and what it was conditioned on.
struct Sent {
    rows: Vec<(usize, Version)>,
    etag: Option<String>,
    /// The server said that the condition did not hold. Otherwise it said nothing that can be relied on.
    refused: bool,
}

impl Namespace {
    /// Swaps the rows of one object.
    pub(crate) async fn swap(&self, lane: Lane, task: Task) -> Done {
        let turn = self.turn(&task.object);
        // Nothing waits in front of a renewal; of its object there is one writer anyway.
        let _turn = match lane {
            Lane::Work => Some(turn.lock().await),
            Lane::Renewal => None,
        };
        let mut attempt = Attempt {
            namespace: self,
            lane,
            object: &task.object,
            open: task.swaps,
            outcomes: Vec::new(),
            news: false,
        };
        let error = attempt.run().await.err();
        let unknown = attempt.open.iter().map(|(at, _)| (*at, Swapped::Unknown));
        attempt.outcomes.extend(unknown);
        Done { outcomes: attempt.outcomes, error, news: attempt.news }
    }
}

struct Attempt<'a> {
    namespace: &'a Namespace,
    lane: Lane,
    object: &'a str,
    /// The swaps that have no outcome yet.
    open: Vec<(usize, Swap)>,
    outcomes: Vec<(usize, Swapped)>,
    news: bool,
}

impl Attempt<'_> {
    async fn run(&mut self) -> Result<(), StoreError> {
        let mut held = self.namespace.cache().get(self.object);
        let mut tries = 0;
        loop {
            // What is remembered may be old: good enough to try a write with, never to call one lost.
            if held.as_ref().is_none_or(|held| self.open.iter().any(|(_, swap)| !fits(&held.content, swap))) {
                let now = self.namespace.fetch(self.lane, self.object).await?;
                self.lose_what_does_not_fit(&now);
                held = Some(now);
            }
            let (Some(current), false) = (held.take(), self.open.is_empty()) else { return Ok(()) };
            if tries == TRIES_MAX {
                let message =
                    format!("other clients keep writing {}; the call will be tried again", self.object);
                return Err(StoreError::new(StoreErrorKind::Busy, message));
            }
            if tries > 0 {
                let longest = (PAUSE.0 * 2u32.pow(tries.min(8) - 1)).min(PAUSE.1);
                tokio::time::sleep(longest / 2 + rng::up_to(longest / 2)).await;
            }
            tries += 1;
            let Some(sent) = self.write(&current).await? else { return Ok(()) };
            let now = self.namespace.fetch(self.lane, self.object).await?;
            if !self.find(&sent, &now) {
                return Ok(());
            }
            self.lose_what_does_not_fit(&now);
            held = Some(now);
        }
    }

    fn lose_what_does_not_fit(&mut self, now: &Held) {
        let (outcomes, namespace, object) = (&mut self.outcomes, self.namespace, self.object);
        self.open.retain(|(at, swap)| {
            let fits = fits(&now.content, swap);
            if !fits {
                outcomes.push((*at, Swapped::Lost(namespace.row(object, now, &swap.key))));
            }
            fits
        });
    }

    /// Writes all open rows. `None` if they are in the store.
    async fn write(&mut self, current: &Held) -> Result<Option<Sent>, StoreError> {
        if let Some(format) = current.content.newer() {
            return Err(StoreError::new(
                StoreErrorKind::Damaged,
                format!(
                    "{} has format {format}, and this version reads formats up to {FORMAT}: it was not changed; upgrade \
                     this node",
                    self.object
                ),
            ));
        }
        let mut rows = Vec::new();
        let mut versions = Vec::new();
        for (at, swap) in &self.open {
            let version = Version::new(rng::fresh_id()?);
            let stored = swap.value.clone().map(|value| Stored { version: version.clone(), value });
            rows.push((swap.key.clone(), stored));
            versions.push((*at, version));
        }
        let news = self.is_news(&current.content);
        let page = current.content.with(self.object, &rows);
        let body = page.encode(&rng::fresh_id()?);
        let condition = current.mark.clone().map_or(Condition::Absent, Condition::Is);
        let issued = self.namespace.cache().ticket();
        let etag = current.etag().map(str::to_owned);
        match self.namespace.wire(self.lane).put(self.object, body, condition).await {
            Ok(mark) => {
                let held = Held { mark: Some(mark), content: Content::Page(page).into() };
                self.namespace.cache().put(self.object, issued, held);
                self.news |= news;
                self.open.clear();
                self.outcomes
                    .extend(versions.into_iter().map(|(at, version)| (at, Swapped::Applied(version))));
                Ok(None)
            }
            Err(Refusal::Failed(error)) => Err(error),
            Err(Refusal::Lost) => Ok(Some(Sent { rows: versions, etag, refused: true })),
            Err(Refusal::Unknown(error)) => {
                tracing::debug!(object = self.object, %error, "looking for a write of unknown outcome");
                self.namespace.cache().doubt(self.object);
                self.news |= news;
                Ok(Some(Sent { rows: versions, etag, refused: false }))
            }
        }
    }

    /// Looks for the rows of a write that was not confirmed. `false` if nothing more can be said of those that are open.
    fn find(&mut self, sent: &Sent, now: &Held) -> bool {
        let mut certain = true;
        let (outcomes, news) = (&mut self.outcomes, &mut self.news);
        self.open.retain(|(at, swap)| {
            let version = sent.rows.iter().find(|(other, _)| other == at).map(|(_, version)| version);
            let row = now.content.row(&swap.key);
            if let (Some(version), Some(row)) = (version, &row)
                && row.version == *version
            {
                *news = true;
                outcomes.push((*at, Swapped::Applied(version.clone())));
                return false;
            }
            // The object was written by another since, on which ours depended: it never will be there. Whether it was
            // there in between shows only if the row is what it was.
            let passed = now.etag() != sent.etag.as_deref();
            certain &= sent.refused || (passed && fits(&now.content, swap));
            true
        });
        certain
    }

    /// Whether other clients should learn of it before they poll. A renewal that says nothing new need not be
    /// reported: a node that doubts a session reads its record anyway.
    fn is_news(&self, before: &Content) -> bool {
        self.open.iter().any(|(_, swap)| !is_renewal(before, swap))
    }
}

fn fits(content: &Content, swap: &Swap) -> bool {
    content.row(&swap.key).map(|row| row.version) == swap.expect
}

fn is_renewal(before: &Content, swap: &Swap) -> bool {
    let (Key::Node(_), Some(value), Some(row)) = (&swap.key, &swap.value, before.row(&swap.key)) else {
        return false;
    };
    match (plain(&row.value), plain(value)) {
        (Some(before), Some(after)) => before == after,
        _ => false,
    }
}

/// A session without what every renewal changes.
fn plain(value: &[u8]) -> Option<NodeRecord> {
    let record = NodeRecord::decode(value).ok()?;
    Some(NodeRecord {
        write: WriteId::from_bits(0),
        seq: 0,
        report: Report::default(),
        written_unix_ms: 0,
        ..record
    })
}
