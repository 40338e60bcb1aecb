use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::stream::BoxStream;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, GetParams, ListParams, PostParams, Preconditions, WatchParams};
use kube::core::{Request, WatchEvent};
use leasehold_store::{Key, Listing, StoreError, StoreErrorKind, Stored};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::api_types::{GROUP, Lease, LeaseList, TimedLease};
use crate::client::{ApiClient, Dated};
use crate::error::{ApiCall, refused};
use crate::layout::{Base, Entry, Layout};
use crate::options::Options;
use crate::references::KnownReferences;

/// How long one request may take, where the caller has no shorter patience.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The same, where thousands are deleted at once.
const DELETED_WITHIN: Duration = Duration::from_secs(60);
/// How many Leases one page of a listing has.
const PAGE: u32 = 500;
/// How often a listing is started because the one before was overtaken.
const LISTINGS_MAX: usize = 3;
/// The field manager under which the server notes our writes and their times.
pub(crate) const MANAGER: &str = "leasehold";
/// After how long the server ends a watch, which is then opened again where it stood.
pub(crate) const WATCH_FOR: Duration = Duration::from_secs(290);

/// The Leases of one namespace on the API server, one request at a time.
#[derive(Debug)]
pub(crate) struct Leases {
    pub(crate) layout: Layout,
    /// The uid of the anchor as it was last seen: the generation.
    anchor: Mutex<Option<String>>,
    pub(crate) references: KnownReferences,
}

/// The outcome of a write.
#[derive(Debug)]
pub(crate) enum Wrote<T = Lease> {
    /// It is done, and this is there now (of a deletion: nothing).
    Done(Box<T>),
    /// It is not, and never will be, because something else is there.
    Refused,
    /// It is not, because RBAC does not allow it.
    Forbidden(StoreError),
}

/// A listing, and where a watch goes on after it.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) listing: Listing,
    pub(crate) resource_version: String,
}

/// The answer to a deletion: a status, or the object if a finalizer keeps it.
#[derive(Deserialize)]
struct Deleted {
    kind: String,
}

impl Leases {
    pub(crate) fn new(options: &Options, namespace: &str) -> Self {
        let layout = Layout::new(&options.prefix, namespace);
        Leases { layout, anchor: Mutex::default(), references: KnownReferences::default() }
    }

    /// What is under a key, never stale: without a resourceVersion the server asks its own store.
    pub(crate) async fn get(&self, link: &ApiClient, key: &Key) -> Result<Option<Stored>, StoreError> {
        let found = self.get_named(link, &self.layout.name(key)).await?;
        Ok(found.map(|lease| {
            self.references.note(&lease.metadata);
            self.layout.stored(key, &lease)
        }))
    }

