use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::SessionId;
use leasehold_store::{
    Administration, Charged, DeathProofs, Extensions, Facts, Finding, Freshness, Key, Lane, Listing, Reading,
    Safety, Store, StoreError, Swap, SwapReply, Throwaway, Watch, check_namespace,
};

use crate::busy_timeout::BusyTimeout;
use crate::claim::{self, Claim};
use crate::connection::{Answered, FileConnection, Shared};
use crate::database::Check;
use crate::database_file::DatabaseFile;
use crate::error::{self, refused};
use crate::lane::{Checkpoints, LaneThread};
use crate::options::Options;
use crate::records::{self, Everything};
use crate::watch;

/// One namespace in an SQLite file, shared by the processes of one machine.
#[derive(Debug)]
pub struct Local {
    shared: Arc<Shared>,
    renewal: LaneThread,
    work: LaneThread,
    /// The locks of the sessions that this process lives as, one for each node that shares this store.
    claims: Arc<Mutex<BTreeMap<SessionId, Claim>>>,
}

impl Local {
    /// The facts of every local store.
    pub const FACTS: Facts = Facts {
        kind: "local",
        watch: true,
        poll_every: Duration::from_millis(250),
        write_every_min: Duration::from_millis(1),
        // Keeps the write lock for some milliseconds only, so that renewals of all processes get their turn.
        swaps_max: 256,
        reads: Freshness::Newest,
        removes: true,
        safety: Safety::Strict,
        ttl_default: Duration::from_secs(10),
    };

    /// Opens the file, and creates it if it is missing. It blocks for some milliseconds while it checks the file.
    pub fn open(path: impl AsRef<Path>, namespace: &str) -> Result<Self, StoreError> {
        Local::open_with(path, namespace, Options::default())
    }

    /// Opens the file with these options.
    pub fn open_with(path: impl AsRef<Path>, namespace: &str, options: Options) -> Result<Self, StoreError> {
        check_namespace(namespace)?;
        let db_file = DatabaseFile::new(path.as_ref())?;
        let busy_for = options.busy_for;
        let shared = Arc::new(Shared::new(db_file, namespace.to_owned(), options));
        BusyTimeout::of(busy_for).during(|| {
            let start = |name, check, checkpoints| {
                let connection = FileConnection::open(Arc::clone(&shared), check)?;
                LaneThread::start(name, connection, checkpoints)
                    .map_err(|e| refused(format!("cannot start a thread ({e})")))
            };
            let work = start("lh-work", Check::Whole, Checkpoints::Here)?;
            let renewal = start("lh-renewal", Check::Head, Checkpoints::Elsewhere)?;
            Ok(Local { shared: Arc::clone(&shared), renewal, work, claims: Arc::default() })
        })
    }

    /// Checks that a session could be opened here now, and leaves nothing behind. A readable file may be on a full disk, or
    /// in a directory that this user cannot write to. It blocks for a moment.
    pub fn rehearse(&self) -> Result<(), StoreError> {
        claim::rehearse(&self.shared.db_file, SessionId::from_bits(leasehold_store::rng::bits()?))
    }

    /// The file, as an absolute path.
    pub fn path(&self) -> &Path {
        &self.shared.db_file.file
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        &self.shared.namespace
    }

    /// Does work on the thread for everything but renewals.
    pub(crate) async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut FileConnection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.work.call(work).await
    }
}

#[async_trait]
impl Store for Local {
    fn facts(&self) -> Facts {
        Local::FACTS
    }

    async fn read(&self, keys: &[Key]) -> Result<Reading, StoreError> {
        let keys = keys.to_vec();
        let answered = self
            .work
            .call(move |connection| {
                let namespace = connection.shared.namespace.clone();
                connection.read(|connection, _| records::read(connection, &namespace, &keys))
            })
            .await?;
        Ok(Reading { found: answered.value, generation: answered.generation })
    }

