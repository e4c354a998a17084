//! Beam expansion and rerank (EAGLE-2, arXiv 2406.16858; SGLang `speculative/spec_utils.py`,
//! `select_top_k_tokens`).
//!
//! Each step runs `topk` beams, each of which proposes `topk` tokens. All topk² proposals go into a
//! pool; the best `topk` of them, by the sum of log-probabilities from the root, are the next
//! beams. At the end, the best `num_draft_tokens − 1` proposals of the whole pool form the tree.
//!
//! Ties always go to the lower place in the pool.

use schemas::tree::TreeShape;

use super::pool::{Pool, Proposal, best};

/// A beam: a row of the next draft step.
#[derive(Clone, Debug, PartialEq)]
pub struct Beam {
    /// The token that the draft reads.
    pub token: u32,
    /// The row of the previous step whose state it continues; in the first step the only one, 0.
    pub source: usize,
    /// Numbers of the beams on its path from the root, itself last; beams are numbered
    /// consecutively over all steps.
    pub path: Vec<usize>,
    /// Its place in the pool.
    pub place: usize,
}

/// A growing tree.
#[derive(Clone, Debug)]
pub struct Expansion {
    shape: TreeShape,
    pool: Pool,
    beams: Vec<Beam>,
    /// Number of beams that were numbered so far.
    numbered: usize,
}

impl Expansion {
    /// Starts from the best tokens after the root with their log-probabilities, best first.
    pub fn new(shape: TreeShape, first: &[(u32, f32)]) -> Self {
        let mut pool = Pool::default();
        pool.push_step(Proposal::children(None, shape.topk, first));
        let beams: Vec<Beam> = (pool.all().iter().enumerate())
            .map(|(at, proposal)| Beam { token: proposal.token, source: 0, path: vec![at], place: at })
            .collect();
        Self { shape, numbered: beams.len(), pool, beams }
    }

    /// The shape of the largest tree that it grows.
    pub fn shape(&self) -> TreeShape {
        self.shape
    }

    /// All proposals so far.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Like [`pool`](Self::pool), if nothing else is needed any more.
    pub fn into_pool(self) -> Pool {
        self.pool
    }

    /// The rows of the next draft step; empty if no step is left to run.
    pub fn beams(&self) -> &[Beam] {
        &self.beams
    }

    /// Keeps only the beams for which `needed` is true; they keep their numbers.
    pub fn retain_beams(&mut self, needed: &[bool]) {
        let mut needed = needed.iter();
        self.beams.retain(|_| needed.next().is_some_and(|needed| *needed));
    }

