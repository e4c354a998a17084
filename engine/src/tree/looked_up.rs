//! A chain that is looked up in a text, joined with the tree of a head.
//!
//! The head's own tree and the chain share the root. A token that both propose below the same node
//! is one node, with the larger of its two chances; so all nodes after it become likelier too. Of
//! all nodes those with the largest products of chances along their paths are kept, as many as the
//! shape has.

use schemas::tree::TreeShape;

use super::pool::{Pool, Proposal};

/// A chain of drafts with the chance of each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LookedUp {
    /// The tokens after the root.
    pub tokens: Vec<u32>,
    /// The log-probability of each token, if those before it are right: at most 0.
    pub chances: Vec<f32>,
}

/// A node of the joined tree.
struct JoinedNode {
    token: u32,
    /// Place among the nodes.
    parent: Option<usize>,
    depth: usize,
    /// Log-probability after its parent.
    edge: f32,
}

/// The pool of a shape's tree and a chain: `pool` may hold the proposals of larger shapes.
pub fn joined(pool: &Pool, shape: TreeShape, chain: &LookedUp) -> Pool {
    let mut nodes: Vec<JoinedNode> = Vec::new();
    let mut place_of = vec![None; pool.all().len()];
    for at in pool.kept(shape) {
        let Proposal { token, score, parent, .. } = pool.all()[at];
        let above = parent.map_or(0.0, |parent| pool.all()[parent].score);
        let parent = parent.and_then(|parent| place_of[parent]);
        let depth = parent.map_or(1, |parent: usize| nodes[parent].depth + 1);
        place_of[at] = Some(nodes.len());
        nodes.push(JoinedNode { token, parent, depth, edge: edge(score, above) });
    }
    let mut parent = None;
    for (depth, (token, chance)) in (1..=shape.num_steps).zip(chain.tokens.iter().zip(&chain.chances)) {
        let same = nodes.iter().position(|node| node.parent == parent && node.token == *token);
        let place = same.unwrap_or(nodes.len());
        match nodes.get_mut(place) {
            Some(node) => node.edge = node.edge.max(edge(*chance, 0.0)),
            None => nodes.push(JoinedNode { token: *token, parent, depth, edge: edge(*chance, 0.0) }),
        }
        parent = Some(place);
    }
    by_depth(&nodes, shape.num_steps)
}

/// The log-probability of a node after its parent, never NaN.
fn edge(score: f32, above: f32) -> f32 {
    let edge = score - above;
    if edge.is_nan() { f32::NEG_INFINITY } else { edge.min(0.0) }
}