    async fn list(&self) -> Result<Listing, StoreError> {
        self.work.call(list).await
    }

    async fn list_nodes(&self) -> Result<Listing, StoreError> {
        self.work.call(list_nodes).await
    }

    async fn swap(&self, lane: Lane, swaps: &[Swap]) -> Result<SwapReply, StoreError> {
        let swaps = swaps.to_vec();
        let lane = match lane {
            Lane::Renewal => &self.renewal,
            Lane::Work => &self.work,
        };
        let answered = lane
            .call(move |connection| {
                let namespace = connection.shared.namespace.clone();
                connection.write(|connection, head| records::swap(connection, &namespace, &swaps, head))
            })
            .await?;
        Ok(SwapReply { outcomes: answered.value, generation: answered.generation })
    }

    async fn watch(&self) -> Result<Option<Watch>, StoreError> {
        watch::start(Arc::clone(&self.shared)).map(Some)
    }

    async fn generation(&self) -> Result<String, StoreError> {
        let answered = self.work.call(|connection| connection.read(|_, _| Ok(()))).await?;
        Ok(answered.generation)
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions { death_proofs: Some(self), administration: Some(self), registry: Some(self) }
    }
}

#[async_trait]
impl DeathProofs for Local {
    async fn claim_session(&self, session: SessionId) -> Result<(), StoreError> {
        let claims = Arc::clone(&self.claims);
        self.renewal
            .call(move |connection| {
                let mut claims = claims.lock().unwrap_or_else(PoisonError::into_inner);
                if let Entry::Vacant(vacant) = claims.entry(session) {
                    vacant.insert(Claim::take(&connection.shared.db_file, session)?);
                }
                Ok(())
            })
            .await
    }

    fn release_session(&self, session: SessionId) {
        let claim = self.claims.lock().unwrap_or_else(PoisonError::into_inner).remove(&session);
        if let Some(claim) = claim {
            claim.release();
        }
    }

    fn is_gone(&self, session: SessionId) -> bool {
        claim::probe(&self.shared.db_file, session) == claim::Proof::Gone
    }
}

#[async_trait]
impl Administration for Local {
    async fn vet(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn held_up_by(&self) -> Option<String> {
        self.shared.waits.are_recent().then(|| error::locked(&self.shared.db_file.file))
    }

    async fn examine(&self) -> Vec<Finding> {
        Vec::new()
    }

    fn aside(&self, _throwaway: &Throwaway) -> Result<Option<Arc<dyn Store>>, StoreError> {
        Ok(None)
    }

    async fn namespaces(&self) -> Result<Option<Vec<String>>, StoreError> {
        let answered = self
            .work
            .call(|connection| connection.read(|connection, _| records::namespaces(connection)))
            .await?;
        Ok(Some(answered.value))
    }

    fn charged(&self) -> Option<Charged> {
        None
    }

    async fn discard(&self, throwaway: &Throwaway) -> Result<(), StoreError> {
        Err(throwaway.stays(Local::FACTS.kind))
    }
}

/// Everything in the namespace of this connection.
pub(crate) fn list(connection: &mut FileConnection) -> Result<Listing, StoreError> {
    let namespace = connection.shared.namespace.clone();
    let answered = connection.read(|connection, _| records::list(connection, &namespace))?;
    let Answered { value: Everything { entries, foreign }, head, generation } = answered;
    Ok(Listing { entries, foreign, generation, revision: Some(head.revision), ..Listing::default() })
}

/// The records of nodes, and `meta`, in the namespace of this connection.
fn list_nodes(connection: &mut FileConnection) -> Result<Listing, StoreError> {
    let namespace = connection.shared.namespace.clone();
    let answered = connection.read(|connection, _| records::list_nodes(connection, &namespace))?;
    let Answered { value: Everything { entries, .. }, head, generation } = answered;
    let revision = Some(head.revision);
    Ok(Listing { entries, generation, revision, newest: true, ..Listing::default() })
}
