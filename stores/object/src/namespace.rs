//! One namespace in a bucket, as far as this client has seen it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::{StreamExt, stream};
use leasehold_core::ShardId;
use leasehold_core::record::{GroupRecord, Record, ShardSet};
use leasehold_store::{Key, Lane, Listing, StoreError, Stored};
use tokio::sync::Notify;

use crate::cache::{Held, ObjectCache, Sweep};
use crate::client::{Got, Listed, ObjectClient};
use crate::layout::{self, Kind};
use crate::marker::Marker;
use crate::options::Options;
use crate::page::Content;

/// How many objects are fetched or written at once.
pub(crate) const AT_ONCE: usize = 8;

/// What a look was at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looked {
    /// The marker alone: nothing happened since the last look but renewals.
    Marker,
    /// Everything, although the marker tells of nothing.
    Everything,
    /// Everything, since something happened.
    Changes,
}

/// What all parts of one client share.
#[derive(Debug)]
pub(crate) struct Namespace {
    pub(crate) renewal: ObjectClient,
    pub(crate) work: ObjectClient,
    pub(crate) options: Options,
    pub(crate) marker: Marker,
    /// Rung when this client wrote something, so that its watches look at once.
    pub(crate) changed: Notify,
    cache: Mutex<ObjectCache>,
    /// Held while an object is swapped, so that this client's own writes do not meet.
    turns: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
    looking: tokio::sync::Mutex<()>,
}

impl Namespace {
    pub(crate) fn new(renewal: ObjectClient, work: ObjectClient, options: Options) -> Self {
        Namespace {
            renewal,
            work,
            options,
            marker: Marker::default(),
            changed: Notify::new(),
            cache: Mutex::default(),
            turns: Mutex::default(),
            looking: tokio::sync::Mutex::new(()),
        }
    }

