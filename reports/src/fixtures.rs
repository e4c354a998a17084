//! Races made up for tests.

use schemas::{sweep::Metric, tree::TreeShape};
use tuner::{
    results::selection::{self, Looks},
    trials::{
        configuration::{Configuration, TrialLoad},
        record::{CandidateRole, Fingerprint, Measurement, Outcome, Record, Trial, TrialOrigin},
    },
};

use crate::race::Race;

/// A measured trial.
pub fn measured(load: TrialLoad, shape: &str, repeat: usize, figures: Measurement) -> Record {
    let shape: TreeShape = shape.parse().expect("a shape");
    let role = if shape.is_off() { CandidateRole::NoSpeculation } else { CandidateRole::Candidate };
    let trial = Trial { configuration: Configuration::from_shape(shape), load, repeat };
    let fingerprint = Fingerprint::default();
    Record {
        id: trial.id(&fingerprint),
        trial,
        role,
        fingerprint,
        origin: TrialOrigin::default(),
        finished_at: 0,
        outcome: Outcome::Measured(Box::new(figures)),
    }
}

/// The race of trials under one load.
pub fn race(records: &[Record]) -> Race {
    let all: Vec<&Record> = records.iter().collect();
    let ranking = selection::rank(all.iter().copied(), Metric::Throughput).remove(0);
    Race::new(ranking, &all, Looks::Planned)
}
