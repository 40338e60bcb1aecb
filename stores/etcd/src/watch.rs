//! Watches a namespace: one stream that never ends, over its own connection.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use leasehold_store::{Listing, StoreError, Watch, WatchEvent, rng};
use tokio::sync::mpsc;
use tonic::{Status, Streaming};

use crate::connection::{Connection, Method};
use crate::etcd::Shared;
use crate::lane::{LaneThread, Task};
use crate::layout::KeyKind;
use crate::proto::{Event, WatchCall, WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse};
use crate::{dial, records};

/// How many events are buffered for the reader; more wait in etcd.
const UNREAD_MAX: usize = 64;
/// After how long a silence a watch is asked for its progress, and how long the answer may take.
const ASK_AFTER: Duration = Duration::from_secs(2);
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// How long the snapshot and the beginning of the stream may take.
const BEGIN_WITHIN: Duration = Duration::from_secs(10);
/// How long to pause before a watch is begun again, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// Begins to watch.
pub(crate) fn start(lane: &LaneThread, shared: Arc<Shared>) -> Result<Watch, StoreError> {
    let (told, unread) = mpsc::channel(UNREAD_MAX);
    let first = rng::bits().map_or(0, |bits| bits as usize);
    let task = lane.spawn(Watcher { shared, told, next: first, gap_told: true }.run())?;
    Ok(Box::pin(Watched { unread, _task: task }))
}

/// What a user of the watch holds; the watch ends with it.
struct Watched {
    unread: mpsc::Receiver<WatchEvent>,
    _task: Task<()>,
}

impl Stream for Watched {
    type Item = WatchEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<WatchEvent>> {
        self.unread.poll_recv(cx)
    }
}

struct Watcher {
    shared: Arc<Shared>,
    told: mpsc::Sender<WatchEvent>,
    /// Which member is tried next.
    next: usize,
    /// Whether the reader was told of the current gap; at the start nothing can have been missed.
    gap_told: bool,
}

/// Why a watch broke, and whether it had worked before.
struct Broken {
    why: String,
    had_worked: bool,
}

impl Watcher {
    async fn run(mut self) {
        let mut pause = PAUSE.0;
        loop {
            let Broken { why, had_worked } = self.once().await;
            tracing::debug!(%why, "restarting a watch of etcd");
            if !self.gap_told {
                self.gap_told = true;
                self.tell(WatchEvent::Interrupted(why)).await;
            }
            if had_worked {
                pause = PAUSE.0;
            }
            tokio::time::sleep(pause + rng::up_to(pause)).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// A snapshot and what changes after it, until something breaks.
    async fn once(&mut self) -> Broken {
        let begun = tokio::time::timeout(BEGIN_WITHIN, self.begin()).await;
        let Begun { snapshot, questions, mut answers, _connection } = match begun {
            Ok(Ok(begun)) => begun,
            Ok(Err(why)) => return Broken { why, had_worked: false },
            Err(_) => return Broken { why: format!("no answer within {BEGIN_WITHIN:?}"), had_worked: false },
        };
        self.gap_told = false;
        self.tell(WatchEvent::Snapshot(snapshot)).await;
        let mut had_worked = false;
        loop {
            let answer = match tokio::time::timeout(ASK_AFTER, answers.message()).await {
                Ok(answer) => answer,
                // Either nothing changes, or the member is gone.
                Err(_) => match self.probe(&questions, &mut answers).await {
                    Some(answer) => answer,
                    None => return Broken { why: "the watch fell silent".to_owned(), had_worked },
                },
            };
            match answer {
                Ok(Some(answer)) if answer.canceled => return Broken { why: cancelled(&answer), had_worked },
                Ok(Some(answer)) => {
                    had_worked |= !answer.created;
                    self.take(answer).await;
                }
                Ok(None) => return Broken { why: "etcd ended the watch".to_owned(), had_worked },
                Err(status) => return Broken { why: status.message().to_owned(), had_worked },
            }
        }
    }

    async fn begin(&mut self) -> Result<Begun, String> {
        let options = &self.shared.options;
        let first = self.next % options.hosts.len();
        self.next = first + 1;
        let connection = dial::any(options, first).await.map_err(|error| error.to_string())?;
        let before = self.shared.seen.mark();
        let ask = |pages| {
            let connection = connection.clone();
            async move { connection.ask(Method::TXN, pages).await.map_err(Why::from) }
        };
        let layout = &self.shared.layout;
        let listed = records::list(layout, &layout.records(), ask).await;
        let (snapshot, header) = listed.map_err(|Why(why)| why)?;
        self.shared.seen.adopt(before, &header);
        let span = self.shared.layout.all();
        let create = WatchCreateRequest {
            key: span.start,
            range_end: span.end,
            start_revision: header.revision + 1,
            progress_notify: true,
            fragment: true,
        };
        let (questions, requests) = mpsc::channel(4);
        let _ = questions.try_send(WatchRequest { call: Some(WatchCall::Create(create)) });
        // The response begins when etcd has accepted the watch: every later change is delivered.
        let answers = connection.stream(Method::WATCH, WatchRequests(requests)).await;
        let answers = answers.map_err(|status| status.message().to_owned())?;
        Ok(Begun { snapshot, questions, answers, _connection: connection })
    }

    /// Asks a silent watch for its progress, and returns the next response, whichever that is.
    async fn probe(
        &self,
        questions: &mpsc::Sender<WatchRequest>,
        answers: &mut Streaming<WatchResponse>,
    ) -> Option<Result<Option<WatchResponse>, Status>> {
        let _ = questions.try_send(WatchRequest { call: Some(WatchCall::Progress(WatchProgressRequest {})) });
        tokio::time::timeout(ANSWER_WITHIN, answers.message()).await.ok()
    }

    async fn take(&self, answer: WatchResponse) {
        let changes: Vec<_> = answer
            .events
            .into_iter()
            .filter_map(|Event { kind, kv }| {
                let kv = kv?;
                let KeyKind::Record(key) = self.shared.layout.classify(&kv.key) else { return None };
                Some((key, (kind != Event::REMOVAL).then(|| records::stored(kv))))
            })
            .collect();
        if !changes.is_empty() {
            self.tell(WatchEvent::Changed(changes)).await;
        }
    }

    /// Waits for the reader. If there is none any more, this task is about to be ended.
    async fn tell(&self, event: WatchEvent) {
        let _ = self.told.send(event).await;
    }
}

/// A watch that etcd has accepted, and the state before its first change.
struct Begun {
    snapshot: Listing,
    questions: mpsc::Sender<WatchRequest>,
    answers: Streaming<WatchResponse>,
    /// Kept open.
    _connection: Connection,
}

fn cancelled(answer: &WatchResponse) -> String {
    match answer.compact_revision {
        0 => format!("etcd cancelled the watch ({})", answer.cancel_reason),
        revision => format!("etcd compacted its history up to revision {revision}"),
    }
}

/// Why no snapshot could be read.
struct Why(String);

impl From<Status> for Why {
    fn from(status: Status) -> Self {
        Why(status.message().to_owned())
    }
}

impl From<StoreError> for Why {
    fn from(error: StoreError) -> Self {
        Why(error.to_string())
    }
}

/// What we send to a watch, as a stream.
struct WatchRequests(mpsc::Receiver<WatchRequest>);

impl Stream for WatchRequests {
    type Item = WatchRequest;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<WatchRequest>> {
        self.0.poll_recv(cx)
    }
}
