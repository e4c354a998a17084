//! Predicts the result of every configuration under every load.

use engine::Engine;
use schemas::tree::TreeShape;

use super::{
    Replayed,
    rounds::{self, Timed},
};
use crate::{
    TunerError,
    forecast::{Arrivals, Forecast, Need, Setup, rounds_behind, simulate},
    prediction::{
        guide::{AcceptanceTable, Prediction},
        latency::{Beyond, Point, PrefillKind},
    },
    preparation::context::SweepContext,
    trials::{
        configuration::{Configuration, TrialLoad},
        record::FullLoop,
    },
    workload::{LoadedWorkload, context},
};

/// A prediction with the forecast that it comes from.
pub struct Predicted {
    pub prediction: Prediction,
    pub forecast: Forecast,
    /// Mean tokens of a request halfway through its output.
    pub context: f64,
}

/// Predicts every configuration that has the sweep file's settings and known acceptance.
pub fn all(
    context: &mut SweepContext<'_>,
    acceptance: &AcceptanceTable,
    replayed: Option<&Replayed>,
    timed: &Timed,
) -> Result<Vec<Predicted>, TunerError> {
    let mut all = Vec::new();
    let SweepContext { ready, interrupted, .. } = context;
    let experiment = ready.experiment.clone();
    let (engine, workload) = ready.parts()?;
    for load in &experiment.loads {
        for entrant in experiment.entrants.iter().filter(|one| one.configuration.is_plain()) {
            if interrupted.load(std::sync::atomic::Ordering::Relaxed) {
                return Ok(all);
            }
            let shape = entrant.configuration.shape;
            let Some(length) = acceptance.length(shape) else { continue };
            let needs = needs(workload, *load, shape, length, replayed);
            all.push(predict(engine, workload, &entrant.configuration, *load, &needs, timed)?);
        }
    }
    Ok(all)
}

fn predict(
    engine: &Engine,
    workload: &LoadedWorkload,
    configuration: &Configuration,
    load: TrialLoad,
    needs: &[Need],
    timed: &Timed,
) -> Result<Predicted, TunerError> {
    let shape = configuration.shape;
    let capacity = engine.capacity();
    let setup = Setup {
        capture_sizes: rounds::graph_sizes(engine),
        max_running_requests: engine.max_running_requests(),
        memory: None,
        prefill_budget: engine.options().chunked_prefill_size,
        prefill_chunk: capacity.prefill_chunk,
        rounds_behind: rounds_behind(capacity.rounds_in_flight),
        mixed_prefill: false,
    };
    let arrivals = match load {
        TrialLoad::BatchSize(batch_size) | TrialLoad::BatchInContexts(batch_size, _) => {
            // Requests above the limit only wait, and the simulation refuses such a batch.
            Arrivals::Closed { batch_size: batch_size.min(setup.max_running_requests) }
        }
        TrialLoad::RequestRate(_) | TrialLoad::Recorded => {
            let at = workload.arrivals(load, 0).unwrap_or_default();
            Arrivals::Open { at_ms: at.iter().map(|at| at.as_secs_f64() * 1e3).collect() }
        }
    };
    let round_ms = |filling| Ok(timed.model.filled_ms(shape, filling));
    let prefill = timed.prefill.for_shape(shape);
    let forecast = simulate(needs, &arrivals, &setup, round_ms, |step| prefill.step(step))?;
    let context = context::mean_halfway(needs.iter().map(|need| (need.prompt_tokens, need.output_tokens)));
    let rounds: u64 = forecast.batches.iter().sum();
    let kind = |batch: usize| timed.model.kind(&Point { shape, batch, context });
    // The batch of most rounds decides whether the prediction is extrapolated.
    let usual = forecast.batches.iter().enumerate().max_by_key(|(_, rounds)| **rounds).map_or(1, |(batch, _)| batch);
    let prediction = Prediction {
        configuration: configuration.clone(),
        load,
        accept_length: forecast.accept_length.unwrap_or(1.0),
        round_ms: (forecast.elapsed_s - forecast.prefill_s) * 1e3 / rounds.max(1) as f64,
        output_tokens_per_s: forecast.full.map_or(forecast.output_tokens_per_s, FullLoop::rate),
        tokens_per_s_per_user: forecast.tokens_per_s_per_user.unwrap_or_default(),
        latency_ms: forecast.latency_ms.median,
        time_to_first_token_ms: forecast.time_to_first_token_ms.median,
        extrapolated: match kind(usual.max(1)) {
            PrefillKind::Interpolated => None,
            PrefillKind::Extrapolated(beyond) => Some(beyond.iter().map(words).collect::<Vec<_>>().join(", ")),
        },
    };
    Ok(Predicted { prediction, forecast, context })
}

