//! Evaluates a head: replayed accept lengths on held-out texts, and losses.

use std::ops::ControlFlow;

use engine::{Engine, ReplayText};
use schemas::{
    training_record::{AcceptFigures, HeadComparison},
    tree::TreeShape,
};

use crate::{
    batch::{TrainBatch, windows},
    error::TrainingError,
    head::Head,
    objective::{StepFigures, TrainObjective},
    states::PromptStates,
    statistics::{Counted, accept_length, paired_ratio},
    teacher::Teacher,
};

/// Acceptance along one text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AcceptedTokens {
    /// Numbers of tokens and rounds.
    pub counted: Counted,
    /// Entry k counts the rounds in which k drafts are accepted.
    pub histogram: Vec<u64>,
}

/// Replays texts with the loaded draft. `None` if `stop` returns true.
///
/// # Errors
/// When the engine fails.
pub fn replay(
    engine: &mut Engine,
    texts: &[ReplayText],
    shape: TreeShape,
    stop: &mut dyn FnMut() -> bool,
) -> Result<Option<Vec<AcceptedTokens>>, TrainingError> {
    let mut progress = |_| if stop() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    let replayed = engine.replay(texts, &[shape], &mut progress)?;
    let accepted = |one: Vec<engine::ShapeAcceptance>| {
        // One shape is replayed, so there is at most one result per text.
        one.into_iter().next().map_or_else(AcceptedTokens::default, |one| AcceptedTokens {
            counted: Counted { tokens: one.output_tokens as u64, rounds: one.rounds as u64 },
            histogram: one.accept_histogram,
        })
    };
    Ok(replayed.map(|texts| texts.into_iter().map(accepted).collect()))
}

/// Tokens and rounds of each text.
pub fn counts(accepted: &[AcceptedTokens]) -> Vec<Counted> {
    accepted.iter().map(|one| one.counted).collect()
}

/// The accept length over a selection of texts; `None` without a round.
pub fn length_of(accepted: &[AcceptedTokens], wanted: impl Fn(usize) -> bool) -> Option<f64> {
    let some = accepted.iter().enumerate().filter(|(at, _)| wanted(*at)).map(|(_, one)| one.counted);
    accept_length(&some.collect::<Vec<_>>())
}

/// Sums over all texts.
pub fn figures(accepted: &[AcceptedTokens]) -> AcceptFigures {
    let mut figures = AcceptFigures::default();
    for one in accepted {
        figures.tokens += one.counted.tokens;
        figures.rounds += one.counted.rounds;
        if figures.histogram.len() < one.histogram.len() {
            figures.histogram.resize(one.histogram.len(), 0);
        }
        figures.histogram.iter_mut().zip(&one.histogram).for_each(|(sum, count)| *sum += count);
    }
    figures
}

/// Compares the acceptance before and after along the same texts; `None` without a round.
pub fn compare(name: &str, before: &[AcceptedTokens], after: &[AcceptedTokens]) -> Option<HeadComparison> {
    Some(HeadComparison {
        name: name.to_owned(),
        prompts: before.len(),
        before: figures(before),
        after: figures(after),
        ratio: paired_ratio(&counts(before), &counts(after))?,
    })
}

/// What a pass for the loss needs.
pub struct EvaluationPass<'a> {
    /// The head.
    pub head: &'a Head,
    /// The target's labels.
    pub teacher: &'a Teacher,
    /// The training objective.
    pub objective: TrainObjective,
    /// Maximum length of a piece of a text, in rows.
    pub window: usize,
    /// Number of pieces per batch.
    pub batch_size: usize,
    /// Seed of anchors: the same ones in every evaluation.
    pub seed: u64,
}

impl EvaluationPass<'_> {
    /// The mean token loss over texts, summed over depths with their weights. `None` if
    /// no row counts.
    ///
    /// # Errors
    /// When the engine or tensors fail.
    pub fn loss(
        &self,
        engine: &mut Engine,
        states: &mut PromptStates<'_>,
        texts: &[usize],
    ) -> Result<Option<f64>, TrainingError> {
        let mut sums = vec![StepFigures::default(); self.objective.depth];
        let mut pieces = Vec::new();
        for text in texts {
            let (tokens, prompt_tokens) = states.size(*text);
            pieces.extend(windows(tokens, prompt_tokens, self.window).into_iter().map(|window| (*text, window)));
        }
        for pieces in pieces.chunks(self.batch_size.max(1)) {
            let known: Result<Vec<_>, _> = pieces.iter().map(|(text, _)| states.known(engine, *text)).collect();
            let known = known?;
            let windows: Vec<_> = known.iter().zip(pieces).map(|(known, (_, window))| (known, *window)).collect();
            let batch = TrainBatch::new(&windows, self.objective.plan(self.seed), self.teacher)?;
            for (sum, step) in sums.iter_mut().zip(self.objective.run(self.head, &batch)?.steps) {
                sum.add(step);
            }
        }
        let counts = sums.first().is_some_and(|first| first.rows > 0);
        let weighted = (0..).zip(&sums).map(|(k, sum)| self.objective.decay.powi(k) * sum.mean_loss());
        Ok(counts.then(|| weighted.sum()))
    }
}
