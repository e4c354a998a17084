//! A made-up guide with the structure of a real one, made from the same made-up rules as the trials.

use schemas::tree::TreeShape;
use tuner::{
    configuration::{Configuration, Load},
    guide::{
        AcceptanceRow, AcceptanceSource, AcceptanceTable, CaptureChoice, CaptureList, CapturePoint, Cost,
        CrossValidation, FORMAT, Guide, Parameter, Prediction, RoundTimeSummary, TimedPoint,
    },
    record::{Measurement, Outcome, Record},
};

use super::synthetic::{Synthetic, fingerprint};

/// How far predictions are above what a trial without noise measures, by batch size: exact for one, off for many.
pub fn error(batch_size: usize) -> f64 {
    if batch_size == 1 { 0.0 } else { 0.04 }
}

/// What would have been known before the trials of `synthetic`.
pub fn guide(synthetic: &Synthetic) -> Guide {
    let quiet = Synthetic { noise: 0.0, repeats: 1, largest_tree: usize::MAX, ..synthetic.clone() };
    let records = quiet.records();
    let first = quiet.batch_sizes.first().copied().unwrap_or(1);
    let of_first = records.iter().filter(|record| record.trial.load == Load::BatchSize(first));
    Guide {
        format: FORMAT,
        fingerprint: fingerprint(),
        acceptance: AcceptanceTable {
            source: AcceptanceSource::Replayed { texts: 64, tokens: 64 * 256 },
            rows: of_first.map(acceptance).collect(),
        },
        round_times: round_times(&records),
        predictions: records.iter().map(prediction).collect(),
        rounds_by_batch: Vec::new(),
        captures: quiet.batch_sizes.iter().map(|size| captures(*size)).collect(),
        cost: Cost { texts_s: 42.0, replay_s: 7.5, timing_s: 18.0 },
    }
}

fn measured(record: &Record) -> &Measurement {
    match &record.outcome {
        Outcome::Measured(figures) => figures,
        Outcome::Failed { reason, .. } => panic!("nothing fails here: {reason}"),
    }
}

fn acceptance(record: &Record) -> AcceptanceRow {
    let figures = measured(record);
    let length = figures.accept_length;
    AcceptanceRow {
        shape: record.trial.configuration.shape,
        accept_length: length,
        interval: Some([length * 0.97, length * 1.03]),
        histogram: figures.accept_histogram.clone(),
    }
}

fn prediction(record: &Record) -> Prediction {
    let figures = measured(record);
    let batch_size = record.trial.load.batch_size().unwrap_or(1);
    let rows = batch_size * record.trial.configuration.shape.num_draft_tokens;
    let factor = 1.0 + error(batch_size);
    Prediction {
        configuration: record.trial.configuration.clone(),
        load: record.trial.load,
        accept_length: figures.accept_length,
        round_ms: figures.round_ms.median / factor,
        output_tokens_per_s: figures.output_tokens_per_s * factor,
        tokens_per_s_per_user: figures.tokens_per_s_per_user * factor,
        latency_ms: figures.latency_ms.median / factor,
        time_to_first_token_ms: figures.time_to_first_token_ms.median,
        extrapolated: (rows > 1024).then(|| format!("{rows} rows verified; timed up to 1024")),
    }
}

fn round_times(records: &[Record]) -> RoundTimeSummary {
    let parameter = |name: &str, value: f64, unit: &str| Parameter { name: name.into(), value, unit: unit.into() };
    let point = |(place, record): (usize, &Record)| {
        let time = measured(record).round_ms.median;
        TimedPoint {
            shape: record.trial.configuration.shape,
            batch: record.trial.load.batch_size().unwrap_or(1),
            context: 512,
            measured_ms: time,
            left_out_ms: time * (1.0 + 0.01 * ((place % 5) as f64 - 2.0)),
        }
    };
    RoundTimeSummary {
        parameters: vec![
            parameter("weights of the target", 8.6, "ms"),
            parameter("a row verified", 0.031, "ms"),
            parameter("a draft step", 0.56, "ms"),
        ],
        error: CrossValidation { median: 0.01, p90: 0.02, largest: 0.02 },
        points: records.iter().enumerate().map(point).collect(),
    }
}

fn captures(batch_size: usize) -> CaptureChoice {
    let list = |name: &str, sizes: Vec<usize>, seconds: f64, padding: f64| CaptureList {
        name: name.into(),
        sizes,
        seconds,
        padding,
    };
    CaptureChoice {
        configuration: Configuration::of(TreeShape::chain(3)),
        load: Load::BatchSize(batch_size),
        running_batch: (1..=batch_size).map(|size| if size == batch_size { 900.0 } else { 3.0 }).collect(),
        lists: vec![
            list("chosen", vec![1, 4, batch_size + 4], 10.0 + 2.0 / 3.0, 0.012),
            list("SGLang's default", vec![1, 2, 4, 8, 12, 16, 24, 32], 10.4, 0.05),
            list("slime's wide list", (1..=24).map(|size| size * 8).collect(), 11.3, 0.21),
        ],
        curve: (1..=16).map(|graphs| CapturePoint { graphs, seconds: 10.0 + 2.0 / graphs as f64 }).collect(),
    }
}
