//! Look-ups beside a head: a second source of drafts, whose chains are joined with the head's trees
//! ([`joined`](crate::tree::joined)).
//!
//! How sure a look-up may be is counted in the output so far: how often the token that it suggested
//! after n equal tokens was the next one. A run that has been right for d tokens is d tokens
//! longer, so each node of a chain has the chance of its own run. Suffix decoding knows how
//! frequent a continuation is, so it counts by n and by that frequency.
//!
//! What a prompt look-up finds is a function of the request's own tokens. Suffix decoding keeps
//! outputs of other requests too, each up to its end, in the order in which the requests ran.

use std::collections::HashMap;

use schemas::tree::TreeShape;

use super::{prompt_lookup::Occurrences, suffix::Suffix, suffix_tree::Speculation};
use crate::{
    spec::{PromptLookup, TextSpec},
    tree::LookedUp,
};

/// The first length of each range of runs.
pub const RUNS: [usize; 7] = [1, 2, 3, 4, 5, 9, 16];

/// How often what a prompt look-up suggests after a run of each range is right: measured on 80
/// greedy texts of two small models.
pub const RIGHT_OF_LOOK_UPS: [f32; RUNS.len()] = [0.25, 0.5, 0.6, 0.78, 0.8, 0.88, 0.96];

/// The first frequency of each range of them. That of a continuation after its only earlier
/// occurrence is a half, since the last tokens are an occurrence themselves.
const FREQUENCIES: [f32; 4] = [0.0, 0.4, 0.6, 0.8];

/// The same of suffix decoding, for each range of frequencies: measured on these texts, with the
/// outputs of those before.
const RIGHT_OF_SUFFIXES: [[f32; RUNS.len()]; FREQUENCIES.len()] = [
    [0.14, 0.15, 0.15, 0.2, 0.2, 0.2, 0.2],
    [0.25, 0.42, 0.53, 0.72, 0.81, 0.92, 0.92],
    [0.37, 0.59, 0.8, 0.83, 0.9, 0.98, 0.98],
    [0.7, 0.73, 0.78, 0.88, 0.94, 0.98, 0.98],
];

/// Number of observations that the measured shares count as.
pub const WEIGHT: f32 = 4.0;

/// The second source of all running requests.
#[derive(Debug)]
pub struct SecondSource {
    rule: TextSpec,
    /// Own tokens and outputs of all requests, if the rule looks up in them.
    suffix: Option<Suffix>,
    /// Running requests, by a number of the caller.
    requests: HashMap<u64, OwnText>,
}

/// The tokens of a request, and how well look-ups after them have fared.
#[derive(Debug)]
struct OwnText {
    tokens: Vec<u32>,
    prompt: usize,
    /// Of a rule that looks up in these tokens alone.
    occurrences: Option<Occurrences>,
    /// What is found after the tokens. Kept since both the drafts and the count of what was right
    /// need it.
    found: Speculation,
    /// For each range of frequencies; the first if none are known.
    counted: [Tally; FREQUENCIES.len()],
    /// What is expected of them.
    measured: &'static [[f32; RUNS.len()]],
}

/// What was counted of look-ups, by the range of their runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// How many were right.
    pub right: [f32; RUNS.len()],
    /// How many there were.
    pub all: [f32; RUNS.len()],
}

impl Tally {
    /// What a prompt look-up counts in an output.
    pub fn after(rule: PromptLookup, prompt: &[u32], output: &[u32]) -> Self {
        if output.is_empty() {
            return Self::default();
        }
        let mut source = SecondSource::new(TextSpec::PromptLookup(rule));
        source.look_up(0, prompt, output, TreeShape::OFF);
        source.requests.get(&0).map(|text| text.counted[0]).unwrap_or_default()
    }
}

impl SecondSource {
    /// A source that knows no request yet. The rule [can be one](TextSpec::can_be_second).
    pub fn new(rule: TextSpec) -> Self {
        let suffix = match rule {
            TextSpec::Suffix(rule) => Some(Suffix::new(rule)),
            TextSpec::PromptLookup(_) | TextSpec::Trie(_) => None,
        };
        Self { rule, suffix, requests: HashMap::new() }
    }

