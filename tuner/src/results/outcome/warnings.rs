//! Warnings about the figures of a tuned file.

use schemas::sweep::SweepModels;

use crate::results::selection::{Disturbance, LoadRanking, Ranked, UnevenStalls, WallRival};

/// Share of stalled time above which there is a warning.
const FELT_STALLS: f64 = 0.05;

/// A warning about the models, if any.
pub fn warning_of_models(models: &SweepModels) -> Option<String> {
    let products = models.fp8_compute.as_deref() == Some("products");
    let what = match (&models.quantization, products) {
        (None, false) => None,
        (None, true) => Some("activations are rounded to fp8 for products in 8 bits".to_owned()),
        (Some(name), false) => Some(format!("weights are quantised to {name} when they are loaded")),
        (Some(name), true) => Some(format!(
            "weights are quantised to {name} when they are loaded, and activations for products in 8 bits"
        )),
    };
    let cache = models.kv_cache_dtype.as_ref().filter(|name| *name != "auto");
    let cache = cache.map(|name| format!("keys and values are kept as {name}"));
    let all: Vec<String> = what.into_iter().chain(cache).collect();
    let is_any = !all.is_empty();
    is_any.then(|| format!("{}: speculation is lossless against the quantised target", all.join(", and ")))
}

/// One sentence for each load in which something disturbed the measurements or limits their
/// meaning.
pub fn warnings_of_loads(ranking: &[LoadRanking]) -> Vec<String> {
    ranking.iter().flat_map(load_warnings).collect()
}

/// A sentence for each load whose choice has another draft than the file.
pub fn warnings_of_other_drafts(winners: &[(&LoadRanking, &Ranked)]) -> Vec<String> {
    let of = |(ranking, kept): &(&LoadRanking, &Ranked)| {
        let chosen = ranking.chosen.as_ref().filter(|chosen| **chosen != kept.configuration)?;
        let gain = ranking.score(chosen)? / ranking.score(&kept.configuration)?;
        let differs = !chosen.draft.is_empty() && chosen.draft != kept.configuration.draft;
        let load = ranking.load;
        differs.then(|| {
            format!(
                "{load}: {chosen} was chosen, {gain:.2} times the speed of {} in this file: an engine has one draft",
                kept.configuration
            )
        })
    };
    winners.iter().filter_map(of).collect()
}

fn load_warnings(ranking: &LoadRanking) -> Vec<String> {
    let LoadRanking { load, keeps_up, disturbance, .. } = ranking;
    let Disturbance { trials, left_out, stalled_share, uneven, .. } = *disturbance;
    let mut warnings = Vec::new();
    if let Some(share) = stalled_share.filter(|share| *share > FELT_STALLS) {
        warnings.push(format!(
            "{load}: the machine was busy with other things ({:.0}% of the time was stalls)",
            share * 100.0
        ));
    }
    if let Some(UnevenStalls { speculating, no_speculation, wall_speedup }) = uneven {
        warnings.push(format!(
            "{load}: stalls were {:.0}% of the time with speculation and {:.0}% without, and removing them favours short \
             rounds; by wall-clock time, stalls included, the speed-up is {wall_speedup:.2}",
            speculating * 100.0,
            no_speculation * 100.0
        ));
    }
    if let Some((rival, WallRival { stalled, chosen_stalled, over_chosen })) = ranking.wall_rival() {
        let chosen = ranking.chosen.as_ref().map_or_else(String::new, ToString::to_string);
        warnings.push(format!(
            "{load}: whether {chosen} or {} is faster is not known: stalls were {:.0}% and {:.0}% of their time, and by \
             wall-clock time, stalls included, {} is at {over_chosen:.2} of {chosen}",
            rival.configuration,
            chosen_stalled * 100.0,
            stalled * 100.0,
            rival.configuration
        ));
    }
    if left_out > 0 {
        warnings.push(format!("{load}: {left_out} of {trials} trials were excluded, because they were disturbed"));
    }
    if *keeps_up {
        warnings.push(format!("{load}: every configuration keeps up with this load, so they are compared by latency"));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use schemas::sweep::Metric;

    use super::*;
    use crate::{
        fixtures::synthetic,
        results::selection::{SpeculationVerdict, rank},
        trials::{
            configuration::{Configuration, TrialLoad},
            record::{CandidateRole, Outcome, Record, Stalls, Trial},
        },
    };

    #[test]
    fn a_choice_that_only_the_removal_of_stalls_makes_is_warned_about() {
        let record = |shape: &str, repeat: usize, wall: f64, rate: f64| {
            let configuration = Configuration::from_shape(shape.parse().expect("a shape"));
            let role = if configuration.is_off() { CandidateRole::NoSpeculation } else { CandidateRole::Candidate };
            let trial = Trial { configuration, load: TrialLoad::BatchSize(8), repeat };
            let mut record = synthetic::record(trial, role, wall + repeat as f64);
            if let Outcome::Measured(figures) = &mut record.outcome {
                let mut steady = figures.by_wall_clock();
                steady.output_tokens_per_s = rate + repeat as f64;
                figures.steady = Some(steady);
                figures.stalls = Some(Stalls { of_time: 1.0 - wall / rate, of_steps: 0.1 });
            }
            record
        };
        let of = |(shape, wall, rate)| (0..5).map(move |repeat| record(shape, repeat, wall, rate));
        let shapes = [("0,1,1", 1000.0, 1000.0), ("3,1,4", 1300.0, 1300.0), ("5,1,6", 1200.0, 1600.0)];
        let records: Vec<Record> = shapes.into_iter().flat_map(of).collect();
        let warnings = warnings_of_loads(&rank(&records, Metric::Throughput)).join("\n");
        assert!(warnings.contains("batch 8: whether 5,1,6 or 3,1,4 is faster is not known"), "{warnings}");
        assert!(warnings.contains("25% and 0%") && warnings.contains("3,1,4 is at 1.08 of 5,1,6"), "{warnings}");
    }

    #[test]
    fn a_quiet_race_has_none_and_a_disturbed_one_says_so() {
        let quiet = LoadRanking {
            load: TrialLoad::BatchSize(8),
            entries: Vec::new(),
            chosen: None,
            metric: Metric::Throughput,
            keeps_up: false,
            verdict: SpeculationVerdict::Tie,
            disturbance: Disturbance { trials: 9, stalled_share: Some(0.01), ..Disturbance::default() },
            excluded: Vec::new(),
            serial: None,
            starts: None,
        };
        assert!(warnings_of_loads(std::slice::from_ref(&quiet)).is_empty());
        let uneven = Some(UnevenStalls { speculating: 0.22, no_speculation: 0.4, wall_speedup: 1.31 });
        let disturbance =
            Disturbance { trials: 9, left_out: 2, stalled_share: Some(0.31), uneven, ..Disturbance::default() };
        let busy = LoadRanking { keeps_up: true, disturbance, ..quiet };
        let warnings = warnings_of_loads(&[busy]).join("\n");
        for part in [
            "batch 8: the machine was busy",
            "31% of the time",
            "22% of the time with speculation and 40% without",
            "the speed-up is 1.31",
            "2 of 9 trials",
            "compared by latency",
        ] {
            assert!(warnings.contains(part), "{part}: {warnings}");
        }
    }
}
