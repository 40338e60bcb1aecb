//! Checks the configuration for common mistakes, for `leasehold doctor`.

use std::time::Duration;

use http::Request;
use leasehold_store::{Facts, Finding, Key, StoreError, StoreErrorKind};
use serde::Deserialize;

use crate::api_types::{GROUP, Lease, TimedLease};
use crate::client::ApiClient;
use crate::clock;
use crate::error::{ApiCall, ApiError};
use crate::kubernetes::Inner;

/// All verbs that the store uses on Leases, in the terms of RBAC.
pub(crate) const VERBS: [&str; 6] = ["get", "list", "watch", "create", "update", "delete"];

const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// How many reads the latency is taken from.
const READS: usize = 5;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServerVersion {
    git_version: String,
}

#[derive(Deserialize)]
struct Review {
    status: ReviewStatus,
}

#[derive(Deserialize)]
struct ReviewStatus {
    allowed: bool,
    #[serde(default)]
    reason: String,
}

#[derive(Deserialize)]
struct ApiGroup {}

pub(crate) async fn examine(inner: &Inner, facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Err(end) = look(inner, facts, &mut findings).await {
        findings.push(end);
    }
    findings
}

/// All checks, or the finding that makes the rest pointless: a server that does not answer would time out in each of them,
/// and RBAC would get the blame.
async fn look(inner: &Inner, facts: &Facts, findings: &mut Vec<Finding>) -> Result<(), Finding> {
    findings.push(version(&inner.work).await?);
    findings.extend(permissions(&inner.work).await?);
    findings.push(latency(inner, facts).await?);
    findings.push(fairness(&inner.work).await?);
    findings.push(cost(inner, facts).await?);
    findings.extend(misleading(inner).await);
    Ok(())
}

/// The finding after which nothing else is checked.
fn no_use(error: &StoreError) -> Finding {
    Finding::bad(
        error.to_string(),
        "the API server must be reachable and accept the credentials; nothing else was checked",
    )
}

async fn version(link: &ApiClient) -> Result<Finding, Finding> {
    match get::<ServerVersion>(link, "/version").await {
        Ok(version) => {
            Ok(Finding::good(format!("the API server answers: Kubernetes {}", version.git_version)))
        }
        // It accepts our credentials, but RBAC or a proxy hides its version.
        Err(error) if matches!(error.code(), Some(403 | 404)) => Ok(Finding::doubtful(
            "the API server answers, but its version is unknown",
            "bind the ClusterRole system:public-info-viewer to this user, as Kubernetes does by default",
        )),
        Err(error) => Err(no_use(&error.into_store_error(&ApiCall {
            verb: "get",
            resource: "`/version`",
            namespace: "",
        }))),
    }
}

async fn permissions(link: &ApiClient) -> Result<Vec<Finding>, Finding> {
    let namespace = link.namespace().await.map_err(|error| no_use(&error))?;
    let call = ApiCall {
        verb: "create",
        resource: "`selfsubjectaccessreviews` of `authorization.k8s.io`",
        namespace: &namespace,
    };
    let mut findings = Vec::new();
    let mut allowed = Vec::new();
    for verb in VERBS {
        let rule = format!("verb `{verb}`, resource `leases` of `{GROUP}`, namespace `{namespace}`");
        match review(link, &namespace, verb).await {
            Ok(status) if status.allowed => allowed.push(verb),
            Ok(status) => findings.push(Finding::bad(
                format!("RBAC does not allow this: {rule} {}", status.reason).trim_end().to_owned(),
                "add it to the Role and bind that to this user: deploy/base/rbac.yaml has all the rules",
            )),
            // Then the other verbs cannot be checked either.
            Err(error) if error.code() == Some(403) => {
                let why = error.into_store_error(&call).message;
                return Ok(vec![Finding::doubtful(
                    format!("what RBAC allows in the namespace {namespace} is unknown: {why}"),
                    "allow `create` of `selfsubjectaccessreviews`, which every user has by default",
                )]);
            }
            Err(error) => return Err(no_use(&error.into_store_error(&call))),
        }
    }
    if allowed.len() == VERBS.len() {
        let verbs = allowed.join(", ");
        findings.push(Finding::good(format!("RBAC allows {verbs} of Leases in the namespace {namespace}")));
    }
    Ok(findings)
}

async fn review(link: &ApiClient, namespace: &str, verb: &str) -> Result<ReviewStatus, ApiError> {
    let wish = serde_json::json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"namespace": namespace, "verb": verb, "group": GROUP, "resource": "leases"}},
    });
    let request = Request::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
        .header("content-type", "application/json")
        .body(wish.to_string().into_bytes())
        .expect("a request of constant parts");
    Ok(link.ask::<Review>(ANSWER_WITHIN, request).await?.status)
}

