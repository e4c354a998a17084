use schemas::{sweep::SweepFile, text::Source, tree::TreeShape};

use super::*;
use crate::{
    fixtures::synthetic,
    results::selection::{Comparison, rank},
    trials::{
        configuration::TrialLoad,
        record::{CandidateRole, Trial},
    },
};

const SWEEP: &str = "[models]\ntarget = 't'\n[workload]\nrandom = { input_length = 8 }\n[batch]\nsizes = [1, 8]\n\
                     [[drafts]]\nname = 'a'\npath = 'heads/a'\nalgorithm = 'EAGLE3'\n\
                     [[drafts]]\nname = 'b'\nalgorithm = 'SUFFIX'\n";

/// The tuned file of a sweep in which the drafts `a` and `b` have these speeds at batch 1 and batch
/// 8; no speculation has 100.
fn tuned_of(speeds: [[f64; 2]; 2]) -> TunedFile {
    let file = SweepFile::read(&Source::new("sweep.toml", SWEEP)).expect("a sweep");
    let fingerprint = Fingerprint { draft: "a 11, b".into(), engine: "spectune".into(), ..Fingerprint::default() };
    let mut records = Vec::new();
    for repeat in 0..8 {
        // Hardly any scatter.
        let slower = 1.0 - 1e-4 * f64::from(repeat % 3);
        for (load, [a, b]) in [1, 8].map(TrialLoad::BatchSize).into_iter().zip(speeds) {
            let of = |draft: &str, shape| Configuration { draft: draft.into(), ..Configuration::from_shape(shape) };
            let chain = TreeShape::chain(3);
            let field = [
                (of("", TreeShape::OFF), CandidateRole::NoSpeculation, 100.0),
                (of("a", chain), CandidateRole::EngineDefault, a),
                (of("b", chain), CandidateRole::EngineDefault, b),
            ];
            records.extend(field.map(|(configuration, role, speed)| {
                let trial = Trial { configuration, load, repeat: repeat as usize };
                synthetic::record(trial, role, speed * slower)
            }));
        }
    }
    let ranking = rank(&records, Comparison::from_sweep(&file));
    tuned(&file, Path::new(""), 64, &fingerprint, &ranking, None).expect("a winner")
}

/// Its algorithm, draft hash, steps by batch, and the warnings about other drafts.
fn check(speeds: [[f64; 2]; 2], algorithm: &str, hash: &str, steps: [usize; 2], warnings: &[&str]) {
    let tuned = tuned_of(speeds);
    assert_eq!((tuned.models.algorithm.as_str(), tuned.measured.draft_hash.as_str()), (algorithm, hash), "{speeds:?}");
    assert_eq!(tuned.models.draft.is_empty(), algorithm == "SUFFIX");
    let found: Vec<usize> = tuned.policy.iter().map(|row| row.num_steps).collect();
    assert_eq!(found, steps, "{speeds:?}");
    let others: Vec<&String> = tuned.warnings.iter().filter(|one| one.contains("an engine has one draft")).collect();
    assert_eq!(others.len(), warnings.len(), "{others:?}");
    others.iter().zip(warnings).for_each(|(found, words)| assert!(found.starts_with(words), "{found}"));
}

#[test]
fn a_tuned_file_has_the_draft_that_gains_the_most_over_all_loads() {
    check([[150.0, 120.0], [110.0, 90.0]], "EAGLE3", "11", [3, 3], &[]);
    check([[150.0, 200.0], [90.0, 130.0]], "SUFFIX", "", [3, 3], &[]);
    // Each wins under a load: the gain of one is larger.
    check([[150.0, 300.0], [140.0, 120.0]], "SUFFIX", "", [3, 3], &["batch 8: a 3,1,4 was chosen, 1.17 times"]);
    check([[150.0, 120.0], [80.0, 101.5]], "EAGLE3", "11", [3, 0], &["batch 8: b 3,1,4 was chosen, 1.0"]);
    // No speculation is the same with every draft.
    check([[90.0, 80.0], [95.0, 130.0]], "SUFFIX", "", [0, 3], &[]);
    check([[90.0, 80.0], [95.0, 70.0]], "EAGLE3", "11", [0, 0], &[]);
}

/// Short contexts are fastest with a chain of three, long ones without speculation; at batch 8 a
/// chain of one is best everywhere.
#[test]
fn a_tuned_file_has_a_row_for_each_batch_and_context_bucket() {
    let text = "[models]\ntarget = 't'\ndraft = 'd'\nalgorithm = 'EAGLE3'\n[workload]\nrandom = { input_length = 8 }\n\
                [batch]\nsizes = [1, 8]\ncontexts = [64]\n";
    let file = SweepFile::read(&Source::new("sweep.toml", text)).expect("a sweep");
    let shapes = [TreeShape::OFF, TreeShape::chain(1), TreeShape::chain(3)];
    let speeds = [[100.0, 110.0, 150.0], [100.0, 90.0, 80.0], [400.0, 500.0, 450.0], [300.0, 350.0, 250.0]];
    let mut records = Vec::new();
    for (load, speeds) in crate::space::settings::loads(&file).into_iter().zip(speeds) {
        for repeat in 0..8_usize {
            records.extend(shapes.iter().zip(speeds).map(|(shape, speed)| {
                let role = if shape.is_off() { CandidateRole::NoSpeculation } else { CandidateRole::Candidate };
                let trial = Trial { configuration: Configuration::from_shape(*shape), load, repeat };
                synthetic::record(trial, role, speed * (1.0 - 1e-4 * (repeat % 3) as f64))
            }));
        }
    }
    let ranking = rank(&records, Comparison::from_sweep(&file));
    let tuned = tuned(&file, Path::new(""), 64, &Fingerprint::default(), &ranking, None).expect("a winner");
    let rows: Vec<_> =
        tuned.policy.iter().map(|row| (row.max_running_batch, row.max_context, row.num_steps, row.speedup)).collect();
    let expected = [
        (1, Some(64), 3, Some(1.5)),
        (1, None, 0, Some(1.0)),
        (8, Some(64), 1, Some(1.25)),
        (8, None, 1, Some(1.1667)),
    ];
    assert_eq!(rows, expected);
    let written = TunedFile::read(&Source::new("tuned.toml", tuned.text().expect("it is TOML")));
    assert_eq!(written.map(|file| file.batches_that_depend_on_context()), Ok(vec![1]));
}
