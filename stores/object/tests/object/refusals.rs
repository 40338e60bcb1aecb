//! Buckets that must not be used or cannot be, and what is said about them.

use std::time::Duration;

use futures::StreamExt;
use leasehold_servers::{Program, S3_KEY, S3_SECRET, S3Server};
use leasehold_store::{Grade, Key, Lane, Store, StoreError, StoreErrorKind, StoreExt, Swap, WatchEvent};

use crate::careless::{Careless, Flaw};
use crate::common::{BUCKET, fresh, open_at, server};
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

#[tokio::test]
async fn every_way_not_to_keep_ones_word_is_found_out() {
    for (flaw, words) in [
        (Flaw::None, None),
        (Flaw::IgnoresIfNoneMatch, Some("writers win")),
        (Flaw::IgnoresIfMatch, Some("writers win")),
        (Flaw::ListsNothing, Some("does not list")),
        (Flaw::ClockIsOff, Some("the clock of this machine")),
    ] {
        let server = Careless::start(flaw);
        match (write_to(&server.address()).await, words) {
            (Ok(()), None) => {}
            (Err(error), Some(words)) => assert_refused(&error, words),
            (outcome, _) => panic!("{flaw:?}: {outcome:?}"),
        }
    }
}

/// Servers on plain files compare and write in two steps, and nothing but speed keeps racers apart.
#[tokio::test]
async fn a_server_that_looks_and_then_writes_is_found_out() {
    let server = Careless::start(Flaw::LooksThenWrites);
    let tries: usize = std::env::var("LEASEHOLD_PROBES").map_or(10, |tries| tries.parse().unwrap());
    let mut refused = 0;
    for _ in 0..tries {
        match write_to(&server.address()).await {
            Ok(()) => {}
            Err(error) => {
                assert!(error.message.contains("must not be used"), "{error}");
                refused += 1;
            }
        }
    }
    println!("{refused} of {tries} checks refused it");
    assert!(refused * 2 > tries, "{refused} of {tries} checks refused it");
}