    /// Brings a request up to date, and looks up what may follow: its prompt, and its output so
    /// far, which only grows. The chain is at most as deep as the shape.
    pub fn look_up(&mut self, request: u64, prompt: &[u32], output: &[u32], shape: TreeShape) -> LookedUp {
        if !self.requests.contains_key(&request) {
            self.start(request, prompt);
        }
        self.read(request, output);
        self.requests.get(&request).map_or_else(LookedUp::default, |text| text.drafts(shape))
    }

    /// Forgets a request, whose output has ended; what others can look up of it stays.
    pub fn end(&mut self, request: u64, output: &[u32]) {
        self.read(request, output);
        self.requests.remove(&request);
        if let Some(suffix) = &mut self.suffix {
            suffix.end(request);
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::new(self.rule);
    }

    fn start(&mut self, request: u64, prompt: &[u32]) {
        if let Some(suffix) = &mut self.suffix {
            suffix.start(request, prompt);
        }
        let mut text = OwnText::new(prompt, self.rule);
        text.find(request, self.suffix.as_ref());
        self.requests.insert(request, text);
    }

    /// Adds the tokens of a known request's output that are new, and counts for each whether it was
    /// the one that was looked up.
    fn read(&mut self, request: u64, output: &[u32]) {
        let Some(text) = self.requests.get_mut(&request) else { return };
        for token in output.get(text.tokens.len() - text.prompt..).unwrap_or_default() {
            text.push(*token);
            if let Some(suffix) = &mut self.suffix {
                suffix.append(request, &[*token]);
            }
            text.find(request, self.suffix.as_ref());
        }
    }
}

impl OwnText {
    fn new(prompt: &[u32], rule: TextSpec) -> Self {
        let (occurrences, measured) = match rule {
            TextSpec::PromptLookup(rule) => (Some(Occurrences::new(rule)), std::slice::from_ref(&RIGHT_OF_LOOK_UPS)),
            TextSpec::Suffix(_) | TextSpec::Trie(_) => (None, &RIGHT_OF_SUFFIXES[..]),
        };
        Self {
            tokens: prompt.to_vec(),
            prompt: prompt.len(),
            occurrences,
            found: Speculation::default(),
            counted: Default::default(),
            measured,
        }
    }

    fn push(&mut self, token: u32) {
        if let Some(suggested) = self.found.tokens.first() {
            let (Tally { right, all }, at) = (&mut self.counted[class(&self.found, 0)], range(self.found.matched));
            right[at] += f32::from(u8::from(*suggested == token));
            all[at] += 1.0;
        }
        self.tokens.push(token);
    }

    /// Looks up what may follow the tokens.
    fn find(&mut self, request: u64, suffix: Option<&Suffix>) {
        match (&mut self.occurrences, suffix) {
            (Some(occurrences), _) => {
                occurrences.read(&self.tokens);
                let (run, after) = occurrences.find(&self.tokens);
                self.found.clear();
                self.found.matched = run;
                self.found.tokens.extend(after.iter().take(TreeShape::LARGEST));
            }
            (None, Some(suffix)) => suffix.draft(request, usize::MAX, &mut self.found),
            (None, None) => {}
        }
    }

    /// The chain after the tokens, at most as deep as a shape.
    fn drafts(&self, shape: TreeShape) -> LookedUp {
        let steps = if shape.is_off() { 0 } else { shape.num_steps };
        let tokens: Vec<u32> = self.found.tokens.iter().take(steps).copied().collect();
        let chances = (0..tokens.len()).map(|depth| self.chance(depth).ln()).collect();
        LookedUp { tokens, chances }
    }

