//! Batch sizes at which a table switches from one tree to another, between the measured batches.

use schemas::{tree::TreeShape, tuned::PolicyRow};

use super::FELT;
use crate::{
    prediction::guide::{Guide, RoundsByBatch},
    trials::configuration::ContextRange,
};

/// The table with its borders where the predictions place them: each measured batch keeps its
/// winner, and between two measured batches with different winners there is one border, from which
/// on the second winner is faster. `None` if the guide lacks one of the shapes.
///
/// Only rounds are predicted, not the rest (prefill, ends of requests). So the predicted gain of
/// the second winner is corrected by the measured `score`s of both (by batch and shape, higher is
/// better) at the two batches, if they were measured there. No third shape appears in between: if
/// both batches have the same winner, a prediction in favour of another has been refuted at both.
/// `contexts` is the bucket in which the rows were measured.
pub(super) fn between(
    measured: &[PolicyRow],
    guide: &Guide,
    contexts: Option<ContextRange>,
    score: &dyn Fn(usize, TreeShape) -> Option<f64>,
) -> Option<Vec<PolicyRow>> {
    // The logarithm of the tokens per second of one request.
    let predicted = |row: &PolicyRow, batch: usize| {
        let is_own = |one: &&RoundsByBatch| one.shape == row.shape() && one.contexts == contexts;
        let of = guide.rounds_by_batch.iter().find(is_own)?;
        Some((of.accept_length / of.round_ms.get(batch.checked_sub(1)?)?).ln())
    };
    // Logarithm of the second row's gain over the first.
    let gain = |first: &PolicyRow, second: &PolicyRow, batch: usize| {
        let error = |at: &PolicyRow| {
            let batch = at.max_running_batch;
            let measured = (score(batch, second.shape())? / score(batch, first.shape())?).ln();
            Some(measured - (predicted(second, batch)? - predicted(first, batch)?))
        };
        // Errors of predictions change with the ratio of batches, not with their difference.
        let place = |batch: usize| (batch as f64).ln();
        let (from, to) = (place(first.max_running_batch), place(second.max_running_batch));
        let share = if to > from { (place(batch) - from) / (to - from) } else { 0.0 };
        let error = match (error(first), error(second)) {
            (Some(low), Some(high)) => low + share * (high - low),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => 0.0,
        };
        Some(predicted(second, batch)? - predicted(first, batch)? + error)
    };
    let mut rows: Vec<PolicyRow> = Vec::new();
    let largest = measured.last()?.max_running_batch;
    for batch in 1..=largest {
        let above = measured.iter().find(|row| row.max_running_batch >= batch)?;
        let below = measured.iter().rev().find(|row| row.max_running_batch <= batch).unwrap_or(above);
        // The current tree is kept unless the other is noticeably faster; it does not return after
        // the border.
        let crossed = rows.last().is_some_and(|last| last.shape() == above.shape());
        let holds = batch == below.max_running_batch || !crossed && gain(below, above, batch)? <= FELT;
        let best = if holds { below } else { above };
        match rows.last_mut().filter(|last| last.shape() == best.shape()) {
            Some(last) => last.max_running_batch = batch,
            None => rows.push(PolicyRow { max_running_batch: batch, ..best.clone() }),
        }
        // The figures of a row that covers several measured batches are those of the largest.
        if let (Some(last), true) = (rows.last_mut(), best.max_running_batch == batch) {
            *last = best.clone();
        }
    }
    Some(rows)
}

#[cfg(test)]
mod tests {
    use schemas::tuned::TunedVerdict;

    use super::*;
    use crate::{
        prediction::guide::{AcceptanceSource, AcceptanceTable, GuideCost, GuideErrors, RoundTimeSummary},
        trials::record::Fingerprint,
    };

    fn row(batch: usize, shape: &str) -> PolicyRow {
        let shape: TreeShape = shape.parse().expect("a shape");
        PolicyRow {
            max_running_batch: batch,
            max_context: None,
            measured_batch: batch,
            num_steps: shape.num_steps,
            topk: shape.topk,
            num_draft_tokens: shape.num_draft_tokens,
            row_budget: shape.row_budget,
            output_tokens_per_s: batch as f64,
            repeats: Some(3),
            speedup: Some(1.0),
            speedup_interval: Some([1.0, 1.0]),
            interval_kind: None,
            interval_level: None,
            accept_length: 1.0,
            verdict: TunedVerdict::Pays,
            reason: String::new(),
        }
    }

