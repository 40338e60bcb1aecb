//! Reads, lists and swaps records, with one script each.

use std::collections::BTreeMap;
use std::sync::Arc;

use leasehold_store::{
    Key, Listing, Reading, StoreError, StoreErrorKind, Stored, Swap, SwapReply, Swapped, Version, rng,
};

use crate::discovery;
use crate::engine::{MasterConnection, Wait};
use crate::error::{RedisError, Written};
use crate::high_water::HighWater;
use crate::resp::{Command, Value};
use crate::script::{Call, Script};

/// How many records one call of a listing reads: the server does nothing else meanwhile.
const PAGE: usize = 500;
/// How often a listing is started because the store changed during the one before.
const LISTINGS_MAX: usize = 5;
/// How many characters of a call's random id are used in versions and messages.
pub(crate) const TAG: usize = 10;

/// The records of one namespace over one connection.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    pub(crate) connection: Arc<MasterConnection>,
    pub(crate) seen: Arc<HighWater>,
}

/// What every script on records answers first.
struct Answered {
    generation: String,
    revision: u64,
    rest: std::vec::IntoIter<Value>,
}

impl Records {
    pub(crate) async fn read(&self, keys: &[Key]) -> Result<Reading, StoreError> {
        let answered = self.call(Script::Read, keys, |call| call).await?;
        let mut found = Vec::with_capacity(keys.len());
        let mut parts = list(answered.rest)?.into_iter();
        for _ in keys {
            found.push(stored(parts.next(), parts.next())?);
        }
        Ok(Reading { found, generation: answered.generation })
    }

    /// The generation; and, where replicas are waited for, proof that all that is in the store has reached them.
    pub(crate) async fn generation(&self) -> Result<String, StoreError> {
        Ok(self.call(Script::Read, &[], |call| call).await?.generation)
    }

    pub(crate) async fn swap(&self, swaps: &[Swap]) -> Result<SwapReply, StoreError> {
        let keys: Vec<Key> = swaps.iter().map(|swap| swap.key.clone()).collect();
        let makes = |swap: &Swap| swap.expect.is_none() && swap.value.is_some();
        let script = if swaps.iter().any(makes) { Script::Create } else { Script::Swap };
        let answered = self
            .call(script, &keys, |mut call| {
                for swap in swaps {
                    call.push(name(&swap.key));
                    call.push(swap.expect.as_ref().map_or("", Version::as_str));
                    call.push(if swap.value.is_some() { "set" } else { "del" });
                    call.push(swap.value.as_deref().unwrap_or_default());
                }
                call
            })
            .await?;
        let outcomes = list(answered.rest)?.into_iter().map(outcome).collect::<Result<Vec<_>, _>>()?;
        Ok(SwapReply { outcomes, generation: answered.generation })
    }

    pub(crate) async fn list(&self) -> Result<Listing, StoreError> {
        self.refuse_eviction().await?;
        for _ in 0..LISTINGS_MAX {
            if let Some(listing) = self.list_once().await? {
                return Ok(listing);
            }
        }
        Err(StoreError::new(
            StoreErrorKind::Busy,
            "the records change faster than they can be listed. Nothing was written.",
        ))
    }

    /// Page after page, in the order of the last writes: what changes meanwhile comes again at the end, so that the
    /// whole is what the last page saw. `None` if the store became another one, or forgot removals.
    async fn list_once(&self) -> Result<Option<Listing>, StoreError> {
        let mut entries: BTreeMap<String, (u64, Stored)> = BTreeMap::new();
        let mut began: Option<(String, u64)> = None;
        let mut cursor = "0".to_owned();
        loop {
            let gone_since = began.as_ref().map_or("+inf".to_owned(), |(_, revision)| revision.to_string());
            let answered = self
                .call(Script::Page, &[], |call| call.arg(&cursor).arg(&gone_since).arg(PAGE.to_string()))
                .await?;
            let mut page = answered.rest;
            let (forgotten, count) = (number(page.next())?, number(page.next())?);
            cursor = text(page.next())?;
            match &began {
                Some((generation, since)) if *generation != answered.generation || forgotten > *since => {
                    return Ok(None);
                }
                Some(_) => {}
                None => began = Some((answered.generation.clone(), answered.revision)),
            }
            let mut found = part(page.next())?.into_iter();
            while let (Some(name), revision) = (found.next(), found.next()) {
                let record =
                    stored(found.next(), found.next())?.ok_or_else(|| strange("an empty version"))?;
                entries.insert(text(Some(name))?, (number(revision)?, record));
            }
            let mut gone = part(page.next())?.into_iter();
            while let (Some(name), revision) = (gone.next(), gone.next()) {
                let (name, revision) = (text(Some(name))?, number(revision)?);
                if entries.get(&name).is_some_and(|(written, _)| *written < revision) {
                    entries.remove(&name);
                }
            }
            if count < PAGE as u64 {
                let mut meta = part(page.next())?.into_iter();
                match stored(meta.next(), meta.next())? {
                    Some(meta) => drop(entries.insert(name(&Key::Meta), (answered.revision, meta))),
                    None => drop(entries.remove(&name(&Key::Meta))),
                }
                return Ok(Some(listing(entries, answered.generation, answered.revision)));
            }
        }
    }

