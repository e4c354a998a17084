//! Times the parts of a round, for devices on which a trial's rounds run whole.
//!
//! On these devices a round is one graph, and splitting it makes it slower. So the measured rounds
//! are left whole, and a few more are timed part by part after the trial, with the batch size of
//! its median round and each request halfway through its output.

use engine::{Engine, EngineError, timing::TimingPoint};

use super::{
    measurement::{PartOfRound, spread},
    policy,
};
use crate::{
    trials::record::{Measurement, PartsApart, Trial},
    workload::{LoadedWorkload, context},
};

/// Number of timed rounds.
const ROUNDS: usize = 15;

/// Times the parts of a trial's rounds. `None` if the device does not report them, or if the
/// trial's rounds cannot be reproduced this way: rounds without speculation of a table that
/// speculates at other batches, since they keep their tokens for the draft.
///
/// # Errors
/// When a request is running, the rounds do not fit the engine, or the device fails.
pub fn time(
    engine: &mut Engine,
    trial: &Trial,
    workload: &LoadedWorkload,
    figures: &Measurement,
) -> Result<Option<PartsApart>, EngineError> {
    let batch = median_batch(&figures.running_batch).clamp(1, engine.max_running_requests());
    let context = halfway(&workload.for_load(trial.load), figures);
    let shape = policy(&trial.configuration).shape_at(batch, context);
    // A table that turns speculation off at this batch has no parts to time.
    if shape.is_off() && !trial.configuration.is_off() {
        return Ok(None);
    }
    // The rounds before and after the timed ones need room too.
    let room = engine.capacity().context_length.saturating_sub(shape.num_draft_tokens + 2 * ROUNDS);
    let point = TimingPoint::full(shape, batch, context.min(room).max(1));
    let times = engine.time_parts(&[point], ROUNDS)?;
    Ok(times.into_iter().next().and_then(|times| {
        let part = |of: PartOfRound| spread(&times.device, of);
        Some(PartsApart {
            rounds: times.device.len(),
            batch,
            context: times.context,
            round_ms: part(|timing| Some(timing.total))?,
            draft_ms: part(|timing| timing.draft),
            verify_ms: part(|timing| timing.verify)?,
            extend_ms: part(|timing| timing.extend),
        })
    }))
}

/// The batch of the median round of a trial. Entry k counts rounds of k + 1 requests.
fn median_batch(rounds_by_batch: &[u64]) -> usize {
    let half = rounds_by_batch.iter().sum::<u64>().div_ceil(2);
    let mut until = 0;
    let middle = rounds_by_batch.iter().position(|rounds| {
        until += rounds;
        until >= half
    });
    middle.map_or(1, |at| at + 1)
}

/// Tokens of a request halfway through its output: a prompt of median length plus half of the mean
/// output.
fn halfway(workload: &LoadedWorkload, figures: &Measurement) -> usize {
    let mut prompts: Vec<usize> = workload.requests.iter().map(|request| request.input_ids.len()).collect();
    prompts.sort_unstable();
    let prompt = prompts.get(prompts.len() / 2).copied().unwrap_or(1);
    context::halfway(prompt, figures.output_tokens as usize / figures.requests.max(1)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_batch_is_that_of_the_middle_round() {
        assert_eq!(median_batch(&[]), 1);
        assert_eq!(median_batch(&[9]), 1);
        assert_eq!(median_batch(&[3, 0, 0, 10]), 4);
        assert_eq!(median_batch(&[5, 2, 3]), 1);
        assert_eq!(median_batch(&[4, 2, 3]), 2);
    }
}
