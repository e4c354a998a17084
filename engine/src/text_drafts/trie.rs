//! SGLang's trie of recent outputs, common to all requests.
//!
//! Every suffix of the last tokens of a request is a path of the trie. A draft starts from all
//! suffixes that are found there, the longest first, and joins what follows them in one tree.

mod lru;
mod matching;
#[cfg(test)]
mod tests;

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, VecDeque},
};

use schemas::tree::TreeShape;

use self::matching::MatchState;
use crate::{
    spec::{TrieMatch, TrieRule},
    tree::DraftTree,
};

/// The trie.
#[derive(Debug)]
pub struct Trie {
    rule: TrieRule,
    /// Node 0 is the root.
    nodes: Vec<TrieNode>,
    free: Vec<u32>,
    children: HashMap<(u32, u32), u32>,
    /// Ends of the order of use: the most and the least recently used node.
    newest: Option<u32>,
    oldest: Option<u32>,
    /// Where the suffixes of running requests are.
    states: HashMap<u64, MatchState>,
}

/// A path from the root.
#[derive(Clone, Debug, Default)]
struct TrieNode {
    token: u32,
    parent: u32,
    /// Number of times that the path was inserted.
    frequency: u32,
    /// The most recent child.
    first: Option<u32>,
    /// The siblings next to it, in the order of their use.
    before: Option<u32>,
    after: Option<u32>,
    /// The nodes next to it in the order of use.
    newer: Option<u32>,
    older: Option<u32>,
    /// Number of times that this place was given to another path.
    version: u32,
}

/// A node of the trie that may become a draft.
struct DraftCandidate {
    probability: f64,
    /// Equally probable ones are taken in the order in which they were found.
    order: Reverse<usize>,
    /// Its parent in the tree.
    parent: usize,
    node: u32,
}

const ROOT: u32 = 0;

impl Trie {
    /// A trie without paths.
    pub fn new(rule: TrieRule) -> Self {
        Self {
            rule,
            nodes: vec![TrieNode::default()],
            free: Vec::new(),
            children: HashMap::new(),
            newest: None,
            oldest: None,
            states: HashMap::new(),
        }
    }

    /// A request has ended.
    pub fn end(&mut self, request: u64) {
        self.states.remove(&request);
    }

    /// Inserts the last tokens of a sequence: each of their suffixes.
    pub fn insert(&mut self, tokens: &[u32]) {
        let last = &tokens[tokens.len().saturating_sub(self.rule.max_depth)..];
        (0..last.len()).for_each(|start| self.insert_path(&last[start..]));
    }

    /// The tree after the tokens of a request.
    pub fn draft(&mut self, request: u64, tokens: &[u32], shape: TreeShape) -> DraftTree {
        let mut tree = DraftTree::root(tokens.last().copied().unwrap_or_default());
        for (node, depth) in self.anchors(request, tokens) {
            match self.rule.matching {
                TrieMatch::Bfs => self.grow_by_recency(&mut tree, node, depth, shape),
                TrieMatch::Prob => self.grow_by_frequency(&mut tree, node, shape),
            }
        }
        tree
    }

    /// Adds what follows a node level by level, the most recent first.
    fn grow_by_recency(&self, tree: &mut DraftTree, anchor: u32, depth: usize, shape: TreeShape) {
        let deepest = self.rule.max_depth.saturating_sub(1).max(1);
        let least = self.rule.min_breadth.min(shape.topk) as f64;
        let scale = (shape.topk as f64 - least) / deepest as f64;
        let mut queue = VecDeque::from([(0, (deepest as f64 - depth as f64) * scale + least, anchor)]);
        while let Some((place, breadth, node)) = queue.pop_front() {
            for child in self.children_by_recency(node).take((breadth as usize).max(1)) {
                match joined(tree, place, self.nodes[child as usize].token, shape) {
                    InsertedNode::At(place) => queue.push_back((place, breadth - scale, child)),
                    InsertedNode::TooDeep => {}
                    InsertedNode::Full => return,
                }
            }
        }
    }

    /// Adds what follows a node, the most probable path first.
    fn grow_by_frequency(&self, tree: &mut DraftTree, anchor: u32, shape: TreeShape) {
        let mut found = 0;
        let mut heap = BinaryHeap::new();
        let mut add = |heap: &mut BinaryHeap<DraftCandidate>, parent: usize, node: u32, probability: f64| {
            let mut best: Vec<u32> = self.children_by_recency(node).collect();
            best.sort_unstable_by_key(|child| {
                let TrieNode { token, frequency, .. } = self.nodes[*child as usize];
                (Reverse(frequency), token)
            });
            best.truncate(shape.topk.max(1));
            let frequency = |child: &u32| f64::from(self.nodes[*child as usize].frequency);
            let sum: f64 = best.iter().map(frequency).sum();
            for child in best {
                let probability = frequency(&child) / sum * probability;
                heap.push(DraftCandidate { probability, order: Reverse(found), parent, node: child });
                found += 1;
            }
        };
        add(&mut heap, 0, anchor, 1.0);
        while let Some(DraftCandidate { probability, parent, node, .. }) = heap.pop() {
            match joined(tree, parent, self.nodes[node as usize].token, shape) {
                InsertedNode::At(place) => add(&mut heap, place, node, probability),
                InsertedNode::TooDeep => {}
                InsertedNode::Full => return,
            }
        }
    }

    fn children_by_recency(&self, node: u32) -> impl Iterator<Item = u32> {
        let next = |child: &u32| self.nodes[*child as usize].after;
        std::iter::successors(self.nodes[node as usize].first, next)
    }
}

/// A token that was added below a node of a tree.
enum InsertedNode {
    /// Its node, which may have been there.
    At(usize),
    /// The tree may not be that deep.
    TooDeep,
    /// The tree has all its nodes.
    Full,
}

fn joined(tree: &mut DraftTree, parent: usize, token: u32, shape: TreeShape) -> InsertedNode {
    if tree.nodes().len() >= shape.num_draft_tokens {
        return InsertedNode::Full;
    }
    match tree.child(parent, token) {
        Some(child) => InsertedNode::At(child),
        None if tree.nodes()[parent].depth >= shape.num_steps => InsertedNode::TooDeep,
        None => InsertedNode::At(tree.add(parent, token)),
    }
}

impl PartialEq for DraftCandidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for DraftCandidate {}

impl PartialOrd for DraftCandidate {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for DraftCandidate {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.probability.total_cmp(&other.probability).then(self.order.cmp(&other.order))
    }
}
