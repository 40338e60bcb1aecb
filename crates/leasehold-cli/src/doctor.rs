//! `leasehold doctor`: checks this machine, the store and the settings.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{self, Clock};
use leasehold_cli_common::failure::{Code, Failure};
use leasehold_cli_common::sanitize::sanitize;
use leasehold_cli_common::settings::{Problem, Settings, redacted, span};
use leasehold_cli_common::stores::{self, Missing};
use leasehold_core::GroupName;
use leasehold_core::config::Config;
use leasehold_core::observer::Observer;
use leasehold_core::store::{Facts, Key, Lane, Listing, StoreError, StoreErrorKind, Swap, Swapped, Version};
use leasehold_store::{Finding, Grade, Store, StoreExt, Throwaway};
use serde_json::json;

use crate::args::Output;
use crate::reply::Reply;

/// How often each thing is timed.
const ROUNDS: usize = 9;

/// For a store that cannot be looked at any further.
const LOOK_AGAIN: &str = "the other checks of the store were skipped; fix this and run doctor again";

/// What was found.
#[derive(Debug, Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn good(&mut self, what: impl AsRef<str>) {
        self.0.push(Finding::good(what.as_ref()));
    }

    fn doubtful(&mut self, what: impl AsRef<str>, advice: &str) {
        self.0.push(Finding::doubtful(what.as_ref(), advice));
    }

    fn bad(&mut self, what: impl AsRef<str>, advice: &str) {
        self.0.push(Finding::bad(what.as_ref(), advice));
    }

    /// One line each, and one for what to do.
    fn reply(&self) -> Reply {
        let (mut text, mut json) = (String::new(), Vec::new());
        for Finding { grade, what, advice, .. } in &self.0 {
            let (word, name) = match grade {
                Grade::Good => ("ok  ", "ok"),
                Grade::Doubtful => ("warn", "warn"),
                Grade::Bad => ("FAIL", "fail"),
            };
            let _ = writeln!(text, "{word}  {}", sanitize(what));
            if *grade != Grade::Good {
                let _ = writeln!(text, "        {}", sanitize(advice));
            }
            let advice = (*grade != Grade::Good).then_some(advice);
            json.push(json!({ "grade": name, "what": what, "advice": advice }));
        }
        Reply::new(text, json.into())
    }

    fn mistaken(&mut self, problems: Vec<Problem>) {
        for problem in problems {
            self.bad(format!("{}: {}", problem.place, problem.what), &problem.advice);
        }
    }
}

/// Checks everything and prints what was found.
pub(crate) async fn doctor(settings: &Settings, output: Output) -> Result<(), Failure> {
    let mut findings = Findings::default();
    check_machine(&mut findings).await;
    let wrong = stores::problems(settings);
    if wrong.is_empty() {
        match Patient::admit(settings, &mut findings) {
            Ok(patient) => {
                let config = check_settings(settings, &patient.store.facts(), &mut findings);
                check_store(&patient, config.as_ref(), &mut findings).await;
            }
            Err(failure) => {
                let why = failure.message.replace("\n  ", "; ");
                findings.bad(format!("cannot open the store: {why}"), LOOK_AGAIN);
            }
        }
    } else {
        findings.mistaken(wrong);
    }
    findings.reply().print(output);
    match findings.0.iter().filter(|finding| finding.grade == Grade::Bad).count() {
        0 => Ok(()),
        1 => Err(Failure::new(Code::Unhealthy, "1 check failed")),
        wrong => Err(Failure::new(Code::Unhealthy, format!("{wrong} checks failed"))),
    }
}

/// The store that is looked at. A file that is not there yet is not made: another one is tried in its place, and
/// removed again.
struct Patient {
    store: Arc<dyn Store>,
    url: String,
    namespace: String,
    stand_in: Option<tempfile::TempDir>,
}

impl Patient {
    fn admit(settings: &Settings, findings: &mut Findings) -> Result<Self, Failure> {
        let given = stores::address(settings)?;
        let (url, stand_in) = match given.strip_prefix("local:").map(Path::new) {
            Some(path) if !path.exists() => {
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                let stand_in = tempfile::Builder::new()
                    .prefix(".leasehold-doctor-")
                    .tempdir_in(folder.unwrap_or(Path::new(".")))
                    .map_err(|error| {
                        Failure::new(Code::Failed, format!("its directory is not writable: {error}"))
                    })?;
                findings.good(format!(
                    "{} does not exist yet; the first node creates it. Testing a temporary file in the same directory",
                    path.display()
                ));
                (format!("local:{}", stand_in.path().join("try.db").display()), Some(stand_in))
            }
            _ => (given.to_owned(), None),
        };
        let namespace = settings.namespace().to_owned();
        let store = stores::open_address(&url, &namespace, Missing::Create)?;
        Ok(Patient { store, url, namespace, stand_in })
    }

