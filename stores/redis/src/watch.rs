//! Watches a namespace. The scripts publish every change, and each message names the revision before it; a reader that
//! missed a message lists everything again.

use std::sync::Arc;
use std::time::Duration;

use leasehold_store::{Key, StoreError, Stored, Version, Watch, WatchEvent};
use tokio::sync::mpsc;

use crate::engine::{Engine, MasterConnection};
use crate::error::{RedisError, Written};
use crate::records::{self, Records};
use crate::resp::{Command, Value};
use crate::socket::{Socket, within};

/// How many events are buffered for the reader. Beyond that the server has to wait, and in the end it closes the connection.
const WAITING_MAX: usize = 256;
/// How often a silent connection is pinged.
const PING_EVERY: Duration = Duration::from_secs(2);

/// Starts a watch. It ends when its reader is dropped.
pub(crate) fn start(engine: &Arc<Engine>, records: Records) -> Watch {
    let (events, told) = mpsc::channel(WAITING_MAX);
    let reader = events.clone();
    engine.spawn(async move {
        tokio::select! {
            () = follow(records, events) => {}
            () = reader.closed() => {}
        }
    });
    // The engine lives for as long as its watches do.
    let engine = engine.clone();
    Box::pin(futures::stream::unfold((told, engine), |(mut told, engine)| async move {
        told.recv().await.map(|event| (event, (told, engine)))
    }))
}

/// Why a watch must start again.
enum Broken {
    RedisError(StoreError),
    /// Something was missed.
    Gap(&'static str),
    ReaderGone,
}

impl From<StoreError> for Broken {
    fn from(error: StoreError) -> Self {
        Broken::RedisError(error)
    }
}

impl From<RedisError> for Broken {
    fn from(error: RedisError) -> Self {
        Broken::RedisError(error.into_store_error(Written::Nothing))
    }
}

async fn follow(records: Records, events: mpsc::Sender<WatchEvent>) {
    let (mut failures, mut gap_told) = (0, true);
    loop {
        let mut watching = Watching { records: &records, events: &events, told: None };
        let broken = watching.until_it_breaks().await;
        if watching.told.is_some() {
            (failures, gap_told) = (0, false);
        }
        let why = match broken {
            Broken::ReaderGone => return,
            Broken::Gap(why) => why.to_owned(),
            Broken::RedisError(error) => error.to_string(),
        };
        tracing::debug!(%why, "restarting a watch of Redis");
        // Each gap is reported once, and none before the first snapshot.
        if !gap_told && events.send(WatchEvent::Interrupted(why)).await.is_err() {
            return;
        }
        gap_told = true;
        if failures > 0 {
            tokio::time::sleep(MasterConnection::pause(failures)).await;
        }
        failures += 1;
    }
}

/// One subscription, from its beginning to when it breaks.
struct Watching<'a> {
    records: &'a Records,
    events: &'a mpsc::Sender<WatchEvent>,
    /// The generation and revision up to which everything was delivered.
    told: Option<(String, u64)>,
}

