//! `leasehold register`: keeps keys alive until a signal comes. The library keeps them, as it does for nodes: it writes
//! them again after an outage, and tells of all that happens to them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{self, Clock};
use leasehold::registry::{Registry, RegistryOptions};
use leasehold_cli_common::failure::{Code, Failure};
use leasehold_cli_common::plural::count;
use leasehold_cli_common::sanitize::sanitize;
use leasehold_cli_common::settings::span;
use leasehold_cli_common::signals::Signals;
use leasehold_core::Moment;
use leasehold_store::{Store, rng};

use super::keys::registry;

/// How often a file of keys is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What to do about a key that another process has registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Others {
    /// It is left alone.
    Respect,
    /// It is taken over.
    Overwrite,
}

/// What to register.
#[derive(Debug)]
pub(crate) struct Keys {
    /// From the command line.
    listed: BTreeMap<String, Entry>,
    /// Followed while the process lives.
    file: Option<PathBuf>,
    /// Keys with a ttl of their own share the rest of these options.
    options: RegistryOptions,
    others: Others,
}

/// What belongs to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    value: String,
    ttl: Duration,
}

impl Keys {
    /// Takes pairs of keys and values, and a file. All mistakes of the file are told at once.
    pub(crate) fn new(
        words: &[String],
        file: Option<PathBuf>,
        options: RegistryOptions,
        others: Others,
    ) -> Result<Self, Failure> {
        let usage = |what: String| Failure::new(Code::Usage, what);
        if words.len() % 2 == 1 {
            let last = words.last().map_or("", String::as_str);
            let what = format!("the key {last:?} has no value; nothing was registered");
            return Err(usage(format!("{what}\n  write KEY VALUE pairs")));
        }
        if words.is_empty() && file.is_none() {
            return Err(usage(
                "no keys; nothing was registered\n  write KEY VALUE pairs, or --file FILE".into(),
            ));
        }
        let mut listed = BTreeMap::new();
        for pair in words.chunks(2) {
            let [key, value] = pair else { continue };
            if key.is_empty() {
                return Err(usage("the key is empty; nothing was registered".to_owned()));
            }
            let entry = Entry { value: value.clone(), ttl: options.ttl };
            if listed.insert(key.clone(), entry).is_some() {
                return Err(usage(format!("the key {key:?} is given twice; nothing was registered")));
            }
        }
        options.check()?;
        let keys = Keys { listed, file, options, others };
        keys.wanted().map_err(|why| usage(format!("{why}\n  nothing was registered")))?;
        Ok(keys)
    }

    /// The keys of the command line and of the file as it is now.
    fn wanted(&self) -> Result<BTreeMap<String, Entry>, String> {
        let mut wanted = self.listed.clone();
        if let Some(file) = &self.file {
            for (key, entry) in read(file, &self.options)? {
                if wanted.insert(key.clone(), entry).is_some() {
                    return Err(format!("the key {key:?} is in {} and on the command line", file.display()));
                }
            }
        }
        Ok(wanted)
    }
}

/// Reads a file of keys: a line is `KEY=VALUE`, and `[ttl 60s]` is the ttl of all that follow it.
fn read(file: &Path, options: &RegistryOptions) -> Result<Vec<(String, Entry)>, String> {
    let text = std::fs::read_to_string(file);
    let text = text.map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    parse(&text, options).map_err(|wrong| {
        let told = wrong.iter().map(|(line, what)| format!("{}:{line}: {what}", file.display()));
        told.collect::<Vec<_>>().join("\n  ")
    })
}

/// What is wrong with a file, each with its line.
type Mistakes = Vec<(usize, String)>;

fn parse(text: &str, options: &RegistryOptions) -> Result<Vec<(String, Entry)>, Mistakes> {
    let (mut ttl, mut wrong) = (options.ttl, Vec::new());
    let mut found: Vec<(String, Entry)> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        let mut problem = |what: String| wrong.push((at + 1, what));
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(heading) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            match heading.trim().strip_prefix("ttl").map(|value| span::parse(value.trim())) {
                Some(Ok(value)) => {
                    ttl = value;
                    if let Err(error) = (RegistryOptions { ttl, ..options.clone() }).check() {
                        problem(error.to_string());
                    }
                }
                Some(Err(what)) => problem(what),
                None => problem(format!("unknown heading {line:?}; use [ttl 60s]")),
            }
            continue;
        }
        match line.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => {
                let (key, entry) = (key.trim().to_owned(), Entry { value: value.trim().to_owned(), ttl });
                match found.iter().any(|(known, _)| *known == key) {
                    true => problem(format!("the key {key:?} is given twice")),
                    false => found.push((key, entry)),
                }
            }
            _ => problem(format!("{line:?} is not KEY=VALUE")),
        }
    }
    if wrong.is_empty() { Ok(found) } else { Err(wrong) }
}

/// Reads the pauses between tries: `1s,2s,4s,8s`.
pub(crate) fn pauses(text: &str) -> Result<leasehold::Backoff, String> {
    let steps: Result<Vec<Duration>, String> = text.split(',').map(|step| span::parse(step.trim())).collect();
    Ok(leasehold::Backoff::Steps(steps?))
}