    /// Creates a Lease, if there is none of its name.
    pub(crate) async fn create<T: DeserializeOwned + Send + 'static>(
        &self,
        link: &ApiClient,
        lease: &Lease,
    ) -> Result<Wrote<T>, StoreError> {
        let at = lease_api(link).await?;
        let request = at.requests.create(&by_us(), body(lease)).map_err(unbuilt)?;
        match link.ask::<T>(ANSWER_WITHIN, request).await {
            Ok(made) => Ok(Wrote::Done(Box::new(made))),
            Err(error) if error.code() == Some(409) => Ok(Wrote::Refused),
            Err(error) if error.code() == Some(403) => {
                Ok(Wrote::Forbidden(error.into_store_error(&at.call("create"))))
            }
            Err(error) => Err(error.into_store_error(&at.call("create"))),
        }
    }

    /// Replaces the state that the Lease names.
    pub(crate) async fn replace<T: DeserializeOwned + Send + 'static>(
        &self,
        link: &ApiClient,
        lease: &Lease,
    ) -> Result<Wrote<T>, StoreError> {
        let at = lease_api(link).await?;
        let request = at.requests.replace(&lease.metadata.name, &by_us(), body(lease)).map_err(unbuilt)?;
        match link.ask::<T>(ANSWER_WITHIN, request).await {
            Ok(made) => Ok(Wrote::Done(Box::new(made))),
            Err(error) if matches!(error.code(), Some(404 | 409)) => Ok(Wrote::Refused),
            Err(error) => Err(error.into_store_error(&at.call("update"))),
        }
    }

    /// Deletes this state of a Lease.
    pub(crate) async fn delete(
        &self,
        link: &ApiClient,
        name: &str,
        base: &Base,
    ) -> Result<Wrote, StoreError> {
        let at = lease_api(link).await?;
        let preconditions = Preconditions {
            uid: Some(base.uid.clone()),
            resource_version: Some(base.resource_version.clone()),
        };
        let params = DeleteParams::default().preconditions(preconditions);
        let request = at.requests.delete(name, &params).map_err(unbuilt)?;
        match link.ask::<Deleted>(ANSWER_WITHIN, request).await {
            Ok(answer) if answer.kind == "Status" => Ok(Wrote::Done(Box::default())),
            Ok(_) => Err(StoreError::new(
                StoreErrorKind::Refused,
                format!("a finalizer keeps the Lease {name}; it is deleted once the finalizer is removed"),
            )),
            Err(error) if matches!(error.code(), Some(404 | 409)) => Ok(Wrote::Refused),
            Err(error) => Err(error.into_store_error(&at.call("delete"))),
        }
    }

    /// Deletes a Lease in whatever state it is. Only for names that mean one thing forever.
    pub(crate) async fn delete_any(&self, link: &ApiClient, name: &str) -> Result<(), StoreError> {
        let at = lease_api(link).await?;
        let request = at.requests.delete(name, &DeleteParams::default()).map_err(unbuilt)?;
        match link.ask::<serde::de::IgnoredAny>(ANSWER_WITHIN, request).await {
            Ok(_) => Ok(()),
            Err(error) if error.code() == Some(404) => Ok(()),
            Err(error) => Err(error.into_store_error(&at.call("delete"))),
        }
    }

    /// Deletes all Leases of this namespace with one request, registered keys too; `false` if RBAC does not allow that.
    pub(crate) async fn delete_all(&self, link: &ApiClient) -> Result<bool, StoreError> {
        let at = lease_api(link).await?;
        let selected = ListParams::default().labels(&self.layout.whole());
        let request = at.requests.delete_collection(&DeleteParams::default(), &selected).map_err(unbuilt)?;
        match link.ask::<serde::de::IgnoredAny>(DELETED_WITHIN, request).await {
            Ok(_) => Ok(true),
            Err(error) if error.code() == Some(403) => Ok(false),
            Err(error) => Err(error.into_store_error(&at.call("deletecollection"))),
        }
    }

    /// Everything, at one moment that is not before the call. Creates the anchor if it is missing; a client
    /// that may only read sees no generation then.
    pub(crate) async fn list(&self, link: &ApiClient) -> Result<Page, StoreError> {
        self.list_selected(link, &self.layout.selector()).await
    }

    /// The records of nodes, and `meta`, at one moment that is not before the call.
    pub(crate) async fn list_nodes(&self, link: &ApiClient) -> Result<Listing, StoreError> {
        let listing = self.list_selected(link, &self.layout.all_but_shards()).await?.listing.nodes_only();
        Ok(Listing { foreign: Vec::new(), newest: true, ..listing })
    }

    async fn list_selected(&self, link: &ApiClient, selector: &str) -> Result<Page, StoreError> {
        for _ in 0..LISTINGS_MAX {
            let Some(page) = self.list_once(link, selector).await? else { continue };
            if !page.listing.generation.is_empty() || self.make_anchor(link).await?.is_empty() {
                return Ok(page);
            }
        }
        let what =
            "the Leases changed faster than they could be listed, or another program keeps removing them";
        Err(StoreError::new(StoreErrorKind::Busy, what))
    }

    /// The uid of the anchor as it was last seen, or as it is; empty if there is none.
    pub(crate) async fn generation(&self, link: &ApiClient) -> Result<String, StoreError> {
        let known = self.anchor.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match known {
            Some(known) => Ok(known),
            None => Ok(self.find_anchor(link).await?.unwrap_or_default()),
        }
    }

    /// The uid of the anchor as it is, made if it is missing; empty if it may not be made.
    pub(crate) async fn make_anchor(&self, link: &ApiClient) -> Result<String, StoreError> {
        for _ in 0..LISTINGS_MAX {
            if let Some(found) = self.find_anchor(link).await? {
                return Ok(found);
            }
            match self.create::<Lease>(link, &self.layout.anchor()).await? {
                Wrote::Done(made) => {
                    self.note_anchor(&made.metadata.uid);
                    return Ok(made.metadata.uid);
                }
                Wrote::Refused => {}
                Wrote::Forbidden(_) => return Ok(String::new()),
            }
        }
        let what = format!("another program keeps deleting the Lease {}", self.layout.anchor_name());
        Err(StoreError::new(StoreErrorKind::Busy, what))
    }

    async fn find_anchor(&self, link: &ApiClient) -> Result<Option<String>, StoreError> {
        let found = self.get_named(link, &self.layout.anchor_name()).await?;
        Ok(found.map(|lease| {
            self.note_anchor(&lease.metadata.uid);
            lease.metadata.uid
        }))
    }

    /// What changes after a resourceVersion, with bookmarks.
    pub(crate) async fn follow(
        &self,
        link: &ApiClient,
        resource_version: &str,
    ) -> Result<BoxStream<'static, kube::Result<WatchEvent<Lease>>>, StoreError> {
        let at = lease_api(link).await?;
        let params =
            WatchParams::default().labels(&self.layout.selector()).timeout(WATCH_FOR.as_secs() as u32);
        let request = at.requests.watch(&params, resource_version).map_err(unbuilt)?;
        link.follow(ANSWER_WITHIN, request).await.map_err(|error| error.into_store_error(&at.call("watch")))
    }

    pub(crate) async fn get_named(&self, link: &ApiClient, name: &str) -> Result<Option<Lease>, StoreError> {
        let at = lease_api(link).await?;
        let request = at.requests.get(name, &GetParams::default()).map_err(unbuilt)?;
        match link.ask::<Lease>(ANSWER_WITHIN, request).await {
            Ok(lease) => Ok(Some(lease)),
            Err(error) if error.code() == Some(404) => Ok(None),
            Err(error) => Err(error.into_store_error(&at.call("get"))),
        }
    }

    /// What has a name, and what time it was on the server's clock when it said so.
    pub(crate) async fn get_dated(
        &self,
        link: &ApiClient,
        name: &str,
    ) -> Result<(Option<TimedLease>, Timestamp), StoreError> {
        let at = lease_api(link).await?;
        let request = at.requests.get(name, &GetParams::default()).map_err(unbuilt)?;
        let Dated { answer, at: time } = link.ask_dated::<TimedLease>(ANSWER_WITHIN, request).await;
        let found = match answer {
            Ok(lease) => Some(lease),
            Err(error) if error.code() == Some(404) => None,
            Err(error) => return Err(error.into_store_error(&at.call("get"))),
        };
        Ok((found, time.ok_or_else(timeless)?))
    }

    /// All that is selected, at one moment, and what time it was then on the server's clock.
    pub(crate) async fn list_dated(
        &self,
        link: &ApiClient,
        selector: &str,
    ) -> Result<(Vec<TimedLease>, Timestamp), StoreError> {
        let at = lease_api(link).await?;
        'restart: for _ in 0..LISTINGS_MAX {
            let mut params = ListParams::default().labels(selector).limit(PAGE);
            let (mut found, mut time) = (Vec::new(), None);
            loop {
                let Dated { answer, at: told } = ask_page::<TimedLease>(link, &at, &params).await?;
                let page = match answer {
                    Ok(page) => page,
                    Err(error) if error.code() == Some(410) => continue 'restart,
                    Err(error) => return Err(error.into_store_error(&at.call("list"))),
                };
                found.extend(page.items);
                // All pages show the moment of the first.
                let first = time.or(told).ok_or_else(timeless)?;
                if page.metadata.next.is_empty() {
                    return Ok((found, first));
                }
                time = Some(first);
                params = params.continue_token(&page.metadata.next);
            }
        }
        Err(StoreError::new(StoreErrorKind::Busy, "the Leases changed faster than they could be listed"))
    }

    /// One listing, page by page; `None` if the server forgot its state before the last page.
    async fn list_once(&self, link: &ApiClient, selector: &str) -> Result<Option<Page>, StoreError> {
        let at = lease_api(link).await?;
        let mut listing = Listing::default();
        let mut params = ListParams::default().labels(selector).limit(PAGE);
        loop {
            let page = match ask_page::<Lease>(link, &at, &params).await?.answer {
                Ok(page) => page,
                Err(error) if error.code() == Some(410) => return Ok(None),
                Err(error) => return Err(error.into_store_error(&at.call("list"))),
            };
            for lease in &page.items {
                self.references.note(&lease.metadata);
                match self.layout.entry(lease) {
                    Entry::Record(key, stored) => listing.entries.push((key, stored)),
                    Entry::Anchor(uid) => listing.generation = uid,
                    Entry::Foreign(what) => listing.foreign.push(what),
                }
            }
            if page.metadata.next.is_empty() {
                let resource_version = page.metadata.resource_version;
                // Officially opaque, in truth etcd's revision, and by Kubernetes 1.35 a number that may be compared.
                listing.revision = resource_version.parse().ok();
                if !listing.generation.is_empty() {
                    self.note_anchor(&listing.generation);
                }
                return Ok(Some(Page { listing, resource_version }));
            }
            params = params.continue_token(&page.metadata.next);
        }
    }

    fn note_anchor(&self, uid: &str) {
        *self.anchor.lock().unwrap_or_else(PoisonError::into_inner) = Some(uid.to_owned());
    }
}

