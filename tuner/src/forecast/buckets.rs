//! Acceptance and round times by context.
//!
//! Heads that were trained on short texts accept less at long contexts, and attention over the
//! cache takes a larger share of a round there. So a tree that pays at one context need not pay at
//! another.

use schemas::tree::TreeShape;
use serde::{Deserialize, Serialize};

use super::{SimulatedRequest, drafts::Drafts, times::StepTimes};
use crate::TunerError;

/// Fewer rounds than this say too little about a bucket: the accept length over all contexts is
/// used instead.
const LEAST_ROUNDS: usize = 100;

/// A bucket of contexts that a load reaches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReachedContexts {
    /// The bound of the bucket before, in tokens.
    pub above: f64,
    /// Its own bound; infinite for the last one.
    pub up_to: f64,
    /// The mean context of the load within it, over output tokens.
    pub mean: f64,
}

/// Those of the buckets with these bounds, ascending, that some requests reach while they run.
pub fn reached(jobs: &[SimulatedRequest], bounds: &[f64]) -> Vec<ReachedContexts> {
    let starts = std::iter::once(0.0).chain(bounds.iter().copied());
    let ends = bounds.iter().copied().chain([f64::INFINITY]);
    let bucket = |(above, up_to): (f64, f64)| {
        let within = jobs.iter().map(|job| {
            let prompt = job.prompt_tokens as f64;
            let (first, last) = (prompt.max(above), (prompt + job.output_tokens as f64).min(up_to));
            let tokens = (last - first).max(0.0);
            [tokens, tokens * (first + last) / 2.0]
        });
        let [tokens, sum] = within.fold([0.0; 2], |all, one| [all[0] + one[0], all[1] + one[1]]);
        (tokens > 0.0).then(|| ReachedContexts { above, up_to, mean: sum / tokens })
    };
    starts.zip(ends).filter_map(bucket).collect()
}

/// Contexts up to a bound, and above the bound of the bucket before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContextBucket {
    /// Largest mean context in tokens; `None` for the last bucket.
    pub context: Option<f64>,
    /// The context at which round times are judged: the mean one of the load in this bucket.
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

/// The buckets that a load reaches. The first one holds for all smaller contexts too, and the last
/// one for all larger ones: what a load does not reach has nothing by which it could be judged.
///
/// # Errors
/// When the acceptance or the time of a tree is unknown.
pub fn context_buckets(
    drafts: &Drafts,
    times: &StepTimes,
    shapes: &[TreeShape],
    batches: &[usize],
    reached: &[ReachedContexts],
) -> Result<Vec<ContextBucket>, TunerError> {
    let bucket = |(at, contexts): (usize, &ReachedContexts)| {
        let ReachedContexts { above, up_to, mean } = *contexts;
        let shape = |shape: &TreeShape| {
            let known = drafts.accept_length_within(*shape, above, up_to)?;
            let own = known.filter(|(_, rounds)| *rounds >= LEAST_ROUNDS);
            let accept_length = match own {
                Some((length, _)) => length,
                None => drafts.accept_length(*shape)?,
            };
            let round = |batch: &usize| Ok((*batch, times.shape(*shape, *batch, mean)?));
            let round_ms = batches.iter().map(round).collect::<Result<_, TunerError>>()?;
            Ok(BucketShape { shape: *shape, accept_length, rounds: own.map(|(_, rounds)| rounds), round_ms })
        };
        let shapes = shapes.iter().map(shape).collect::<Result<_, TunerError>>()?;
        let context = (at + 1 < reached.len()).then_some(up_to);
        Ok(ContextBucket { context, judged_at: mean, shapes })
    };
    reached.iter().enumerate().map(bucket).collect()
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

    fn job(prompt_tokens: usize, output_tokens: usize) -> SimulatedRequest {
        SimulatedRequest { prompt_tokens, output_tokens, text: 0, start: 0, seed: 0, most_drafts: None }
    }

    #[test]
    fn buckets_are_those_that_a_load_reaches_with_its_mean_contexts() {
        let found = |jobs: &[SimulatedRequest]| {
            let found = reached(jobs, &[300.0, 5000.0]);
            found.into_iter().map(|one| (one.above, one.up_to, one.mean)).collect::<Vec<_>>()
        };
        assert_eq!(found(&[job(100, 100)]), [(0.0, 300.0, 150.0)]);
        // 200 tokens at a mean of 200, and 200 at 400.
        assert_eq!(found(&[job(100, 400)]), [(0.0, 300.0, 200.0), (300.0, 5000.0, 400.0)]);
        // By tokens: 100 at a mean of 150, and 300 at 350.
        assert_eq!(found(&[job(100, 100), job(200, 100), job(200, 100)]), [(0.0, 300.0, 650.0 / 3.0)]);
        assert_eq!(found(&[job(6000, 10)]), [(5000.0, f64::INFINITY, 6005.0)]);
        assert_eq!(found(&[]), []);
    }

    /// Where the load is in one bucket, the table is the one by batch at its mean context.
    #[test]
    fn one_bucket_is_judged_as_a_table_without_contexts() {
        let drafts = Drafts::golden(&[1.7, 2.2, 2.5]).expect("lengths");
        let times = StepCosts::named("llama-3.1-8b-eagle3-h200").expect("a name").into();
        let shapes = [0, 1, 2, 3].map(TreeShape::chain);
        let batches = [1, 8, 32, 64, 128, 256];
        let load = reached(&[job(2100, 900)], &[2048.0, 8192.0, 32_768.0]);
        let by_context = tables::by_batch_and_context(&drafts, &times, &shapes, &batches, &load).expect("a table");
        assert_eq!(by_context, tables::by_batch(&drafts, &times, &shapes, &batches, 2550.0).expect("a table"));
    }

    #[test]
    fn acceptance_that_falls_with_the_context_turns_speculation_off_there() {
        let drafts = Drafts::traced(vec![trace()]).expect("a trace");
        let times = StepCosts::named("llama-3.1-8b-eagle3-h200").expect("a name").into();
        let shapes = [TreeShape::OFF, TreeShape::chain(1)];
        let load = reached(&[job(100, 6000)], &[300.0, 5000.0]);
        let found = context_buckets(&drafts, &times, &shapes, &[1, 8], &load).expect("known");
        let lengths: Vec<f64> = found.iter().map(|bucket| bucket.shapes[1].accept_length).collect();
        // 101 rounds of two tokens, 398 of one; no round is in the last bucket.
        assert_eq!(lengths, [2.0, 1.0, 600.0 / 499.0]);
        let rounds: Vec<_> = found.iter().map(|bucket| bucket.shapes[1].rounds).collect();
        assert_eq!(rounds, [Some(101), Some(398), None]);
        assert_eq!((found[0].context, found[2].context, found[2].judged_at), (Some(300.0), None, 5550.0));
        let table = tables::by_batch_and_context(&drafts, &times, &shapes, &[1, 8], &load).expect("a table");
        assert_eq!((table.shape(8, 200.0), table.shape(8, 2000.0)), (TreeShape::chain(1), TreeShape::OFF));
    }
}