impl Watching<'_> {
    async fn until_it_breaks(&mut self) -> Broken {
        match self.watch().await {
            Ok(never) => match never {},
            Err(broken) => broken,
        }
    }

    async fn watch(&mut self) -> Result<std::convert::Infallible, Broken> {
        let mut socket = self.subscribe().await?;
        // Whatever is published from now on waits in the connection, so that nothing falls between.
        let listing = self.records.list().await?;
        self.told = Some((listing.generation.clone(), listing.revision.unwrap_or(0)));
        self.tell(WatchEvent::Snapshot(listing)).await?;
        let timeout = self.records.connection.options.timeout;
        loop {
            let message = match tokio::time::timeout(PING_EVERY, socket.read()).await {
                Ok(message) => message?,
                Err(_) => {
                    socket.send(&[Command::new(["PING"])]).await?;
                    within(timeout, "no message or ping reply on the connection of the watch", socket.read())
                        .await?
                }
            };
            if let Some(news) = news_of(message)? {
                self.take(&news).await?;
            }
        }
    }

    async fn subscribe(&self) -> Result<Socket, RedisError> {
        let connection = &self.records.connection;
        let mut socket = connection.connect().await?.socket;
        let command = Command::new(["SUBSCRIBE", &connection.options.key("events")]);
        let asked = socket.ask(std::slice::from_ref(&command));
        match within(connection.options.timeout, "no subscription", asked).await?.pop() {
            Some(Value::Error(error)) => Err(RedisError::said(&error, &socket.spot)),
            _ => Ok(socket),
        }
    }

    /// Delivers a message, if it directly follows the last one.
    async fn take(&mut self, news: &[u8]) -> Result<(), Broken> {
        let news =
            News::parse(news).ok_or(Broken::Gap("another program published to the channel of the watch"))?;
        let Some((generation, revision)) = &mut self.told else { return Ok(()) };
        if news.generation != *generation {
            return Err(Broken::Gap("the generation of the store changed"));
        }
        if news.to <= *revision {
            return Ok(());
        }
        if news.from > *revision {
            return Err(Broken::Gap("a message was missed"));
        }
        *revision = news.to;
        // What we ourselves wrote counts only once the replicas have it.
        if self.records.seen.is_unconfirmed(news.tag) {
            self.records.generation().await?;
            self.records.seen.confirmed(news.tag);
        }
        if news.changes.is_empty() {
            return Ok(());
        }
        self.tell(WatchEvent::Changed(news.changes)).await
    }

    async fn tell(&self, event: WatchEvent) -> Result<(), Broken> {
        self.events.send(event).await.map_err(|_| Broken::ReaderGone)
    }
}

/// The text of a message; other things that a subscription hears are of no interest.
fn news_of(message: Value) -> Result<Option<Vec<u8>>, Broken> {
    let mut parts = message.list().unwrap_or_default().into_iter();
    match parts.next().as_ref().and_then(Value::text) {
        Some("message") => Ok(parts.nth(1).and_then(Value::bytes)),
        Some("pong" | "subscribe") => Ok(None),
        _ => Err(Broken::Gap("the server ended the subscription")),
    }
}

/// What a script published.
#[derive(Debug, PartialEq, Eq)]
struct News<'a> {
    generation: &'a str,
    from: u64,
    to: u64,
    tag: &'a str,
    changes: Vec<(Key, Option<Stored>)>,
}

impl<'a> News<'a> {
    fn parse(text: &'a [u8]) -> Option<Self> {
        let (head, mut rest) = connection(text)?;
        let mut words = head.split(' ');
        let generation = words.next()?;
        let (from, to) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let tag = words.next()?;
        let count: usize = words.next()?.parse().ok()?;
        let mut changes = Vec::new();
        for _ in 0..count {
            let (head, after) = connection(rest)?;
            let mut words = head.split(' ');
            let name_bytes: usize = words.next()?.parse().ok()?;
            let version = words.next()?;
            let value_bytes: i64 = words.next()?.parse().ok()?;
            let (name, after) = after.split_at_checked(name_bytes)?;
            let (value, after) = after.split_at_checked(usize::try_from(value_bytes).unwrap_or(0))?;
            rest = after;
            let stored = Stored { version: Version::new(version), value: value.into() };
            if let Ok(key) = records::key(std::str::from_utf8(name).ok()?) {
                changes.push((key, (value_bytes >= 0).then_some(stored)));
            }
        }
        Some(News { generation, from, to, tag, changes })
    }
}

fn connection(text: &[u8]) -> Option<(&str, &[u8])> {
    let end = text.iter().position(|byte| *byte == b'\n')?;
    Some((std::str::from_utf8(&text[..end]).ok()?, &text[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_taken_apart() {
        let news = News::parse(b"gen 7 9 tag 2\n6 8.tag 3\nnode:na\nb9 9.tag -1\nshard:g/0").unwrap();
        assert_eq!((news.generation, news.from, news.to, news.tag), ("gen", 7, 9, "tag"));
        assert_eq!(news.changes.len(), 2);
        assert_eq!(news.changes[0].0.to_string(), "nodes/n");
        assert_eq!(&*news.changes[0].1.as_ref().unwrap().value, b"a\nb");
        assert_eq!(news.changes[1].0.to_string(), "shards/g/0");
        assert!(news.changes[1].1.is_none());
        for broken in [&b""[..], b"gen 7 9 tag 1\n", b"gen 7 9 tag 1\n99 8 3\nshort", b"hello"] {
            assert_eq!(News::parse(broken), None);
        }
    }
}
