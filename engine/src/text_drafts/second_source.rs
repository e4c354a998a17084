//! Look-ups beside a head: a second source of drafts, whose chains are joined with the head's trees
//! ([`joined`](crate::tree::joined)).
//!
//! Only the request's own tokens are looked up, so what is found is a function of the text before.
//! A look-up has no probabilities of its own. They are counted in the output so far: how often the
//! token that a run of n equal tokens suggested was the next one. A run that has been right for d
//! tokens is d tokens longer, so the chance of each node of a chain is that of its own run.

use std::collections::HashMap;

use schemas::tree::TreeShape;

use super::prompt_lookup::Occurrences;
use crate::{spec::PromptLookup, tree::LookedUp};

/// The first length of each range of runs, and how often what it suggests is right: measured on 80
/// greedy texts of two small models.
const RUNS: [(usize, f32); 7] = [(1, 0.25), (2, 0.5), (3, 0.6), (4, 0.78), (5, 0.8), (9, 0.88), (16, 0.96)];

/// Number of observations that the measured shares count as.
const WEIGHT: f32 = 4.0;

/// The second source of all running requests.
#[derive(Debug)]
pub struct SecondSource {
    rule: PromptLookup,
    /// Running requests, by a number of the caller.
    requests: HashMap<u64, OwnText>,
}

/// The tokens of a request, and how well look-ups in them have fared.
#[derive(Debug)]
pub struct OwnText {
    tokens: Vec<u32>,
    occurrences: Occurrences,
    /// What is found after the tokens: the length of the run, and where its continuation starts (at
    /// the end of the tokens if nothing is found). Kept since both the drafts and the count of what
    /// was right need it.
    found: (usize, usize),
    /// Of each range of runs: how often its token was right, and how often there was one.
    counted: [(u32, u32); RUNS.len()],
}

impl SecondSource {
    /// A source that knows no request yet.
    pub fn new(rule: PromptLookup) -> Self {
        Self { rule, requests: HashMap::new() }
    }

    /// Brings a request up to date, and looks up what may follow: its prompt, and its output so
    /// far, which only grows.
    pub fn look_up(&mut self, request: u64, prompt: &[u32], output: &[u32], shape: TreeShape) -> LookedUp {
        let text = self.requests.entry(request).or_insert_with(|| OwnText::new(prompt, self.rule));
        let known = text.tokens.len().saturating_sub(prompt.len());
        text.extend(output.get(known..).unwrap_or_default());
        text.drafts(shape)
    }

    /// Forgets a request.
    pub fn end(&mut self, request: u64) {
        self.requests.remove(&request);
    }

    /// Forgets all requests.
    pub fn clear(&mut self) {
        self.requests.clear();
    }
}

impl OwnText {
    /// A prompt.
    pub fn new(prompt: &[u32], rule: PromptLookup) -> Self {
        let mut text = Self {
            tokens: prompt.to_vec(),
            occurrences: Occurrences::new(rule),
            found: (0, prompt.len()),
            counted: Default::default(),
        };
        text.find();
        text
    }

    /// Adds tokens of the output, and counts for each whether it was the one that was looked up.
    pub fn extend(&mut self, output: &[u32]) {
        for token in output {
            let (run, place) = self.found;
            if let Some(suggested) = self.tokens.get(place) {
                let (right, all) = &mut self.counted[range(run)];
                *right += u32::from(suggested == token);
                *all += 1;
            }
            self.tokens.push(*token);
            self.find();
        }
    }

    /// The chain after the tokens, at most as deep as a shape.
    pub fn drafts(&self, shape: TreeShape) -> LookedUp {
        if shape.is_off() {
            return LookedUp::default();
        }
        let (run, place) = self.found;
        let tokens: Vec<u32> = self.tokens[place..].iter().take(shape.num_steps).copied().collect();
        let chances = (0..tokens.len()).map(|depth| self.chance(run + depth).ln()).collect();
        LookedUp { tokens, chances }
    }

    fn find(&mut self) {
        self.occurrences.read(&self.tokens);
        let (run, after) = self.occurrences.find(&self.tokens);
        self.found = (run, self.tokens.len() - after.len());
    }

    /// The share of tokens that were right after runs of this length.
    fn chance(&self, run: usize) -> f32 {
        let at = range(run);
        let ((right, all), (_, share)) = (self.counted[at], RUNS[at]);
        (right as f32 + WEIGHT * share) / (all as f32 + WEIGHT)
    }
}

/// The place of a run's length in [`RUNS`].
fn range(run: usize) -> usize {
    RUNS.iter().rposition(|(first, _)| *first <= run).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: PromptLookup = PromptLookup::SECOND;

    #[test]
    fn a_chain_is_looked_up_in_the_own_tokens_with_the_chances_of_its_runs() {
        let mut source = SecondSource::new(RULE);
        let shape = TreeShape::chain(3);
        let found = source.look_up(1, &[1, 2, 3, 4, 5, 1, 2], &[], shape);
        assert_eq!(found.tokens, [3, 4, 5]);
        let expected: Vec<f32> = [0.5_f32, 0.6, 0.78].iter().map(|share| share.ln()).collect();
        assert_eq!(found.chances, expected, "runs of two, three and four tokens");
        assert_eq!(source.look_up(2, &[1, 2, 3], &[], shape), LookedUp::default(), "another request's tokens");
        assert_eq!(source.look_up(1, &[], &[], TreeShape::OFF), LookedUp::default());
    }

    #[test]
    fn chances_follow_what_was_right_in_the_output() {
        let chance = |output: &[u32]| {
            let mut text = OwnText::new(&[1, 2, 3, 4, 1, 2], RULE);
            text.extend(output);
            text.chance(2)
        };
        assert!((chance(&[]) - 0.5).abs() < 1e-6);
        assert!((chance(&[3]) - (1.0 + 2.0) / 5.0).abs() < 1e-6, "a run of two was right");
        assert!((chance(&[9]) - 2.0 / 5.0).abs() < 1e-6, "and wrong");
    }

    #[test]
    fn what_is_found_depends_on_the_text_alone() {
        let text: Vec<u32> = (0..60).map(|at| at * at % 11).collect();
        let (prompt, output) = text.split_at(9);
        let shape = TreeShape::chain(4);
        for length in 0..output.len() {
            let mut stepwise = SecondSource::new(RULE);
            for known in (0..length).step_by(3) {
                stepwise.look_up(5, prompt, &output[..known], shape);
            }
            let mut once = OwnText::new(prompt, RULE);
            once.extend(&output[..length]);
            assert_eq!(stepwise.look_up(5, prompt, &output[..length], shape), once.drafts(shape), "{length}");
        }
    }
}
