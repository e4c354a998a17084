//! Waiting times of requests: percentiles, the share in time, and the actual rate of an open loop.

use tuner::results::selection::Tail;

use super::part::{Cell, PartTable};
use crate::{
    columns, figures,
    race::{Race, RaceEntry},
};

/// One row per configuration, best first; empty if the trials of a load have no such data.
pub fn table(race: &Race) -> Option<PartTable> {
    let entries: Vec<&RaceEntry> = race.measured().filter(|entry| entry.ranked.first_token.is_some()).collect();
    let (first, ..) = entries.split_first()?;
    let in_time = entries.iter().any(|entry| entry.ranked.in_time.is_some());
    let open = entries.iter().any(|entry| entry.ranked.request_rate.is_some());
    let mut headings = vec!["configuration".to_owned()];
    if in_time {
        headings.push("#requests in time".to_owned());
    }
    let (first_token, inter_token) = (
        ShownTails::from_entries(&entries, |entry| entry.ranked.first_token),
        ShownTails::from_entries(&entries, |entry| entry.ranked.inter_token),
    );
    headings.extend(first_token.headings("first token"));
    headings.extend(inter_token.headings("inter-token"));
    if open {
        headings
            .extend(["#sent (requests/s)", "#served (requests/s)", "#unserved at the last arrival"].map(String::from));
    }
    let row = |entry: &&RaceEntry| {
        let ranked = &entry.ranked;
        let mut cells = vec![Cell::text(columns::name(entry))];
        if in_time {
            cells.push(Cell::number(ranked.in_time, figures::share));
        }
        cells.extend(first_token.cells(ranked.first_token));
        cells.extend(inter_token.cells(ranked.inter_token));
        if open {
            cells.push(Cell::number(ranked.request_rate.map(|rate| rate.offered), figures::quantity));
            cells.push(Cell::number(ranked.request_rate.map(|rate| rate.served), figures::quantity));
            cells.push(Cell::number(ranked.request_rate.map(|rate| rate.unserved), |count| format!("{count}")));
        }
        cells
    };
    let repeats = figures::counted(first.ranked.repeats, "repeat", "repeats");
    let rates = if open { "; sent and served over the same time, from the first arrival to the last" } else { "" };
    let caption = format!("Waiting times: percentiles over requests, each the median over {repeats}{rates}");
    let table = PartTable::new(caption, &headings, entries.iter().map(row).collect());
    // For open loops, or with limits, this table matters most.
    let is_open_loop = race.load.batch_size().is_none();
    Some(if in_time || is_open_loop { table } else { table.folded() })
}

/// The percentiles that the numbers of values suffice for, and the largest value where there is no
/// p99.
struct ShownTails {
    p90: bool,
    p99: bool,
    /// Where it is shown, the smallest and the largest number of values that the largest one is of.
    largest_of: Option<(usize, usize)>,
}

impl ShownTails {
    fn from_entries(entries: &[&RaceEntry], tail: fn(&RaceEntry) -> Option<Tail>) -> Self {
        let tails = || entries.iter().filter_map(|entry| tail(entry));
        let counts = || tails().filter(|tail| tail.p99.is_none()).map(|tail| tail.count);
        Self {
            p90: tails().any(|tail| tail.p90.is_some()),
            p99: tails().any(|tail| tail.p99.is_some()),
            largest_of: counts().min().zip(counts().max()),
        }
    }

    fn headings(&self, what: &str) -> Vec<String> {
        let mut headings = vec![format!("#{what} p50 (ms)")];
        headings.extend(self.p90.then(|| "#p90".to_owned()));
        headings.extend(self.p99.then(|| "#p99".to_owned()));
        headings.extend(self.largest_of.map(|(fewest, most)| match fewest == most {
            true => format!("#max of {}", figures::count(most as u64)),
            false => format!("#max of {} to {}", figures::count(fewest as u64), figures::count(most as u64)),
        }));
        headings
    }

    fn cells(&self, tail: Option<Tail>) -> Vec<Cell> {
        let cell = |of: fn(Tail) -> Option<f64>| Cell::number(tail.and_then(of), figures::quantity);
        let mut cells = vec![cell(|tail| Some(tail.p50))];
        cells.extend(self.p90.then(|| cell(|tail| tail.p90)));
        cells.extend(self.p99.then(|| cell(|tail| tail.p99)));
        cells.extend(self.largest_of.is_some().then(|| cell(|tail| Some(tail.max).filter(|_| tail.p99.is_none()))));
        cells
    }
}
