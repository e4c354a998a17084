//! Waiting times of requests: percentiles, the share in time, and the actual rate of an open loop.

use tuner::selection::Tail;

use super::part::{Cell, Table};
use crate::{
    columns, figures,
    race::{Entry, Race},
};

/// One row per configuration, best first; empty if the trials of a load have no such data.
pub fn table(race: &Race) -> Option<Table> {
    let entries: Vec<&Entry> = race.measured().filter(|entry| entry.ranked.first_token.is_some()).collect();
    let (first, ..) = entries.split_first()?;
    let in_time = entries.iter().any(|entry| entry.ranked.in_time.is_some());
    let open = entries.iter().any(|entry| entry.ranked.request_rate.is_some());
    let mut headings = vec!["configuration"];
    if in_time {
        headings.push("#requests in time");
    }
    headings.extend(["#first token p50 (ms)", "#p90", "#p99", "#inter-token p50 (ms)", "#p90", "#p99"]);
    if open {
        headings.extend(["#sent (requests/s)", "#served (requests/s)"]);
    }
    let row = |entry: &&Entry| {
        let ranked = &entry.ranked;
        let mut cells = vec![Cell::text(columns::name(entry))];
        if in_time {
            cells.push(Cell::number(ranked.in_time, figures::share));
        }
        cells.extend(tail(ranked.first_token));
        cells.extend(tail(ranked.inter_token));
        if open {
            cells.push(Cell::number(ranked.request_rate.map(|rate| rate.offered), figures::quantity));
            cells.push(Cell::number(ranked.request_rate.map(|rate| rate.served), figures::quantity));
        }
        cells
    };
    let repeats = figures::counted(first.ranked.repeats, "repeat", "repeats");
    let caption = format!("Waiting times: percentiles over requests, each the median over {repeats}");
    let table = Table::new(caption, &headings, entries.iter().map(row).collect());
    // For open loops, or with limits, this table matters most.
    let is_open_loop = race.load.batch_size().is_none();
    Some(if in_time || is_open_loop { table } else { table.folded() })
}

fn tail(tail: Option<Tail>) -> [Cell; 3] {
    let cell = |of: fn(Tail) -> f64| Cell::number(tail.map(of), figures::quantity);
    [cell(|tail| tail.p50), cell(|tail| tail.p90), cell(|tail| tail.p99)]
}