    /// The records of nodes, and `meta`, by one script.
    pub(crate) async fn list_nodes(&self) -> Result<Listing, StoreError> {
        let Answered { generation, revision, rest } = self.call(Script::Nodes, &[], |call| call).await?;
        let mut listing =
            Listing { generation, revision: Some(revision), newest: true, ..Listing::default() };
        let mut found = list(rest)?.into_iter();
        while let Some(name) = found.next() {
            let record = stored(found.next(), found.next())?.ok_or_else(|| strange("an empty version"))?;
            listing.entries.extend(key(&text(Some(name))?).ok().map(|key| (key, record)));
        }
        Ok(listing)
    }

    /// Removes what is left of a namespace without records.
    pub(crate) async fn discard(&self) -> Result<(), StoreError> {
        let options = &self.connection.options;
        let keys = ["store", "index", "removed", "nodes"].map(|key| options.key(key)).into();
        let answer = self.connection.call(&Call::new(Script::Discard, keys), Wait::No).await;
        let left = answer.map_err(|(error, written)| error.into_store_error(written))?;
        match number(Some(left))? {
            0 => Ok(()),
            left => Err(StoreError::new(
                StoreErrorKind::Busy,
                format!("{left} new records have appeared in {}, so it was not removed", options.namespace),
            )),
        }
    }

    /// The server's eviction policy may have changed since we connected.
    async fn refuse_eviction(&self) -> Result<(), StoreError> {
        let options = &self.connection.options;
        let look = async {
            let pipeline = self.connection.pipeline().await?;
            let answer = self.connection.ask(&pipeline, &[Command::new(["INFO", "memory"])]).await?.pop();
            match answer {
                Some(Value::Error(error)) => Err(RedisError::said(&error, &pipeline.spot)),
                answer => discovery::refuse_eviction(
                    answer.as_ref().and_then(Value::text).unwrap_or_default(),
                    &pipeline.spot,
                ),
            }
        };
        let looked = crate::socket::within(options.timeout, "no answer", look).await;
        looked.map_err(|error| error.into_store_error(Written::Nothing))
    }

    /// Calls a script that begins with `enter.lua`.
    async fn call(
        &self,
        script: Script,
        keys: &[Key],
        with: impl Fn(Call) -> Call,
    ) -> Result<Answered, StoreError> {
        let options = &self.connection.options;
        let wait = if options.wait > 0 { Wait::For(options.wait) } else { Wait::No };
        let relied = if options.relies_on() < options.wait { " new-generation" } else { "" };
        let mut rule = format!("{}{relied}", options.wait);
        let changes = matches!(script, Script::Swap | Script::Create);
        for _ in 0..3 {
            let id = rng::fresh_id()?;
            let mut all: Vec<String> = ["store", "index", "removed"].map(|key| options.key(key)).into();
            all.extend(keys.iter().map(|key| options.key(name(key))));
            let (generation, revision) = self.seen.latest();
            let call = Call::new(script, all).arg(&id).arg(&rule);
            let call = with(call.arg(generation).arg(revision.to_string()));
            let tag = &id[..TAG];
            let writes = wait != Wait::No && changes;
            if writes {
                self.seen.sent(tag);
            }
            let answer = self.connection.call(&call, wait).await.map_err(|(error, written)| {
                if writes && written == Written::Nothing {
                    self.seen.confirmed(tag);
                }
                error.into_store_error(written)
            })?;
            let mut rest = answer.list().ok_or_else(|| strange("no list"))?.into_iter();
            if writes {
                self.seen.confirmed(tag);
            }
            match text(rest.next())?.as_str() {
                "ok" => {
                    let (generation, revision) = (text(rest.next())?, number(rest.next())?);
                    self.seen.confirm(&generation, revision);
                    return Ok(Answered { generation, revision, rest });
                }
                "lower" => match number(rest.next())? {
                    waited if changes => self.lower(waited).await?,
                    // A client that only reads does not change the rule.
                    waited => rule = waited.to_string(),
                },
                other => return Err(strange(other)),
            }
        }
        Err(StoreError::new(
            StoreErrorKind::Busy,
            "nodes disagree on how many replicas to wait for. Nothing was written. Give all of them the same `wait`.",
        ))
    }

