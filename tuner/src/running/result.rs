//! What the trials of running servers tell: each figure with its interval over repeats, and two
//! servers as paired ratios. Servers are not ranked.

use super::record::{PrefixCacheUse, RunningFigures, RunningRecord, RunningServer};
use crate::{
    statistics::{Interval, RangeKind, interval},
    trials::configuration::TrialLoad,
};

/// The figures of a server under a load, of its cold or of its warm trials.
#[derive(Clone, Debug, PartialEq)]
pub struct RunningSummary {
    /// Index of the server.
    pub server: usize,
    /// How requests arrive.
    pub load: TrialLoad,
    /// Whether prompts were in the prefix cache.
    pub cache: PrefixCacheUse,
    /// Number of trials.
    pub repeats: usize,
    /// Requests of all trials.
    pub requests: usize,
    /// Each of [`FIGURES`] over the trials; `None` if a figure was not measured.
    pub figures: [Option<Interval>; FIGURES.len()],
    /// Share of the prompt tokens found in the cache; `None` if the server does not tell.
    pub cached: Option<f64>,
    /// Requests that ran together if fewer did than were sent.
    pub held_back: Option<usize>,
    /// Whether tokens of a request arrived together in a trial, so that times of tokens are
    /// missing.
    pub arrives_at_once: bool,
}

/// Two servers under a load: the second relative to the first.
#[derive(Clone, Debug, PartialEq)]
pub struct Paired {
    /// How requests arrive.
    pub load: TrialLoad,
    /// Whether prompts were in the prefix cache.
    pub cache: PrefixCacheUse,
    /// Number of pairs: repeats in which both count.
    pub pairs: usize,
    /// The ratio of each of [`FIGURES`]; `None` if a server does not tell the figure.
    pub ratios: [Option<Interval>; FIGURES.len()],
}

/// A figure of a trial.
pub struct RunningFigure {
    /// Its name.
    pub name: &'static str,
    /// Its unit; empty if it has none.
    pub unit: &'static str,
    /// Whether a larger value is better; `None` if neither is.
    pub more_is_better: Option<bool>,
    /// Its value.
    pub of: fn(&RunningFigures) -> Option<f64>,
}

/// The figures that are summarised.
pub const FIGURES: [RunningFigure; 6] = [
    RunningFigure {
        name: "throughput",
        unit: "tok/s",
        more_is_better: Some(true),
        of: |one| Some(one.output_tokens_per_s),
    },
    RunningFigure {
        name: "per request",
        unit: "tok/s",
        more_is_better: Some(true),
        of: |one| one.tokens_per_s_per_user.filter(|_| !one.arrives_at_once()),
    },
    RunningFigure { name: "accept length", unit: "", more_is_better: None, of: |one| one.accept_length },
    RunningFigure {
        name: "time to first token",
        unit: "ms",
        more_is_better: Some(false),
        of: |one| (!one.arrives_at_once()).then_some(one.time_to_first_token_ms.median),
    },
    RunningFigure {
        name: "inter-token time",
        unit: "ms",
        more_is_better: Some(false),
        of: |one| one.inter_token_ms.filter(|_| !one.arrives_at_once()).map(|spread| spread.median),
    },
    RunningFigure { name: "request", unit: "ms", more_is_better: Some(false), of: |one| Some(one.latency_ms.median) },
];

/// The summaries of all servers, by load, server and cache.
pub fn summaries(records: &[RunningRecord]) -> Vec<RunningSummary> {
    let mut groups: Vec<(TrialLoad, usize, PrefixCacheUse)> =
        counted(records).map(|(one, figures)| (one.load, one.server, figures.cache())).collect();
    groups.sort_unstable();
    groups.dedup();
    groups.into_iter().map(|group| summary(records, group)).collect()
}

/// The paired ratios of two servers, by load and cache.
pub fn paired(records: &[RunningRecord]) -> Vec<Paired> {
    let mut groups: Vec<(TrialLoad, PrefixCacheUse)> =
        counted(records).map(|(one, figures)| (one.load, figures.cache())).collect();
    groups.sort_unstable();
    groups.dedup();
    groups.into_iter().filter_map(|(load, cache)| pair(records, load, cache)).collect()
}

/// A load under which two servers cannot be compared, or not in every repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unpaired {
    /// How requests arrive.
    pub load: TrialLoad,
    /// Whether no repeat can be compared.
    pub is_all: bool,
    /// Why, and what to do.
    pub reason: String,
}

