//! Simulated acceptance, to time rounds without a trained draft (SGLang's SGLANG_SIMULATE_ACC_LEN).
//! The output is then meaningless.

use super::draft_tree::DraftTree;
use crate::random::uniform;

/// Separates these random numbers from those for tokens.
const SIMULATION: u64 = 0xA5C3_D2E1_F0B4_9687;

/// Number of tokens that a round of a sequence yields, `expected` on average: a function of the
/// request's seed and of the sequence's length, the same on every device.
pub fn simulated_count(expected: f32, seed: u64, length: usize) -> usize {
    let whole = expected.floor().max(1.0);
    let more = uniform(seed ^ SIMULATION, length) < f64::from(expected - whole);
    whole as usize + usize::from(more)
}

/// Walks to the first node of the depth at which `count` tokens are produced; if the tree is not
/// deep enough, over its first `count` nodes, as SGLang does. It never visits more than `most`
/// nodes. Returns the path from the root; `choose` is called for each node on it.
pub fn simulated_walk(tree: &DraftTree, count: usize, most: usize, mut choose: impl FnMut(usize) -> u32) -> Vec<usize> {
    let count = count.clamp(1, most.min(tree.nodes().len()).max(1));
    let node = tree.nodes().iter().position(|node| node.depth == count - 1);
    let path = node.map_or_else(|| (0..count).collect(), |node| tree.path(node));
    for node in &path {
        choose(*node);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_the_mean_that_is_requested() {
        for expected in [1.0, 2.0, 2.25, 3.91] {
            let total: usize = (0..20_000).map(|length| simulated_count(expected, 7, length)).sum();
            let mean = total as f64 / 20_000.0;
            assert!((mean - f64::from(expected)).abs() < 0.02, "{mean} for {expected}");
        }
    }

    #[test]
    fn the_way_leads_to_the_first_node_of_its_depth_whatever_the_target_says() {
        let mut tree = DraftTree::root(1);
        let (_a, b) = (tree.add(0, 5), tree.add(0, 6));
        tree.add(b, 7);
        let walk = |count, most| simulated_walk(&tree, count, most, |_| 9);
        assert_eq!((walk(1, 9), walk(2, 9), walk(3, 9)), (vec![0], vec![0, 1], vec![0, 2, 3]));
        // Four tokens from a tree that is two drafts deep.
        assert_eq!((walk(4, 9), walk(9, 9), walk(9, 3)), (vec![0, 1, 2, 3], vec![0, 1, 2, 3], vec![0, 2, 3]));
    }
}
