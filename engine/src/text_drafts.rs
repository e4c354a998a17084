//! Drafts from texts: look-ups of the last tokens in the request's own tokens or in earlier
//! outputs.
//!
//! A round with drafts from texts begins on the host: its trees are looked up before the target's
//! pass. The rules are those of the engines, with their order of equal candidates (see
//! [`TextSpec`]).
//!
//! What is kept of other requests changes which drafts are made, never the output. So the accept
//! length depends on the order of requests: each round's tokens are added, in the order of the
//! batch, before the next round is drafted.

mod prompt_lookup;
mod second_source;
mod suffix;
mod suffix_tree;
mod trie;

use std::collections::HashMap;

use schemas::tree::TreeShape;

pub use self::second_source::{RIGHT_OF_LOOK_UPS, RUNS, SecondSource, Tally, WEIGHT};
use self::{prompt_lookup::Occurrences, suffix::Suffix, suffix_tree::Speculation, trie::Trie};
use crate::{
    spec::{Occurrence, TextSpec},
    tree::DraftTree,
};

/// The texts that a rule keeps.
#[derive(Debug)]
pub struct TextDrafts {
    spec: TextSpec,
    shared: LookUpState,
    /// Running requests, by a number of the caller.
    requests: HashMap<u64, RequestTokens>,
}

/// What a rule keeps besides the tokens of running requests.
#[derive(Debug)]
enum LookUpState {
    Nothing,
    Suffix(Suffix),
    Trie(Trie),
}

/// The tokens of a running request.
#[derive(Debug)]
struct RequestTokens {
    tokens: Vec<u32>,
    prompt: usize,
    /// Of a rule that looks up in these tokens alone.
    occurrences: Option<Occurrences>,
}

impl RequestTokens {
    fn new(prompt: &[u32], spec: TextSpec) -> Self {
        let occurrences = match spec {
            TextSpec::PromptLookup(rule) => Some(Occurrences::new(rule)),
            TextSpec::Suffix(_) | TextSpec::Trie(_) => None,
        };
        Self { tokens: prompt.to_vec(), prompt: prompt.len(), occurrences }
    }
}

impl LookUpState {
    fn new(spec: TextSpec) -> Self {
        match spec {
            TextSpec::PromptLookup(_) => Self::Nothing,
            TextSpec::Suffix(rule) => Self::Suffix(Suffix::new(rule)),
            TextSpec::Trie(rule) => Self::Trie(Trie::new(rule)),
        }
    }
}

impl TextDrafts {
    /// A rule that has kept nothing yet. Its numbers are [valid](TextSpec::check).
    pub fn new(spec: TextSpec) -> Self {
        Self { spec, shared: LookUpState::new(spec), requests: HashMap::new() }
    }

    /// Brings a request up to date: its prompt, and its output so far, which only grows.
    pub fn update(&mut self, request: u64, prompt: &[u32], output: &[u32]) {
        let known = match self.requests.get(&request) {
            Some(sequence) => sequence.tokens.len() - sequence.prompt,
            None => {
                if let LookUpState::Suffix(suffix) = &mut self.shared {
                    suffix.start(request, prompt);
                }
                self.requests.insert(request, RequestTokens::new(prompt, self.spec));
                0
            }
        };
        self.append(request, output.get(known..).unwrap_or_default());
    }

    /// Adds the tokens of a round to a request: all that the target accepted, even if its output
    /// ends before the last of them, as in vLLM.
    pub fn append(&mut self, request: u64, new: &[u32]) {
        let Some(sequence) = self.requests.get_mut(&request).filter(|_| !new.is_empty()) else { return };
        match &mut self.shared {
            LookUpState::Nothing => {}
            LookUpState::Suffix(suffix) => suffix.append(request, new),
            // The tokens of a round are added a round later, and those of a prompt with the first
            // output after it.
            LookUpState::Trie(trie) if sequence.tokens.len() > sequence.prompt => trie.insert(&sequence.tokens),
            LookUpState::Trie(_) => {}
        }
        sequence.tokens.extend(new);
    }

    /// The tree that is drafted after the tokens of a request; only a root if nothing is found, or
    /// if the request is unknown.
    pub fn draft(&mut self, request: u64, shape: TreeShape) -> DraftTree {
        let Some(sequence) = self.requests.get_mut(&request) else { return DraftTree::root(0) };
        let RequestTokens { tokens, occurrences, .. } = sequence;
        let Some(last) = tokens.last().copied() else { return DraftTree::root(0) };
        let most = shape.drafts();
        match (&mut self.shared, self.spec) {
            _ if shape.is_off() => DraftTree::root(last),
            (LookUpState::Suffix(suffix), _) => {
                let mut drafts = Speculation::default();
                suffix.draft(request, most, &mut drafts);
                chain(last, drafts.tokens)
            }
            (LookUpState::Trie(trie), _) => trie.draft(request, tokens, shape),
            (LookUpState::Nothing, TextSpec::PromptLookup(rule)) => {
                let mut drafts: Vec<u32> = occurrences.as_mut().map_or_else(Vec::new, |occurrences| {
                    occurrences.read(tokens);
                    occurrences.find(tokens).1.iter().take(most).copied().collect()
                });
                if rule.occurrence == Occurrence::LatestFilled {
                    drafts.resize(most, last);
                }
                chain(last, drafts)
            }
            (LookUpState::Nothing, _) => DraftTree::root(last),
        }
    }

    /// Forgets a request; what other requests can look up of it stays.
    pub fn end(&mut self, request: u64) {
        self.requests.remove(&request);
        match &mut self.shared {
            LookUpState::Nothing => {}
            LookUpState::Suffix(suffix) => suffix.end(request),
            LookUpState::Trie(trie) => trie.end(request),
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::new(self.spec);
    }
}

fn chain(root: u32, drafts: Vec<u32>) -> DraftTree {
    let mut tree = DraftTree::root(root);
    drafts.into_iter().fold(0, |at, token| tree.add(at, token));
    tree
}