    fn guide(rounds: &[(&str, &dyn Fn(usize) -> f64)]) -> Guide {
        let of = |(shape, ms): &(&str, &dyn Fn(usize) -> f64)| RoundsByBatch {
            contexts: None,
            shape: shape.parse().expect("a shape"),
            accept_length: 1.0,
            round_ms: (1..=32).map(ms).collect(),
        };
        Guide {
            draft: String::new(),
            others: Vec::new(),
            format: crate::prediction::guide::FORMAT,
            fingerprint: Fingerprint::default(),
            acceptance: AcceptanceTable {
                source: AcceptanceSource::Imported { source: String::new() },
                rows: Vec::new(),
                text_drafts: Vec::new(),
            },
            round_times: RoundTimeSummary { parameters: Vec::new(), error: GuideErrors::default(), points: Vec::new() },
            predictions: Vec::new(),
            rounds_by_batch: rounds.iter().map(of).collect(),
            captures: Vec::new(),
            cost: GuideCost::default(),
        }
    }

    #[test]
    fn borders_between_measured_batches_lie_where_the_predictions_cross() {
        // The tree is faster for few requests and for many, as if another kernel took over.
        let guide = guide(&[
            ("0,1,1", &|batch| if batch > 16 { 3.0 } else { 1.0 }),
            ("1,4,4", &|batch| if batch < 5 { 0.8 } else { 1.5 }),
        ]);
        let measured = [row(1, "1,4,4"), row(8, "0,1,1"), row(32, "1,4,4")];
        let rows: Vec<(usize, usize, usize)> = between(&measured, &guide, None, &|_, _| None)
            .expect("all are predicted")
            .iter()
            .map(|row| (row.max_running_batch, row.num_steps, row.measured_batch))
            .collect();
        assert_eq!(rows, [(4, 1, 1), (16, 0, 8), (32, 1, 32)]);
        assert_eq!(
            between(&[row(1, "1,4,4"), row(8, "2,1,3")], &guide, None, &|_, _| None),
            None,
            "one is not predicted"
        );
    }

    #[test]
    fn a_border_moves_by_what_predictions_miss_at_measured_batches() {
        // The second is predicted to be a fifth slower below 16, and a quarter faster from 16 on.
        let guide = guide(&[("0,1,1", &|_| 1.0), ("1,4,4", &|batch| if batch < 16 { 1.25 } else { 0.8 })]);
        let measured = [row(1, "0,1,1"), row(32, "1,4,4")];
        let last_of_first = |ratios: [f64; 2]| {
            let score = move |batch: usize, shape: TreeShape| {
                Some(if shape.num_steps == 0 { 1.0 } else { ratios[usize::from(batch == 32)] })
            };
            between(&measured, &guide, None, &score).expect("all are predicted")[0].max_running_batch
        };
        assert_eq!(last_of_first([0.8, 1.25]), 15, "as predicted");
        assert_eq!(last_of_first([1.2, 1.25]), 1, "the second is faster from the beginning");
        assert_eq!(last_of_first([0.8, 0.9]), 31, "the second is slower to the end");
    }

    #[test]
    fn nothing_enters_between_two_batches_with_the_same_winner() {
        // A tree is predicted to be the fastest everywhere, but measured to be so at one request
        // only.
        let guide = guide(&[("0,1,1", &|_| 1.0), ("1,4,4", &|_| 0.8)]);
        let measured = [row(1, "1,4,4"), row(8, "0,1,1"), row(32, "0,1,1")];
        let rows = between(&measured, &guide, None, &|_, _| None).expect("all are predicted");
        assert_eq!(rows.iter().map(|row| row.max_running_batch).collect::<Vec<_>>(), [7, 32]);
    }

    #[test]
    fn a_measured_winner_holds_whatever_is_predicted() {
        let guide = guide(&[("0,1,1", &|_| 1.0), ("1,4,4", &|_| 2.0)]);
        let rows = between(&[row(1, "1,4,4"), row(3, "0,1,1")], &guide, None, &|_, _| None).expect("all are predicted");
        assert_eq!(rows.iter().map(|row| row.max_running_batch).collect::<Vec<_>>(), [1, 3]);
    }
}