/// A server that is wrong once in a while would pass one of the next checks.
#[tokio::test]
async fn a_bucket_that_was_found_to_be_bad_stays_refused() {
    let server = Careless::start(Flaw::IgnoresIfMatch);
    let address = server.address();
    let open = |namespace: &str| open_at(&address, namespace);
    let before = open("before");
    before.list().await.unwrap();
    let mut watch = before.watch().await.unwrap().unwrap();
    let swap = Swap { key: Key::Meta, expect: None, value: Some(b"{}"[..].into()) };
    let first = before.swap(Lane::Work, std::slice::from_ref(&swap)).await.unwrap_err();
    assert_refused(&first, "must not be used");
    server.mend();
    let requests = before.requests();
    for bucket in [before.clone(), open("after")] {
        let registry = bucket.registry().unwrap();
        let key = [Key::Meta];
        assert_eq!(bucket.swap(Lane::Renewal, std::slice::from_ref(&swap)).await.unwrap_err(), first);
        assert_eq!(bucket.read(&key).await.unwrap_err(), first);
        assert_eq!(bucket.list().await.unwrap_err(), first);
        assert_eq!(bucket.watch().await.err(), Some(first.clone()));
        assert_eq!(bucket.vet().await.unwrap_err(), first);
        assert_eq!(registry.grant(Duration::from_secs(5)).await.unwrap_err(), first);
        assert_eq!(registry.keys().await.unwrap_err(), first);
    }
    match watch.next().await {
        Some(WatchEvent::Interrupted(why)) => assert!(why.contains("must not be used"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(before.requests(), requests, "nobody is asked");
    // `doctor` checks again; that a check passes does not prove that the bucket is good.
    let findings = open("doctor").examine().await;
    assert!(findings.iter().any(|finding| finding.what.contains("must not be used")), "{findings:?}");
    assert_eq!(before.list().await.unwrap_err(), first);
}

#[tokio::test]
async fn what_a_doctor_found_is_remembered() {
    let server = Careless::start(Flaw::IgnoresIfMatch);
    let bucket = open_at(&server.address(), "doctor");
    bucket.examine().await;
    server.mend();
    assert_refused(&bucket.list().await.unwrap_err(), "must not be used");
}

/// Each try to register a key is shorter than a check on a slow server.
#[tokio::test]
async fn a_check_goes_on_though_nobody_waits_for_its_end() {
    let server = Careless::start(Flaw::None);
    let bucket = open_at(&server.address(), "impatient");
    let impatient = || tokio::time::timeout(Duration::from_millis(50), bucket.vet());
    assert!(impatient().await.is_err(), "a check takes longer");
    // The listing is the last thing that it asks for.
    let listed = async || {
        while bucket.requests().lists == 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    tokio::time::timeout(Duration::from_secs(30), listed()).await.expect("it goes on by itself");
    let requests = bucket.requests();
    impatient().await.expect("it was over").unwrap();
    assert_eq!(bucket.requests(), requests);
}

#[tokio::test]
async fn checks_that_are_made_at_once_seldom_meet() {
    let server = Careless::start(Flaw::None);
    let address = server.address();
    let buckets: Vec<_> = (0..8).map(|_| open_at(&address, "many")).collect();
    for outcome in futures::future::join_all(buckets.iter().map(|bucket| bucket.vet())).await {
        outcome.unwrap();
    }
    let folder = |object: String| {
        object.split_once("leasehold-probe/")?.1.split_once('/').map(|(set, _)| set.to_owned())
    };
    let folders: std::collections::BTreeSet<String> =
        server.objects().into_iter().filter_map(folder).collect();
    assert!(folders.len() > 1, "all raced for the same objects");
    assert!(folders.iter().all(|set| set.parse::<u32>().is_ok_and(|set| set < 32)), "{folders:?}");
}

#[tokio::test]
async fn wrong_credentials_a_missing_bucket_and_a_wrong_region_are_told_apart() {
    let Some(server) = server(Program::SeaweedFs) else { return };
    let wrong_secret = server.address(BUCKET, "").replace("never", "wrong");
    assert_refused(&write_to(&wrong_secret).await.unwrap_err(), "rejected the credentials");
    let wrong_key = server.address(BUCKET, "").replace(S3_KEY, "AKIASOMEBODYELSE");
    assert_refused(&write_to(&wrong_key).await.unwrap_err(), "rejected the credentials");
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
    assert_refused(&error, "denied access");
}

#[tokio::test]
async fn doctor_finds_nothing_wrong_with_good_servers() {
    for program in [Program::SeaweedFs, Program::Moto] {
        let Some(server) = server(program) else { return };
        // With as much time for a request as people have by default: racing writers take SeaweedFS a second each.
        let findings = open_at(&server.address(BUCKET, ""), &fresh("doctor")).examine().await;
        for finding in &findings {
            println!("{:?}: {}", finding.grade, finding.what);
        }
        assert!(findings.iter().all(|finding| finding.grade != Grade::Bad), "{findings:?}");
        assert!(findings.iter().any(|finding| finding.what.contains("conditional writes work")));
        assert!(findings.iter().any(|finding| finding.what.contains("dollars a month")));
    }
}

#[tokio::test]
async fn doctor_says_what_is_wrong() {
    let Some(server) = server(Program::SeaweedFs) else { return };
    let findings = open_at(&server.address("no-such-bucket", ""), "x").examine().await;
    assert!(findings.iter().any(|finding| finding.grade == Grade::Bad), "{findings:?}");
}

/// A server that does not answer has not been found to be unsafe.
#[tokio::test]
async fn doctor_tells_what_it_could_not_find_out_from_what_is_wrong() {
    let Some(server) = server(Program::SeaweedFs) else { return };
    let proxy = Proxy::before(server.port());
    proxy.inject("GET", "leasehold-probe/", Fault::Answered(500, "InternalError"));
    let findings = open_at(&server.address_at(&proxy.endpoint(), BUCKET, ""), "x").examine().await;
    let bad: Vec<_> = findings.iter().filter(|finding| finding.grade == Grade::Bad).collect();
    assert!(bad.len() == 1 && bad[0].what.contains("is unknown"), "{findings:?}");
    assert!(!bad[0].advice.contains("another bucket"), "{findings:?}");
}
