//! Turns the API server's errors into store errors that say what to do.

use std::error::Error;

use leasehold_store::{StoreError, StoreErrorKind};

/// A call to the API server in the terms of RBAC, for error messages.
#[derive(Clone, Debug)]
pub(crate) struct ApiCall<'a> {
    pub(crate) verb: &'static str,
    pub(crate) resource: &'static str,
    pub(crate) namespace: &'a str,
}

impl<'a> ApiCall<'a> {
    /// A call for Leases, which almost all are.
    pub(crate) fn of_leases(verb: &'static str, namespace: &'a str) -> Self {
        ApiCall { verb, resource: "`leases` of `coordination.k8s.io`", namespace }
    }

    /// A call for Secrets, by the provider.
    #[cfg(feature = "provider")]
    pub(crate) fn of_secrets(verb: &'static str, namespace: &'a str) -> Self {
        ApiCall { verb, resource: "`secrets`", namespace }
    }
}

/// Why a call failed.
#[derive(Debug)]
pub(crate) enum ApiError {
    /// An error of the client library or the server.
    Kube(Box<kube::Error>),
    /// There was no answer in time.
    TimedOut,
    /// Already a store error.
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
                format!("cannot get credentials: {}. Check the user in the kubeconfig.", chain(auth)),
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
                "the API server rejected the credentials (401: {said}): they have expired or were revoked. Renew \
                 those of the kubeconfig's user, or the service account token of the pod."
            ),
        ),
        403 if said.contains("being terminated") => (
            StoreErrorKind::Refused,
            format!("the Kubernetes namespace {namespace} is being deleted; nothing can be created in it"),
        ),
        403 => (
            StoreErrorKind::Refused,
            format!(
                "RBAC does not allow this: verb `{verb}`, resource {resource}, namespace `{namespace}`. Add `{verb}` \
                 to the Role and bind it to this user (deploy/ has all that is needed). The API server said: {said}"
            ),
        ),
        404 => {
            (StoreErrorKind::Refused, format!("the Kubernetes namespace {namespace} does not exist: {said}"))
        }
        410 => (
            StoreErrorKind::Busy,
            format!(
                "the API server no longer has the requested state (410: {said}); it will be listed again"
            ),
        ),
        413 | 422 => (StoreErrorKind::Refused, format!("the API server rejected this record: {said}")),
        429 => (
            StoreErrorKind::Busy,
            format!("the API server is overloaded (429: {said}). The call will be tried again."),
        ),
        408 | 504 => {
            (StoreErrorKind::TimedOut, format!("the API server timed out ({}: {said})", status.code))
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
