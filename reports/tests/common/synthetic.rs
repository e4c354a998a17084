//! Synthetic trials with the structure of real ones. Nothing here was measured; the device's name
//! says so.

use reports::Sweep;
use schemas::{sweep::SweepFile, text::Source, tree::TreeShape, tuned::TunedFile};
use tuner::trials::{
    configuration::{Configuration, TrialLoad},
    journal::{FORMAT, JournalHeader},
    record::{CandidateRole, Fingerprint, Measurement, Outcome, PartsApart, Record, Trial, TrialOrigin, TrialSpread},
};

/// The sweep file of the trials.
const FILE: &str = r#"
[models]
target = "made-up/target"
draft = "made-up/draft"
algorithm = "EAGLE3"
[workload]
prompts = "made-up.jsonl"
requests = 64
output_length = 256
[batch]
sizes = [1, 8, 32]
[space]
num_steps = [1, 2, 3, 5, 7]
topk = [1, 2, 4, 8]
num_draft_tokens = [4, 8, 16, 32, 64]
"#;

/// Parameters of the synthetic trials.
#[derive(Clone)]
pub struct Synthetic {
    pub batch_sizes: Vec<usize>,
    pub shapes: Vec<TreeShape>,
    pub repeats: usize,
    /// Seed of the noise.
    pub seed: u64,
    /// Relative noise of a trial.
    pub noise: f64,
    /// Whether the engine times the parts of a round.
    pub split: bool,
    /// Whether, if it does not, parts are timed separately from the trials.
    pub apart: bool,
    /// Probability that the first draft is accepted.
    pub acceptance: f64,
    /// Whether acceptance is marked as simulated.
    pub simulated: bool,
    /// Shapes with more nodes than this fail.
    pub largest_tree: usize,
}

impl Default for Synthetic {
    fn default() -> Self {
        let mut shapes = vec![TreeShape::OFF];
        for (steps, topk, sizes) in [
            (1, 1, &[2][..]),
            (2, 1, &[3]),
            (3, 1, &[4]),
            (5, 1, &[6]),
            (7, 1, &[8]),
            (2, 2, &[4, 6]),
            (3, 2, &[6, 8]),
            (5, 2, &[8, 16]),
            (3, 4, &[8, 16]),
            (5, 4, &[8, 16, 32]),
            (3, 8, &[16, 32]),
            (5, 8, &[32, 64]),
        ] {
            shapes.extend(sizes.iter().map(|size| TreeShape::whole_tree(steps, topk, *size)));
        }
        Self {
            batch_sizes: vec![1, 8, 32, 128],
            shapes,
            repeats: 5,
            seed: 42,
            noise: 0.015,
            split: true,
            apart: false,
            acceptance: 0.68,
            simulated: false,
            largest_tree: 32,
        }
    }
}

impl Synthetic {
    pub fn sweep(&self, name: &str) -> Sweep {
        Sweep {
            name: name.into(),
            records: self.records(),
            tuned: Some(tuned()),
            guide: None,
            header: Some(header()),
            notices: vec!["SYNTHETIC DATA: no figure on this page was measured".into()],
        }
    }

    pub fn records(&self) -> Vec<Record> {
        let mut random = Random(self.seed);
        let mut records = Vec::new();
        for repeat in 0..self.repeats {
            for batch_size in &self.batch_sizes {
                for shape in &self.shapes {
                    records.push(self.record(*shape, *batch_size, repeat, &mut random));
                }
            }
        }
        records
    }

    fn record(&self, shape: TreeShape, batch_size: usize, repeat: usize, random: &mut Random) -> Record {
        let outcome = if shape.num_draft_tokens > self.largest_tree {
            Outcome::Failed {
                reason: format!("out of memory: {} rows a round do not fit", shape.num_draft_tokens * batch_size),
                failure: None,
            }
        } else {
            Outcome::Measured(Box::new(self.measurement(shape, batch_size, random)))
        };
        Record {
            id: format!("{shape}/{batch_size}/{repeat}"),
            trial: Trial {
                configuration: Configuration::from_shape(shape),
                load: TrialLoad::BatchSize(batch_size),
                repeat,
            },
            role: match shape {
                TreeShape::OFF => CandidateRole::NoSpeculation,
                shape if shape == TreeShape::whole_tree(5, 4, 8) => CandidateRole::EngineDefault,
                _ => CandidateRole::Candidate,
            },
            fingerprint: fingerprint(),
            origin: TrialOrigin::default(),
            finished_at: 1_790_000_000 + repeat as u64,
            outcome,
        }
    }

