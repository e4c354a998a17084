//! Two runs side by side: what the second makes of each configuration and load that both measured.
//!
//! Runs of different fingerprints are never ranked together; here each configuration is held against itself alone.

use std::collections::BTreeSet;

use schemas::sweep::Metric;
use tuner::{
    configuration::{Configuration, Load},
    record::{Fingerprint, Record},
    selection::{self, Interval},
};

use crate::{input::Sweep, statistics};

/// Two runs, the first of which is what the second is held against.
pub struct Comparison<'a> {
    /// Names of the runs as the user wrote them.
    pub names: [&'a str; 2],
    /// What differs between their fingerprints: name, first and second value.
    pub differing: Vec<(&'static str, String, String)>,
    /// What counts as better: the first run's word.
    pub metric: Metric,
    /// What both measured, by load.
    pub rows: Vec<Row>,
    /// Configurations and loads that only one of them measured.
    pub unmatched: usize,
}

/// One configuration under one load.
pub struct Row {
    /// How requests came.
    pub load: Load,
    /// What ran.
    pub configuration: Configuration,
    /// Output tokens a second in each run.
    pub throughput: [Option<Interval>; 2],
    /// The objective in the second run relative to the first, paired by number of the repeat, more being better.
    pub ratio: Interval,
    /// Repeats of the run that has fewer.
    pub repeats: usize,
    /// Whether the two cannot be told apart.
    pub tied: bool,
}

/// What the rows of a load come to.
pub struct Summary {
    /// How requests came.
    pub load: Load,
    /// Median of the ratios.
    pub ratio: f64,
    /// Configurations that are better in the second run, worse, and not to be told apart.
    pub counts: [usize; 3],
}

/// Compares two sweeps where that is asked for, or where they differ in one thing only. None unless there are exactly two
/// with trials.
pub fn of(sweeps: &[Sweep], asked: bool) -> Option<Comparison<'_>> {
    let [first, second] = sweeps else { return None };
    let differing = print(first)?.differences(print(second)?);
    if !asked && differing.len() != 1 {
        return None;
    }
    let metric = first.metric();
    let keys = |sweep: &Sweep| -> BTreeSet<(Load, Configuration)> {
        sweep.records.iter().map(|record| (record.trial.load, record.trial.configuration.clone())).collect()
    };
    let (left, right) = (keys(first), keys(second));
    let both: Vec<&(Load, Configuration)> = left.intersection(&right).collect();
    let unmatched = left.len() + right.len() - 2 * both.len();
    let rows = both.into_iter().filter_map(|(load, configuration)| row(first, second, *load, configuration, metric));
    Some(Comparison { names: [&first.name, &second.name], differing, metric, rows: rows.collect(), unmatched })
}

/// Selection decides, by the rule by which it ranks: the two runs of the configuration are put into a race of two, under
/// names that tell them apart.
fn row(first: &Sweep, second: &Sweep, load: Load, configuration: &Configuration, metric: Metric) -> Option<Row> {
    let mut other = configuration.clone();
    other.knobs.attention_backend = Some(format!("{} (second run)", other.knobs.attention_backend.unwrap_or_default()));
    let of_run = |sweep: &Sweep, name: &Configuration| -> Vec<Record> {
        let own =
            sweep.records.iter().filter(|one| one.trial.load == load && one.trial.configuration == *configuration);
        let renamed = |record: &Record| {
            let mut record = record.clone();
            record.trial.configuration = name.clone();
            record
        };
        own.map(renamed).collect()
    };
    let mut records = of_run(first, configuration);
    records.extend(of_run(second, &other));
    let ratio = selection::relative(&records, load, &other, configuration, metric)?;
    let ranking = selection::rank(&records, metric).into_iter().next()?;
    let of = |name: &Configuration| ranking.entries.iter().find(|entry| entry.configuration == *name);
    let (before, after) = (of(configuration)?, of(&other)?);
    Some(Row {
        load,
        configuration: configuration.clone(),
        throughput: [before.output_tokens_per_s, after.output_tokens_per_s],
        ratio,
        repeats: before.repeats.min(after.repeats),
        // The best ties with itself; so both do, or the other one is worse, or too noisy to tell.
        tied: (before.tied_with_best && after.tied_with_best) || before.too_noisy || after.too_noisy,
    })
}

impl Comparison<'_> {
    /// What each load comes to, in the order of the rows.
    pub fn summaries(&self) -> Vec<Summary> {
        let of_load = |rows: &[Row]| {
            let count = |wanted: fn(&Row) -> bool| rows.iter().filter(|row| wanted(row)).count();
            Some(Summary {
                load: rows.first()?.load,
                ratio: statistics::median(rows.iter().map(|row| row.ratio.median).collect())?,
                counts: [
                    count(|row| !row.tied && row.ratio.median > 1.0),
                    count(|row| !row.tied && row.ratio.median <= 1.0),
                    count(|row| row.tied),
                ],
            })
        };
        self.rows.chunk_by(|a, b| a.load == b.load).filter_map(of_load).collect()
    }
}

impl Row {
    /// What is to be said of it.
    pub fn verdict(&self) -> &'static str {
        if self.repeats < 2 {
            "one repeat: noise unknown"
        } else if self.tied {
            "no significant difference"
        } else if self.ratio.median > 1.0 {
            "better"
        } else {
            "worse"
        }
    }
}

fn print(sweep: &Sweep) -> Option<&Fingerprint> {
    sweep.records.first().map(|record| &record.fingerprint)
}