/// A key that is registered, or not yet.
struct Kept {
    entry: Entry,
    /// What this process registered under the key before, if the value has changed since.
    before: Option<String>,
    registered: bool,
    /// Tries that failed in a row.
    failures: u32,
    next_at: Moment,
    /// Why it is not registered.
    why: String,
}

/// Keeps the keys of one process.
struct Registrar<'a> {
    keys: &'a Keys,
    store: &'a Arc<dyn Store>,
    /// One for each ttl: the keys of each share a lease.
    classes: BTreeMap<Duration, Registry>,
    kept: BTreeMap<String, Kept>,
    complaint: Option<String>,
}

/// Keeps keys alive until a signal comes; then they are removed, and with the last of them their lease.
pub(crate) async fn register(store: &Arc<dyn Store>, keys: &Keys) -> Result<(), Failure> {
    let (classes, kept) = (BTreeMap::new(), BTreeMap::new());
    let mut registrar = Registrar { keys, store, classes, kept, complaint: None };
    registrar.follow(keys.wanted().map_err(|why| Failure::new(Code::Usage, why))?).await;
    let taken = registrar.taken().await?;
    if !taken.is_empty() {
        return Err(registrar.refusal(&taken));
    }
    let mut signals = Signals::listen()?;
    let ended = tokio::select! {
        failure = registrar.keep() => Err(failure),
        () = signals.next() => Ok(()),
    };
    let removed = registrar.close().await;
    ended?;
    match registrar.missing() {
        Some(why) => Err(Failure::new(Code::Store, why)),
        None => removed,
    }
}