/// The nodes as a pool, whose steps are their depths. Each is the best of its parent, so that no
/// breadth of a shape leaves it out.
fn by_depth(nodes: &[JoinedNode], depths: usize) -> Pool {
    let mut pool = Pool::default();
    let mut place_of: Vec<Option<usize>> = vec![None; nodes.len()];
    for depth in 1..=depths {
        let mut step = Vec::new();
        let of_depth = nodes.iter().enumerate().filter(|(_, node)| node.depth == depth);
        for (next, (at, node)) in (pool.all().len()..).zip(of_depth) {
            let parent = node.parent.and_then(|parent| place_of[parent]);
            let above = parent.map_or(0.0, |parent| pool.all()[parent].score);
            step.push(Proposal { token: node.token, score: above + node.edge, parent, rank: 0 });
            place_of[at] = Some(next);
        }
        pool.push_step(step);
    }
    pool
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tree::{DraftTree, accepted};

    fn pool(steps: &[&[(u32, f32, Option<usize>)]]) -> Pool {
        let mut pool = Pool::default();
        for step in steps {
            let proposal =
                |at: &(u32, f32, Option<usize>)| Proposal { token: at.0, score: at.1, parent: at.2, rank: 0 };
            pool.push_step(step.iter().map(proposal));
        }
        pool
    }

    fn chain(tokens: &[u32], chance: f32) -> LookedUp {
        LookedUp { tokens: tokens.to_vec(), chances: vec![chance; tokens.len()] }
    }

    fn nodes(tree: &DraftTree) -> Vec<(u32, Option<usize>)> {
        tree.nodes().iter().map(|node| (node.token, node.parent)).collect()
    }

    #[test]
    fn a_token_that_both_propose_is_one_node_with_the_larger_chance() {
        let shape = TreeShape::whole_tree(3, 2, 4);
        // Token 5 (−2) with 7 below it (−2.5), and token 6 (−0.5).
        let head = pool(&[&[(6, -0.5, None), (5, -2.0, None)], &[(7, -2.5, Some(1)), (8, -3.0, Some(0))]]);
        assert_eq!(nodes(&head.tree(shape, 1)), [(1, None), (6, Some(0)), (5, Some(0)), (7, Some(2))]);
        // The chain is sure of 5 and 9: its nodes and what the head has below 5 come first.
        let both = joined(&head, shape, &chain(&[5, 9], -0.1)).tree(shape, 1);
        assert_eq!(nodes(&both), [(1, None), (6, Some(0)), (5, Some(0)), (9, Some(2))]);
        let wide = TreeShape { num_draft_tokens: 5, ..shape };
        let head_and_more = joined(&head, wide, &chain(&[5, 9], -0.1));
        assert_eq!(head_and_more.all().iter().filter(|one| one.token == 5).count(), 1);
        let seven = head_and_more.all().iter().find(|one| one.token == 7).expect("a node");
        assert!((seven.score - (-0.1 - 0.5)).abs() < 1e-6, "{seven:?}");
        // A chain that is less sure than the head changes nothing but what is free.
        assert_eq!(joined(&head, shape, &chain(&[6], -5.0)).tree(shape, 1), head.tree(shape, 1));
        assert_eq!(joined(&head, shape, &LookedUp::default()).tree(shape, 1), head.tree(shape, 1));
    }

    proptest! {
        #[test]
        fn the_joined_tree_is_a_tree_of_the_best_nodes_of_both(
            first in prop::collection::vec((0_u32..4, -4.0_f32..0.0), 1..4),
            second in prop::collection::vec((0_u32..4, -4.0_f32..0.0, 0_usize..3), 0..6),
            tokens in prop::collection::vec((0_u32..4, -3.0_f32..0.0), 0..6), drafts in 1_usize..9,
        ) {
            let mut distinct: Vec<(u32, f32)> = Vec::new();
            first.iter().for_each(|one| if distinct.iter().all(|other| other.0 != one.0) { distinct.push(*one) });
            let roots: Vec<_> = distinct.iter().map(|(token, score)| (*token, *score, None)).collect();
            let mut below: Vec<(u32, f32, Option<usize>)> = Vec::new();
            for (token, edge, parent) in &second {
                let parent = parent % roots.len();
                if below.iter().all(|other| (other.0, other.2) != (*token, Some(parent))) {
                    below.push((*token, roots[parent].1 + edge, Some(parent)));
                }
            }
            let head = pool(&[&roots, &below]);
            let shape = TreeShape::whole_tree(4, 4, drafts + 1);
            let chain = LookedUp {
                tokens: tokens.iter().map(|(token, _)| *token).collect(),
                chances: tokens.iter().map(|(_, chance)| *chance).collect(),
            };
            let joined = joined(&head, shape, &chain);
            let tree = joined.tree(shape, 9);
            prop_assert!(tree.nodes().len() <= drafts + 1);
            for (at, node) in tree.nodes().iter().enumerate().skip(1) {
                prop_assert!(node.parent.is_some_and(|parent| parent < at) && node.depth <= 4);
                let twins = tree.nodes().iter().filter(|other| (other.token, other.parent) == (node.token, node.parent));
                prop_assert_eq!(twins.count(), 1);
            }
            // What a text accepts is read off the pool as it is off the tree.
            let text: Vec<u32> = tokens.iter().map(|(token, _)| *token).collect();
            let mut node = 0;
            let walked = text.iter().map_while(|token| { node = tree.child(node, *token)?; Some(()) }).count();
            prop_assert_eq!(accepted(&joined, shape, &text), walked);
            // With room for all, the whole chain is in it.
            let all = TreeShape { num_draft_tokens: 64, ..shape };
            prop_assert_eq!(accepted(&super::joined(&head, all, &chain), all, &text), text.len().min(4));
        }
    }
}
