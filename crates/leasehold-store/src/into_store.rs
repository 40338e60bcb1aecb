//! What can be given where a store is wanted.

use std::sync::Arc;

use crate::Store;

/// A store, or a shared one: whatever a program has at hand.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a store",
    note = "give a `Store`, an `Arc` of one, or what `leasehold::store::open` returns (after `?`)"
)]
pub trait IntoStore {
    /// As nodes and clients share it.
    fn into_store(self) -> Arc<dyn Store>;
}

impl<S: Store> IntoStore for S {
    fn into_store(self) -> Arc<dyn Store> {
        Arc::new(self)
    }
}

impl<S: Store> IntoStore for Arc<S> {
    fn into_store(self) -> Arc<dyn Store> {
        self
    }
}

impl IntoStore for Arc<dyn Store> {
    fn into_store(self) -> Arc<dyn Store> {
        self
    }
}

impl IntoStore for &Arc<dyn Store> {
    fn into_store(self) -> Arc<dyn Store> {
        self.clone()
    }
}
