//! Opens stores by URL.

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::Clock;
use leasehold_core::store::{Facts, Key, StoreError, StoreErrorKind};
use leasehold_local::{Create, Local, Options};
use leasehold_store::{MemoryServer, Store, StoreExt};

use crate::failure::{Code, Failure};
use crate::settings::{Problem, Problems, Settings, nearest, redacted};

/// How long the test of a store may take before it is reported.
const VETTED_UNSEEN: Duration = Duration::from_secs(1);

/// How long closing the local stores may take: the next process that opens the file cleans up what is left.
const CLOSED_WITHIN: Duration = Duration::from_millis(500);

/// What to do if the store does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Create it: for nodes.
    Create,
    /// Fail: for commands that inspect or change a cluster.
    Refuse,
}

/// The kinds of stores that this build can open.
pub fn schemes() -> impl Iterator<Item = &'static str> {
    leasehold::store::SCHEMES.iter().copied().chain(["memory"])
}

/// Opens the store of the settings, once.
pub fn open(settings: &Settings, missing: Missing) -> Result<Arc<dyn Store>, Failure> {
    open_address(understood(settings)?, settings.namespace(), missing)
}

/// Opens a namespace on the store at an address whose scheme is known.
pub fn open_address(url: &str, namespace: &str, missing: Missing) -> Result<Arc<dyn Store>, Failure> {
    let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
    match scheme {
        "memory" => Ok(Arc::new(MemoryServer::with_clock(leasehold::clock::now).open(namespace))),
        "local" => {
            if missing == Missing::Refuse && !Path::new(rest).exists() {
                let what = format!("no store found at {rest}; nothing was created");
                let advice =
                    "start a node on it first, or check the path: it is relative to the current directory";
                return Err(Failure::new(Code::Store, format!("{what}\n  {advice}")));
            }
            let create = match missing {
                Missing::Create => Create::IfMissing,
                Missing::Refuse => Create::Never,
            };
            let options = Options { create, ..Options::default() };
            Ok(Arc::new(Local::open_with(rest, namespace, options)?))
        }
        _ => Ok(leasehold::store::open(url, namespace)?),
    }
}

/// Opens the store, and waits until it answers. An error that only an operator can fix is returned before anything is
/// started.
pub async fn open_patiently(settings: &Settings) -> Result<Arc<dyn Store>, Failure> {
    let asked = async || {
        let store = try_open(settings)?;
        store.read(&[Key::Meta]).await?;
        vet(&*store, |what| tracing::info!("{what}")).await?;
        Ok(store)
    };
    patiently(settings, asked).await
}

/// Closes local stores in order, at the end of the program: the last one to close a file removes what SQLite keeps beside
/// it.
pub fn close() {
    let _ = leasehold_local::wait_until_closed(CLOSED_WITHIN);
}

/// Tests whether the store can be trusted with records. A bucket needs many test writes; `say` reports that if it takes long.
pub async fn vet(store: &dyn Store, say: impl FnOnce(&str)) -> Result<(), StoreError> {
    let (clock, mut vetting) = (Clock::boot(), pin!(store.vet()));
    tokio::select! {
        vetted = &mut vetting => return vetted,
        () = clock.sleep(VETTED_UNSEEN) => {}
    }
    say("testing whether the bucket honours conditional writes; this takes a few seconds");
    vetting.await
}

/// The zone of this node: the zone in the settings, or the zone of the machine that they name. Waits until the store
/// answers.
pub async fn zone(settings: &Settings) -> Result<Option<String>, Failure> {
    let Some(machine) = machine(settings) else { return Ok(settings.text("zone").map(str::to_owned)) };
    let url = address(settings)?;
    let zone =
        patiently(settings, async || leasehold::store::zone_of(url, machine).await.map_err(Opening::from));
    let zone = zone.await?;
    if zone.is_none() {
        tracing::warn!(machine, "the Kubernetes node has no zone label; this node has no zone");
    }
    Ok(zone)
}

