//! Turns errors of a bucket into store errors that say what to do. They never contain a secret: of what a server writes,
//! only the error code is passed on.

use leasehold_store::{StoreError, StoreErrorKind};

use crate::http::Answer;

/// An error of that kind.
pub(crate) fn failed(kind: StoreErrorKind, message: impl Into<String>) -> StoreError {
    StoreError::new(kind, message)
}

/// An error that needs an operator.
pub(crate) fn refused(message: impl Into<String>) -> StoreError {
    failed(StoreErrorKind::Refused, message)
}

/// What a failed call means. `place` is the bucket, for people.
pub(crate) fn told(place: &str, error: &object_store::Error, answer: &Answer) -> StoreError {
    let text = chain(error);
    let code = code(&text).unwrap_or_default();
    let said = match answer.status {
        Some(status) if code.is_empty() => format!("{status}"),
        Some(status) => format!("{status} {code}"),
        None => String::new(),
    };
    match (answer.status, code.as_str()) {
        (_, "NoSuchBucket" | "ContainerNotFound") => refused(format!(
            "there is no bucket {place} ({said}). Nothing was written. Create it, or correct the address"
        )),
        (
            _,
            "AuthorizationHeaderMalformed"
            | "PermanentRedirect"
            | "TemporaryRedirect"
            | "IllegalLocationConstraintException",
        )
        | (Some(301 | 307), _) => refused(format!(
            "the bucket {place} is in another region{} ({said}). Nothing was written. Add region=… to the address, or set AWS_REGION",
            answer.region.as_deref().map(|region| format!(", {region}")).unwrap_or_default()
        )),
        (
            _,
            "InvalidAccessKeyId"
            | "SignatureDoesNotMatch"
            | "InvalidToken"
            | "ExpiredToken"
            | "TokenRefreshRequired",
        ) => refused(format!("{place} rejected the credentials ({said}). Nothing was written. Correct them")),
        (_, "RequestTimeTooSkewed") => refused(format!(
            "{place} refuses requests because the clock of this machine is too far off ({said}). Nothing was written. Set the clock"
        )),
        (Some(401 | 403), _) => refused(format!(
            "{place} denied access ({said}). Nothing was written. The node may need {}: see the policy in the \
             documentation",
            advice(place).0
        )),
        (Some(404), _) => refused(format!("{place} found nothing at this address ({said}). Check it")),
        (Some(429 | 503), _) => failed(
            StoreErrorKind::Busy,
            format!("{place} is too busy ({said}); the call will be tried again"),
        ),
        (Some(status), _) if status >= 500 => failed(
            StoreErrorKind::Unreachable,
            format!("{place} failed ({said}); the call will be tried again"),
        ),
        (Some(status), _) if status >= 400 => refused(format!("{place} refused the request ({said})")),
        (Some(_), _) => failed(
            StoreErrorKind::Unreachable,
            format!("the response of {place} broke off; the call will be tried again"),
        ),
        (None, _) if answer.requests == 0 => refused(format!(
            "cannot send requests to {place}: no credentials were found: {}. {}",
            one_line(&text),
            advice(place).1
        )),
        (None, _) => {
            failed(StoreErrorKind::Unreachable, format!("no answer from {place}: {}", innermost(error)))
        }
    }
}

/// Which permissions a node needs at a place, and how it gets credentials.
fn advice(place: &str) -> (&'static str, &'static str) {
    match place.split_once("://") {
        Some(("gs", _)) => (
            "roles/storage.objectUser on the bucket",
            "Set GOOGLE_APPLICATION_CREDENTIALS, or add key_file=… to the address",
        ),
        Some(("az", _)) => (
            "Storage Blob Data Contributor on the container",
            "Set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or write az://ACCOUNT:KEY@container",
        ),
        _ => (
            "s3:GetObject, s3:PutObject and s3:ListBucket on its prefix",
            "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give this machine a role",
        ),
    }
}

/// The code in an error document of S3, Azure or GCS, if it is a plain word.
pub(crate) fn code(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    (code.len() <= 64 && code.bytes().all(|b| b.is_ascii_alphanumeric())).then(|| code.to_owned())
}

/// All that an error says, with its sources. Not for people: it may quote the server.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        source = inner.source();
    }
    text
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut last: &dyn std::error::Error = error;
    while let Some(inner) = last.source() {
        last = inner;
    }
    one_line(&last.to_string())
}

fn one_line(text: &str) -> String {
    let line: String = text.chars().take_while(|c| *c != '\n' && *c != '<').take(160).collect();
    line.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_that_of_the_provider() {
        let error = object_store::Error::Generic { store: "x", source: "nobody".into() };
        let answered =
            |place: &str, status| told(place, &error, &Answer { status, ..Answer::default() }).message;
        assert!(answered("s3://b", Some(403)).contains("s3:PutObject"));
        assert!(answered("gs://b", Some(403)).contains("roles/storage.objectUser"));
        assert!(answered("az://b", Some(403)).contains("Storage Blob Data Contributor"));
        for (place, words) in
            [("s3://b", "AWS_ACCESS_KEY_ID"), ("gs://b", "key_file"), ("az://b", "AZURE_STORAGE")]
        {
            let message = answered(place, None);
            assert!(message.contains("no credentials were found") && message.contains(words), "{message}");
        }
    }

    #[test]
    fn only_the_code_of_an_answer_is_passed_on() {
        let text = "status 403: <Error><Code>SignatureDoesNotMatch</Code><StringToSign>secret</StringToSign>";
        assert_eq!(code(text).as_deref(), Some("SignatureDoesNotMatch"));
        assert_eq!(code("<Code>a b</Code>"), None);
        assert_eq!(one_line("dns error\n<Error>x"), "dns error");
    }
}
