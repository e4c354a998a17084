//! Grows the pool of a block, depth by depth.
//!
//! The ranking of every depth is known from the start, so each node could propose the best tokens
//! of the next depth. Only those do that may still be in some tree: a proposal scores at most as
//! high as its parent, so one that a tree would not keep now is not kept later.

use schemas::tree::TreeShape;

use super::pool::{Pool, Proposal, best};

/// A growing pool of a block, for all shapes that share it.
#[derive(Clone, Debug)]
pub struct Levels<'a> {
    shapes: &'a [TreeShape],
    pool: Pool,
}

impl<'a> Levels<'a> {
    /// Starts after the root, whose children are the best tokens of the first depth with their
    /// log-probabilities, best first.
    pub fn new(shapes: &'a [TreeShape], first: &[(u32, f32)]) -> Self {
        let mut levels = Self { shapes, pool: Pool::default() };
        levels.pool.push_step(Proposal::children(None, levels.widest(), first));
        levels
    }

    /// The largest `topk` of all shapes.
    pub fn widest(&self) -> usize {
        self.shapes.iter().map(|shape| shape.topk).max().unwrap_or(1)
    }

    /// Places of the nodes of the last depth that may have children in a tree, ascending.
    pub fn parents(&self) -> Vec<usize> {
        let (steps, last) = (self.pool.steps(), self.pool.last_step());
        let mut needed = vec![false; last.len()];
        for shape in self.shapes.iter().filter(|shape| shape.num_steps > steps) {
            // A child of the least kept node could only tie with it, and loses, since it comes
            // later.
            let drafts = shape.drafts();
            for place in best(self.pool.all(), self.pool.places_for(*shape), drafts) {
                if last.contains(&place) {
                    needed[place - last.start] = true;
                }
            }
        }
        let start = last.start;
        last.filter(|place| needed[place - start]).collect()
    }

    /// Adds the proposals of some parents: their best next tokens with log-probabilities, best
    /// first.
    pub fn push(&mut self, parents: &[usize], proposals: &[Vec<(u32, f32)>]) {
        let widest = self.widest();
        let mut step = Vec::new();
        for (parent, best) in parents.iter().zip(proposals) {
            step.extend(Proposal::children(Some((*parent, self.pool.all()[*parent].score)), widest, best));
        }
        self.pool.push_step(step);
    }

    /// All proposals so far.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Like [`pool`](Self::pool), if nothing else is needed any more.
    pub fn into_pool(self) -> Pool {
        self.pool
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use schemas::tree::{Block, NodeSource};

    use super::*;
    use crate::tree::expansion::tests::propose;

    const SOURCE: NodeSource = NodeSource::Block(Block { given: Some(7), ..Block::DSPARK });

    /// The pool of a block whose log-probabilities are a function of depth and of the token before.
    fn grow(shapes: &[TreeShape], seed: u64, coarse: bool, every_node: bool) -> Pool {
        const VOCABULARY: usize = 4;
        let after = |depth: usize, token: u32| propose(seed ^ depth as u64, &[token], VOCABULARY, coarse);
        let mut levels = Levels::new(shapes, &after(0, 77));
        let steps = shapes.iter().map(|shape| shape.num_steps).max().expect("a shape");
        for depth in 1..steps {
            let parents = if every_node { levels.pool.last_step().collect() } else { levels.parents() };
            let tokens = parents.iter().map(|place| levels.pool.all()[*place].token);
            let proposals: Vec<_> = tokens.map(|token| after(depth, token)).collect();
            levels.push(&parents, &proposals);
        }
        levels.into_pool()
    }

    fn shape(steps: usize, topk: usize, size: f64) -> TreeShape {
        let most = SOURCE.most_nodes(steps, topk).min(40);
        let nodes = if topk == 1 { steps + 1 } else { 2 + (size * (most - 2) as f64) as usize };
        SOURCE.shape(steps, topk, nodes).expect("a shape within the bound")
    }

    proptest! {
        #[test]
        fn one_pool_has_the_trees_of_all_its_shapes_as_if_every_node_had_children(
            shapes in prop::collection::vec((1_usize..6, 1_usize..4, 0.0_f64..1.0), 1..5), seed: u64, coarse: bool,
        ) {
            let shapes: Vec<TreeShape> = shapes.into_iter().map(|(steps, topk, size)| shape(steps, topk, size)).collect();
            let pool = grow(&shapes, seed, coarse, false);
            for shape in &shapes {
                let (tree, alone) = (pool.tree(*shape, 77), grow(&[*shape], seed, coarse, true).tree(*shape, 77));
                prop_assert_eq!(alone.nodes().len(), shape.num_draft_tokens);
                // Ties may be kept in another order of places, but the best of a pool have the same
                // scores.
                if !coarse {
                    prop_assert_eq!(tree.nodes(), alone.nodes(), "{}", shape);
                } else {
                    prop_assert_eq!(pool.kept(*shape).len(), shape.drafts());
                }
            }
        }
    }

    #[test]
    fn a_block_may_have_more_nodes_than_beams_leave() {
        let shape = SOURCE.parse("3,2,15").expect("all nodes of a binary tree");
        let tree = grow(&[shape], 3, false, false).tree(shape, 77);
        let at = |depth: usize| tree.nodes().iter().filter(|node| node.depth == depth).count();
        assert_eq!([at(0), at(1), at(2), at(3)], [1, 2, 4, 8]);
    }
}
