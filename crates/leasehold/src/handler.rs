//! The work of a shard: what a program writes, and what the driver runs.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use futures::future::BoxFuture;

use crate::grant::Grant;

/// Any error that a handler may return: `std` errors, `anyhow::Error`, strings.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The usual result of a handler: success, or an error that is logged and counted.
pub type Outcome = Result<(), BoxError>;

/// The work of a shard, as a type with state of its own. A function or closure is enough for most programs:
/// [`Builder::group`](crate::Builder::group).
///
/// ```
/// use leasehold::{Grant, Group, Handler, Node};
///
/// struct Consumer { topic: String }
///
/// impl Handler for Consumer {
///     type Output = (); // or a Result<(), E>
///
///     async fn run(&self, grant: Grant) {
///         println!("{} of {} starts with epoch {}", grant.shard(), self.topic, grant.epoch());
///         grant.stopped().await;
///     }
/// }
///
/// let consumer = Consumer { topic: "orders".to_owned() };
/// let builder = Node::solo().group(Group::numbered("orders", 64), consumer.into_fn());
/// ```
pub trait Handler: Send + Sync + Sized + 'static {
    /// What it returns: nothing, or a `Result<(), E>`.
    type Output: IntoOutcome;

    /// Runs one shard until it is told to stop. Called with a new grant at every start, for several shards at a time.
    fn run(&self, grant: Grant) -> impl Future<Output = Self::Output> + Send;

    /// The same as a function, for [`Builder::group`](crate::Builder::group), [`Node::serve`](crate::Node::serve) and
    /// [`Node::handle`](crate::Node::handle).
    fn into_fn(self) -> impl Fn(Grant) -> BoxFuture<'static, Self::Output> + Send + Sync + 'static {
        let handler = Arc::new(self);
        move |grant| {
            let handler = handler.clone();
            Box::pin(async move { handler.run(grant).await })
        }
    }
}

/// What a handler may return: `()`, or a `Result<(), E>` with an error that can be boxed.
#[diagnostic::on_unimplemented(
    message = "a handler returns `()` or a `Result<(), E>`, not `{Self}`",
    note = "`E` may be `leasehold::BoxError`, `anyhow::Error` or any error that is `Send + Sync + 'static`"
)]
pub trait IntoOutcome: Send + 'static {
    /// As the driver sees it.
    fn into_outcome(self) -> Outcome;
}

impl IntoOutcome for () {
    fn into_outcome(self) -> Outcome {
        Ok(())
    }
}

impl<E: Into<BoxError> + Send + 'static> IntoOutcome for Result<(), E> {
    fn into_outcome(self) -> Outcome {
        self.map_err(Into::into)
    }
}

/// A handler of any type, called with the grant at every start.
#[derive(Clone)]
pub(crate) struct AnyHandler(Arc<dyn Fn(Grant) -> BoxFuture<'static, Outcome> + Send + Sync>);

impl AnyHandler {
    pub(crate) fn new<F, Fut>(work: F) -> Self
    where
        F: Fn(Grant) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        AnyHandler(Arc::new(move |grant| {
            let running = work(grant);
            Box::pin(async move { running.await.into_outcome() })
        }))
    }

    pub(crate) fn call(&self, grant: Grant) -> BoxFuture<'static, Outcome> {
        (self.0)(grant)
    }
}

impl fmt::Debug for AnyHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyHandler")
    }
}

/// An error with all its causes, in one line. A cause that its parent has already quoted is not repeated.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut quoted = text.clone();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !quoted.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        quoted = next;
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot write")]
    struct Outer(#[source] Middle);

    #[derive(Debug, thiserror::Error)]
    #[error("the sink refused: {0}")]
    struct Middle(#[source] std::io::Error);

    #[test]
    fn every_cause_is_named_once() {
        let error = Outer(Middle(std::io::Error::other("epoch 3 is below 4")));
        assert_eq!(chain(&error), "cannot write: the sink refused: epoch 3 is below 4");
        let error: BoxError = "plain".into();
        assert_eq!(chain(&*error), "plain");
    }
}
