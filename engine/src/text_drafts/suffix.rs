//! Suffix decoding, as vLLM uses arctic-inference: the most frequent continuation of the last
//! tokens, in a tree of the request's own tokens or in one of outputs of all requests.

use std::collections::{HashMap, VecDeque};

use super::suffix_tree::{SequenceId, Speculation, SuffixTree};
use crate::spec::SuffixRule;

/// Limit of the size of the common tree in nodes, about 700 MB. The oldest outputs are dropped
/// beyond it, even if they are fewer than the rule allows.
const MOST_NODES: usize = 1 << 23;

/// The trees of all requests.
#[derive(Debug)]
pub struct Suffix {
    rule: SuffixRule,
    /// Outputs, including those of running requests.
    outputs: SuffixTree,
    /// Requests with an output in it, the oldest first.
    kept: VecDeque<(u64, SequenceId)>,
    running: HashMap<u64, SuffixRequest>,
}

/// A running request.
#[derive(Debug)]
struct SuffixRequest {
    /// Its prompt and output.
    own: SuffixTree,
    sequence: SequenceId,
    /// Its output in the common tree, unless it was dropped.
    output: Option<SequenceId>,
}

impl Suffix {
    /// Trees without tokens.
    pub fn new(rule: SuffixRule) -> Self {
        Self { outputs: SuffixTree::new(rule.max_tree_depth), kept: VecDeque::new(), running: HashMap::new(), rule }
    }

    /// A request begins.
    pub fn start(&mut self, request: u64, prompt: &[u32]) {
        let mut own = SuffixTree::new(self.rule.max_tree_depth);
        let sequence = own.open();
        own.extend(sequence, prompt);
        let output = (self.rule.max_cached_requests > 0).then(|| self.outputs.open());
        self.kept.extend(output.map(|output| (request, output)));
        while self.kept.len() > self.rule.max_cached_requests.max(1)
            || (self.outputs.size() > MOST_NODES && self.kept.len() > 1)
        {
            let Some((oldest, output)) = self.kept.pop_front() else { break };
            self.outputs.remove(output);
            if let Some(running) = self.running.get_mut(&oldest) {
                running.output = None;
            }
        }
        self.running.insert(request, SuffixRequest { own, sequence, output });
    }

    /// A request has further tokens of output.
    pub fn append(&mut self, request: u64, tokens: &[u32]) {
        let Some(running) = self.running.get_mut(&request) else { return };
        running.own.extend(running.sequence, tokens);
        if let Some(output) = running.output {
            self.outputs.extend(output, tokens);
        }
    }

    /// The drafts after all tokens of a request: the likelier of what its own tokens and those of
    /// all outputs suggest.
    pub fn draft(&self, request: u64, most: usize, drafts: &mut Speculation) {
        drafts.clear();
        let Some(running) = self.running.get(&request) else { return };
        let tokens = running.own.tokens(running.sequence);
        let last = &tokens[tokens.len().saturating_sub(self.rule.max_tree_depth)..];
        let own = running.own.best(last, Some(running.sequence), &self.rule, (most, 0.0));
        let outputs = self.outputs.best(last, running.output, &self.rule, (most, own.score));
        let (tree, found) = if own.score >= outputs.score { (&running.own, own) } else { (&self.outputs, outputs) };
        tree.read(found, drafts);
    }

    /// A request has ended.
    pub fn end(&mut self, request: u64) {
        self.running.remove(&request);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drafts(suffix: &Suffix, request: u64) -> Vec<u32> {
        let mut drafts = Speculation::default();
        suffix.draft(request, 8, &mut drafts);
        drafts.tokens
    }

    #[test]
    fn the_oldest_outputs_are_dropped_even_of_running_requests() {
        let rule = SuffixRule { max_cached_requests: 2, ..SuffixRule::DEFAULT };
        let mut suffix = Suffix::new(rule);
        let text = [1, 2, 3, 4, 5, 6];
        suffix.start(0, &[9]);
        suffix.append(0, &text);
        suffix.start(1, &[9, 1, 2, 3]);
        assert_eq!(drafts(&suffix, 1), [4, 5, 6]);
        suffix.start(2, &[9]);
        // The output of request 0 is dropped; it still knows its own tokens.
        assert_eq!(drafts(&suffix, 1), [0; 0]);
        suffix.append(0, &[7, 1, 2]);
        assert_eq!(drafts(&suffix, 0), [3, 4]);
        suffix.end(0);
        assert_eq!(drafts(&suffix, 0), [0; 0]);
    }

    #[test]
    fn without_kept_outputs_a_request_looks_up_its_own_tokens_only() {
        let mut suffix = Suffix::new(SuffixRule { max_cached_requests: 0, ..SuffixRule::DEFAULT });
        for request in 0..2 {
            suffix.start(request, &[9, 1, 2, 3]);
            assert_eq!(drafts(&suffix, request), [0; 0]);
            suffix.append(request, &[4, 5, 6]);
        }
    }
}
