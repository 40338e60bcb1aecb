use async_trait::async_trait;
use leasehold_core::SessionId;
use leasehold_core::store::StoreError;

/// A store that can prove the death of a process at once, so that no node has to wait until its session runs out. The
/// local store does so with a file lock that the kernel releases.
///
/// It never decides alone: without a proof the time-based rule holds, as on every other store.
#[async_trait]
pub trait DeathProofs: Send + Sync {
    /// Ties this session to the life of this process. Called before the session's first record is written.
    async fn claim_session(&self, session: SessionId) -> Result<(), StoreError>;

    /// Ends a session that this process claimed; none of its work runs any more. Other sessions of this process, of
    /// nodes that share this store, go on.
    fn release_session(&self, session: SessionId);

    /// Whether the kernel proves that the process of a session is gone, with all that it started. `false` proves
    /// nothing: the process may live, or the store cannot tell.
    fn is_gone(&self, session: SessionId) -> bool;
}
