//! The four requests of this store. Each is sent once, and its outcome is reported as it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::TryStreamExt;
use leasehold_store::{StoreError, StoreErrorKind};
use object_store::path::Path;
use object_store::{GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, UpdateVersion};

use crate::error::{self, failed, refused};
use crate::http::{self, Answer};

/// The store's mark of one state of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The entity tag, without its quotes.
    pub(crate) etag: String,
    /// As the server wrote it.
    raw: Option<String>,
    /// The generation, where the store has one.
    version: Option<String>,
}

/// On what condition an object is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// There is none.
    Absent,
    /// It is in this state.
    Is(Mark),
    /// None: only for objects that no decision depends on.
    Whatever,
}

/// What was read.
#[derive(Debug)]
pub(crate) enum Got {
    /// This.
    Found {
        /// What the object holds.
        body: Vec<u8>,
        /// Its state.
        mark: Mark,
        /// How old it is on the server's own clock, in seconds, if the server tells.
        age_s: Option<i64>,
    },
    /// What the reader has already.
    Same,
    /// Nothing.
    Nothing,
}

/// Why an object was not written, or may not have been.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The condition did not hold, so that it was not written and never will be.
    Lost,
    /// It was not written, because this is wrong.
    Failed(StoreError),
    /// It may have been written, or may yet be.
    Unknown(StoreError),
}

/// An object in a listing.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    /// Its name, below the namespace.
    pub(crate) object: String,
    /// Its entity tag, without quotes.
    pub(crate) etag: String,
}

/// How many requests a client made, for the bill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Objects written.
    pub puts: u64,
    /// Objects read, or found unchanged.
    pub gets: u64,
    /// Pages of listings.
    pub lists: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Meter {
    puts: AtomicU64,
    gets: AtomicU64,
    lists: AtomicU64,
}

impl Meter {
    pub(crate) fn read(&self) -> Requests {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Requests { puts: of(&self.puts), gets: of(&self.gets), lists: of(&self.lists) }
    }
}

/// A connection to one folder of a bucket.
#[derive(Clone, Debug)]
pub(crate) struct ObjectClient {
    store: Arc<dyn ObjectStore>,
    root: Path,
    place: Arc<str>,
    within: Duration,
    meter: Arc<Meter>,
}

impl ObjectClient {
    pub(crate) fn new(
        store: Arc<dyn ObjectStore>,
        root: Path,
        place: Arc<str>,
        within: Duration,
        meter: Arc<Meter>,
    ) -> Self {
        ObjectClient { store, root, place, within, meter }
    }

    /// The same connection to another folder of the bucket.
    pub(crate) fn at(&self, root: Path) -> Self {
        ObjectClient { root, ..self.clone() }
    }

    /// Reads an object; `known` is the state that the reader has.
    pub(crate) async fn get(&self, object: &str, known: Option<&Mark>) -> Result<Got, StoreError> {
        let options =
            GetOptions { if_none_match: known.and_then(|mark| mark.raw.clone()), ..GetOptions::default() };
        let path = self.path(object);
        let read = async {
            let result = self.store.get_opts(&path, options).await?;
            let meta = result.meta.clone();
            Ok((result.bytes().await?, meta))
        };
        let (outcome, answer) = self.call(&self.meter.gets, read).await?;
        match outcome {
            Ok((body, meta)) => {
                let age_s = age_s(&answer, meta.last_modified.timestamp());
                let mark = self.mark(meta.e_tag, meta.version)?;
                Ok(Got::Found { body: body.to_vec(), mark, age_s })
            }
            Err(object_store::Error::NotModified { .. }) => Ok(Got::Same),
            Err(ref error @ object_store::Error::NotFound { .. }) if !is_no_bucket(error) => Ok(Got::Nothing),
            Err(error) => Err(error::told(&self.place, &error, &answer)),
        }
    }

    /// Writes an object on a condition.
    pub(crate) async fn put(
        &self,
        object: &str,
        body: Vec<u8>,
        condition: Condition,
    ) -> Result<Mark, Refusal> {
        let mode = match condition {
            Condition::Absent => PutMode::Create,
            Condition::Is(Mark { raw, version, .. }) => {
                PutMode::Update(UpdateVersion { e_tag: raw, version })
            }
            Condition::Whatever => PutMode::Overwrite,
        };
        let options = PutOptions { mode, ..PutOptions::default() };
        let path = self.path(object);
        let write = self.store.put_opts(&path, PutPayload::from(body), options);
        let (outcome, answer) = self.call(&self.meter.puts, write).await.map_err(Refusal::Unknown)?;
        let error = match outcome {
            Ok(written) => return self.mark(written.e_tag, written.version).map_err(Refusal::Unknown),
            Err(error) => error,
        };
        let told = error::told(&self.place, &error, &answer);
        Err(match answer.status {
            // AWS answers 404 where others answer 412 if the object is gone, and 409 when two conditional writes meet:
            // https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html
            Some(404) if is_no_bucket(&error) => Refusal::Failed(told),
            Some(304 | 404 | 409 | 412) => Refusal::Lost,
            // Too many requests and every kind of failure: S3 has been seen to write all the same.
            Some(408 | 425 | 429) => Refusal::Unknown(told),
            Some(400..=499) => Refusal::Failed(told),
            Some(300..=399) => Refusal::Failed(told),
            Some(_) => Refusal::Unknown(told),
            None if answer.requests == 0 || is_no_connection(&error) => Refusal::Failed(told),
            None => Refusal::Unknown(told),
        })
    }