/// Compares the slowest of a few reads with the time that one try of a renewal has.
async fn latency(inner: &Inner, facts: &Facts) -> Result<Finding, Finding> {
    let mut slowest = Duration::ZERO;
    for _ in 0..READS {
        let began_at = clock::now();
        if let Err(error) = inner.leases.get(&inner.work, &Key::Meta).await {
            let what = format!("a Lease cannot be read: {error}");
            return unanswered(&error, Finding::bad(what, "the store must answer reads"));
        }
        slowest = slowest.max(clock::now().since(began_at));
    }
    let try_for = facts.ttl_default / 10;
    let what = format!(
        "the slowest of {READS} reads took {:.1} ms; a try of a renewal has {} ms at the default ttl",
        slowest.as_secs_f64() * 1000.0,
        try_for.as_millis()
    );
    Ok(match slowest * 4 > try_for {
        true => Finding::doubtful(
            what,
            "raise the ttl, or find out what slows down the API server or the network",
        ),
        false => Finding::good(what),
    })
}

/// The finding for a failed call; an error, which ends the examination, if the server does not answer.
fn unanswered(error: &StoreError, finding: Finding) -> Result<Finding, Finding> {
    match error.kind {
        StoreErrorKind::TimedOut | StoreErrorKind::Unreachable => Err(no_use(error)),
        _ => Ok(finding),
    }
}

async fn fairness(link: &ApiClient) -> Result<Finding, Finding> {
    let found = match get::<ApiGroup>(link, "/apis/flowcontrol.apiserver.k8s.io").await {
        Ok(_) => Finding::good(
            "the API server has priority and fairness: on a busy server a FlowSchema for Leasehold keeps renewals from \
             waiting behind others (docs/kubernetes.md)",
        ),
        Err(error) if error.code() == Some(404) => Finding::doubtful(
            "the API server has no priority and fairness: clients that overload it delay renewals",
            "watch for 429 responses; a longer ttl tolerates longer overload",
        ),
        Err(error) if error.code() == Some(403) => Finding::good(
            "whether the API server has priority and fairness is unknown: this user may not read it",
        ),
        Err(error) => {
            let call = ApiCall { verb: "get", resource: "`flowcontrol.apiserver.k8s.io`", namespace: "" };
            return Err(no_use(&error.into_store_error(&call)));
        }
    };
    Ok(found)
}

/// What one node costs at rest: a renewal every fifth of the ttl, and a listing every four fifths of it.
async fn cost(inner: &Inner, facts: &Facts) -> Result<Finding, Finding> {
    let page = match inner.leases.list(&inner.work).await {
        Ok(page) => page,
        Err(error) => {
            let what = format!("the Leases cannot be listed: {error}");
            return unanswered(&error, Finding::bad(what, "the store must answer listings"));
        }
    };
    let ttl = facts.ttl_default.as_secs_f64();
    let entries = &page.listing.entries;
    let bytes: usize = entries.iter().map(|(_, stored)| stored.value.len()).sum();
    let foreign = page.listing.foreign.len();
    let what = format!(
        "at rest and the default ttl a node sends {:.2} writes and {:.2} listings a second, however many shards it \
         holds; there are {} Leases with {} KiB of records, and {foreign} that are not Leasehold's",
        5.0 / ttl,
        1.25 / ttl,
        entries.len(),
        bytes.div_ceil(1024),
    );
    Ok(match foreign {
        0 => Finding::good(what),
        _ => Finding::doubtful(
            what,
            "list them with kubectl get leases -l leasehold.dev/namespace=…, and remove them",
        ),
    })
}

/// Leases whose fields differ from their records because they were edited. Nothing else reports that, since no decision
/// depends on these fields.
async fn misleading(inner: &Inner) -> Option<Finding> {
    let layout = &inner.leases.layout;
    // A failed listing is already a finding.
    let (found, _) = inner.leases.list_dated(&inner.work, &layout.selector()).await.ok()?;
    let misleads = |lease: TimedLease| {
        let metadata = lease.metadata.plain;
        layout.misleads(&Lease { metadata, spec: lease.spec, ..Lease::default() })
    };
    let keys: Vec<Key> = found.into_iter().filter_map(misleads).collect();
    let first = keys.first()?;
    Some(Finding::doubtful(
        format!(
            "{} whose holder, duration or transitions differ from the record, for example that of {first} ({})",
            if keys.len() == 1 {
                "there is a Lease".to_owned()
            } else {
                format!("there are {} Leases", keys.len())
            },
            layout.name(first),
        ),
        "these fields were edited; Leasehold never reads them: trust `leasehold status`, and correct them with \
         kubectl, or wait for the record's next write",
    ))
}

async fn get<T: serde::de::DeserializeOwned + Send + 'static>(
    link: &ApiClient,
    path: &str,
) -> Result<T, ApiError> {
    let request = Request::get(path).body(Vec::new()).expect("a request of constant parts");
    link.ask(ANSWER_WITHIN, request).await
}
