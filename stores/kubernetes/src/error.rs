//! What the API server's errors mean for a node, in words that say what to do.

use std::error::Error;

use leasehold_store::{StoreError, StoreErrorKind};

/// Something that was asked of the API server, as RBAC knows it.
#[derive(Clone, Debug)]
pub(crate) struct ApiCall<'a> {
    pub(crate) verb: &'static str,
    pub(crate) resource: &'static str,
    pub(crate) namespace: &'a str,
}

impl<'a> ApiCall<'a> {
    /// Of Leases, as almost always.
    pub(crate) fn of_leases(verb: &'static str, namespace: &'a str) -> Self {
        ApiCall { verb, resource: "`leases` of `coordination.k8s.io`", namespace }
    }

    /// Of Secrets, for the provider.
    #[cfg(feature = "provider")]
    pub(crate) fn of_secrets(verb: &'static str, namespace: &'a str) -> Self {
        ApiCall { verb, resource: "`secrets`", namespace }
    }
}

/// Why there was no answer, or not the wanted one.
#[derive(Debug)]
pub(crate) enum ApiError {
    /// The client or the server said so.
    Kube(Box<kube::Error>),
    /// There was no answer in time.
    TimedOut,
    /// Already in words.
    Store(StoreError),
}

impl ApiError {
    /// The status code, if the server answered at all.
    pub(crate) fn code(&self) -> Option<u16> {
        match self {
            ApiError::Kube(error) => match &**error {
                kube::Error::Api(status) => Some(status.code),
                _ => None,
            },
            ApiError::TimedOut | ApiError::Store(_) => None,
        }
    }

    /// The error for the caller.
    pub(crate) fn into_store_error(self, call: &ApiCall<'_>) -> StoreError {
        let error = match self {
            ApiError::Kube(error) => error,
            ApiError::TimedOut => {
                let what =
                    format!("the API server did not answer in time ({} of {})", call.verb, call.resource);
                return StoreError::new(StoreErrorKind::TimedOut, what);
            }
            ApiError::Store(error) => return error,
        };
        match &*error {
            kube::Error::Api(status) => answered(status, call),
            kube::Error::Auth(auth) => StoreError::new(
                StoreErrorKind::Refused,
                format!(
                    "the credentials cannot be had: {}. Look at the user of the kubeconfig.",
                    chain(auth)
                ),
            ),
            other => {
                StoreError::new(StoreErrorKind::Unreachable, format!("the API server: {}", chain(other)))
            }
        }
    }
}

impl From<kube::Error> for ApiError {
    fn from(error: kube::Error) -> Self {
        ApiError::Kube(Box::new(error))
    }
}

fn answered(status: &kube::core::Status, call: &ApiCall<'_>) -> StoreError {
    let ApiCall { verb, resource, namespace } = call;
    let said = &status.message;
    let (kind, message) = match status.code {
        401 => (
            StoreErrorKind::Refused,
            format!(
                "the API server does not know these credentials (401: {said}): they expired or were revoked. Renew \
                 the kubeconfig's user or the pod's service account token."
            ),
        ),
        403 if said.contains("being terminated") => (
            StoreErrorKind::Refused,
            format!("the Kubernetes namespace {namespace} is being deleted, and nothing can be made in it"),
        ),
        403 => (
            StoreErrorKind::Refused,
            format!(
                "RBAC does not allow this: verb `{verb}`, resource {resource}, namespace `{namespace}`. Add `{verb}` \
                 to the Role and bind it to this user (deploy/ has all that is needed). The API server said: {said}"
            ),
        ),
        404 => {
            (StoreErrorKind::Refused, format!("the Kubernetes namespace {namespace} is not there: {said}"))
        }
        410 => (
            StoreErrorKind::Busy,
            format!(
                "the API server has forgotten the state that was asked for (410: {said}); it is listed anew"
            ),
        ),
        413 | 422 => (StoreErrorKind::Refused, format!("the API server does not take this record: {said}")),
        429 => (
            StoreErrorKind::Busy,
            format!("the API server has too much to do (429: {said}). It is asked again a little later."),
        ),
        408 | 504 => {
            (StoreErrorKind::TimedOut, format!("the API server ran out of time ({}: {said})", status.code))
        }
        code => (StoreErrorKind::Unreachable, format!("the API server failed ({code}: {said})")),
    };
    StoreError::new(kind, message)
}

/// An error with all its causes: the outermost one alone seldom says what is wrong.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}

/// The error for a refusal of our own.
pub(crate) fn refused(message: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Refused, message)
}
