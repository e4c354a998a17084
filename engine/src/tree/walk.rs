//! Acceptance: the target chooses a token at the root, then at each child that holds its choice.
//!
//! The tree is fixed before the target verifies it, so this is the whole rule, greedy or sampled:
//! whatever distribution the choices are drawn from, the output has exactly that distribution,
//! because it *is* the choices. Children of a node are accepted with the sum of their
//! probabilities, which no rule for a fixed tree can exceed; SGLang's
//! `TreeSpeculativeSamplingTargetOnly` with thresholds of 1 accepts with the same probability, by
//! drawing against one child after the other. Since choices are a function of (seed, position),
//! sampled output does not depend on the tree.

use super::draft_tree::DraftTree;

/// Walks down from the root and returns the accepted nodes in order, root first. `choose` is called
/// once for each of them, in this order: its answers are the accepted drafts, then the bonus token.
pub fn walk(tree: &DraftTree, mut choose: impl FnMut(usize) -> u32) -> Vec<usize> {
    let mut path = vec![0];
    let mut choice = choose(0);
    while let Some(child) = path.last().and_then(|node| tree.child(*node, choice)) {
        path.push(child);
        choice = choose(child);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drafts_are_accepted_along_one_path_and_a_bonus_token_ends_it() {
        // 0 ─ 1 (token 5) ─ 3 (token 7)
        //   └ 2 (token 6) ─ 4 (token 7)
        let mut tree = DraftTree::root(1);
        let (a, b) = (tree.add(0, 5), tree.add(0, 6));
        for parent in [a, b] {
            tree.add(parent, 7);
        }
        let choices = [6, 9, 7, 9, 8];
        let mut requested = Vec::new();
        let path = walk(&tree, |node| {
            requested.push(choices[node]);
            choices[node]
        });
        assert_eq!((path, requested), (vec![0, 2, 4], vec![6, 7, 8]));
        assert_eq!(walk(&tree, |_| 4), [0]);
    }
}
