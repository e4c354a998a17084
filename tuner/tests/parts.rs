//! A sweep on a device whose rounds run whole: their parts are timed separately from the trials.

use std::{path::Path, sync::atomic::AtomicBool};

use engine::DeviceChoice;
use schemas::{sweep::SweepFile, text::Source};
use tuner::{
    sweep::{self, SweepInputs, SweepProgress, SweepRequest},
    trials::record::{Measurement, Outcome, Record},
};

const FILE: &str = r#"
[models]
target = "target"
draft = "eagle3"
algorithm = "EAGLE3"
dtype = "float32"
[engine]
context_length = 64
capture_sizes = [1]
[workload]
random = { input_length = 6, ratio = 1.0 }
output_length = 3
requests = 1
warm_up_tokens = 0
[batch]
sizes = [1]
[space]
num_steps = [1]
topk = [1]
num_draft_tokens = [2]
[search]
strategy = "grid"
repeats = 2
trials = 6
"#;

/// Collects the notes to the user.
#[derive(Default)]
struct Notes(Vec<String>);

impl SweepProgress for Notes {
    fn note(&mut self, text: &str) {
        self.0.push(text.to_owned());
    }
}

fn figures(record: &Record) -> &Measurement {
    match &record.outcome {
        Outcome::Measured(figures) => figures,
        Outcome::Failed { reason, .. } => panic!("{reason}"),
    }
}

#[test]
fn parts_are_timed_once_for_each_configuration_and_load() {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny");
    let out = tempfile::tempdir().expect("a folder");
    let interrupted = AtomicBool::new(false);
    let request = SweepRequest {
        inputs: SweepInputs {
            file: SweepFile::read(&Source::new("sweep.toml", FILE)).expect("a sweep file"),
            folder: models,
            shard: None,
            device: Some(DeviceChoice::Emulator),
        },
        out: out.path().to_owned(),
        resume: false,
        keep_states: 0,
        interrupted: &interrupted,
        supervisor: None,
    };
    let mut reported = Notes::default();
    let summary = sweep::run(&request, &mut reported).expect("it runs");
    assert_eq!(summary.ran, 6);
    assert!(!reported.0.iter().any(|note| note.contains("parts")), "{:?}", reported.0);
    for record in &summary.records {
        let figures = figures(record);
        assert!(figures.verify_ms.is_none(), "the trial's own rounds run whole");
        assert_eq!(figures.parts_apart.is_some(), record.trial.repeat == 0, "{record:?}");
        if let Some(parts) = figures.parts_apart {
            let drafts = !record.trial.configuration.is_off();
            assert_eq!((parts.draft_ms.is_some(), parts.extend_ms.is_some()), (drafts, drafts), "{parts:?}");
            assert_eq!(parts.batch, 1);
        }
    }
}