    /// A separate namespace, so that the test disturbs no node.
    fn scratch(&self) -> Result<(Throwaway, Arc<dyn Store>), Failure> {
        let throwaway = Throwaway::new("doctor")?;
        let store = match self.store.aside(&throwaway)? {
            Some(store) => store,
            None => stores::open_address(&self.url, throwaway.name(), Missing::Create)?,
        };
        Ok((throwaway, store))
    }
}

async fn check_machine(findings: &mut Findings) {
    let (boot, unix) = (clock::now(), clock::unix_ms());
    tokio::time::sleep(Duration::from_millis(300)).await;
    let (boot, unix) = (clock::now().since(boot).as_millis() as i64, clock::unix_ms() as i64 - unix as i64);
    if (290..2000).contains(&boot) && (boot - unix).abs() <= 10 {
        findings.good("boot clock and wall clock agree");
    } else {
        findings.doubtful(
            format!(
                "during a sleep of 300 ms the boot clock advanced {boot} ms and the wall clock {unix} ms"
            ),
            "ownership depends on the boot clock; find out what steps or slows the clocks of this machine",
        );
    }
    if std::fs::read_to_string(format!("/proc/{}/stat", std::process::id())).is_ok() {
        findings.good("/proc is readable: `run` can find every process that a child starts");
    } else {
        findings.bad("/proc is not readable", "mount it: `run` needs it to kill all processes of a child");
    }
}

fn check_settings(settings: &Settings, facts: &Facts, findings: &mut Findings) -> Option<Config> {
    match settings.node_config(facts) {
        Ok(config) => {
            findings.good(format!("the time settings are safe with a ttl of {}", span::show(config.ttl)));
            Some(config)
        }
        Err(problems) => {
            findings.mistaken(problems.0);
            None
        }
    }
}

/// What the store itself finds.
async fn examine(store: &dyn Store, findings: &mut Findings) {
    for finding in store.examine().await {
        match finding.grade {
            Grade::Good => findings.good(finding.what),
            Grade::Doubtful => findings.doubtful(finding.what, &finding.advice),
            Grade::Bad => findings.bad(finding.what, &finding.advice),
        }
    }
}

async fn check_store(patient: &Patient, config: Option<&Config>, findings: &mut Findings) {
    let Patient { store, namespace, .. } = patient;
    let mut reads = Vec::new();
    for _ in 0..ROUNDS {
        match timed(store.read(&[Key::Meta])).await {
            Ok(took) => reads.push(took),
            Err(error) => {
                let what = format!("cannot read from the store {}: {error}", redacted(&patient.url));
                findings.bad(what, LOOK_AGAIN);
                // One that cannot be reached says nothing else; one that refuses may say why.
                if !matches!(error.kind, StoreErrorKind::Unreachable | StoreErrorKind::TimedOut) {
                    examine(&**store, findings).await;
                }
                return;
            }
        }
    }
    if patient.stand_in.is_none() {
        findings.good(format!("opened the store {}", redacted(&patient.url)));
    }
    let began_at = clock::now();
    match store.list().await {
        Ok(listing) => {
            let took = millis(clock::now().since(began_at));
            findings.good(format!("listed the namespace {namespace} in {took}"));
            check_records(&listing, findings);
        }
        Err(error) => findings.bad(
            format!("a listing failed: {error}"),
            "fix this and run doctor again: nodes cannot work without listings",
        ),
    }
    examine(&**store, findings).await;
    match patient.scratch() {
        Ok((throwaway, scratch)) => {
            match check_swaps(&*scratch).await {
                Ok(writes) => {
                    findings.good("conditional writes work: a stale write and a second create were refused");
                    judge_latency(&reads, &writes, config, findings);
                }
                Err((what, advice)) => findings.bad(what, advice),
            }
            // What the local store keeps of a namespace is nothing but its records.
            if scratch.facts().kind != "local"
                && let Err(error) = scratch.discard(&throwaway).await
            {
                findings.doubtful(
                    format!("test records remain in the namespace {throwaway}: {error}"),
                    "they do no harm; you can delete them by hand",
                );
            }
        }
        Err(failure) => {
            findings.bad(format!("cannot open a namespace for test writes: {}", failure.message), MUST_WRITE)
        }
    }
}

