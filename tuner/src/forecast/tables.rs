//! Tables of the fastest tree by batch, and by batch and context.

use schemas::tree::TreeShape;

use super::{
    buckets::{ContextBucket, ReachedContexts, context_buckets},
    drafts::Drafts,
    policy::{PolicyTable, PolicyTableRow},
    times::StepTimes,
};
use crate::TunerError;

/// Gains below this share are not worth another tree in the table.
const WORTH: f64 = 0.002;

/// The tree with the most expected tokens per time at each of some batches, at one mean context.
///
/// # Errors
/// When the acceptance or the time of a tree is unknown, or there is none.
pub fn by_batch(
    drafts: &Drafts,
    times: &StepTimes,
    shapes: &[TreeShape],
    batches: &[usize],
    context: f64,
) -> Result<PolicyTable, TunerError> {
    let of_batch = |batch: &usize| {
        let length = |shape: &TreeShape| Ok((*shape, drafts.accept_length_at(*shape, *batch)?));
        shapes.iter().map(length).collect::<Result<_, TunerError>>()
    };
    let lengths = batches.iter().map(of_batch).collect::<Result<_, _>>()?;
    table(times, batches, &[(f64::INFINITY, context, lengths)])
}

/// The same at each batch and each context bucket that the load reaches, of shapes without a
/// budget; acceptance and times are those of the bucket ([`context_buckets`]).
///
/// # Errors
/// As [`by_batch`].
pub fn by_batch_and_context(
    drafts: &Drafts,
    times: &StepTimes,
    shapes: &[TreeShape],
    batches: &[usize],
    reached: &[ReachedContexts],
) -> Result<PolicyTable, TunerError> {
    let of_bucket = |bucket: ContextBucket| {
        let lengths: ShapeLengths = bucket.shapes.iter().map(|one| (one.shape, one.accept_length)).collect();
        let lengths = vec![lengths; batches.len()];
        (bucket.context.unwrap_or(f64::INFINITY), bucket.judged_at, lengths)
    };
    let buckets: Vec<_> = context_buckets(drafts, times, shapes, &[], reached)?.into_iter().map(of_bucket).collect();
    table(times, batches, &buckets)
}

/// Largest context, the context at which round times are judged, and the accept lengths at each
/// batch.
type Bucket = (f64, f64, Vec<ShapeLengths>);
/// The accept length of each tree.
type ShapeLengths = Vec<(TreeShape, f64)>;

fn table(times: &StepTimes, batches: &[usize], buckets: &[Bucket]) -> Result<PolicyTable, TunerError> {
    let mut rows: Vec<PolicyTableRow> = Vec::new();
    for (bound, context, lengths) in buckets {
        let mut before: Option<TreeShape> = None;
        for (batch, lengths) in batches.iter().zip(lengths) {
            let rate =
                |(shape, length): &(TreeShape, f64)| Ok((*shape, length / times.shape(*shape, *batch, *context)?));
            let rates = lengths.iter().map(rate).collect::<Result<Vec<(TreeShape, f64)>, TunerError>>()?;
            let best = rates.iter().max_by(|a, b| a.1.total_cmp(&b.1));
            // The tree of the batch before stays as long as nothing is clearly faster.
            let stays = before.and_then(|shape| rates.iter().find(|one| one.0 == shape));
            let chosen = match (best, stays) {
                (Some(best), Some(stays)) if best.1 <= stays.1 * (1.0 + WORTH) => stays,
                (Some(best), _) => best,
                (None, _) => continue,
            };
            before = Some(chosen.0);
            rows.push(PolicyTableRow { batch: *batch, context: *bound, shape: chosen.0 });
        }
    }
    let nothing = || TunerError::Configuration("a table needs at least one tree and one batch".into());
    PolicyTable::new(rows).ok_or_else(nothing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forecast::costs::StepCosts;

    #[test]
    fn the_fastest_tree_wins_at_each_batch_and_context() {
        let drafts = Drafts::golden(&[1.7, 2.2, 2.5, 2.7]).expect("lengths");
        let costs = StepCosts::named("llama-3.1-8b-eagle3-h200").expect("a name");
        let times = costs.clone().into();
        let shapes: Vec<TreeShape> = (0..=4).map(TreeShape::chain).collect();
        let batches = [1, 8, 32, 64, 128, 512];
        let table = by_batch(&drafts, &times, &shapes, &batches, 1000.0).expect("a table");
        for row in table.rows() {
            let rate = |shape: &TreeShape| {
                drafts.accept_length(*shape).expect("known") / costs.shape(*shape, row.batch, 1000.0)
            };
            let best = shapes.iter().map(rate).fold(0.0, f64::max);
            assert!(rate(&row.shape) >= best / (1.0 + WORTH), "{row:?}");
        }
        let steps: Vec<usize> = table.rows().iter().map(|row| row.shape.num_steps).collect();
        assert!(steps.is_sorted_by(|a, b| a >= b) && steps[0] > steps[5], "deeper at small batches: {steps:?}");
        // Long contexts make a round's fixed part longer, so deeper chains pay at the same batch.
        let reached = [(0.0, 1000.0, 1000.0), (1000.0, f64::INFINITY, 60_000.0)]
            .map(|(above, up_to, mean)| ReachedContexts { above, up_to, mean });
        let table = by_batch_and_context(&drafts, &times, &shapes, &batches, &reached).expect("a table");
        assert!(table.shape(128, 60_000.0).num_steps > table.shape(128, 500.0).num_steps, "{table:?}");
        assert!(by_batch(&drafts, &times, &[TreeShape::chain(5)], &batches, 0.0).is_err());
    }
}