fn words(beyond: &Beyond) -> String {
    let Beyond { value, measured } = beyond;
    format!("{} {value:.0} (timed: {:.0} to {:.0})", measured.quantity, measured.min, measured.max)
}

/// The needs of each request of a trial under a shape.
fn needs(
    workload: &LoadedWorkload,
    load: TrialLoad,
    shape: TreeShape,
    length: f64,
    replayed: Option<&Replayed>,
) -> Vec<Need> {
    let place = replayed.and_then(|replayed| replayed.shapes.iter().position(|one| *one == shape));
    let need = |at: usize| {
        let request = &workload.requests[at];
        let prompt_tokens = request.input_ids.len();
        // Of many requests only the first ones are replayed; the others repeat their acceptance.
        let text = replayed.map(|replayed| (replayed, at % replayed.texts.len().max(1)));
        let output_tokens = match text.and_then(|(replayed, at)| replayed.texts.get(at)) {
            Some(text) => text.output_tokens(),
            None => request.stop.max_new_tokens.unwrap_or(1),
        }
        .max(1);
        let known = text.zip(place).and_then(|((replayed, at), place)| replayed.each.get(at)?.get(place));
        let rounds = match known {
            Some(acceptance) => acceptance.rounds,
            None if shape.is_off() => output_tokens - 1,
            // The first token comes from the prefill, and each round yields at least one.
            None => ((output_tokens as f64 / length).ceil() as usize).min(output_tokens - 1),
        };
        Need { prompt_tokens, output_tokens, rounds }
    };
    workload.sent_under(load).into_iter().map(need).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use engine::timing::PrefillTime;

    use super::*;
    use crate::{
        fixtures::demo,
        prediction::{
            guide::{GuideErrors, RoundTimeSummary},
            latency::{LatencyMachine, RoundModel, TimedSample, prefill::PrefillModels},
        },
    };

    /// A prefill step takes 4 ms with the draft and 1 ms without it; a round takes 2 ms.
    #[test]
    fn without_speculation_the_draft_reads_no_prompt() {
        let engine = demo::engine(2);
        let shapes = [TreeShape::OFF, TreeShape::chain(1), TreeShape::chain(3)];
        let points = shapes.iter().flat_map(|shape| [1, 2].map(|batch| (*shape, batch)));
        let points = points.flat_map(|(shape, batch)| [16.0, 64.0].map(|context| Point { shape, batch, context }));
        let samples: Vec<TimedSample> = points.map(|point| TimedSample::full(point, vec![2.0; 3])).collect();
        let machine = LatencyMachine::from_engine(&engine).expect("the CPU is measured");
        let model = RoundModel::fit(machine, &samples).expect("it fits");
        let read = |draft, tokens, milliseconds| PrefillTime {
            tokens,
            prompts: 1,
            pairs: 0,
            draft,
            steps: 1,
            elapsed: Duration::from_millis(milliseconds),
        };
        let prefills = [read(true, 10, 4), read(true, 50, 4), read(false, 10, 1), read(false, 50, 1)];
        let prefill = PrefillModels::fit(&prefills).expect("it fits");
        let error = GuideErrors::default();
        let timed = Timed { model, prefill, summary: RoundTimeSummary { parameters: vec![], error, points: vec![] } };
        let workload = LoadedWorkload {
            requests: vec![],
            recorded: vec![],
            seed: 0,
            warm_up_tokens: 0,
            hash: String::new(),
            left_out: 0,
            prompts: 1,
        };
        let need = Need { prompt_tokens: 20, output_tokens: 5, rounds: 4 };
        for (shape, expected) in [(shapes[0], 1.0), (shapes[1], 4.0), (shapes[2], 4.0)] {
            let configuration = Configuration::from_shape(shape);
            let predicted = predict(&engine, &workload, &configuration, TrialLoad::BatchSize(1), &[need], &timed);
            let first = predicted.expect("it is played").prediction.time_to_first_token_ms;
            assert!((first - expected).abs() < 1e-6, "{shape}: {first}");
        }
    }
}
