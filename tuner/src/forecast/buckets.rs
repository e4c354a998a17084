//! Acceptance and round times by context.
//!
//! Heads that were trained on short texts accept less at long contexts, and attention over the
//! cache takes a larger share of a round there. So a tree that pays at one context need not pay at
//! another.

use schemas::tree::TreeShape;
use serde::{Deserialize, Serialize};

use super::{drafts::Drafts, times::StepTimes};
use crate::TunerError;

/// Fewer rounds than this say too little about a bucket: the accept length over all contexts is
/// used instead.
const LEAST_ROUNDS: usize = 100;

/// Contexts up to a bound, and above the bound of the bucket before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContextBucket {
    /// Largest mean context in tokens; `None` for the last bucket.
    pub context: Option<f64>,
    /// The context at which round times are judged: the bound, and in the last bucket twice the
    /// bound before.
    pub judged_at: f64,
    /// The trees.
    pub shapes: Vec<BucketShape>,
}

/// A tree in a bucket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BucketShape {
    /// The tree.
    pub shape: TreeShape,
    /// Tokens per round, bonus token included.
    pub accept_length: f64,
    /// Number of rounds of the trace at these contexts from which it comes; `None` if they are too
    /// few, or there is no trace: it is then that of all contexts.
    pub rounds: Option<usize>,
    /// Batches, each with the time of a round in ms.
    pub round_ms: Vec<(usize, f64)>,
}

/// The buckets with these bounds, ascending, and a last one.
///
/// # Errors
/// When the acceptance or the time of a tree is unknown.
pub fn context_buckets(
    drafts: &Drafts,
    times: &StepTimes,
    shapes: &[TreeShape],
    batches: &[usize],
    bounds: &[f64],
) -> Result<Vec<ContextBucket>, TunerError> {
    let mut from = 0.0;
    let mut buckets = Vec::with_capacity(bounds.len() + 1);
    for bound in bounds.iter().copied().map(Some).chain([None]) {
        let judged_at = bound.unwrap_or(2.0 * from);
        let shape = |shape: &TreeShape| {
            let known = drafts.accept_length_within(*shape, from, bound.unwrap_or(f64::INFINITY))?;
            let own = known.filter(|(_, rounds)| *rounds >= LEAST_ROUNDS);
            let accept_length = match own {
                Some((length, _)) => length,
                None => drafts.accept_length(*shape)?,
            };
            let round = |batch: &usize| Ok((*batch, times.shape(*shape, *batch, judged_at)?));
            let round_ms = batches.iter().map(round).collect::<Result<_, TunerError>>()?;
            Ok(BucketShape { shape: *shape, accept_length, rounds: own.map(|(_, rounds)| rounds), round_ms })
        };
        let shapes = shapes.iter().map(shape).collect::<Result<_, TunerError>>()?;
        buckets.push(ContextBucket { context: bound, judged_at, shapes });
        from = bound.unwrap_or(from);
    }
    Ok(buckets)
}

#[cfg(test)]
mod tests {
    use engine::replay::trace::{FORMAT, Nodes, PositionTrace, ROOT, TextTrace};

    use super::*;
    use crate::forecast::{costs::StepCosts, tables};

    /// Chains of one draft that are accepted up to a context of 300 and never above.
    fn trace() -> PositionTrace {
        let nodes = |accepted: bool| Nodes {
            score: vec![-0.1],
            parent: vec![ROOT],
            rank: vec![0],
            depth: vec![1],
            chance: vec![Some(f32::from(u8::from(accepted)))],
            on_text: if accepted { vec![0] } else { Vec::new() },
            ..Nodes::default()
        };
        let text = TextTrace {
            prompt_tokens: 100,
            output_tokens: 601,
            sampled: false,
            positions: (0..600).map(|at| nodes(100 + at <= 300)).collect(),
        };
        PositionTrace {
            format: FORMAT,
            source: "EAGLE3".into(),
            limit: TreeShape::chain(1),
            largest: vec![TreeShape::chain(1)],
            texts: vec![text],
        }
    }

    #[test]
    fn acceptance_that_falls_with_the_context_turns_speculation_off_there() {
        let drafts = Drafts::traced(vec![trace()]).expect("a trace");
        let times = StepCosts::named("llama-3.1-8b-eagle3-h200").expect("a name").into();
        let shapes = [TreeShape::OFF, TreeShape::chain(1)];
        let found = context_buckets(&drafts, &times, &shapes, &[1, 8], &[300.0, 5000.0]).expect("known");
        let lengths: Vec<f64> = found.iter().map(|bucket| bucket.shapes[1].accept_length).collect();
        // 101 rounds of two tokens, 398 of one; no round is in the last bucket.
        assert_eq!(lengths, [2.0, 1.0, 600.0 / 499.0]);
        let rounds: Vec<_> = found.iter().map(|bucket| bucket.shapes[1].rounds).collect();
        assert_eq!(rounds, [Some(101), Some(398), None]);
        assert_eq!((found[0].context, found[2].context, found[2].judged_at), (Some(300.0), None, 10_000.0));
        let table = tables::by_batch_and_context(&drafts, &times, &shapes, &[1, 8], &[300.0, 5000.0]).expect("a table");
        assert_eq!((table.shape(8, 200.0), table.shape(8, 2000.0)), (TreeShape::chain(1), TreeShape::OFF));
    }
}