/// Where two servers were measured in turns but cannot be compared: prompts were in the cache of
/// one of them only.
pub fn unpaired(records: &[RunningRecord], servers: &[RunningServer]) -> Vec<Unpaired> {
    let [first, second] = servers else { return Vec::new() };
    let mut loads: Vec<TrialLoad> = counted(records).map(|(one, _)| one.load).collect();
    loads.sort_unstable();
    loads.dedup();
    let of_load = |load: TrialLoad| {
        let with = |server: usize| {
            counted(records)
                .filter(move |(one, _)| (one.load, one.server) == (load, server))
                .map(|(one, figures)| ((one.repeat, one.draw), figures.cache()))
        };
        let other = |block| with(1).find(|(its, _)| *its == block).map(|(_, cache)| cache);
        let differing: Vec<PrefixCacheUse> =
            with(0).filter_map(|(block, cache)| other(block).filter(|other| *other != cache).map(|_| cache)).collect();
        let warm_first = differing.iter().filter(|cache| **cache == PrefixCacheUse::Warm).count();
        let has_pairs =
            [PrefixCacheUse::Cold, PrefixCacheUse::Warm].iter().any(|cache| pair(records, load, *cache).is_some());
        let which = match (warm_first, differing.len() - warm_first) {
            (0, 0) => return None,
            (_, 0) => format!("{} and not of {}", first.url, second.url),
            (0, _) => format!("{} and not of {}", second.url, first.url),
            _ => format!("{} or of {}, but not of both", first.url, second.url),
        };
        let reason = format!(
            "under {load}, {} of {} repeats found their prompts in the prefix cache of {which}, so that the two did \
             different work: measure into another --out with --flush, or with prompts that neither server has seen \
             (--input-len N --seed N draws new ones)",
            differing.len(),
            with(0).count().max(with(1).count())
        );
        Some(Unpaired { load, is_all: !has_pairs, reason })
    };
    loads.into_iter().filter_map(of_load).collect()
}

/// What a ratio says, if anything.
pub fn verdict(ratio: &Interval, figure: &RunningFigure) -> &'static str {
    let better = |more: bool| if more { "better" } else { "worse" };
    match (ratio.kind, figure.more_is_better) {
        (RangeKind::Confidence, Some(more)) if ratio.low > 1.0 => better(more),
        (RangeKind::Confidence, Some(more)) if ratio.high < 1.0 => better(!more),
        (RangeKind::Confidence, None) if ratio.low > 1.0 => "larger",
        (RangeKind::Confidence, None) if ratio.high < 1.0 => "smaller",
        (RangeKind::Confidence, _) => "not distinguishable",
        (RangeKind::Range | RangeKind::Single, _) => "too few repeats",
    }
}

/// The trials that count.
fn counted(records: &[RunningRecord]) -> impl Iterator<Item = (&RunningRecord, &RunningFigures)> {
    let counts = |record: &&RunningRecord| record.exclusion().is_none();
    records.iter().filter(counts).filter_map(|record| Some((record, record.figures()?)))
}

fn summary(records: &[RunningRecord], (load, server, cache): (TrialLoad, usize, PrefixCacheUse)) -> RunningSummary {
    let trials: Vec<&RunningFigures> = counted(records)
        .filter(|(one, figures)| (one.load, one.server, figures.cache()) == (load, server, cache))
        .map(|(_, figures)| figures)
        .collect();
    let prompt_tokens: u64 = trials.iter().map(|one| one.prompt_tokens).sum();
    let cached: Option<u64> = trials.iter().map(|one| one.cached_tokens).sum();
    RunningSummary {
        server,
        load,
        cache,
        repeats: trials.len(),
        requests: trials.iter().map(|one| one.requests).sum(),
        figures: FIGURES.map(|figure| over(trials.iter().filter_map(|one| (figure.of)(one)))),
        cached: cached.filter(|_| prompt_tokens > 0).map(|cached| cached as f64 / prompt_tokens as f64),
        // A short trial is sampled too seldom for its gauges to say this alone.
        held_back: trials
            .iter()
            .map(|one| one.held_back(load))
            .collect::<Option<Vec<_>>>()
            .and_then(|all| all.into_iter().max()),
        arrives_at_once: trials.iter().any(|one| one.arrives_at_once()),
    }
}

