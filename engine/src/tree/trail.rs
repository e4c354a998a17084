//! A known text in a pool: the tokens of the text that a tree accepts, the other tokens that the
//! tree offers, and the beams that can still change these.

use schemas::tree::TreeShape;

use super::{
    expansion::Expansion,
    pool::{Pool, Proposal},
};

/// What the replay of a round must know of its tree. This bounds what has to be expanded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequiredTree {
    /// The number of tokens of the text that it accepts.
    Accepted,
    /// Also the other tokens that it offers along the text.
    Offered,
    /// The whole tree, wherever it leads.
    Whole,
}

/// Number of tokens of `text`, which follows the root, that the tree of a shape accepts.
pub fn accepted(pool: &Pool, shape: TreeShape, text: &[u32]) -> usize {
    let (places, pool) = (pool.places_for(shape), pool.all());
    let drafts = shape.drafts();
    trail(pool, &places, text).into_iter().take_while(|place| rank(pool, &places, *place) < drafts).count()
}

/// The tokens that the tree of a shape offers after the root and after each accepted token of
/// `text`, as long as the text has a next token there.
pub fn offered(pool: &Pool, shape: TreeShape, text: &[u32]) -> Vec<Vec<u32>> {
    let kept = pool.kept(shape);
    let pool = pool.all();
    let nodes = std::iter::once(None).chain(trail(pool, &kept, text).into_iter().map(Some)).take(text.len());
    nodes
        .map(|node| {
            let mut tokens: Vec<u32> =
                kept.iter().filter(|place| pool[**place].parent == node).map(|place| pool[*place].token).collect();
            // A draft's vocabulary may contain a token twice.
            tokens.sort_unstable();
            tokens.dedup();
            tokens
        })
        .collect()
}

/// Those of some ascending places that hold the text's tokens, one per step, as far as there are
/// any. If several siblings have the same token, the first one is taken, since it ranks highest.
fn trail(pool: &[Proposal], among: &[usize], text: &[u32]) -> Vec<usize> {
    let mut places: Vec<usize> = Vec::new();
    for token in text {
        let parent = places.last().copied();
        let child = |at: &&usize| pool[**at].parent == parent && pool[**at].token == *token;
        let Some(child) = among.iter().find(child) else { break };
        places.push(*child);
    }
    places
}

/// Number of proposals among some places that rank above one.
fn rank(pool: &[Proposal], among: &[usize], place: usize) -> usize {
    let own = pool[place].score;
    let above = |at: &&usize| pool[**at].score > own || (pool[**at].score == own && **at < place);
    among.iter().filter(above).count()
}

