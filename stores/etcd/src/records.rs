//! Records as requests to etcd and responses.

use leasehold_store::{Key, Listing, Stored, Swap, Swapped, Version};
use std::future::Future;
use tonic::Status;

use crate::error::damaged;
use crate::high_water::generation;
use crate::layout::{KeyKind, Layout, Span};
use crate::proto::{
    Compare, DeleteRangeRequest, KeyValue, OpRequest, OpResponse, PutRequest, RangeRequest, RangeResponse,
    RequestOp, ResponseHeader, ResponseOp, Target, TxnRequest, TxnResponse, Wanted,
};
use leasehold_store::StoreError;

/// The most operations in one request. etcd's `--max-txn-ops` is 128 by default, and counts a nested transaction's
/// operations on top of those around it.
pub(crate) const OPS_MAX: usize = 127;

/// The largest request, and what a swap takes in it beside its value: its key, at most three times.
const REQUEST_BYTES_MAX: usize = 1 << 20;
const REQUEST_OVERHEAD: usize = 4096;

/// How many keys are read at once. As many of the largest records still fit into one response.
const PAGE: i64 = 1000;

/// Reads these records in one go; at most [`OPS_MAX`].
pub(crate) fn reading(layout: &Layout, keys: &[Key]) -> TxnRequest {
    reading_of(keys.iter().map(|key| layout.record(key)))
}

/// The same of any keys of etcd.
pub(crate) fn reading_of(names: impl Iterator<Item = Vec<u8>>) -> TxnRequest {
    let success = names.map(|name| op(OpRequest::Range(range_of(name)))).collect();
    TxnRequest { compare: Vec::new(), success, failure: Vec::new() }
}

/// What a [`reading`] found.
pub(crate) fn found(answer: TxnResponse, asked: usize) -> Result<Vec<Option<Stored>>, StoreError> {
    let found: Vec<_> = answer.responses.into_iter().map(first_of).collect::<Result<_, _>>()?;
    match found.len() == asked {
        true => Ok(found),
        false => Err(damaged(format!("etcd answered {} of {asked} reads", found.len()))),
    }
}

/// The swaps in as few requests as etcd's limit of 1.5 MiB (`--max-request-bytes`) allows, and one at least.
pub(crate) fn requests(swaps: &[Swap]) -> Vec<&[Swap]> {
    let bytes = |swap: &Swap| REQUEST_OVERHEAD + swap.value.as_ref().map_or(0, |value| value.len());
    let (mut requests, mut from, mut size) = (Vec::new(), 0, 0);
    for (at, swap) in swaps.iter().enumerate() {
        if at > from && size + bytes(swap) > REQUEST_BYTES_MAX {
            requests.push(&swaps[from..at]);
            (from, size) = (at, 0);
        }
        size += bytes(swap);
    }
    requests.push(&swaps[from..]);
    requests
}

/// Tries these swaps, each as a transaction of its own inside one request; at most [`OPS_MAX`]. One swap, such as a
/// renewal, is sent as it is: etcd 3.5 does not count what is nested against its quota, and renewals are nearly all
/// that is ever written (<https://github.com/etcd-io/etcd/blob/v3.5.16/server/etcdserver/quota.go>).
pub(crate) fn swapping(layout: &Layout, swaps: &[Swap]) -> Result<TxnRequest, StoreError> {
    if let [swap] = swaps {
        return single(layout, swap);
    }
    let nested = |swap| Ok(op(OpRequest::Txn(single(layout, swap)?)));
    let success = swaps.iter().map(nested).collect::<Result<_, StoreError>>()?;
    Ok(TxnRequest { compare: Vec::new(), success, failure: Vec::new() })
}

fn single(layout: &Layout, swap: &Swap) -> Result<TxnRequest, StoreError> {
    let key = layout.record(&swap.key);
    // A key that is not there has the revision 0.
    let expected = match &swap.expect {
        None => 0,
        Some(version) => revision(version)?,
    };
    let compare = Compare {
        result: 0,
        target: Target::Mod.into(),
        key: key.clone(),
        wanted: Some(Wanted::ModRevision(expected)),
    };
    let change = match &swap.value {
        Some(value) => OpRequest::Put(PutRequest { key: key.clone(), value: value.to_vec(), lease: 0 }),
        None => OpRequest::DeleteRange(DeleteRangeRequest { key: key.clone() }),
    };
    Ok(TxnRequest {
        compare: vec![compare],
        success: vec![op(change)],
        failure: vec![op(OpRequest::Range(range_of(key)))],
    })
}

/// What became of each of the swaps.
pub(crate) fn outcomes(answer: TxnResponse, swaps: &[Swap]) -> Result<Vec<Swapped>, StoreError> {
    let written = version(header(answer.header.as_ref())?.revision);
    if swaps.len() == 1 {
        return Ok(vec![outcome(answer, &written)?]);
    }
    if answer.responses.len() != swaps.len() {
        return Err(damaged(format!("etcd answered {} of {} swaps", answer.responses.len(), swaps.len())));
    }
    let nested = |response: ResponseOp| match response.response {
        Some(OpResponse::Txn(answer)) => outcome(answer, &written),
        _ => Err(nonsense()),
    };
    answer.responses.into_iter().map(nested).collect()
}

