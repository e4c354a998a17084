use proptest::prelude::*;

use super::*;

fn rule(matching: TrieMatch, max_depth: usize, capacity: usize) -> TrieRule {
    TrieRule { max_depth, matching, capacity, ..TrieRule::DEFAULT }
}

fn shape(num_steps: usize, topk: usize, num_draft_tokens: usize) -> TreeShape {
    TreeShape::whole_tree(num_steps, topk, num_draft_tokens)
}

/// Tokens and parents of a tree.
fn written(tree: &DraftTree) -> Vec<(u32, Option<usize>)> {
    tree.nodes().iter().map(|node| (node.token, node.parent)).collect()
}

#[test]
fn the_most_recent_continuations_come_first_by_breadth_and_the_most_frequent_by_probability() {
    let mut by_recency = Trie::new(rule(TrieMatch::Bfs, 4, 1000));
    let mut by_frequency = Trie::new(rule(TrieMatch::Prob, 4, 1000));
    for trie in [&mut by_recency, &mut by_frequency] {
        for text in [[1, 2, 5], [1, 2, 5], [1, 2, 6]] {
            trie.insert(&text);
        }
    }
    let tree = by_recency.draft(0, &[9, 1], shape(3, 2, 4));
    assert_eq!(written(&tree), [(1, None), (2, Some(0)), (6, Some(1))]);
    let tree = by_recency.draft(3, &[9, 1], shape(3, 6, 4));
    assert_eq!(written(&tree), [(1, None), (2, Some(0)), (6, Some(1)), (5, Some(1))]);
    let tree = by_frequency.draft(0, &[9, 1], shape(3, 2, 4));
    assert_eq!(written(&tree), [(1, None), (2, Some(0)), (5, Some(1)), (6, Some(1))]);
    assert_eq!(by_recency.draft(1, &[9, 1], shape(1, 2, 4)).nodes().len(), 2);
    assert_eq!(by_recency.draft(2, &[9], shape(3, 2, 4)).nodes().len(), 1);
}

#[test]
fn a_suffix_that_was_missing_stays_missing_while_the_request_goes_on() {
    let mut trie = Trie::new(rule(TrieMatch::Bfs, 4, 1000));
    assert_eq!(trie.draft(0, &[1, 2], shape(3, 2, 4)).nodes().len(), 1);
    trie.insert(&[1, 2, 3, 4]);
    // Only the last token is looked up anew: the suffix 1, 2, 3 continues one that was missing.
    assert_eq!(trie.anchors(0, &[1, 2, 3]).iter().map(|(_, length)| *length).collect::<Vec<_>>(), [1]);
    assert_eq!(trie.anchors(1, &[1, 2, 3]).iter().map(|(_, length)| *length).collect::<Vec<_>>(), [3, 2, 1]);
}

proptest! {
    #[test]
    fn a_full_trie_drops_the_least_recently_used_paths(
        texts in prop::collection::vec(prop::collection::vec(0_u32..5, 1..10), 1..30), capacity in 6_usize..40,
    ) {
        let depth = 5;
        let mut trie = Trie::new(rule(TrieMatch::Bfs, depth, capacity));
        for text in &texts {
            trie.insert(text);
            prop_assert!(trie.nodes.len() - trie.free.len() <= capacity);
            // What was inserted last is there.
            let last = &text[text.len().saturating_sub(depth)..];
            let tail = &last[last.len() - 1..];
            prop_assert!(trie.children.contains_key(&(ROOT, tail[0])));
            let mut used = 0;
            let mut node = trie.newest;
            while let Some(place) = node {
                used += 1;
                node = trie.nodes[place as usize].older;
            }
            prop_assert_eq!(used + 1, trie.nodes.len() - trie.free.len());
            prop_assert_eq!(used, trie.children.len());
            let tree = trie.draft(7, text, shape(4, 3, 12));
            prop_assert!(tree.nodes().len() <= 12 && tree.nodes().iter().all(|node| node.depth <= 4));
        }
    }
}
