//! Warnings that the two sides of a verdict did not run under the same conditions.

use crate::{
    columns, figures,
    race::{Race, RaceEntry},
};

/// Difference of mean running batches, as a share, above which it is warned about.
const MOST_DIFFERENCE: f64 = 0.05;
/// Requests for each that runs together from which on most of a trial runs the whole batch, also if
/// their lengths differ much.
const ENOUGH_WAVES: usize = 4;
/// The same for shares of cached prompt tokens.
const MOST_CACHED: f64 = 0.05;

/// The warnings of a load.
pub fn warnings(race: &Race) -> Vec<String> {
    let Some((best, baseline)) = race.best_speculating().zip(race.baseline()) else { return Vec::new() };
    batches(race, best, baseline).into_iter().chain(cached(race, best, baseline)).collect()
}

/// For closed loops of which the end counts too: fewer requests run there, and speculation makes
/// requests end at different times.
fn batches(race: &Race, best: &RaceEntry, baseline: &RaceEntry) -> Option<String> {
    let batch = race.load.batch_size()?;
    let (own, plain) = (best.mean_batch?, baseline.mean_batch?);
    let differ = (own / plain - 1.0).abs() > MOST_DIFFERENCE;
    let requests = best.ranked.first_token.map_or(0, |tail| tail.count);
    let least = if requests < ENOUGH_WAVES * batch {
        format!("at least {ENOUGH_WAVES} × batch, {}", ENOUGH_WAVES * batch)
    } else {
        format!("more than {requests}")
    };
    differ.then(|| {
        format!(
            "{}: on average {} requests ran together with {} and {} without speculation, since fewer run near the end of a \
             trial, which counts where less than half of the tokens arrive before: the speed-up is not that of a constant \
             batch; raise workload.requests (tune: --requests) to {least}",
            race.load,
            figures::quantity(own),
            columns::name(best),
            figures::quantity(plain)
        )
    })
}

fn cached(race: &Race, best: &RaceEntry, baseline: &RaceEntry) -> Option<String> {
    let (own, plain) = (best.cached_share?, baseline.cached_share?);
    let differ = (own - plain).abs() > MOST_CACHED;
    differ.then(|| {
        format!(
            "{}: {} of the prompt tokens were in the prefix cache with {} and {} without speculation: their times to the \
             first token and throughputs do not compare; measure both with a cache that is flushed, or without one",
            race.load,
            figures::share(own),
            columns::name(best),
            figures::share(plain)
        )
    })
}

#[cfg(test)]
mod tests {
    use tuner::trials::{
        configuration::TrialLoad,
        record::{Measurement, Record},
    };

    use super::*;
    use crate::fixtures;

    /// Mean running batches of no speculation and of a chain, and their cached shares.
    fn warnings_of(load: TrialLoad, running: [&[u64]; 2], cached: [f64; 2]) -> Vec<String> {
        let record = |side: usize, repeat| {
            let figures = Measurement {
                requests: 8,
                output_tokens_per_s: 100.0 + side as f64,
                accept_length: 2.0,
                running_batch: running[side].to_vec(),
                cached_share: Some(cached[side]),
                ..Measurement::default()
            };
            fixtures::measured(load, ["0,1,1", "3,1,4"][side], repeat, figures)
        };
        let records: Vec<Record> = [0, 1, 2].iter().flat_map(|at| [record(0, *at), record(1, *at)]).collect();
        warnings(&fixtures::race(&records))
    }

    #[test]
    fn a_side_that_ran_fewer_requests_together_is_named_with_what_to_do() {
        let (whole, drained): (&[u64], &[u64]) = (&[0, 0, 0, 10], &[2, 2, 2, 6]);
        let closed = TrialLoad::BatchSize(4);
        let words = warnings_of(closed, [whole, drained], [0.0; 2]).remove(0);
        assert!(words.contains("3.00 requests ran together with 3,1,4 and 4.00 without"), "{words}");
        assert!(words.contains("at least 4 × batch, 16"), "{words}");
        assert!(warnings_of(closed, [whole, whole], [0.0; 2]).is_empty());
        assert!(warnings_of(TrialLoad::Recorded, [whole, drained], [0.0; 2]).is_empty());
    }

    #[test]
    fn a_side_that_found_its_prompts_cached_is_named() {
        let words = warnings_of(TrialLoad::BatchSize(1), [&[9], &[9]], [0.0, 0.8]).remove(0);
        assert!(words.contains("80% of the prompt tokens were in the prefix cache with 3,1,4"), "{words}");
        assert!(warnings_of(TrialLoad::BatchSize(1), [&[9], &[9]], [0.4, 0.42]).is_empty());
    }
}