    /// Lists all objects below a folder of this one; an empty one means all.
    pub(crate) async fn list(&self, folder: &str) -> Result<Vec<Listed>, StoreError> {
        let root = self.path(folder);
        let call = self.store.list(Some(&root)).try_collect::<Vec<_>>();
        let (outcome, answer) = self.call(&self.meter.lists, call).await?;
        // A page holds a thousand names; the first one was counted already.
        self.meter.lists.fetch_add(u64::from(answer.requests.saturating_sub(1)), Ordering::Relaxed);
        let found = outcome.map_err(|error| error::told(&self.place, &error, &answer))?;
        let own = |meta: object_store::ObjectMeta| {
            let object =
                meta.location.as_ref().strip_prefix(self.root.as_ref())?.strip_prefix('/')?.to_owned();
            let etag = unquoted(meta.e_tag.as_deref().unwrap_or_default());
            Some(Listed { object, etag })
        };
        Ok(found.into_iter().filter_map(own).collect())
    }

    /// Deletes everything in this folder, without any condition.
    pub(crate) async fn delete_all(&self) -> Result<(), StoreError> {
        for listed in self.list("").await? {
            let path = self.path(&listed.object);
            let (outcome, answer) = self.call(&self.meter.puts, self.store.delete(&path)).await?;
            match outcome {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(error::told(&self.place, &error, &answer)),
            }
        }
        Ok(())
    }

    /// What the server says when it is asked for an object that is not there, with the time that it has.
    pub(crate) async fn knock(&self) -> (Result<(), StoreError>, Answer) {
        let path = self.path("nothing-is-here");
        match self.call(&self.meter.gets, self.store.head(&path)).await {
            Ok((Ok(_) | Err(object_store::Error::NotFound { .. }), answer)) => (Ok(()), answer),
            Ok((Err(error), answer)) => (Err(error::told(&self.place, &error, &answer)), answer),
            Err(error) => (Err(error), Answer::default()),
        }
    }

    /// The bucket, for people.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    async fn call<T>(
        &self,
        counter: &AtomicU64,
        call: impl Future<Output = object_store::Result<T>>,
    ) -> Result<(object_store::Result<T>, Answer), StoreError> {
        counter.fetch_add(1, Ordering::Relaxed);
        tokio::time::timeout(self.within, http::noted(call)).await.map_err(|_| {
            let message = format!("{} did not answer within {:?}", self.place, self.within);
            failed(StoreErrorKind::TimedOut, message)
        })
    }

    fn path(&self, object: &str) -> Path {
        Path::from_iter(
            self.root
                .parts()
                .map(|part| part.as_ref().to_owned())
                .chain(object.split('/').filter(|part| !part.is_empty()).map(str::to_owned)),
        )
    }

    fn mark(&self, etag: Option<String>, version: Option<String>) -> Result<Mark, StoreError> {
        match &etag {
            Some(raw) if !unquoted(raw).is_empty() => Ok(Mark { etag: unquoted(raw), raw: etag, version }),
            _ => {
                Err(refused(format!("{} returns no ETag, so conditional writes are impossible", self.place)))
            }
        }
    }
}

fn unquoted(etag: &str) -> String {
    etag.trim_start_matches("W/").trim_matches('"').to_owned()
}

fn is_no_bucket(error: &object_store::Error) -> bool {
    matches!(
        error::code(&error::chain(error)).as_deref(),
        Some("NoSuchBucket" | "ContainerNotFound" | "ContainerBeingDeleted")
    )
}

/// Whether no connection was made, so that nothing was sent.
fn is_no_connection(error: &object_store::Error) -> bool {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(inner) = source {
        if let Some(http) = inner.downcast_ref::<object_store::client::HttpError>() {
            return http.kind() == object_store::client::HttpErrorKind::Connect;
        }
        source = inner.source();
    }
    false
}

/// Both times are the server's own, in whole seconds.
fn age_s(answer: &Answer, modified_unix_s: i64) -> Option<i64> {
    Some(crate::date::unix_s(answer.date.as_deref()?)? - modified_unix_s)
}