    /// How likely the found token of this depth is, if those before it are right.
    fn chance(&self, depth: usize) -> f32 {
        let (class, at) = (class(&self.found, depth), range(self.found.matched + depth));
        let Tally { right, all } = self.counted[class];
        (right[at] + WEIGHT * self.measured[class][at]) / (all[at] + WEIGHT)
    }
}

/// The range of the frequency of the token of this depth.
fn class(found: &Speculation, depth: usize) -> usize {
    let frequency = found.shares.get(depth).copied().unwrap_or_default();
    FREQUENCIES.iter().rposition(|first| *first <= frequency).unwrap_or_default()
}

/// The place of a run's length in [`RUNS`].
fn range(run: usize) -> usize {
    RUNS.iter().rposition(|first| *first <= run).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::SuffixRule;

    const LOOK_UP: TextSpec = TextSpec::PromptLookup(PromptLookup::SECOND);
    const SUFFIX: TextSpec = TextSpec::Suffix(SuffixRule::DEFAULT);

    fn shares(found: &LookedUp) -> Vec<f32> {
        found.chances.iter().map(|chance| chance.exp()).collect()
    }

    #[track_caller]
    fn assert_near(found: &[f32], expected: &[f32]) {
        let near = |(found, expected): (&f32, &f32)| (found - expected).abs() < 1e-6;
        assert!(found.len() == expected.len() && found.iter().zip(expected).all(near), "{found:?}, not {expected:?}");
    }

    #[test]
    fn a_chain_is_looked_up_in_the_own_tokens_with_the_chances_of_its_runs() {
        let mut source = SecondSource::new(LOOK_UP);
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
            let mut source = SecondSource::new(LOOK_UP);
            source.look_up(1, &[1, 2, 3, 4, 1, 2], output, TreeShape::chain(1));
            let Tally { right, all } = source.requests[&1].counted[0];
            assert_eq!(source.requests[&1].counted[0], Tally::after(PromptLookup::SECOND, &[1, 2, 3, 4, 1, 2], output));
            (right[range(2)] + WEIGHT * 0.5) / (all[range(2)] + WEIGHT)
        };
        assert_near(&[chance(&[]), chance(&[3]), chance(&[9])], &[0.5, 3.0 / 5.0, 2.0 / 5.0]);
    }

    #[test]
    fn suffixes_are_looked_up_in_outputs_of_other_requests_too_and_counted_by_their_frequency() {
        let mut source = SecondSource::new(SUFFIX);
        let shape = TreeShape::chain(4);
        source.look_up(1, &[90], &[1, 2, 3, 4], shape);
        // What a request produced last is kept when it ends.
        source.end(1, &[1, 2, 3, 4, 5, 1, 2, 3, 4, 6]);
        let found = source.look_up(2, &[91, 2, 3, 4], &[], shape);
        assert_eq!((found.tokens.len(), found.tokens.first()), (3, Some(&5)), "as many as are matched: {found:?}");
        let of = |class: usize, run: usize| RIGHT_OF_SUFFIXES[class][range(run)];
        // One of two occurrences continues so, and after that the only one.
        assert_near(&shares(&found), &[of(1, 3), of(3, 4), of(3, 5)]);
        source.look_up(2, &[], &[6], shape);
        let counted = source.requests[&2].counted;
        assert_eq!((counted[1].right[range(3)], counted[1].all[range(3)]), (0.0, 1.0), "the other one was right");
        assert_eq!(counted.iter().map(|one| one.all.iter().sum::<f32>()).sum::<f32>(), 1.0);
        source.clear();
        assert_eq!(source.look_up(2, &[91, 2, 3, 4], &[], shape), LookedUp::default());
    }

    #[test]
    fn what_is_found_depends_on_the_texts_alone() {
        let text: Vec<u32> = (0..60).map(|at| at * at % 11).collect();
        let (prompt, output) = text.split_at(9);
        let shape = TreeShape::chain(4);
        for rule in [LOOK_UP, SUFFIX] {
            for length in 0..output.len() {
                let [mut stepwise, mut once] = [(); 2].map(|()| SecondSource::new(rule));
                for source in [&mut stepwise, &mut once] {
                    source.look_up(4, &text[20..25], &text[25..40], shape);
                    source.end(4, &text[25..50]);
                }
                for known in (0..length).step_by(3) {
                    stepwise.look_up(5, prompt, &output[..known], shape);
                }
                let [stepwise, once] =
                    [&mut stepwise, &mut once].map(|source| source.look_up(5, prompt, &output[..length], shape));
                assert_eq!(stepwise, once, "{rule:?}, {length}");
            }
        }
    }
}
