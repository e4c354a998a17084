//! A guided search on recorded measurements of a real server with every tree of a space: SGLang
//! 0.5.16 on an H200 with the `small` pair (28 M parameters, EAGLE-3), whose rounds are bound by
//! the host. The whole grid took 14 starts (docs/notes/servers.md).

use schemas::{
    sweep::{KnobLists, Metric, Space},
    tree::NodeSource,
};

use super::*;
use crate::{
    fixtures::synthetic,
    prediction::guide::{AcceptanceRow, AcceptanceSource},
    results::selection::Looks,
    space::expand,
    trials::record::{Outcome, Trial},
};

const LOADS: [TrialLoad; 3] = [TrialLoad::BatchSize(1), TrialLoad::BatchSize(8), TrialLoad::BatchSize(32)];

/// Accept length, and output tokens per second under each load: medians of three repeats, for no
/// speculation and the default of nine.
const MEASURED: [(&str, f64, [f64; 3]); 14] = [
    ("0,1,1", 1.010, [716.2, 4720.7, 12370.2]),
    ("1,1,2", 1.558, [345.6, 2018.7, 7201.6]),
    ("2,1,3", 1.831, [409.8, 2412.4, 7788.6]),
    ("2,4,8", 2.204, [398.5, 2318.3, 7664.8]),
    ("2,4,16", 2.226, [396.8, 2363.6, 7915.5]),
    ("3,1,4", 1.984, [427.6, 2031.1, 5742.3]),
    ("3,4,8", 2.408, [396.7, 2341.8, 6879.7]),
    ("3,4,16", 2.582, [417.0, 2496.7, 8591.8]),
    ("4,1,5", 2.070, [445.1, 2522.1, 8521.8]),
    ("4,4,8", 2.514, [420.3, 2571.8, 7706.5]),
    ("4,4,16", 2.699, [474.1, 2671.5, 8333.5]),
    ("5,1,6", 2.154, [470.7, 2665.5, 7946.6]),
    ("5,4,8", 2.569, [435.9, 2468.2, 6973.5]),
    ("5,4,16", 2.793, [496.1, 2765.9, 8278.1]),
];

fn measured(shape: TreeShape, load: TrialLoad) -> (f64, f64) {
    let at = LOADS.iter().position(|one| *one == load).expect("a load that was measured");
    let of = |(name, length, rates): &(&str, f64, [f64; 3])| {
        let is_it = *name == shape.to_string() || (shape.is_off() && *name == "0,1,1");
        is_it.then_some((rates[at], *length))
    };
    MEASURED.iter().find_map(of).expect("a shape that was measured")
}

struct RecordedServer {
    records: Vec<Record>,
    experiment: Experiment,
}

impl TrialRunner for RecordedServer {
    fn measure(&mut self, trial: &Trial) -> Result<&Record, SearchStop> {
        let configuration = &trial.configuration;
        let batch = trial.load.batch_size().expect("a closed loop");
        let (rate, length) = measured(configuration.shape_at(batch), trial.load);
        let role = self.experiment.entrants.iter().find(|one| one.configuration == *configuration);
        let mut record = synthetic::record(trial.clone(), role.map_or(CandidateRole::Probe, |one| one.role), rate);
        if let Outcome::Measured(figures) = &mut record.outcome {
            figures.accept_length = length;
        }
        self.records.push(record);
        Ok(&self.records[self.records.len() - 1])
    }

    fn history(&self) -> &[Record] {
        &self.records
    }
}

#[test]
fn four_starts_tell_what_fourteen_do() {
    let shapes = MEASURED[1..].iter().map(|row| row.0.to_owned()).collect();
    let space = Space { shapes, ..Space::default() };
    let entrants =
        expand(&space, &KnobLists::default(), &[], NodeSource::Beams, "5,4,8".parse().expect("the engine's default"))
            .entrants;
    let row = |one: &Candidate| AcceptanceRow {
        shape: one.configuration.shape,
        accept_length: measured(one.configuration.shape, LOADS[0]).1,
        interval: None,
        histogram: Vec::new(),
    };
    let source = AcceptanceSource::Replayed { texts: 32, tokens: 3072 };
    let acceptance = AcceptanceTable { source, rows: entrants.iter().map(row).collect(), text_drafts: Vec::new() };
    let experiment = Experiment {
        entrants,
        loads: LOADS.to_vec(),
        repeats: 1,
        metric: Metric::Throughput,
        looks: Looks::Planned,
        restarts: true,
    };
    let tables = rotations(&experiment, &acceptance);
    let mut server = RecordedServer { records: Vec::new(), experiment: experiment.clone() };
    let mut found = SearchFindings::default();
    let search = Search { candidates: 1, ..Search::default() };
    run(&search, &experiment, Some(&acceptance), &tables, &mut found, &mut server).expect("it ends");

    let mut started: Vec<String> = server.records.iter().map(|one| one.trial.configuration.to_string()).collect();
    started.dedup();
    started.sort();
    started.dedup();
    assert!(started.len() <= 4, "{started:?}");
    assert!(started.iter().any(|one| one.starts_with("table")), "chains are part of the space: {started:?}");
    for load in LOADS {
        let own = server.records.iter().filter(|one| one.trial.load == load && one.role != CandidateRole::Probe);
        let own = own.map(|one| measured(one.trial.configuration.shape, load).0).fold(0.0, f64::max);
        let best = experiment.entrants.iter().map(|one| measured(one.configuration.shape, load).0).fold(0.0, f64::max);
        assert!(own >= 0.97 * best, "{load}: {own} of {best}, {started:?}");
    }
    let error =
        |one: &Prediction| (one.output_tokens_per_s / measured(one.configuration.shape, one.load).0 - 1.0).abs();
    let mut errors: Vec<f64> = found.predictions.iter().map(error).collect();
    errors.sort_by(f64::total_cmp);
    println!("{started:?}: errors {errors:.3?}");
    assert!(errors[errors.len() / 2] < 0.12, "{errors:?}");
}