/// Whether every record can be read.
fn check_records(listing: &Listing, findings: &mut Findings) {
    let mut observer = Observer::new(None);
    let now = Clock::boot().read();
    observer.listed(now, listing);
    for problem in observer.replan().view(now).problems {
        if problem.kind == leasehold::view::ProblemKind::CorruptRecord {
            findings.bad(format!("damaged record {}", problem.subject), &problem.message);
        }
    }
}

/// What is wrong with conditional writes, and what to do.
type Wrong = (String, &'static str);

/// For a store that takes what it must refuse.
const UNSAFE: &str = "do not use this store: two nodes could hold a shard at the same time";

/// For a store that takes nothing now.
const MUST_WRITE: &str = "fix this and run doctor again: nodes cannot work without writes";

async fn check_swaps(store: &dyn Store) -> Result<Vec<Duration>, Wrong> {
    let key = Key::Group(GroupName::new("doctor").expect("a plain word is a name"));
    let swap = |expect: Option<Version>, value: Option<&str>| Swap {
        key: key.clone(),
        expect,
        value: value.map(|value| value.as_bytes().into()),
    };
    let mut writes = Vec::new();
    let first = applied(store, swap(None, Some("{\"n\":0}")), &mut writes).await?;
    refused(store, swap(None, Some("{\"n\":1}")), "the store accepted a second create of a record").await?;
    let mut version = first.clone();
    for n in 2..ROUNDS {
        let text = format!("{{\"n\":{n}}}");
        version = applied(store, swap(Some(version), Some(&text)), &mut writes).await?;
    }
    refused(store, swap(Some(first), Some("{}")), "the store accepted a write over a stale version").await?;
    if store.facts().removes {
        applied(store, swap(Some(version), None), &mut Vec::new()).await?;
    }
    Ok(writes)
}

async fn applied(store: &dyn Store, swap: Swap, took: &mut Vec<Duration>) -> Result<Version, Wrong> {
    let began_at = clock::now();
    let reply = store
        .swap(Lane::Work, &[swap])
        .await
        .map_err(|error| (format!("a write failed: {error}"), MUST_WRITE))?;
    took.push(clock::now().since(began_at));
    match reply.outcomes.into_iter().next() {
        Some(Swapped::Applied(version)) => Ok(version),
        other => Err((format!("the store refused a valid write: {other:?}"), UNSAFE)),
    }
}

async fn refused(store: &dyn Store, swap: Swap, what: &str) -> Result<(), Wrong> {
    let reply = store
        .swap(Lane::Work, &[swap])
        .await
        .map_err(|error| (format!("a write failed: {error}"), MUST_WRITE))?;
    match reply.outcomes.first() {
        Some(Swapped::Lost(_)) => Ok(()),
        _ => Err((what.to_owned(), UNSAFE)),
    }
}

fn judge_latency(reads: &[Duration], writes: &[Duration], config: Option<&Config>, findings: &mut Findings) {
    let (read, write) = (median(reads), median(writes));
    let slowest = writes.iter().max().copied().unwrap_or_default();
    let what =
        format!("a read takes {}, a write {} (slowest {})", millis(read), millis(write), millis(slowest));
    match config {
        Some(config) if slowest > config.try_timeout => findings.bad(
            format!("{what}; the limit per call is {}", span::show(config.try_timeout)),
            "raise ttl so that calls can succeed within the limit",
        ),
        Some(config) if slowest > config.try_timeout / 4 => findings.doubtful(
            format!("{what}; the limit per call is {}", span::show(config.try_timeout)),
            "raise ttl: slightly more load would make renewals fail",
        ),
        _ => findings.good(what),
    }
}

async fn timed<T>(call: impl Future<Output = Result<T, StoreError>>) -> Result<Duration, StoreError> {
    let clock = Clock::boot();
    let began_at = clock.now();
    call.await?;
    Ok(clock.now().since(began_at))
}

fn median(spans: &[Duration]) -> Duration {
    let mut spans = spans.to_vec();
    spans.sort();
    spans.get(spans.len() / 2).copied().unwrap_or_default()
}

fn millis(span: Duration) -> String {
    format!("{:.1} ms", span.as_secs_f64() * 1000.0)
}