/// The machine whose zone is this node's.
fn machine(settings: &Settings) -> Option<&str> {
    settings.text("zone")?.strip_prefix("node:")
}

/// Retries until the store answers.
async fn patiently<T>(
    settings: &Settings,
    attempt: impl AsyncFn() -> Result<T, Opening>,
) -> Result<T, Failure> {
    let url = redacted(address(settings)?);
    let clock = Clock::boot();
    let mut told = false;
    loop {
        let failure = match attempt().await {
            Ok(answer) => {
                if told {
                    tracing::info!(store = url, "the store is reachable");
                }
                return Ok(answer);
            }
            Err(Opening::Wrong(failure)) => return Err(failure),
            Err(Opening::Away(error)) => error,
        };
        if !std::mem::replace(&mut told, true) {
            tracing::warn!(store = url, error = %failure, "the store is not reachable; retrying until it is (this node owns nothing)");
        }
        clock.sleep(Duration::from_millis(500)).await;
    }
}

enum Opening {
    Wrong(Failure),
    Away(StoreError),
}

impl From<StoreError> for Opening {
    fn from(error: StoreError) -> Self {
        match error.kind {
            StoreErrorKind::Unreachable | StoreErrorKind::TimedOut | StoreErrorKind::Busy => {
                Opening::Away(error)
            }
            _ => Opening::Wrong(error.into()),
        }
    }
}

fn try_open(settings: &Settings) -> Result<Arc<dyn Store>, Opening> {
    let url = address(settings).map_err(Opening::Wrong)?;
    match url.split_once(':') {
        Some(("local", path)) => {
            let store = Local::open(path, settings.namespace())?;
            store.rehearse()?;
            Ok(Arc::new(store))
        }
        _ => open(settings, Missing::Create).map_err(Opening::Wrong),
    }
}

/// The URL, if it is one that this build can open.
pub fn address(settings: &Settings) -> Result<&str, Failure> {
    judge(settings).map_err(|problem| Problems(vec![problem]).into())
}

/// The URL, if its store understands it. No server is asked: an error of a server is not a mistake in the settings.
pub fn understood(settings: &Settings) -> Result<&str, Failure> {
    let url = address(settings)?;
    match misunderstood(settings, url) {
        None => Ok(url),
        Some(problem) => Err(Problems(vec![problem]).into()),
    }
}

/// What is wrong with the URL of the store, as far as can be seen without asking a server.
pub fn problems(settings: &Settings) -> Vec<Problem> {
    let url = match judge(settings) {
        Ok(url) => url,
        Err(problem) => return vec![problem],
    };
    let mut problems = Vec::new();
    if machine(settings).is_some() && !url.starts_with("k8s:") {
        let what = "only a Kubernetes store (k8s://…) can look up the zone of a machine";
        let advice = "set the zone itself, for example --zone eu-1";
        problems.push(Problem::new(settings.place_of("zone"), what, advice));
    }
    problems.extend(misunderstood(settings, url));
    problems
}

/// What the store of a URL finds wrong with it.
fn misunderstood(settings: &Settings, url: &str) -> Option<Problem> {
    // A file would be made by opening it.
    if url.starts_with("local:") || url.starts_with("memory:") {
        return None;
    }
    let opened = leasehold::store::open(url, settings.namespace());
    let error = opened.err().filter(|error| error.kind == StoreErrorKind::Refused)?;
    let scheme = url.split_once(':').map_or(url, |(scheme, _)| scheme);
    let page = match scheme {
        "s3" | "gs" | "az" => "object",
        "k8s" => "kubernetes",
        other => other.split_once('+').map_or(other, |(store, _)| store),
    };
    let advice = match page {
        "object" | "kubernetes" | "etcd" | "redis" => {
            format!("see docs/{page}.md for the URL format")
        }
        _ => "see docs/ for the URL format".to_owned(),
    };
    Some(Problem::new(settings.place_of("store"), error.message, advice))
}