impl Registrar<'_> {
    /// Registers what is missing and follows the file, until something forbids it.
    async fn keep(&mut self) -> Failure {
        let (clock, follows) = (Clock::boot(), self.keys.file.is_some());
        loop {
            let now = clock::now();
            let due = self.kept.iter().filter(|(_, kept)| !kept.registered && kept.next_at <= now);
            let due: Vec<String> = due.map(|(key, _)| key.clone()).collect();
            if !due.is_empty()
                && let Err(failure) = self.try_register(&due).await
            {
                return failure;
            }
            let missing = self.kept.values().filter(|kept| !kept.registered);
            let mut wake_at = missing.map(|kept| kept.next_at).min().unwrap_or(Moment::NEVER);
            if follows {
                wake_at = wake_at.min(clock::now() + LOOK_EVERY);
            }
            if wake_at == Moment::NEVER {
                return std::future::pending().await;
            }
            clock.sleep_until(wake_at).await;
            if follows {
                self.look_at_file().await;
            }
        }
    }

    async fn look_at_file(&mut self) {
        match self.keys.wanted() {
            Ok(wanted) => {
                self.complaint = None;
                self.follow(wanted).await;
            }
            Err(problem) if self.complaint.as_ref() != Some(&problem) => {
                tracing::warn!(problem, "cannot reload the keys; keeping the previous ones");
                self.complaint = Some(problem);
            }
            Err(_) => {}
        }
    }

    /// Takes in which keys are wanted: those that are no longer are removed.
    async fn follow(&mut self, wanted: BTreeMap<String, Entry>) {
        let gone = |key: &str, kept: &Kept| wanted.get(key).is_none_or(|entry| entry.ttl != kept.entry.ttl);
        let gone: Vec<String> =
            self.kept.iter().filter(|(key, kept)| gone(key, kept)).map(|(key, _)| key.clone()).collect();
        for key in gone {
            let Some(kept) = self.kept.remove(&key) else { continue };
            let Some(class) = self.classes.get(&kept.entry.ttl) else { continue };
            match class.unregister(&key).await {
                Ok(()) => tracing::info!(key, "unregistered"),
                Err(error) => {
                    tracing::warn!(key, %error, "not unregistered yet; it is tried until it is gone")
                }
            }
        }
        for (key, entry) in wanted {
            let former = self.kept.get(&key);
            if former.is_some_and(|kept| kept.entry == entry) {
                continue;
            }
            let before = former.filter(|kept| kept.registered).map(|kept| kept.entry.value.clone());
            let why = "the store has not answered yet".to_owned();
            let kept = Kept { entry, before, registered: false, failures: 0, next_at: Moment::ZERO, why };
            self.kept.insert(key, kept);
        }
    }

    async fn try_register(&mut self, due: &[String]) -> Result<(), Failure> {
        let taken = match self.taken().await {
            Ok(taken) => taken,
            Err(failure) => {
                due.iter().for_each(|key| self.failed(key, failure.message.clone()));
                return Ok(());
            }
        };
        for key in due {
            let Some(kept) = self.kept.get(key) else { continue };
            let (entry, failures) = (kept.entry.clone(), kept.failures);
            // Of our own tries that failed one may have landed after all.
            if let Some(theirs) = taken.get(key).filter(|theirs| failures == 0 || **theirs != entry.value) {
                if self.keys.listed.contains_key(key) {
                    return Err(self.refusal(&BTreeMap::from([(key.clone(), theirs.clone())])));
                }
                self.failed(key, "another process has registered it".to_owned());
                continue;
            }
            match self.class(entry.ttl)?.register(key, entry.value).await {
                Ok(lease) => {
                    tracing::info!(key, lease = lease.0, "registered; Ctrl-C removes it");
                    if let Some(kept) = self.kept.get_mut(key) {
                        (kept.registered, kept.before) = (true, None);
                    }
                }
                Err(error) => self.failed(key, error.to_string()),
            }
        }
        Ok(())
    }

    fn failed(&mut self, key: &str, error: String) {
        let Some(kept) = self.kept.get_mut(key) else { return };
        if kept.failures == 0 || kept.why != error {
            tracing::warn!(key, error, "not registered; retrying");
        }
        let pause = self.keys.options.retry.pause(kept.failures);
        kept.failures += 1;
        kept.next_at = clock::now() + pause + rng::up_to(pause / 10);
        kept.why = error;
    }

    /// The registry of a ttl.
    fn class(&mut self, ttl: Duration) -> Result<Registry, Failure> {
        if let Some(class) = self.classes.get(&ttl) {
            return Ok(class.clone());
        }
        let options = RegistryOptions { ttl, ..self.keys.options.clone() };
        let class = Registry::with_options(self.store.clone(), options)?;
        self.classes.insert(ttl, class.clone());
        Ok(class)
    }

    /// Which keys that are not registered yet another process has, with its values, if that matters.
    async fn taken(&self) -> Result<BTreeMap<String, String>, Failure> {
        let there = registry(&**self.store)?;
        if self.keys.others == Others::Overwrite {
            return Ok(BTreeMap::new());
        }
        let missing = |key: &str| self.kept.get(key).filter(|kept| !kept.registered);
        // A new value of a key of ours finds the former one.
        let theirs =
            |kept: &Kept, value: &[u8]| kept.before.as_ref().is_none_or(|our| our.as_bytes() != value);
        let all = there.keys().await?.into_iter();
        let taken = all.filter(|(key, value)| missing(key).is_some_and(|kept| theirs(kept, value)));
        Ok(taken.map(|(key, value)| (key, String::from_utf8_lossy(&value).into_owned())).collect())
    }

    fn refusal(&self, taken: &BTreeMap<String, String>) -> Failure {
        let told: Vec<String> = taken
            .iter()
            .map(|(key, theirs)| format!("{key} is already registered with the value {theirs:?}"))
            .collect();
        let ttl = self.keys.options.ttl.as_secs();
        let (expire, them) = if taken.len() == 1 { ("it expires", "it") } else { ("they expire", "them") };
        Failure::new(
            Code::NameTaken,
            format!(
                "{}; nothing was changed\n  {expire} {ttl} s after the process that registered {them} has exited; use \
                 --overwrite to replace {them} now",
                told.join("\n")
            ),
        )
    }

    /// What was never registered, in words.
    fn missing(&self) -> Option<String> {
        let missing: Vec<(&String, &Kept)> = self.kept.iter().filter(|(_, kept)| !kept.registered).collect();
        match missing.as_slice() {
            [] => None,
            [(key, kept)] => Some(format!("{key} was not registered: {}", sanitize(&kept.why))),
            [(first, kept), ..] => {
                let all = count(missing.len(), "key");
                Some(format!("{all} were not registered, among them {first}: {}", sanitize(&kept.why)))
            }
        }
    }

    /// Removes all keys, and ends their leases.
    async fn close(&mut self) -> Result<(), Failure> {
        let mut result = Ok(());
        for (key, kept) in self.kept.iter().filter(|(_, kept)| kept.registered) {
            if let Some(class) = self.classes.get(&kept.entry.ttl)
                && let Err(error) = class.unregister(key).await
            {
                result = Err(error.into());
                // The others would wait for the same store.
                break;
            }
        }
        for class in std::mem::take(&mut self.classes).into_values() {
            class.close().await;
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_keys_and_ttls_and_all_its_mistakes_are_told() {
        let options = RegistryOptions::default();
        let found = parse("# services\na/b = 10.0.0.1:80\n\n[ttl 60s]\nslow=x=y\n", &options).unwrap();
        let entry = |value: &str, s| Entry { value: value.to_owned(), ttl: Duration::from_secs(s) };
        assert_eq!(
            found,
            [("a/b".to_owned(), entry("10.0.0.1:80", 15)), ("slow".to_owned(), entry("x=y", 60))]
        );
        let wrong = parse("a=1\na=2\nb\n[ttl 5]\n[tll 5s]\n=x\n[ttl 1ms]\n", &options).unwrap_err();
        assert_eq!(wrong.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn pauses_are_a_list_of_durations() {
        let second = Duration::from_secs(1);
        assert_eq!(pauses("1s, 2s"), Ok(leasehold::Backoff::Steps(vec![second, second * 2])));
        assert!(pauses("1s,2").is_err());
    }
}