    fn measurement(&self, shape: TreeShape, batch_size: usize, random: &mut Random) -> Measurement {
        let noise = 1.0 + self.noise * random.around_zero();
        let rows = (batch_size * shape.num_draft_tokens) as f64;
        let verify = (9.0 + 0.03 * rows.max(1.0) + 0.0002 * rows * rows) * noise;
        let draft = 0.55 * shape.num_steps as f64 * (1.0 + 0.02 * (batch_size * shape.topk) as f64) * noise;
        let extend = if shape.is_off() { 0.0 } else { 0.5 + 0.01 * batch_size as f64 };
        let round = verify + draft + extend + 0.3;

        // The probability that one of the drafts at a depth is right grows with the number of nodes
        // at that depth.
        let width = shape.drafts() as f64 / shape.num_steps.max(1) as f64;
        let rounds = 40_000_u64;
        let mut reached = 1.0;
        let mut histogram = Vec::new();
        for depth in 0..=shape.num_steps {
            let best = self.acceptance * 0.95_f64.powi(depth as i32);
            let here =
                if depth == shape.num_steps { 0.0 } else { 1.0 - (1.0 - best).powf(1.0 + 0.4 * width.ln().max(0.0)) };
            histogram.push(((reached * (1.0 - here)) * rounds as f64).round() as u64);
            reached *= here;
        }
        let accepted: u64 = histogram.iter().enumerate().map(|(drafts, count)| drafts as u64 * count).sum();
        let accept_length = 1.0 + accepted as f64 / histogram.iter().sum::<u64>() as f64;
        let user = accept_length / round * 1000.0;
        let throughput = user * batch_size as f64 * 0.97;
        let ms = |median: f64| TrialSpread {
            min: median * 0.95,
            median,
            p90: median * 1.08,
            p99: median * 1.2,
            max: median * 1.4,
            count: 64,
        };
        let part = |median: f64| self.split.then(|| ms(median));
        Measurement {
            requests: 64,
            output_tokens: 64 * 256,
            elapsed_s: 64.0 * 256.0 / throughput,
            output_tokens_per_s: throughput,
            tokens_per_s_per_user: user,
            goodput_tokens_per_s: None,
            simulated: self.simulated,
            accept_length,
            accept_histogram: histogram,
            rounds,
            round_ms: ms(round),
            draft_ms: part(draft),
            verify_ms: part(verify),
            extend_ms: part(extend),
            parts_apart: (self.apart && !self.split).then(|| PartsApart {
                rounds: 15,
                batch: batch_size,
                context: 300.0,
                round_ms: ms(round * 1.02),
                draft_ms: (!shape.is_off()).then(|| ms(draft)),
                verify_ms: ms(round * 1.02 - draft - extend),
                extend_ms: (!shape.is_off()).then(|| ms(extend)),
            }),
            running_batch: (1..=batch_size).map(|size| if size == batch_size { rounds } else { 0 }).collect(),
            inter_token_ms: Some(ms(1000.0 / user)),
            time_to_first_token_ms: ms((20.0 + 3.0 * batch_size as f64) * noise),
            latency_ms: ms(256.0 / user * 1000.0),
            ..Measurement::default()
        }
    }
}

pub fn tuned() -> TunedFile {
    TunedFile::read(&Source::new("tuned.toml", include_str!("../data/tuned.toml"))).expect("a tuned file")
}

/// The header of their journal, without a number of planned trials.
pub fn header() -> JournalHeader {
    JournalHeader {
        format: FORMAT,
        journal: "made-up".into(),
        sweep: "made-up".into(),
        fingerprint: fingerprint(),
        shard: None,
        file: SweepFile::read(&Source::new("sweep.toml", FILE)).expect("a sweep file"),
        folder: None,
        planned: 0,
        cut: None,
    }
}

pub fn fingerprint() -> Fingerprint {
    Fingerprint {
        device: "cpu".into(),
        device_name: "synthetic device (made-up figures)".into(),
        driver: String::new(),
        units: 8,
        engine: "spectune 0.0.0".into(),
        target: "blake3:0f3a".into(),
        draft: "blake3:77c1".into(),
        workload: "blake3:a94e".into(),
        settings: "EAGLE3, dtype auto, context 2048".into(),
    }
}

/// A small generator, so that the figures never change.
struct Random(u64);

impl Random {
    /// An approximately normal number with deviation one.
    fn around_zero(&mut self) -> f64 {
        let uniform = |state: &mut u64| {
            *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (*state >> 33) as f64 / (1_u64 << 31) as f64
        };
        (0..12).map(|_| uniform(&mut self.0)).sum::<f64>() - 6.0
    }
}