    pub(crate) fn cache(&self) -> MutexGuard<'_, ObjectCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn wire(&self, lane: Lane) -> &ObjectClient {
        match lane {
            Lane::Renewal => &self.renewal,
            Lane::Work => &self.work,
        }
    }

    /// The lock of one object.
    pub(crate) fn turn(&self, object: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.entry(object.to_owned()).or_default().clone()
    }

    /// The object as it is now.
    pub(crate) async fn fetch(&self, lane: Lane, object: &str) -> Result<Held, StoreError> {
        let (issued, before) = {
            let mut cache = self.cache();
            (cache.ticket(), cache.get(object))
        };
        let known = before.as_ref().and_then(|held| held.mark.as_ref());
        let held = match self.wire(lane).get(object, known).await? {
            Got::Same => before.expect("nothing else is compared with"),
            Got::Nothing => Held::nothing(),
            Got::Found { body, mark, .. } => {
                let content = Content::decode(object, &body, &mark.etag, self.options.pages);
                Held { mark: Some(mark), content: Arc::new(content) }
            }
        };
        self.cache().put(object, issued, held.clone());
        Ok(held)
    }

    /// The record under this key in an object as it was found. One that may be hidden in it is listed from now on.
    pub(crate) fn row(&self, object: &str, held: &Held, key: &Key) -> Option<Stored> {
        if held.content.hiding().is_some() {
            self.cache().hide(object, key);
        }
        held.content.row(key)
    }

    /// Everything, as it was at some time after this was called, or since the last change of which the marker tells.
    pub(crate) async fn list(&self) -> Result<Listing, StoreError> {
        let sweep = self.cache().count_list();
        let looked = self.look(sweep).await?;
        let mut listing = self.listing();
        listing.newest &= looked != Looked::Marker;
        if listing.newest {
            // Whatever is in the listing by now, `meta` vouches for it only if it is read after that.
            let meta = self.fetch(Lane::Work, &layout::object_of(&Key::Meta, self.options.pages)).await?;
            listing.entries.retain(|(key, _)| *key != Key::Meta);
            listing.entries.extend(meta.content.row(&Key::Meta).map(|stored| (Key::Meta, stored)));
            self.cache().listed_newest();
        }
        Ok(listing)
    }

    /// The records of nodes as they are now, and `meta` as it is after that.
    pub(crate) async fn list_nodes(&self) -> Result<Listing, StoreError> {
        let listed = self.work.list(layout::NODES).await?;
        let listed = listed.into_iter().filter(|found| layout::kind_of(&found.object) == Kind::Single);
        let fetch = |Listed { object, etag }: Listed| async move {
            let known = self.cache().get(&object).filter(|held| held.etag() == Some(&etag));
            let held = match known {
                Some(held) => held,
                None => self.fetch(Lane::Work, &object).await?,
            };
            Ok::<_, StoreError>((object, held))
        };
        let mut found = stream::iter(listed).map(fetch).buffer_unordered(AT_ONCE);
        let mut nodes = Vec::new();
        while let Some(node) = found.next().await {
            nodes.push(node?);
        }
        let meta = layout::object_of(&Key::Meta, self.options.pages);
        nodes.push((meta.clone(), self.fetch(Lane::Work, &meta).await?));
        let mut listing = Listing { newest: true, ..Listing::default() };
        for (object, held) in nodes {
            let content = &held.content;
            let mut keys: BTreeSet<Key> = content.keys().cloned().collect();
            if content.hiding().is_some() {
                keys.extend(self.cache().hidden(&object));
                match layout::key_of(&object) {
                    Some(key) => drop(keys.insert(key)),
                    None => listing.unreadable.push(object),
                }
            }
            add(&mut listing, content, keys);
        }
        Ok(listing)
    }

    /// What is known now. Of objects that changed while they were fetched nothing is.
    pub(crate) fn listing(&self) -> Listing {
        let cache = self.cache();
        let (foreign, newest) = (cache.foreign().to_vec(), !cache.has_doubts());
        let unreadable = cache.deleted().iter().map(|object| format!("{object} (deleted)")).collect();
        let mut listing = Listing { foreign, newest, unreadable, ..Listing::default() };
        for (object, held, hidden) in cache.all() {
            let content = &held.content;
            listing.foreign.extend(content.strange(object));
            let mut keys: BTreeSet<Key> = content.keys().cloned().collect();
            if content.hiding().is_some() {
                let expected = self.expected(&cache, object);
                if expected.is_none() && matches!(**content, Content::Unreadable(_)) {
                    listing.unreadable.push(object.clone());
                }
                keys.extend(expected.into_iter().flatten().chain(hidden.iter().cloned()));
            }
            add(&mut listing, content, keys);
        }
        listing
    }

    /// The records that must be in an object, whether it can be read or not; `None` if that is unknown.
    fn expected(&self, cache: &ObjectCache, object: &str) -> Option<Vec<Key>> {
        if layout::kind_of(object) == Kind::Single {
            return layout::key_of(object).map(|key| vec![key]);
        }
        let group =
            cache.get(&layout::group_of(object)?).filter(|held| held.content.keys().next().is_some())?;
        let mut keys = Vec::new();
        for key in group.content.keys() {
            let record = group.content.row(key).map(|stored| GroupRecord::decode(&stored.value));
            let Some(Ok(GroupRecord { group, shards: ShardSet::Numbered(count), .. })) = record else {
                return None;
            };
            let slots = (0..count).map(|slot| Key::Shard(ShardId::slot(&group, slot)));
            keys.extend(slots.filter(|key| layout::belongs(key, object, self.options.pages)));
        }
        Some(keys)
    }

    /// Finds out what changed: one small read if nothing did, otherwise a listing and what is new in it.
    pub(crate) async fn look(&self, sweep: Sweep) -> Result<Looked, StoreError> {
        let _alone = self.looking.lock().await;
        self.marker.catch_up(&self.work, self.options.marker_within).await;
        // The marker before the listing: what it tells of is in the listing, and what comes later changes it again.
        let marker = self.marker.read(&self.work).await?;
        if sweep == Sweep::IfMarked && self.cache().is_current(&marker) {
            return Ok(Looked::Marker);
        }
        let looked = match self.cache().is_marked(&marker) {
            true => Looked::Everything,
            false => Looked::Changes,
        };
        let issued = self.cache().ticket();
        let listed = self.work.list("").await?;
        let (mut changed, mut foreign) = (Vec::new(), Vec::new());
        {
            let mut cache = self.cache();
            let mut gone = cache.objects();
            for found in listed {
                gone.retain(|object| *object != found.object);
                match layout::kind_of(&found.object) {
                    Kind::Own => {}
                    Kind::Foreign => foreign.push(found.object),
                    Kind::Single | Kind::Page => {
                        let held = cache.get(&found.object);
                        if held.is_none_or(|held| held.etag() != Some(&found.etag)) {
                            changed.push(found.object);
                        }
                    }
                }
            }
            let before = cache.deleted();
            for object in gone {
                cache.put(&object, issued, Held::nothing());
            }
            // A program that deletes an object does not rewrite the marker, so the first client to miss it does: the others
            // would find out only with their next full listing.
            if looked == Looked::Everything && !cache.deleted().is_subset(&before) {
                self.marker.owe();
            }
        }
        let mut fetched = stream::iter(changed)
            .map(|object| async move { self.fetch(Lane::Work, &object).await })
            .buffer_unordered(AT_ONCE);
        while let Some(outcome) = fetched.next().await {
            outcome?;
        }
        drop(fetched);
        self.cache().looked(marker, foreign);
        self.marker.catch_up(&self.work, self.options.marker_within).await;
        Ok(looked)
    }
}

/// Lists these records of an object.
fn add(listing: &mut Listing, content: &Content, keys: BTreeSet<Key>) {
    let entry = |key: Key| content.row(&key).map(|stored| (key, stored));
    listing.entries.extend(keys.into_iter().filter_map(entry));
}
