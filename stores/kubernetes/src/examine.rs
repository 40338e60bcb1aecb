//! Looks for the usual mistakes, for `leasehold doctor`.

use std::time::Duration;

use http::Request;
use leasehold_store::{Facts, Finding, Key};
use serde::Deserialize;

use crate::clock;
use crate::kubernetes::Inner;
use crate::link::Link;
use crate::trouble::{Asked, Trouble};
use crate::wire::GROUP;

/// All that the store does with Leases, as RBAC knows it.
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
    let mut findings = vec![version(&inner.work).await];
    findings.extend(permissions(&inner.work).await);
    findings.push(latency(inner, facts).await);
    findings.push(fairness(&inner.work).await);
    findings.push(cost(inner, facts).await);
    findings
}

async fn version(link: &Link) -> Finding {
    match get::<ServerVersion>(link, "/version").await {
        Ok(version) => Finding::good(format!("the API server answers: Kubernetes {}", version.git_version)),
        Err(trouble) => Finding::bad(
            trouble.tell(&Asked::of_leases("get", "")).to_string(),
            "the API server must be reachable, with credentials that it knows",
        ),
    }
}

async fn permissions(link: &Link) -> Vec<Finding> {
    let Ok(namespace) = link.namespace().await else { return Vec::new() };
    let mut findings = Vec::new();
    let mut allowed = Vec::new();
    for verb in VERBS {
        let rule = format!("verb `{verb}`, resource `leases` of `{GROUP}`, namespace `{namespace}`");
        match review(link, &namespace, verb).await {
            Ok(status) if status.allowed => allowed.push(verb),
            Ok(status) => findings.push(Finding::bad(
                format!("RBAC does not allow this: {rule} {}", status.reason).trim_end().to_owned(),
                "add it to the Role and bind that to this user: deploy/base/rbac.yaml has all that is needed",
            )),
            Err(trouble) => findings.push(Finding::doubtful(
                format!(
                    "it cannot be found out whether RBAC allows {rule}: {}",
                    trouble.tell(&Asked::of_leases("create", &namespace)).message
                ),
                "allow `create` of `selfsubjectaccessreviews`, which every user has by default",
            )),
        }
    }
    if allowed.len() == VERBS.len() {
        let verbs = allowed.join(", ");
        findings.push(Finding::good(format!("RBAC allows {verbs} of Leases in the namespace {namespace}")));
    }
    findings
}

async fn review(link: &Link, namespace: &str, verb: &str) -> Result<ReviewStatus, Trouble> {
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

/// The slowest of a few reads against the time that one try of a renewal has.
async fn latency(inner: &Inner, facts: &Facts) -> Finding {
    let mut slowest = Duration::ZERO;
    for _ in 0..READS {
        let began_at = clock::now();
        if let Err(error) = inner.leases.get(&inner.work, &Key::Meta).await {
            return Finding::bad(format!("a Lease cannot be read: {error}"), "the store must answer reads");
        }
        slowest = slowest.max(clock::now().since(began_at));
    }
    let try_for = facts.ttl_default / 10;
    let what = format!(
        "the slowest of {READS} reads took {:.1} ms; a try of a renewal has {} ms at the default ttl",
        slowest.as_secs_f64() * 1000.0,
        try_for.as_millis()
    );
    match slowest * 4 > try_for {
        true => {
            Finding::doubtful(what, "raise ttl, or find out what keeps the API server or the network busy")
        }
        false => Finding::good(what),
    }
}

async fn fairness(link: &Link) -> Finding {
    match get::<ApiGroup>(link, "/apis/flowcontrol.apiserver.k8s.io").await {
        Ok(_) => Finding::good(
            "the API server has priority and fairness: on a busy server a FlowSchema of their own keeps renewals from \
             waiting behind others (docs/kubernetes.md)",
        ),
        Err(trouble) if trouble.code() == Some(404) => Finding::doubtful(
            "the API server has no priority and fairness: clients that flood it delay renewals",
            "watch for 429 answers; a longer ttl survives longer floods",
        ),
        Err(_) => {
            Finding::good("whether the API server has priority and fairness cannot be seen by this user")
        }
    }
}

/// What one node costs at rest: a renewal every fifth of the ttl, and one listing in a ttl.
async fn cost(inner: &Inner, facts: &Facts) -> Finding {
    let Ok(page) = inner.leases.list(&inner.work).await else {
        return Finding::bad("the Leases cannot be listed", "the store must answer listings");
    };
    let ttl = facts.ttl_default.as_secs_f64();
    let entries = &page.listing.entries;
    let bytes: usize = entries.iter().map(|(_, stored)| stored.value.len()).sum();
    let foreign = page.listing.foreign.len();
    let what = format!(
        "at rest and the default ttl a node sends {:.2} writes and {:.2} listings a second, however many shards it \
         holds; there are {} Leases with {} KiB of records, and {foreign} that are not Leasehold's",
        5.0 / ttl,
        1.0 / ttl,
        entries.len(),
        bytes.div_ceil(1024),
    );
    match foreign {
        0 => Finding::good(what),
        _ => Finding::doubtful(
            what,
            "look at them with kubectl get leases -l leasehold.dev/namespace=…, and remove them",
        ),
    }
}

async fn get<T: serde::de::DeserializeOwned>(link: &Link, path: &str) -> Result<T, Trouble> {
    let request = Request::get(path).body(Vec::new()).expect("a request of constant parts");
    link.ask(ANSWER_WITHIN, request).await
}
