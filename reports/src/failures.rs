//! Failed trials of a load, grouped by their reason: a server that rejects a flag rejects it in
//! every configuration.

use crate::{
    columns,
    race::{Race, RaceEntry},
};

/// Trials that failed for the same reason.
pub struct Failures {
    /// The configurations, with the repeats if others were measured.
    pub what: Vec<String>,
    /// The reason; its further lines are the server's own.
    pub reason: String,
}

impl Failures {
    /// First line of the reason.
    pub fn summary(&self) -> &str {
        self.reason.lines().next().unwrap_or_default()
    }

    /// Further lines of the reason, without empty ones at the end.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.reason.trim_end().lines().skip(1)
    }
}

/// All failures of a race, in the order of its entries; probes last.
pub fn in_race(race: &Race) -> Vec<Failures> {
    let mut all: Vec<Failures> = Vec::new();
    let mut add = |what: String, reason: &str| match all.iter_mut().find(|one| one.reason == reason) {
        Some(failures) => failures.what.push(what),
        None => all.push(Failures { what: vec![what], reason: reason.to_owned() }),
    };
    for entry in race.entries.iter().chain(&race.probes) {
        for (reason, repeats) in reasons(entry) {
            let what = match entry.ranked.repeats {
                0 => columns::name(entry),
                measured => format!("{} ({}; {measured} measured)", columns::name(entry), listed(&repeats)),
            };
            add(what, &reason);
        }
        if entry.failures.is_empty() && entry.ranked.repeats == 0 {
            add(columns::name(entry), "no repeat was measured");
        }
    }
    all
}

/// The reasons of an entry, each with its repeats.
fn reasons(entry: &RaceEntry) -> Vec<(String, Vec<usize>)> {
    let mut reasons: Vec<(String, Vec<usize>)> = Vec::new();
    for (repeat, reason) in &entry.failures {
        match reasons.iter_mut().find(|(known, _)| known == reason) {
            Some((_, repeats)) => repeats.push(*repeat),
            None => reasons.push((reason.clone(), vec![*repeat])),
        }
    }
    reasons
}

fn listed(repeats: &[usize]) -> String {
    let numbers: Vec<String> = repeats.iter().map(usize::to_string).collect();
    format!("{} {}", if numbers.len() == 1 { "repeat" } else { "repeats" }, numbers.join(", "))
}
