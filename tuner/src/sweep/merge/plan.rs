//! The size of the whole plan, computed from the known shards.

use std::collections::BTreeMap;

use crate::trials::{journal::JournalHeader, shard::Shard};

/// Maximum number of missing shards to list: a header may claim any number.
const MOST_NAMED: usize = 1000;

/// Trials in the combined plans of some folders of one sweep; trials that run in every shard count
/// once. 0 if the strategy decides as it goes.
pub fn known(headers: &[&JournalHeader]) -> usize {
    trials(headers, |_, _| 0)
}

/// Trials of the whole plan. A missing shard is assumed to have at least as many configurations as
/// the smallest known one, minus one.
pub(super) fn whole(headers: &[&JournalHeader]) -> usize {
    // The same in all headers of the sweep.
    let each = headers.first().map_or(0, |header| trials_of_one(header));
    trials(headers, |count, own| {
        let least = own.iter().min().map_or(0, |least| least.saturating_sub(each));
        count.saturating_sub(own.len()).saturating_mul(least)
    })
}

/// Trials of the folders and of the missing shards. `absent` computes the latter from the number of
/// shards and from the trials of each known shard without the baselines.
fn trials(headers: &[&JournalHeader], absent: impl Fn(usize, &[usize]) -> usize) -> usize {
    // A strategy that decides as it goes has no plan.
    if headers.iter().all(|header| header.planned == 0) {
        return 0;
    }
    let undivided = headers.iter().filter(|header| header.shard.is_none()).map(|header| header.planned).max();
    let common = headers
        .first()
        .map_or(2, |header| baselines(header))
        .saturating_mul(headers.first().map_or(0, |header| trials_of_one(header)));
    let splits = splits(headers).into_iter().map(|(count, shards)| {
        let own: Vec<usize> = shards.values().map(|planned| planned.saturating_sub(common)).collect();
        // If shards are limited to fewer trials than the baselines, that limit counts.
        let baselines = shards.values().copied().max().unwrap_or_default().min(common);
        own.iter().sum::<usize>().saturating_add(absent(count, &own)).saturating_add(baselines)
    });
    splits.chain(undivided).max().unwrap_or_default()
}

/// Shards without a folder, at most [`MOST_NAMED`]; none if a folder holds the whole sweep.
pub(super) fn missing(headers: &[&JournalHeader]) -> Vec<Shard> {
    if headers.iter().any(|header| header.shard.is_none()) {
        return Vec::new();
    }
    let absent = splits(headers).into_iter().map(|(count, shards)| {
        let absent = (1..=count).filter(|index| !shards.contains_key(index)).take(MOST_NAMED);
        absent.map(|index| Shard { index, count }).collect::<Vec<_>>()
    });
    absent.min_by_key(Vec::len).unwrap_or_default()
}

/// Number of shards → index → planned trials.
fn splits(headers: &[&JournalHeader]) -> BTreeMap<usize, BTreeMap<usize, usize>> {
    let mut splits: BTreeMap<usize, BTreeMap<usize, usize>> = BTreeMap::new();
    for header in headers {
        let Some(shard) = header.shard else { continue };
        let planned = splits.entry(shard.count).or_default().entry(shard.index).or_default();
        *planned = header.planned.max(*planned);
    }
    splits
}

/// Configurations that every shard measures: no speculation, and the engine's default for each
/// draft.
fn baselines(header: &JournalHeader) -> usize {
    header.file.drafts.len().max(1).saturating_add(1)
}

/// Trials of one configuration.
fn trials_of_one(header: &JournalHeader) -> usize {
    let loads = header.file.batch_sizes().len().saturating_add(header.file.arrivals.count());
    loads.saturating_mul(header.file.search.repeats)
}