fn pair(records: &[RunningRecord], load: TrialLoad, cache: PrefixCacheUse) -> Option<Paired> {
    // Both trials of a pair have the same prompts.
    let of = |server: usize, repeat: usize, draw: usize| {
        let is_it = |one: &RunningRecord| (one.server, one.load, one.repeat, one.draw) == (server, load, repeat, draw);
        counted(records).find(|(one, figures)| is_it(one) && figures.cache() == cache).map(|(_, figures)| figures)
    };
    let repeats = 0..=records.iter().map(|one| one.repeat).max()?;
    let draws = records.iter().map(|one| one.draw).max()?;
    let both = |repeat| (0..=draws).find_map(|draw| Some((of(0, repeat, draw)?, of(1, repeat, draw)?)));
    let pairs: Vec<_> = repeats.filter_map(both).collect();
    let ratio = |figure: RunningFigure| {
        let ratios = pairs.iter().filter_map(|(first, second)| Some((figure.of)(second)? / (figure.of)(first)?));
        over(ratios)
    };
    (!pairs.is_empty()).then(|| Paired { load, cache, pairs: pairs.len(), ratios: FIGURES.map(ratio) })
}

fn over(values: impl Iterator<Item = f64>) -> Option<Interval> {
    let values: Vec<f64> = values.filter(|value| value.is_finite() && *value > 0.0).collect();
    interval(&values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        running::record::{OtherTraffic, RunningOutcome},
        trials::record::TrialSpread,
    };

    fn record(server: usize, repeat: usize, rate: f64, others: bool) -> RunningRecord {
        let spread = TrialSpread { median: 10.0, ..TrialSpread::default() };
        let figures = RunningFigures {
            requests: 4,
            output_tokens_per_s: rate,
            time_to_first_token_ms: spread,
            latency_ms: spread,
            others: others.then(OtherTraffic::default),
            ..RunningFigures::default()
        };
        RunningRecord {
            server,
            load: TrialLoad::BatchSize(4),
            repeat,
            draw: 0,
            finished_at: 0,
            outcome: RunningOutcome::Measured(Box::new(figures)),
        }
    }

    #[test]
    fn two_servers_are_compared_pair_by_pair_and_disturbed_pairs_do_not_count() {
        // The machine drifts by a factor of two; the second server is always 10% faster.
        let mut records = Vec::new();
        for repeat in 0..7 {
            let drift = 100.0 * (1.0 + repeat as f64 / 7.0);
            records.push(record(0, repeat, drift, false));
            records.push(record(1, repeat, drift * if repeat == 3 { 0.2 } else { 1.1 }, repeat == 3));
        }
        let found = paired(&records);
        assert_eq!((found.len(), found[0].pairs), (1, 6));
        let ratio = found[0].ratios[0].expect("a ratio");
        assert!((ratio.low - 1.1).abs() < 1e-9 && (ratio.high - 1.1).abs() < 1e-9, "{ratio:?}");
        assert_eq!(verdict(&ratio, &FIGURES[0]), "better");
        assert_eq!(found[0].ratios[2], None, "nothing told accept lengths");
        let reported = summaries(&records);
        assert_eq!(reported.iter().map(|one| (one.server, one.repeats)).collect::<Vec<_>>(), [(0, 7), (1, 6)]);
        assert_eq!(reported[0].cached, None);
    }

    #[test]
    fn prompts_in_the_cache_of_one_server_are_named_with_what_to_do() {
        let servers = ["http://a:1", "http://b:1"].map(|url| RunningServer { url: url.into(), ..Default::default() });
        let warmed = |mut one: RunningRecord| {
            if let RunningOutcome::Measured(figures) = &mut one.outcome {
                (figures.prompt_tokens, figures.cached_tokens) = (1000, Some(900));
            }
            one
        };
        let mut records: Vec<RunningRecord> = (0..6).map(|repeat| record(0, repeat, 1.0, false)).collect();
        records.extend((0..6).map(|repeat| warmed(record(1, repeat, 1.0, false))));
        let found = unpaired(&records, &servers);
        assert!(paired(&records).is_empty() && found.len() == 1 && found[0].is_all, "{found:?}");
        assert!(found[0].reason.contains("6 of 6 repeats") && found[0].reason.contains("of http://b:1 and not"));
        assert!(found[0].reason.contains("--flush"));
        records.extend([record(0, 6, 1.0, false), record(1, 6, 1.0, false)]);
        assert!(!unpaired(&records, &servers)[0].is_all, "one repeat can be compared");
        assert!(unpaired(&records[..6], &servers).is_empty(), "the second server is not measured yet");
    }

    #[test]
    fn few_pairs_say_nothing() {
        let ratio = interval(&[1.2, 1.3, 1.25]).expect("an interval");
        assert_eq!(verdict(&ratio, &FIGURES[0]), "too few repeats");
        let ratio = interval(&[1.2, 1.3, 1.25, 1.2, 1.22, 1.3]).expect("an interval");
        assert_eq!((verdict(&ratio, &FIGURES[0]), verdict(&ratio, &FIGURES[3])), ("better", "worse"));
    }
}