fn outcome(answer: TxnResponse, written: &Version) -> Result<Swapped, StoreError> {
    if answer.succeeded {
        return Ok(Swapped::Applied(written.clone()));
    }
    let there = answer.responses.into_iter().next().ok_or_else(nonsense)?;
    Ok(Swapped::Lost(first_of(there)?))
}

/// What is in these spans at one revision, in pages, and the header that says which.
pub(crate) async fn list<E, F>(
    layout: &Layout,
    spans: &[Span],
    ask: impl Fn(TxnRequest) -> F,
) -> Result<(Listing, ResponseHeader), E>
where
    E: From<StoreError>,
    F: Future<Output = Result<TxnResponse, E>>,
{
    let mut listing = Listing::default();
    let first: Vec<RangeRequest> = spans.iter().map(|span| page(span.clone(), 0)).collect();
    let answer = ask(reading_pages(first.clone())).await?;
    let header = header(answer.header.as_ref())?.clone();
    let mut open = take_pages(layout, &mut listing, first, answer)?;
    while !open.is_empty() {
        open.iter_mut().for_each(|page| page.revision = header.revision);
        let answer = ask(reading_pages(open.clone())).await?;
        open = take_pages(layout, &mut listing, open, answer)?;
    }
    listing.generation = generation(&header);
    listing.revision = u64::try_from(header.revision).ok();
    Ok((listing, header))
}

fn reading_pages(pages: Vec<RangeRequest>) -> TxnRequest {
    let success = pages.into_iter().map(|page| op(OpRequest::Range(page))).collect();
    TxnRequest { compare: Vec::new(), success, failure: Vec::new() }
}

/// Adds these pages to the listing, and returns the pages to read next.
fn take_pages(
    layout: &Layout,
    listing: &mut Listing,
    asked: Vec<RangeRequest>,
    answer: TxnResponse,
) -> Result<Vec<RangeRequest>, StoreError> {
    if answer.responses.len() != asked.len() {
        return Err(nonsense());
    }
    let mut open = Vec::new();
    for (page, response) in asked.into_iter().zip(answer.responses) {
        let found = range(response)?;
        if let Some(next) = page_after(&page, &found) {
            open.push(next);
        }
        for kv in found.kvs {
            match layout.classify(&kv.key) {
                KeyKind::Record(key) => listing.entries.push((key, stored(kv))),
                KeyKind::Foreign(name) => listing.foreign.push(name),
                KeyKind::Registered(_) => {}
            }
        }
    }
    Ok(open)
}

/// The first page of a span, at a revision (0 is the newest).
pub(crate) fn page(span: Span, revision: i64) -> RangeRequest {
    RangeRequest { key: span.start, range_end: span.end, limit: PAGE, revision, count_only: false }
}

/// The page after one that has more.
pub(crate) fn page_after(page: &RangeRequest, found: &RangeResponse) -> Option<RangeRequest> {
    let last = found.kvs.last().filter(|_| found.more)?;
    let mut key = last.key.clone();
    key.push(0);
    Some(RangeRequest { key, ..page.clone() })
}

/// The header that every answer has.
pub(crate) fn header(header: Option<&ResponseHeader>) -> Result<&ResponseHeader, StoreError> {
    header.ok_or_else(nonsense)
}

pub(crate) fn stored(kv: KeyValue) -> Stored {
    Stored { version: version(kv.mod_revision), value: kv.value.into() }
}

pub(crate) fn version(revision: i64) -> Version {
    Version::new(revision.to_string())
}

fn revision(version: &Version) -> Result<i64, StoreError> {
    let number = version.as_str().parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| damaged(format!("{version:?} is not a version of a record in etcd")))
}

fn first_of(response: ResponseOp) -> Result<Option<Stored>, StoreError> {
    Ok(range(response)?.kvs.into_iter().next().map(stored))
}

fn range(response: ResponseOp) -> Result<RangeResponse, StoreError> {
    match response.response {
        Some(OpResponse::Range(range)) => Ok(range),
        _ => Err(nonsense()),
    }
}

fn range_of(key: Vec<u8>) -> RangeRequest {
    RangeRequest { key, ..RangeRequest::default() }
}

pub(crate) fn op(request: OpRequest) -> RequestOp {
    RequestOp { request: Some(request) }
}

fn nonsense() -> StoreError {
    damaged("etcd sent a response that does not match the request")
}

/// Whether a compaction overtook a listing, so that it must start again.
pub(crate) fn compacted(status: &Status) -> bool {
    status.code() == tonic::Code::OutOfRange
}