/// The API of the Leases of a Kubernetes namespace.
struct LeaseApi {
    namespace: String,
    requests: Request,
}

impl LeaseApi {
    fn call(&self, verb: &'static str) -> ApiCall<'_> {
        ApiCall::of_leases(verb, &self.namespace)
    }
}

async fn lease_api(link: &ApiClient) -> Result<LeaseApi, StoreError> {
    let namespace = link.namespace().await?;
    let requests = Request::new(format!("/apis/{GROUP}/v1/namespaces/{namespace}/leases"));
    Ok(LeaseApi { namespace, requests })
}

async fn ask_page<T: DeserializeOwned + Send + 'static>(
    link: &ApiClient,
    at: &LeaseApi,
    params: &ListParams,
) -> Result<Dated<LeaseList<T>>, StoreError> {
    let request = at.requests.list(params).map_err(unbuilt)?;
    Ok(link.ask_dated(ANSWER_WITHIN, request).await)
}

fn by_us() -> PostParams {
    PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() }
}

/// The error for a server that sends no time.
pub(crate) fn timeless() -> StoreError {
    refused(
        "this API server sends no `Date`, so nothing can expire on it: use another store for registered keys",
    )
}

fn body(lease: &Lease) -> Vec<u8> {
    serde_json::to_vec(lease).expect("a Lease is plain data with text keys")
}

fn unbuilt(error: kube::core::request::Error) -> StoreError {
    StoreError::new(StoreErrorKind::Refused, format!("cannot build the request: {error}"))
}
