use proptest::prelude::*;

use super::*;

/// The same tree as plain as it can be: every run is a node, and the children are a sorted list.
#[derive(Default)]
struct Plain {
    token: u32,
    count: u32,
    children: Vec<Plain>,
}

impl Plain {
    /// A run occurs once more; its last token is new.
    fn add(&mut self, run: &[u32]) {
        let Some((token, rest)) = run.split_first() else { return };
        let at = self.children.iter().position(|child| child.token == *token);
        if !rest.is_empty() {
            return self.children[at.expect("the beginning of the run is known")].add(rest);
        }
        let Some(at) = at else {
            return self.children.push(Self { token: *token, count: 1, children: Vec::new() });
        };
        let count = self.children[at].count;
        let first_of = |count: u32| self.children.iter().position(|child| child.count == count);
        let to = match first_of(count) {
            Some(first) if first < at => first,
            _ => first_of(count + 1).unwrap_or(at),
        };
        let mut child = self.children.remove(at);
        child.count += 1;
        self.children.insert(to, child);
    }

    /// An occurrence of a run is removed.
    fn remove(&mut self, run: &[u32]) {
        let Some((token, rest)) = run.split_first() else { return };
        let Some(at) = self.children.iter().position(|child| child.token == *token) else { return };
        let mut child = self.children.remove(at);
        if child.count == 1 {
            return;
        }
        child.remove(rest);
        let to = self.children.iter().rposition(|other| other.count >= child.count).map_or(0, |last| last + 1);
        child.count -= 1;
        self.children.insert(to, child);
    }

    /// The best chain after the last tokens, and its score: each number of them is searched from
    /// the root.
    fn best(&self, last: &[u32], rule: &SuffixRule, most: usize) -> (Speculation, f32) {
        let mut best = (Speculation::default(), 0.0);
        for matched in 1..last.len() {
            let run = &last[last.len() - matched..];
            let found =
                run.iter().try_fold(self, |node, token| node.children.iter().find(|child| child.token == *token));
            let Some(mut node) = found else { break };
            let (mut now, mut score) = (Speculation { matched, ..Speculation::default() }, 0.0);
            let mut probability = 1.0_f32;
            let limit = most.min((f64::from(matched as f32 * rule.max_spec_factor) + 1e-6) as usize);
            while let Some(child) = node.children.first().filter(|_| now.tokens.len() < limit) {
                let share = child.count as f32 / node.count as f32;
                probability *= share;
                if probability < rule.min_token_prob {
                    break;
                }
                now.tokens.push(child.token);
                now.shares.push(share);
                score += probability;
                node = child;
            }
            if !now.tokens.is_empty() && score >= best.1 {
                best = (now, score);
            }
        }
        best
    }
}

fn best(
    tree: &SuffixTree,
    last: &[u32],
    grown: Option<SequenceId>,
    rule: &SuffixRule,
    most: usize,
) -> (Speculation, f32) {
    let mut drafts = Speculation::default();
    let found = tree.best(last, grown, rule, (most, 0.0));
    tree.read(found, &mut drafts);
    (drafts, found.score)
}

/// What happens to a tree.
#[derive(Clone, Debug)]
enum Step {
    /// Tokens are added to a sequence, which may be new.
    Extend(usize, Vec<u32>),
    /// A sequence is removed.
    Remove(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let extend = (0_usize..4, prop::collection::vec(0_u32..3, 1..12)).prop_map(|(at, tokens)| Step::Extend(at, tokens));
    let step = prop_oneof![4 => extend, 1 => (0_usize..4).prop_map(Step::Remove)];
    prop::collection::vec(step, 1..16)
}

proptest! {
    #[test]
    fn a_compact_tree_drafts_what_a_plain_one_does_also_after_a_sequence_that_grows(
        steps in steps(), depth in 2_usize..6, factor in 0.5_f32..3.0, least in 0.0_f32..0.6,
    ) {
        let rule = SuffixRule { max_tree_depth: depth, max_spec_factor: factor, min_token_prob: least, ..SuffixRule::DEFAULT };
        let (mut tree, mut plain) = (SuffixTree::new(depth), Plain::default());
        let mut open: HashMap<usize, (SequenceId, Vec<u32>)> = HashMap::new();
        for step in steps {
            match step {
                Step::Extend(at, tokens) => {
                    let (id, text) = open.entry(at).or_insert_with(|| (tree.open(), Vec::new()));
                    for token in tokens {
                        text.push(token);
                        tree.extend(*id, &[token]);
                        (text.len().saturating_sub(depth)..text.len()).for_each(|start| plain.add(&text[start..]));
                    }
                }
                Step::Remove(at) => {
                    let Some((id, text)) = open.remove(&at) else { continue };
                    tree.remove(id);
                    (0..text.len()).for_each(|start| plain.remove(&text[start..text.len().min(start + depth)]));
                }
            }
            for last in [[0, 1, 2, 0, 1], [1, 1, 0, 2, 2], [0, 0, 0, 0, 0], [2, 1, 0, 1, 2]] {
                let last = &last[5 - depth.min(5)..];
                prop_assert_eq!(best(&tree, last, None, &rule, 8), plain.best(last, &rule, 8));
            }
            for (id, text) in open.values() {
                for before in [&[][..], &[2], &[1, 0, 2, 1, 0, 1]] {
                    let text = [before, text].concat();
                    let last = &text[text.len().saturating_sub(depth)..];
                    prop_assert_eq!(best(&tree, last, Some(*id), &rule, 8), plain.best(last, &rule, 8));
                }
            }
        }
        open.into_values().for_each(|(id, _)| tree.remove(id));
        prop_assert_eq!((tree.size(), tree.children.len(), tree.groups.len() - tree.free_groups.len()), (1, 0, 0));
    }
}

#[test]
fn a_text_without_repetition_takes_one_node_per_token() {
    let mut tree = SuffixTree::new(24);
    let sequence = tree.open();
    tree.extend(sequence, &(0..1000).collect::<Vec<u32>>());
    assert_eq!(tree.nodes.len(), 1001);
    let (drafts, score) = best(&tree, &[500, 501, 502, 503], None, &SuffixRule::DEFAULT, 24);
    assert_eq!((&drafts.tokens[..], score), (&[504, 505, 506][..], 3.0));
}
