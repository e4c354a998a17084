//! Acceptance: the target chooses a token at the root, then at each child that holds its choice.
//!
//! The tree is fixed before the target looks at it, so this is the whole rule, greedy or sampled: whatever the choices
//! are drawn from, the output has exactly their distribution, because it *is* the choices. A node's children are
//! accepted with the sum of their probabilities, which no rule for a fixed tree can exceed; SGLang's
//! `TreeSpeculativeSamplingTargetOnly` with thresholds of 1 accepts with the same probability by drawing against one
//! child after the other. Choices that are a function of (seed, position) make sampled output independent of the tree.

use super::draft_tree::DraftTree;

/// What the target keeps of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The accepted nodes in order, the root first.
    pub path: Vec<usize>,
    /// The target's choice at each of them: the accepted drafts, then the bonus token.
    pub tokens: Vec<u32>,
}

/// Walks down from the root. `choose` is asked once for each accepted node, in order of depth.
pub fn walk(tree: &DraftTree, mut choose: impl FnMut(usize) -> u32) -> Accepted {
    let mut accepted = Accepted { path: vec![0], tokens: vec![choose(0)] };
    let mut node = 0;
    while let Some(child) = accepted.tokens.last().and_then(|token| tree.child(node, *token)) {
        accepted.path.push(child);
        accepted.tokens.push(choose(child));
        node = child;
    }
    accepted
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
        (tree.add(a, 7), tree.add(b, 7));
        let choices = [6, 9, 7, 9, 8];
        assert_eq!(walk(&tree, |node| choices[node]), Accepted { path: vec![0, 2, 4], tokens: vec![6, 7, 8] });
        assert_eq!(walk(&tree, |_| 4), Accepted { path: vec![0], tokens: vec![4] });
    }
}
