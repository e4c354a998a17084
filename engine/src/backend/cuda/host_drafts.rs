//! What the host drafts for a round, or looks up beside the device's draft: checked, and copied
//! before the round to where its kernels read it ([`RoundArrays::given`]).
//!
//! - Trees, one per request: tokens and parents of nodes, int32 `[2, batch, nodes]`. Nodes that a
//!   tree does not have get no parent.
//! - Chains, one per request: their lengths, int32 `[batch]`, tokens, int32 `[batch, steps]`, and
//!   the log-probability of each token after those before it, float32 `[batch, steps]`.
//!
//! [`RoundArrays::given`]: super::workspace::RoundArrays::given

use std::ops::Range;

use schemas::tree::TreeShape;

use super::CudaBackend;
use crate::{
    backend::{Drafted, Round},
    error::EngineError,
    tree::{DraftTree, LookedUp},
};

/// The words of the lengths, tokens and chances of chains.
pub fn chain_words(batch: usize, steps: usize) -> [Range<usize>; 3] {
    let (tokens, chances) = (batch, batch + batch * steps);
    [0..tokens, tokens..chances, chances..chances + batch * steps]
}

/// The bytes of words.
pub fn bytes_of(words: Range<usize>) -> Range<usize> {
    4 * words.start..4 * words.end
}

impl CudaBackend {
    /// Checks that a round has the drafts that its graph expects.
    pub(super) fn check_drafted(&self, drafted: Drafted<'_>, round: Round<'_>) -> Result<(), EngineError> {
        let shape = round.shape;
        match drafted {
            Drafted::ByHost(trees) => return self.check_trees(trees, round),
            Drafted::Joined(chains) => self.check_chains(chains, round)?,
            Drafted::Here => {}
        }
        let missing = match (shape.is_off(), self.machine.host_nodes) {
            (true, _) => return Ok(()),
            (false, Some(_)) if self.machine.texts.is_none() => "the host has drafted no trees",
            (false, None) if !self.follows => "no speculating shape was prepared, so the draft has no cache",
            (false, _) => return Ok(()),
        };
        Err(EngineError::Device(format!("a round of ({shape}) cannot run: {missing}")))
    }

    /// Checks trees that the host has drafted: their graph has room for those of the shape.
    fn check_trees(&self, trees: &[DraftTree], round: Round<'_>) -> Result<(), EngineError> {
        let Round { shape, slots } = round;
        if self.machine.host_nodes.is_none() || self.machine.texts.is_some() || shape.is_off() {
            return refused("this round has none".into());
        }
        if trees.len() != slots.len() {
            return refused(format!("{} trees for {} slots", trees.len(), slots.len()));
        }
        // The kernels do not check: a tree that exceeds its shape would be read as another one.
        for tree in trees.iter().map(DraftTree::nodes) {
            let depth = tree.iter().map(|node| node.depth).max().unwrap_or_default();
            if tree.len() > shape.num_draft_tokens || depth > shape.num_steps {
                return refused(format!("a tree of {} nodes and depth {depth} for the shape {shape}", tree.len()));
            }
            self.check_tokens(tree.iter().map(|node| node.token))?;
        }
        Ok(())
    }

    /// Checks chains that are joined with the trees of a round.
    fn check_chains(&self, chains: &[LookedUp], round: Round<'_>) -> Result<(), EngineError> {
        let Round { shape, slots } = round;
        if !self.machine.joins_chains || self.machine.texts.is_some() || shape.is_off() {
            return refused("this round joins none".into());
        }
        if chains.len() != slots.len() {
            return refused(format!("{} chains for {} slots", chains.len(), slots.len()));
        }
        for LookedUp { tokens, chances } in chains {
            if tokens.len() > shape.num_steps || tokens.len() != chances.len() {
                let (tokens, chances) = (tokens.len(), chances.len());
                return refused(format!("a chain of {tokens} tokens and {chances} chances for the shape {shape}"));
            }
            self.check_tokens(tokens.iter().copied())?;
        }
        Ok(())
    }