/// The facts of the store in the settings; of a local one if none is given, or if it cannot be opened. Nothing is sent
/// to a store elsewhere, and no file is made.
pub fn facts(settings: &Settings) -> Facts {
    let elsewhere = judge(settings).ok().filter(|url| !url.starts_with("local:"));
    match elsewhere.and_then(|url| open_address(url, settings.namespace(), Missing::Refuse).ok()) {
        Some(store) => store.facts(),
        None => Local::FACTS,
    }
}

fn judge(settings: &Settings) -> Result<&str, Problem> {
    let wrong = |what: String, advice: String| Problem::new(settings.place_of("store"), what, advice);
    let Some(url) = settings.text("store") else {
        return Err(wrong(
            "no store is set".into(),
            "set --store or LEASEHOLD_STORE, for example --store local:./leasehold.db".into(),
        ));
    };
    let scheme = url.split_once(':').map(|(scheme, _)| scheme);
    match scheme {
        Some("local") if url == "local:" => Err(wrong(
            "the path after local: is missing".into(),
            "add a file name, for example local:./leasehold.db".into(),
        )),
        Some(scheme) if schemes().any(|known| known == scheme) => Ok(url),
        Some(scheme) => {
            let advice = match nearest(scheme, schemes()) {
                Some(known) => format!("did you mean {known}:…?"),
                None => format!("this build supports {}", schemes().collect::<Vec<_>>().join(", ")),
            };
            // What looks like no scheme may be a part of something secret.
            let plain = url[scheme.len()..].starts_with("://")
                && scheme.chars().all(|c| c.is_ascii_alphanumeric() || c == '+');
            let what =
                if plain { format!("unknown store type {scheme:?}") } else { "invalid store URL".into() };
            Err(wrong(what, advice))
        }
        None => Err(wrong(
            format!("invalid store URL {:?}", redacted(url)),
            format!("for a file on this machine use local:{}", redacted(url)),
        )),
    }
}

/// The failure for something that is not there.
pub fn not_found(what: impl Into<String>) -> Failure {
    Failure::new(Code::NotFound, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Addresses with a password where it belongs, where the host was forgotten, and where something else should be.
    fn slips(scheme: &str, password: &str) -> Vec<String> {
        vec![
            format!("{scheme}://user:{password}@host"),
            format!("{scheme}://:{password}@host:99999/x?y"),
            format!("{scheme}://user:{password}"),
            format!("{scheme}://user:{password}@"),
            format!("{scheme}://host?timeout={password}"),
            format!("{scheme}://host?password_file={password}"),
            format!("{scheme}://host?{password}=1&{password}=2"),
            format!("{scheme}://host?tls={password}&prefix={password}&wait={password}&poll={password}"),
            format!("{scheme}:user:{password}@host"),
            format!("user:{password}@host"),
            format!("{password}@host"),
        ]
    }

    #[test]
    fn no_address_of_any_store_gives_its_password_away() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _inside = runtime.enter();
        let secrets = ['@', '?', '/', '#', ':', '%'].map(|mark| format!("HUSH{mark}TAIL9"));
        let schemes: Vec<&str> = schemes().filter(|scheme| *scheme != "local").chain(["nosuch"]).collect();
        let mut refused = 0;
        // Without a host, what follows an `@` can only be taken for one.
        let clear = |url: &String| !url.ends_with("://user:HUSH@TAIL9");
        let all = schemes.iter().flat_map(|scheme| secrets.iter().flat_map(|secret| slips(scheme, secret)));
        for url in all.filter(clear) {
            let mut texts = vec![redacted(&url)];
            if let Err(error) = leasehold::store::open(&url, "default") {
                refused += 1;
                texts.push(error.to_string());
            }
            for text in texts {
                let shown = text.to_uppercase();
                assert!(!shown.contains("HUSH") && !shown.contains("TAIL9"), "{url}: {text}");
            }
        }
        assert!(refused > 300, "only {refused} addresses were refused");
    }
}
