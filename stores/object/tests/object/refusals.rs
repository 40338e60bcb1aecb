//! Buckets that must not be used or cannot be, and what is said about them.

use leasehold_servers::{Program, S3_KEY, S3_SECRET, S3Server};
use leasehold_store::{Grade, Key, Lane, Store, StoreError, StoreErrorKind, Swap};

use crate::careless::{Flaw, careless};
use crate::common::{BUCKET, fresh, open, open_at, server};
use crate::proxy::{Fault, Proxy};

async fn write_to(address: &str) -> Result<(), StoreError> {
    let swap = Swap { key: Key::Meta, expect: None, value: Some(b"{}"[..].into()) };
    open_at(address, &fresh("refusal")).swap(Lane::Work, &[swap]).await.map(drop)
}

fn assert_refused(error: &StoreError, words: &str) {
    assert_eq!(error.kind, StoreErrorKind::Refused, "{error}");
    assert!(error.message.contains(words), "{error}");
    assert!(!error.message.contains(S3_SECRET) && !error.message.contains("made up"), "{error}");
}

#[tokio::test]
async fn a_server_that_ignores_conditions_is_refused_before_anything_is_written() {
    let Some(server) = S3Server::start(Program::Rclone) else { return };
    server.make_bucket(BUCKET);
    let error = write_to(&server.address(BUCKET, "")).await.unwrap_err();
    println!("{error}");
    assert_eq!(error.kind, StoreErrorKind::Refused, "{error}");
    assert!(error.message.contains("must not be used"), "{error}");
}

/// Servers on plain files compare and write in two steps; others honour one condition and not the other.
#[tokio::test]
async fn every_way_not_to_keep_ones_word_is_found_out() {
    for (flaw, words) in [
        (Flaw::None, None),
        (Flaw::IgnoresIfNoneMatch, Some("writers win")),
        (Flaw::IgnoresIfMatch, Some("writers win")),
        (Flaw::LooksThenWrites, Some("writers win")),
    ] {
        let (endpoint, _server) = careless(flaw).await;
        let address = format!("s3://k:s@bucket/p?endpoint={endpoint}&allow_http=true&region=us-east-1");
        match (write_to(&address).await, words) {
            (Ok(()), None) => {}
            (Err(error), Some(words)) => {
                assert_refused(&error, words);
                assert!(error.message.contains("must not be used"), "{flaw:?}: {error}");
            }
            (outcome, _) => panic!("{flaw:?}: {outcome:?}"),
        }
    }
}

#[tokio::test]
async fn wrong_credentials_a_missing_bucket_and_a_wrong_region_are_told_apart() {
    let Some(server) = server(Program::SeaweedFs) else { return };
    let wrong_secret = server.address(BUCKET, "").replace("never", "wrong");
    assert_refused(&write_to(&wrong_secret).await.unwrap_err(), "does not accept these credentials");
    let wrong_key = server.address(BUCKET, "").replace(S3_KEY, "AKIASOMEBODYELSE");
    assert_refused(&write_to(&wrong_key).await.unwrap_err(), "does not accept these credentials");
    let error = write_to(&server.address("no-such-bucket", "")).await.unwrap_err();
    assert_refused(&error, "there is no bucket");
    // No server here has regions; these are the answers of AWS.
    for (status, code) in [(400, "AuthorizationHeaderMalformed"), (301, "PermanentRedirect")] {
        let proxy = Proxy::before(server.port());
        proxy.inject("GET", "/", Fault::Answered(status, code));
        let error = write_to(&server.address_at(&proxy.endpoint(), BUCKET, "")).await.unwrap_err();
        assert_refused(&error, "in another region");
    }
    let proxy = Proxy::before(server.port());
    proxy.inject("GET", "/", Fault::Answered(403, "AccessDenied"));
    let error = write_to(&server.address_at(&proxy.endpoint(), BUCKET, "")).await.unwrap_err();
    assert_refused(&error, "does not permit this");
}

#[tokio::test]
async fn doctor_finds_nothing_wrong_with_good_servers() {
    for program in [Program::SeaweedFs, Program::Moto] {
        let Some(server) = server(program) else { return };
        let findings = open(server, &fresh("doctor")).examine().await;
        for finding in &findings {
            println!("{:?}: {}", finding.grade, finding.what);
        }
        assert!(findings.iter().all(|finding| finding.grade != Grade::Bad), "{findings:?}");
        assert!(findings.iter().any(|finding| finding.what.contains("conditions are honoured")));
        assert!(findings.iter().any(|finding| finding.what.contains("dollars a month")));
    }
}

#[tokio::test]
async fn doctor_says_what_is_wrong() {
    let Some(server) = server(Program::SeaweedFs) else { return };
    let findings = open_at(&server.address("no-such-bucket", ""), "x").examine().await;
    assert!(findings.iter().any(|finding| finding.grade == Grade::Bad), "{findings:?}");
}
