//! One namespace in a bucket, as far as this client has seen it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::{StreamExt, stream};
use leasehold_store::{Lane, Listing, StoreError, StoreErrorKind};
use tokio::sync::Notify;

use crate::layout::{self, Kind};
use crate::marker::Marker;
use crate::options::Options;
use crate::page::{Content, TooNew};
use crate::shelf::{Held, Shelf, Sweep};
use crate::trouble::failed;
use crate::wire::{Got, Wire};

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
pub(crate) struct Folder {
    pub(crate) renewal: Wire,
    pub(crate) work: Wire,
    pub(crate) options: Options,
    pub(crate) marker: Marker,
    /// Rung when this client wrote something, so that its watches look at once.
    pub(crate) bell: Notify,
    shelf: Mutex<Shelf>,
    /// Held while an object is swapped, so that this client's own writes do not meet.
    turns: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
    looking: tokio::sync::Mutex<()>,
}

impl Folder {
    pub(crate) fn new(renewal: Wire, work: Wire, options: Options) -> Self {
        Folder {
            renewal,
            work,
            options,
            marker: Marker::default(),
            bell: Notify::new(),
            shelf: Mutex::default(),
            turns: Mutex::default(),
            looking: tokio::sync::Mutex::new(()),
        }
    }

    pub(crate) fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn wire(&self, lane: Lane) -> &Wire {
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
            let mut shelf = self.shelf();
            (shelf.ticket(), shelf.get(object))
        };
        let known = before.as_ref().and_then(|held| held.mark.as_ref());
        let held = match self.wire(lane).get(object, known).await? {
            Got::Same => before.expect("nothing else is compared with"),
            Got::Nothing => Held::nothing(),
            Got::Found { body, mark, .. } => {
                let former = before.map(|held| held.content).unwrap_or_else(|| Held::nothing().content);
                let content = self.decode(object, &body, &mark.etag, &former)?;
                Held { mark: Some(mark), content: Arc::new(content) }
            }
        };
        self.shelf().put(object, issued, held.clone());
        Ok(held)
    }

    /// Everything, as it was at some time after this was called, or since the last change of which the marker tells.
    pub(crate) async fn list(&self) -> Result<Listing, StoreError> {
        let sweep = self.shelf().count_list();
        let looked = self.look(sweep).await?;
        let mut listing = self.listing();
        listing.newest &= looked != Looked::Marker;
        if listing.newest {
            self.shelf().listed_newest();
        }
        Ok(listing)
    }

    /// What is known now. Of objects that changed while they were fetched nothing is.
    pub(crate) fn listing(&self) -> Listing {
        let shelf = self.shelf();
        let (foreign, newest) = (shelf.foreign().to_vec(), !shelf.has_doubts());
        let mut listing = Listing { foreign, newest, ..Listing::default() };
        for (object, held) in shelf.all() {
            listing.entries.extend(held.content.entries());
            listing.foreign.extend(held.content.strange(object));
        }
        listing
    }

    /// Finds out what changed: one small read if nothing did, otherwise a listing and what is new in it.
    pub(crate) async fn look(&self, sweep: Sweep) -> Result<Looked, StoreError> {
        let _alone = self.looking.lock().await;
        self.marker.settle(&self.work, self.options.marker_within).await;
        // The marker before the listing: what it tells of is in the listing, and what comes later changes it again.
        let marker = self.marker.read(&self.work).await?;
        if sweep == Sweep::IfMarked && self.shelf().is_current(&marker) {
            return Ok(Looked::Marker);
        }
        let looked = match self.shelf().is_marked(&marker) {
            true => Looked::Everything,
            false => Looked::Changes,
        };
        let issued = self.shelf().ticket();
        let listed = self.work.list("").await?;
        let (mut changed, mut foreign) = (Vec::new(), Vec::new());
        {
            let mut shelf = self.shelf();
            let mut gone = shelf.objects();
            for found in listed {
                gone.retain(|object| *object != found.object);
                match layout::kind_of(&found.object) {
                    Kind::Own => {}
                    Kind::Foreign => foreign.push(found.object),
                    Kind::Single | Kind::Page => {
                        let held = shelf.get(&found.object);
                        if held.is_none_or(|held| held.etag() != Some(&found.etag)) {
                            changed.push(found.object);
                        }
                    }
                }
            }
            for object in gone {
                shelf.put(&object, issued, Held::nothing());
            }
        }
        let mut fetched = stream::iter(changed)
            .map(|object| async move { self.fetch(Lane::Work, &object).await })
            .buffer_unordered(AT_ONCE);
        while let Some(outcome) = fetched.next().await {
            outcome?;
        }
        drop(fetched);
        self.shelf().looked(marker, foreign);
        Ok(looked)
    }

    fn decode(&self, object: &str, body: &[u8], mark: &str, before: &Content) -> Result<Content, StoreError> {
        Content::decode(object, body, mark, self.options.pages, before).map_err(|TooNew(format)| {
            failed(
                StoreErrorKind::Damaged,
                format!(
                    "{object} is written in format {format}, and this version reads up to {}: upgrade this node",
                    crate::page::FORMAT
                ),
            )
        })
    }
}