impl Expansion {
    /// Drops the beams whose proposals cannot change the result for `text` of any tree of this
    /// expansion's shape, or of a smaller one with the same `topk`. A proposal scores at most as
    /// high as its beam and comes after it, so:
    /// - a beam that the largest tree would not keep now proposes nothing that it will keep;
    /// - once the text has left the tree, a beam that scores no better than the worst proposal that
    ///   matters cannot displace any of these.
    pub fn prune(&mut self, text: &[u32], wanted: RequiredTree) {
        let (pool, steps) = (self.pool().all(), self.pool().steps());
        let places = self.pool().kept(self.shape());
        let mut kept = vec![false; pool.len()];
        places.iter().for_each(|place| kept[*place] = true);
        let trail = trail(pool, &places, text);
        let runs = |place: &usize| self.beams().iter().any(|beam| beam.place == *place);
        // The text is still in the tree and a beam continues it, so what it meets next is unknown.
        let goes_on = trail.len() == steps && steps < text.len() && trail.last().is_some_and(runs);
        let lowest = match wanted {
            _ if goes_on => f32::NEG_INFINITY,
            RequiredTree::Whole => f32::NEG_INFINITY,
            RequiredTree::Accepted => trail.last().map_or(f32::INFINITY, |place| pool[*place].score),
            RequiredTree::Offered => {
                // What is offered after the text's last token is not compared with anything.
                let followed = &trail[..trail.len().min(text.len().saturating_sub(1))];
                let looked_at = |(at, proposal): &(usize, &Proposal)| {
                    kept[*at] && proposal.parent.is_none_or(|parent| followed.contains(&parent))
                };
                pool.iter().enumerate().filter(looked_at).map(|(_, one)| one.score).fold(f32::INFINITY, f32::min)
            }
        };
        let needed: Vec<bool> = (self.beams().iter())
            .map(|beam| {
                kept[beam.place] && (goes_on || wanted == RequiredTree::Whole || pool[beam.place].score > lowest)
            })
            .collect();
        self.retain_beams(&needed);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tree::{expansion::tests::propose, grow, walk};

    /// All trees of a draft that is a function of the path from the root.
    fn expand(shape: TreeShape, seed: u64, coarse: bool, mut prune: impl FnMut(&mut Expansion)) -> (Expansion, usize) {
        let mut ways: Vec<Vec<u32>> = vec![Vec::new()];
        let mut rows = 0;
        let first = [propose(seed, &[], shape.topk, coarse)];
        let grown = grow(
            shape,
            &first,
            |_, tree| prune(tree),
            |_, beams| {
                rows += beams.len();
                ways = beams.iter().map(|row| [ways[row.source].as_slice(), &[row.beam.token]].concat()).collect();
                Ok::<_, ()>(ways.iter().map(|way| propose(seed, way, shape.topk, coarse)).collect())
            },
        );
        (grown.expect("it cannot fail").remove(0), rows)
    }

    /// A text that the draft may propose: at each place one of its best tokens, or one that it
    /// never proposes.
    fn text(seed: u64, topk: usize, coarse: bool, choices: &[usize]) -> Vec<u32> {
        let mut way = Vec::new();
        for choice in choices {
            let token = propose(seed, &way, topk, coarse).get(*choice).map_or(1000, |(token, _)| *token);
            way.push(token);
        }
        way
    }

    proptest! {
        #[test]
        fn one_pruned_pool_tells_what_every_smaller_tree_accepts_and_offers(
            steps in 1_usize..8, topk in 1_usize..7, size in 0.0_f64..1.0, seed: u64, coarse: bool,
            choices in prop::collection::vec(0_usize..5, 1..9), smaller in prop::collection::vec((1_usize..8, 0.0_f64..1.0), 1..6),
        ) {
            let sized = |steps: usize, size: f64, most: usize| {
                let largest = TreeShape::whole_tree(steps, topk, 2).largest_num_draft_tokens().min(most);
                let nodes = if topk == 1 { steps + 1 } else { 2 + (size * (largest - 2) as f64) as usize };
                TreeShape::whole_tree(steps, topk, nodes)
            };
            let largest = sized(steps, size, usize::MAX);
            let text = text(seed, topk, coarse, &choices);
            let (pruned, rows) = expand(largest, seed, coarse, |tree| tree.prune(&text, RequiredTree::Accepted));
            let (wider, more) = expand(largest, seed, coarse, |tree| tree.prune(&text, RequiredTree::Offered));
            let (all, most) = expand(largest, seed, coarse, |tree| tree.prune(&text, RequiredTree::Whole));
            prop_assert!(rows <= more && more <= most && most <= (steps - 1) * topk);
            let shapes = smaller.iter().map(|(less, size)| sized((*less).min(steps), *size, largest.num_draft_tokens));
            for shape in shapes.chain([largest]) {
                let (whole, _) = expand(shape, seed, coarse, |_| {});
                let tree = whole.pool().tree(shape, 99);
                let path = walk(&tree, |node| text.get(tree.nodes()[node].depth).copied().unwrap_or(2000));
                prop_assert_eq!(accepted(pruned.pool(), shape, &text), path.len() - 1, "{}", shape);
                prop_assert_eq!(accepted(wider.pool(), shape, &text), path.len() - 1, "{}", shape);
                let children = |node: usize| {
                    let mut tokens: Vec<u32> =
                        tree.nodes().iter().filter(|child| child.parent == Some(node)).map(|child| child.token).collect();
                    tokens.sort_unstable();
                    tokens
                };
                let expected: Vec<Vec<u32>> = path.iter().take(text.len()).map(|node| children(*node)).collect();
                prop_assert_eq!(offered(wider.pool(), shape, &text), expected, "{}", shape);
                prop_assert_eq!(all.pool().tree(shape, 99), tree, "{}", shape);
            }
        }
    }

    #[test]
    fn a_chain_stops_at_the_first_token_that_differs() {
        let shape = TreeShape::chain(6);
        let text = text(5, 1, false, &[0, 0, 4, 0, 0, 0]);
        for wanted in [RequiredTree::Accepted, RequiredTree::Offered] {
            let (tree, rows) = expand(shape, 5, false, |tree| tree.prune(&text, wanted));
            assert_eq!((rows, accepted(tree.pool(), shape, &text)), (2, 2), "{wanted:?}");
        }
    }
}