    /// We wait for fewer replicas than others did, or do not rely on them. This must be stored before a write of ours counts:
    /// a failover loses nothing only if all clients wait.
    async fn lower(&self, waited: u64) -> Result<(), StoreError> {
        let options = &self.connection.options;
        let call = Call::new(Script::Lower, vec![options.key("store")]).arg(options.relies_on().to_string());
        let wait = Wait::For(u32::try_from(waited).unwrap_or(u32::MAX));
        tracing::warn!(namespace = %options.namespace, from = waited, to = options.relies_on(), "writes now wait for fewer replicas");
        let lowered = self.connection.call(&call, wait).await;
        lowered.map(drop).map_err(|(error, written)| error.into_store_error(written))
    }
}

fn listing(entries: BTreeMap<String, (u64, Stored)>, generation: String, revision: u64) -> Listing {
    let mut listing = Listing { generation, revision: Some(revision), ..Listing::default() };
    for (name, (_, record)) in entries {
        match key(&name) {
            Ok(key) => listing.entries.push((key, record)),
            Err(foreign) => listing.foreign.push(foreign),
        }
    }
    listing
}

const KINDS: [(&str, &str); 3] = [("group:", "groups/"), ("node:", "nodes/"), ("shard:", "shards/")];

/// What a record is called in Redis, after the namespace.
pub(crate) fn name(key: &Key) -> String {
    let text = key.to_string();
    let known = KINDS.iter().find_map(|(ours, core)| Some(format!("{ours}{}", text.strip_prefix(core)?)));
    known.unwrap_or(text)
}

/// The record with this name in Redis, or the name of a foreign key.
pub(crate) fn key(name: &str) -> Result<Key, String> {
    let known = KINDS.iter().find_map(|(ours, core)| Some(format!("{core}{}", name.strip_prefix(ours)?)));
    let text = known.unwrap_or_else(|| name.to_owned());
    match text.parse() {
        // `nodes/x` is how the core writes it; in Redis it would be a second name for one record.
        Ok(key) if self::name(&key) == name => Ok(key),
        _ => Err(text),
    }
}

/// The error for a reply that our scripts never send.
pub(crate) fn strange(what: &str) -> StoreError {
    StoreError::new(
        StoreErrorKind::Damaged,
        format!("a script sent an invalid reply ({what}). It is unknown whether the call was carried out."),
    )
}

fn outcome(value: Value) -> Result<Swapped, StoreError> {
    let mut parts = value.list().ok_or_else(|| strange("no outcome"))?.into_iter();
    match text(parts.next())?.as_str() {
        "applied" => Ok(Swapped::Applied(Version::new(text(parts.next())?))),
        "lost" => Ok(Swapped::Lost(stored(parts.next(), parts.next())?)),
        other => Err(strange(other)),
    }
}

fn stored(version: Option<Value>, value: Option<Value>) -> Result<Option<Stored>, StoreError> {
    let version = text(version)?;
    let value = value.and_then(Value::bytes).ok_or_else(|| strange("no value"))?;
    Ok((!version.is_empty()).then(|| Stored { version: Version::new(version), value: value.into() }))
}

fn list(mut rest: std::vec::IntoIter<Value>) -> Result<Vec<Value>, StoreError> {
    part(rest.next())
}

fn part(value: Option<Value>) -> Result<Vec<Value>, StoreError> {
    value.and_then(Value::list).ok_or_else(|| strange("no list"))
}

fn text(value: Option<Value>) -> Result<String, StoreError> {
    value.as_ref().and_then(Value::text).map(str::to_owned).ok_or_else(|| strange("no text"))
}

fn number(value: Option<Value>) -> Result<u64, StoreError> {
    let number = value.as_ref().and_then(Value::number).and_then(|number| u64::try_from(number).ok());
    number.ok_or_else(|| strange("no number"))
}