    fn check_tokens(&self, mut tokens: impl Iterator<Item = u32>) -> Result<(), EngineError> {
        let vocabulary = self.machine.target.spec.vocabulary;
        match tokens.find(|token| *token as usize >= vocabulary) {
            Some(token) => refused(format!("token {token} of a vocabulary of {vocabulary}")),
            None => Ok(()),
        }
    }

    /// Copies what the host has drafted for a round to the device; returns whether the round reads
    /// anything of the host.
    pub(super) fn send_drafts(
        &mut self,
        place: usize,
        drafted: Drafted<'_>,
        shape: TreeShape,
        batch: usize,
    ) -> Result<bool, EngineError> {
        let words = match drafted {
            Drafted::ByHost(trees) => words_of_trees(trees, batch, shape.num_draft_tokens),
            Drafted::Joined(chains) => words_of_chains(chains, batch, shape.num_steps),
            // A graph that joins chains reads the lengths of some.
            Drafted::Here if self.machine.joins_chains && self.machine.texts.is_none() && !shape.is_off() => {
                words_of_chains(&[], batch, shape.num_steps)
            }
            Drafted::Here => return Ok(false),
        };
        let staging = &mut self.staging[place];
        staging.given.store(0, &words);
        // From here to the round's begin, the device waits for the host; it counts as a stall.
        self.device.record(&staging.copy)?;
        self.device.write_async(self.round.given.slice(), &staging.given, 0..words.len() * 4)?;
        Ok(true)
    }
}

fn refused<T>(reason: String) -> Result<T, EngineError> {
    Err(EngineError::Device(format!("drafts of the host cannot be verified: {reason}")))
}

fn words_of_trees(trees: &[DraftTree], batch: usize, nodes: usize) -> Vec<i32> {
    let mut words = vec![0; 2 * batch * nodes];
    let (tokens, parents) = words.split_at_mut(batch * nodes);
    parents.fill(-1);
    let rows = tokens.chunks_exact_mut(nodes).zip(parents.chunks_exact_mut(nodes));
    for (tree, (tokens, parents)) in trees.iter().zip(rows) {
        for (node, (token, parent)) in tree.nodes().iter().zip(tokens.iter_mut().zip(parents)) {
            *token = node.token as i32;
            *parent = node.parent.map_or(-1, |parent| parent as i32);
        }
    }
    words
}

fn words_of_chains(chains: &[LookedUp], batch: usize, steps: usize) -> Vec<i32> {
    let [lengths, tokens, chances] = chain_words(batch, steps);
    let mut words = vec![0; chances.end];
    for (at, chain) in chains.iter().enumerate() {
        let count = chain.tokens.len();
        words[lengths.start + at] = count as i32;
        let row = |of: &Range<usize>| of.start + at * steps..of.start + at * steps + count;
        words[row(&tokens)].iter_mut().zip(&chain.tokens).for_each(|(word, token)| *word = *token as i32);
        words[row(&chances)].iter_mut().zip(&chain.chances).for_each(|(word, chance)| *word = chance.to_bits() as i32);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_of_a_padded_batch_lie_side_by_side() {
        let chain = |tokens: &[u32], chances: &[f32]| LookedUp { tokens: tokens.to_vec(), chances: chances.to_vec() };
        let words = words_of_chains(&[chain(&[7, 8], &[-0.5, -1.0]), LookedUp::default()], 3, 2);
        let [half, one] = [-0.5_f32, -1.0].map(|chance| chance.to_bits() as i32);
        assert_eq!(words, [2, 0, 0, 7, 8, 0, 0, 0, 0, half, one, 0, 0, 0, 0]);
        assert_eq!(chain_words(3, 2), [0..3, 3..9, 9..15]);
        assert_eq!(bytes_of(3..9), 12..36);
    }
}
