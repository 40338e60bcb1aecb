//! Checks the configuration of a bucket, for `leasehold doctor`.

use std::time::Duration;

use leasehold_core::config::Config;
use leasehold_store::bill::{Bill, Prices};
use leasehold_store::{Finding, Store, StoreErrorKind};
use rustix::time::{ClockId, clock_gettime};

use crate::bucket::Bucket;
use crate::date;
use crate::target::Provider;

/// How far the server's clock may be off before it is a finding.
const CLOCK_OFF_S: i64 = 60;
/// The number of nodes and shards of the cost estimate.
const SAMPLE: (u64, u64) = (10, 10_000);

/// Checks a bucket. What cannot be found out is a finding as well.
pub(crate) async fn examine(bucket: &Bucket) -> Vec<Finding> {
    let mut findings = Vec::new();
    let target = bucket.target();
    let (reached, answer) = bucket.namespace().work.knock().await;
    if let Err(error) = reached {
        let advice =
            "the bucket must exist, and the credentials must permit reading, writing and listing its prefix";
        findings.push(Finding::bad(error.message, advice));
        return findings;
    }
    let region = answer.region.clone().or(target.region.clone()).unwrap_or_else(|| "not told".to_owned());
    findings.push(Finding::good(format!("the bucket {} answers (region: {region})", target.place())));
    findings.extend(clock(answer.date.as_deref()));
    match bucket.check_probe().await {
        Ok(()) => findings.push(Finding::good(
            "conditional writes work: a second creation and a stale write were refused, and one of several racing writers won",
        )),
        // The message says whether it is the bucket that cannot be used or the credentials that do not suffice.
        Err(error) if error.kind == StoreErrorKind::Refused => {
            findings.push(Finding::bad(error.message, "fix this, or use another bucket or server"));
        }
        Err(error) => findings.push(Finding::bad(
            format!("whether conditional writes work is unknown: {}", error.message),
            "no node writes before that is known; the check is repeated: find out why the server is busy",
        )),
    }
    findings.push(latency(bucket).await);
    if target.provider == Provider::S3 {
        findings.push(versioning(bucket).await);
        findings.push(lifecycle(bucket).await);
    }
    findings.push(cost(bucket));
    findings
}

/// The server's clock, which decides nothing but how old registered keys are.
fn clock(date: Option<&str>) -> Option<Finding> {
    let theirs = date::unix_s(date?)?;
    let ours = clock_gettime(ClockId::Realtime).tv_sec;
    let off = theirs - ours;
    Some(if off.abs() > CLOCK_OFF_S {
        Finding::doubtful(
            format!(
                "the server's clock is {} s {} ours",
                off.abs(),
                if off > 0 { "ahead of" } else { "behind" }
            ),
            "ownership does not depend on it, but the server refuses signed requests if it is off by 15 minutes",
        )
    } else {
        Finding::good("the server's clock agrees with ours (ownership does not depend on it)")
    })
}

async fn latency(bucket: &Bucket) -> Finding {
    let now = || {
        let time = clock_gettime(ClockId::Boottime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let mut slowest = Duration::ZERO;
    for _ in 0..5 {
        let began_at = now();
        if let Err(error) = bucket.namespace().work.list("nothing-is-here").await {
            return Finding::bad(
                format!("listing failed: {}", error.message),
                "grant s3:ListBucket on the prefix",
            );
        }
        slowest = slowest.max(now().saturating_sub(began_at));
    }
    let try_timeout = bucket.facts().ttl_default / 10;
    let what = format!("the slowest of 5 listings took {} ms", slowest.as_millis());
    match slowest * 4 > try_timeout {
        true => Finding::doubtful(
            format!("{what}; a request may take {} ms at the default ttl", try_timeout.as_millis()),
            "raise the ttl, or use a bucket that is closer",
        ),
        false => Finding::good(what),
    }
}

async fn versioning(bucket: &Bucket) -> Finding {
    match bucket.target().ask("versioning").await {
        Ok((200, body)) if body.contains("<Status>Enabled</Status>") => Finding::doubtful(
            "versioning is on: every renewal of every node leaves an old version of its object",
            "add a lifecycle rule that expires noncurrent versions of the prefix after a day, or use another bucket",
        ),
        Ok((200, _)) => Finding::good("versioning is off: renewals replace each other"),
        Ok((status, _)) => Finding::good(format!("whether versioning is on is unknown ({status})")),
        Err(error) => Finding::good(format!("whether versioning is on is unknown ({})", error.message)),
    }
}

async fn lifecycle(bucket: &Bucket) -> Finding {
    let (status, body) = match bucket.target().ask("lifecycle").await {
        Ok(answer) => answer,
        Err(error) => return Finding::good(format!("the lifecycle rules are unknown ({})", error.message)),
    };
    match status {
        200 => {
            let ours = format!("{}/", bucket.target().prefix);
            match deleting_rules(&body, &ours) {
                0 => Finding::good("no lifecycle rule deletes objects under the prefix"),
                rules => Finding::bad(
                    format!("{rules} lifecycle rules delete objects under {ours} by age"),
                    "exclude the prefix: objects of groups and shards can be old, and epochs would be lost with them",
                ),
            }
        }
        404 => Finding::good("there are no lifecycle rules"),
        status => Finding::good(format!("the lifecycle rules are unknown ({status})")),
    }
}

/// How many enabled rules delete current objects under a prefix.
fn deleting_rules(document: &str, prefix: &str) -> usize {
    let rules = document.split("<Rule>").skip(1).map(|rule| rule.split("</Rule>").next().unwrap_or_default());
    let deletes = |rule: &&str| {
        let of =
            |tag: &str| Some(rule.split_once(&format!("<{tag}>"))?.1.split_once(&format!("</{tag}>"))?.0);
        let applies = of("Prefix").unwrap_or_default();
        let enabled = of("Status") == Some("Enabled");
        let expires = of("Expiration").is_some_and(|what| what.contains("<Days>") || what.contains("<Date>"));
        enabled && expires && (prefix.starts_with(applies) || applies.starts_with(prefix))
    };
    rules.filter(deletes).count()
}

fn cost(bucket: &Bucket) -> Finding {
    let facts = bucket.facts();
    let node = leasehold_core::NodeName::new("sample").expect("a plain word is a name");
    let explained = Config::new(node, &facts).explain(&facts);
    let (nodes, shards) = SAMPLE;
    match Bill::of(&explained, nodes, shards, &Prices::default()) {
        Some(bill) => Finding::good(format!(
            "{nodes} nodes at the default ttl cost about {} dollars a month at rest, however many shards there are \
             ({shards} shards renewed one by one: {})",
            bill.month, bill.month_of_renewing_every_shard
        )),
        None => Finding::good("this store does not charge for requests"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_enabled_rules_that_reach_the_prefix_count() {
        let rule = |prefix: &str, status: &str, what: &str| {
            format!("<Rule><Filter><Prefix>{prefix}</Prefix></Filter><Status>{status}</Status>{what}</Rule>")
        };
        let days = "<Expiration><Days>1</Days></Expiration>";
        let document = [
            rule("", "Enabled", days),
            rule("lease", "Enabled", days),
            rule("other/", "Enabled", days),
            rule("", "Disabled", days),
            rule("", "Enabled", "<NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays></NoncurrentVersionExpiration>"),
        ]
        .concat();
        assert_eq!(deleting_rules(&document, "leasehold/"), 2);
    }
}