    /// Adds the proposals of each beam: its best tokens with their log-probabilities, best first.
    pub fn expand(&mut self, proposals: &[Vec<(u32, f32)>]) {
        let start = self.pool.all().len();
        let mut step = Vec::new();
        let mut sources = Vec::new();
        for (row, (beam, proposals)) in self.beams.iter().zip(proposals).enumerate() {
            let parent = self.pool.all()[beam.place];
            step.extend(Proposal::children(Some((beam.place, parent.score)), self.shape.topk, proposals));
            sources.resize(step.len(), row);
        }
        // Among the proposals of this step alone, as in SGLang: those of earlier steps that were
        // not chosen are never continued.
        let beams: Vec<Beam> =
            (best(&step, (0..step.len()).collect(), self.shape.topk).into_iter().zip(self.numbered..))
                .map(|(at, number)| {
                    let source = sources[at];
                    let mut path = self.beams[source].path.clone();
                    path.push(number);
                    Beam { token: step[at].token, source, path, place: start + at }
                })
                .collect();
        self.numbered += beams.len();
        self.beams = beams;
        self.pool.push_step(step);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::tree::DraftTree;

    /// A draft whose log-probabilities are a function of the tokens on the path from the root.
    pub fn propose(seed: u64, way: &[u32], topk: usize, coarse: bool) -> Vec<(u32, f32)> {
        let mut state =
            way.iter().fold(seed, |state, token| (state ^ u64::from(*token)).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut proposals: Vec<(u32, f32)> = (0..topk as u32)
            .map(|token| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let fine = (state >> 40) as f32 / (1 << 24) as f32;
                (token, -if coarse { (fine * 3.0).floor() } else { fine * 4.0 })
            })
            .collect();
        proposals.sort_by(|a, b| b.1.total_cmp(&a.1));
        proposals
    }

    fn grow(shape: TreeShape, seed: u64, coarse: bool) -> DraftTree {
        grow_from(shape, seed, shape.topk, coarse)
    }

    /// The tree of a draft with a vocabulary of this many tokens.
    fn grow_from(shape: TreeShape, seed: u64, vocabulary: usize, coarse: bool) -> DraftTree {
        let mut expansion = Expansion::new(shape, &propose(seed, &[], vocabulary, coarse));
        let mut ways: Vec<Vec<u32>> = vec![Vec::new()];
        for _ in 1..shape.num_steps {
            ways =
                expansion.beams().iter().map(|beam| [ways[beam.source].as_slice(), &[beam.token]].concat()).collect();
            let proposals: Vec<_> = ways.iter().map(|way| propose(seed, way, vocabulary, coarse)).collect();
            expansion.expand(&proposals);
        }
        expansion.pool().tree(shape, 99)
    }

    /// The definition, without the bookkeeping of beams: the path of every proposal in the order of
    /// the pool.
    fn brute_force(shape: TreeShape, seed: u64, coarse: bool) -> Vec<Vec<u32>> {
        let mut pool: Vec<(f32, Vec<u32>)> = Vec::new();
        let mut beams: Vec<(f32, Vec<u32>)> = vec![(0.0, Vec::new())];
        for _ in 0..shape.num_steps {
            let step: Vec<(f32, Vec<u32>)> = beams
                .iter()
                .flat_map(|(score, way)| {
                    let extend = |(token, log): (u32, f32)| (score + log, [way.as_slice(), &[token]].concat());
                    propose(seed, way, shape.topk, coarse).into_iter().map(extend).collect::<Vec<_>>()
                })
                .collect();
            let mut order: Vec<usize> = (0..step.len()).collect();
            order.sort_by(|a, b| step[*b].0.total_cmp(&step[*a].0).then(a.cmp(b)));
            beams = order.iter().take(shape.topk).map(|at| step[*at].clone()).collect();
            pool.extend(step);
        }
        let mut order: Vec<usize> = (0..pool.len()).collect();
        order.sort_by(|a, b| pool[*b].0.total_cmp(&pool[*a].0).then(a.cmp(b)));
        order.truncate(shape.drafts());
        order.sort_unstable();
        order.into_iter().map(|at| pool[at].1.clone()).collect()
    }

    proptest! {
        #[test]
        fn the_tree_is_the_best_of_the_pool_with_all_parents(
            steps in 1_usize..6, topk in 1_usize..7, size in 0.0_f64..1.0, seed: u64, coarse: bool,
        ) {
            let largest = TreeShape::whole_tree(steps, topk, 2).largest_num_draft_tokens();
            let nodes = if topk == 1 { steps + 1 } else { 2 + (size * (largest - 2) as f64) as usize };
            let shape = TreeShape::new(steps, topk, nodes).expect("a shape within the bound");
            let tree = grow(shape, seed, coarse);
            prop_assert_eq!(tree.nodes().len(), shape.num_draft_tokens);
            for (at, node) in tree.nodes().iter().enumerate().skip(1) {
                prop_assert!(node.parent.is_some_and(|parent| parent < at) && node.depth <= steps);
            }
            let ways: Vec<Vec<u32>> = (1..nodes)
                .map(|node| tree.path(node)[1..].iter().map(|at| tree.nodes()[*at].token).collect())
                .collect();
            prop_assert_eq!(ways, brute_force(shape, seed, coarse));
        }
    }

    /// The tokens of all paths, which is what the target verifies; the order of nodes is not part
    /// of it.
    fn paths(tree: &DraftTree) -> BTreeSet<Vec<u32>> {
        let tokens = |node| tree.path(node).into_iter().map(|at| tree.nodes()[at].token).collect();
        (0..tree.nodes().len()).map(tokens).collect()
    }

    proptest! {
        #[test]
        fn shapes_with_the_same_smallest_shape_draft_the_same_tree(
            steps in 1_usize..7, topk in 2_usize..9, size in 0.0_f64..1.0, seed: u64, coarse: bool,
        ) {
            let largest = TreeShape::whole_tree(steps, topk, 2).largest_num_draft_tokens().min(12);
            let nodes = 2 + (size * (largest - 2) as f64) as usize;
            let shape = TreeShape::new(steps, topk, nodes).expect("a shape within the bound");
            let smallest = shape.smallest_with_same_tree();
            let [large, small] = [shape, smallest].map(|shape| paths(&grow_from(shape, seed, 10, coarse)));
            prop_assert_eq!(large, small, "{} and {}", shape, smallest);
        }
    }

    #[test]
    fn shapes_with_different_smallest_shapes_draft_different_trees_for_some_scores() {
        let mut shapes = BTreeSet::new();
        for (steps, topk, nodes) in (1..5).flat_map(|s| (1..5).flat_map(move |k| (2..6).map(move |n| (s, k, n)))) {
            shapes.extend(TreeShape::new(steps, topk, nodes).map(TreeShape::smallest_with_same_tree));
        }
        assert!(shapes.len() > 15, "{shapes:?}");
        let trees = |shape: &TreeShape| -> Vec<_> {
            (0..400).map(|seed| paths(&grow_from(*shape, seed * 0x9E37_79B9, 10, false))).collect()
        };
        let drafted: BTreeSet<_> = shapes.iter().map(trees).collect();
        assert_eq!(drafted.len(), shapes.len(), "two of {shapes:?} always draft the same tree");
    }

    #[test]
    fn scores_that_are_no_numbers_lose_and_do_not_panic() {
        let shape = TreeShape::new(2, 2, 7).expect("a shape");
        let mut expansion = Expansion::new(shape, &[(1, f32::NAN), (2, -0.5)]);
        expansion.expand(&[vec![(3, f32::NAN), (4, f32::INFINITY)], vec![(5, -1.0), (6, f32::NEG_INFINITY)]]);
        assert_eq!(expansion.beams()[0].token, 5);
        assert_eq!(expansion.pool().tree(shape, 0).nodes().len(), 7);
    }

    #[test]
    fn a_certain_child_never_loses_its_certain_parent() {
        let shape = TreeShape::new(2, 2, 3).expect("a shape");
        let mut expansion = Expansion::new(shape, &[(1, -0.0), (2, f32::NEG_INFINITY)]);
        expansion.expand(&[vec![(3, 0.0), (4, 0.0)], vec![(5, 0.0), (6, 0.0)]]);
        let tree = expansion.pool().tree(shape, 0);
        let tokens: Vec<u32> = tree.nodes().iter().map(|node| node.token).collect();
        assert_eq!((tokens.as_slice(), tree.nodes()[2].parent), ([0, 1, 3].as_slice(), Some(1)));
    }

    #[test]
    fn a_draft_vocabulary_smaller_than_topk_gives_a_smaller_tree() {
        let shape = TreeShape::new(1, 4, 5).expect("a shape");
        assert_eq!(Expansion::new(shape, &[(1, -0.1), (2, -0.2)]).pool().tree(shape, 0).nodes().len(), 3);
    }
}
