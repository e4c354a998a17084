//! A tree of all runs of tokens of some sequences, up to a depth, with the number of occurrences of
//! each.
//!
//! The children of a node are ordered by their counts. The order of equal counts, which decides
//! what is drafted, is that of arctic-inference's tree: a new child comes last; a child whose count
//! grows comes after those of its new count if it had equals before it, and before them if it was
//! the first of its count.
//!
//! A run that occurs once is not spelled out: its first node knows the sequence and place that it
//! continues in.

mod siblings;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use foldhash::{HashMap, HashMapExt};

use self::siblings::SiblingGroup;
use crate::spec::SuffixRule;

/// A sequence in a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceId(u32);

/// The tree.
#[derive(Debug)]
pub struct SuffixTree {
    depth: usize,
    /// Node 0 is the root.
    nodes: Vec<SuffixNode>,
    free_nodes: Vec<u32>,
    groups: Vec<SiblingGroup>,
    free_groups: Vec<u32>,
    children: HashMap<(u32, u32), u32>,
    sequences: Vec<Option<Sequence>>,
    /// Tokens of all sequences.
    tokens: usize,
}

/// A run of tokens: those on the path from the root.
#[derive(Clone, Debug, Default)]
struct SuffixNode {
    token: u32,
    parent: u32,
    /// Number of occurrences.
    count: u32,
    /// Its children, those with more occurrences first.
    first: Option<u32>,
    last: Option<u32>,
    /// The siblings next to it.
    before: Option<u32>,
    after: Option<u32>,
    /// The siblings with the same count.
    group: u32,
    /// The only occurrence, if its continuation is not spelled out in nodes.
    only: Option<SequenceStart>,
}

/// The start of an occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SequenceStart {
    sequence: u32,
    at: u32,
}

#[derive(Debug, Default)]
struct Sequence {
    tokens: Vec<u32>,
    /// The last node on the path of each run that ends with the sequence, the longest run first.
    ends: VecDeque<u32>,
}

/// A drafted chain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Speculation {
    /// Number of last tokens that they follow; 0 if there are no drafts.
    pub matched: usize,
    /// The drafts.
    pub tokens: Vec<u32>,
    /// For each draft, the share of the occurrences of what is before it that it follows; empty if
    /// that is not known.
    pub shares: Vec<f32>,
}

impl Speculation {
    /// Empties it, so that its memory can be used again.
    pub fn clear(&mut self) {
        self.matched = 0;
        self.tokens.clear();
        self.shares.clear();
    }
}

/// Where the best chain after some tokens is in a tree.
#[derive(Clone, Copy, Debug, Default)]
pub struct SuffixMatch {
    /// Number of last tokens that it follows; 0 if nothing follows them.
    matched: usize,
    /// The occurrences of these tokens.
    place: TreePosition,
    /// Number of drafts.
    length: usize,
    /// The expected number of accepted ones, by the counts.
    pub score: f32,
}

/// A place in the tree: a node, and the number of tokens of the path to it, of which some may not
/// be spelled out.
#[derive(Clone, Copy, Debug, Default)]
struct TreePosition {
    node: u32,
    depth: usize,
}

const ROOT: u32 = 0;

impl SuffixTree {
    /// A tree without sequences.
    pub fn new(depth: usize) -> Self {
        Self {
            depth,
            nodes: vec![SuffixNode::default()],
            free_nodes: Vec::new(),
            groups: Vec::new(),
            free_groups: Vec::new(),
            children: HashMap::new(),
            sequences: Vec::new(),
            tokens: 0,
        }
    }

    /// Memory that it takes, in nodes.
    pub fn size(&self) -> usize {
        const TOKENS_PER_NODE: usize = 16;
        self.nodes.len() - self.free_nodes.len() + self.tokens / TOKENS_PER_NODE
    }

    /// Adds an empty sequence.
    pub fn open(&mut self) -> SequenceId {
        let free = self.sequences.iter().position(Option::is_none).unwrap_or(self.sequences.len());
        if free == self.sequences.len() {
            self.sequences.push(None);
        }
        self.sequences[free] = Some(Sequence::default());
        SequenceId(free as u32)
    }

    /// The tokens of a sequence.
    pub fn tokens(&self, sequence: SequenceId) -> &[u32] {
        self.sequence(sequence).map_or(&[], |sequence| &sequence.tokens)
    }

    fn sequence(&self, id: SequenceId) -> Option<&Sequence> {
        self.sequences.get(id.0 as usize)?.as_ref()
    }

    /// Adds tokens to the end of a sequence.
    pub fn extend(&mut self, sequence: SequenceId, tokens: &[u32]) {
        tokens.iter().for_each(|token| self.append(sequence.0, *token));
    }

    fn append(&mut self, id: u32, token: u32) {
        let Some(Some(sequence)) = self.sequences.get_mut(id as usize) else { return };
        sequence.ends.push_back(ROOT);
        if sequence.ends.len() > self.depth {
            sequence.ends.pop_front();
        }
        sequence.tokens.push(token);
        self.tokens += 1;
        let (length, growing) = (sequence.tokens.len(), sequence.ends.len());
        for index in 0..growing {
            let at = length - growing + index;
            let start = SequenceStart { sequence: id, at: at as u32 };
            let node = self.end(start);
            // A run that occurs once continues in its sequence.
            let Some(node) = node.filter(|node| self.nodes[*node as usize].only != Some(start)) else { continue };
            let next = match self.children.get(&(node, token)).copied() {
                None => self.add_child(node, token, start),
                Some(child) => {
                    self.spell_out(child, length - at);
                    self.increment(child);
                    child
                }
            };
            self.set_end(start, next);
        }
    }

    /// Adds a run that occurs once.
    fn add_child(&mut self, parent: u32, token: u32, start: SequenceStart) -> u32 {
        let node = SuffixNode { token, parent, count: 1, only: Some(start), ..SuffixNode::default() };
        let place = match self.free_nodes.pop() {
            Some(place) => {
                self.nodes[place as usize] = node;
                place
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        };
        self.children.insert((parent, token), place);
        self.link_last(place);
        place
    }

    /// Makes a node for the token after a run of `depth` tokens that has occurred once and is about
    /// to occur again.
    fn spell_out(&mut self, node: u32, depth: usize) {
        let Some(only) = self.nodes[node as usize].only.take() else { return };
        if let Some(token) = self.continuation(only, depth) {
            let child = self.add_child(node, token, only);
            self.set_end(only, child);
        }
    }

    /// The token after an occurrence of a run of `depth` tokens.
    fn continuation(&self, start: SequenceStart, depth: usize) -> Option<u32> {
        let sequence = self.sequences.get(start.sequence as usize)?.as_ref()?;
        sequence.tokens.get(start.at as usize + depth).copied().filter(|_| depth < self.depth)
    }

    /// The last node of an occurrence that ends with its sequence, so that it still grows.
    fn end(&self, start: SequenceStart) -> Option<u32> {
        let sequence = self.sequences.get(start.sequence as usize)?.as_ref()?;
        let first = sequence.tokens.len() - sequence.ends.len();
        sequence.ends.get((start.at as usize).checked_sub(first)?).copied()
    }

    fn set_end(&mut self, start: SequenceStart, node: u32) {
        let Some(Some(sequence)) = self.sequences.get_mut(start.sequence as usize) else { return };
        let first = sequence.tokens.len() - sequence.ends.len();
        let index = (start.at as usize).checked_sub(first);
        if let Some(end) = index.and_then(|index| sequence.ends.get_mut(index)) {
            *end = node;
        }
    }

    /// Removes a sequence.
    pub fn remove(&mut self, sequence: SequenceId) {
        let Some(Sequence { tokens, .. }) = self.sequences.get_mut(sequence.0 as usize).and_then(Option::take) else {
            return;
        };
        self.tokens -= tokens.len();
        for start in 0..tokens.len() {
            let mut node = ROOT;
            for token in tokens[start..].iter().take(self.depth) {
                let Some(child) = self.children.get(&(node, *token)).copied() else { break };
                if self.nodes[child as usize].count <= 1 {
                    self.cut(child);
                    break;
                }
                self.decrement(child);
                node = child;
            }
        }
    }

    /// Removes a node with all below it.
    fn cut(&mut self, node: u32) {
        self.unlink(node);
        let mut below = vec![node];
        while let Some(node) = below.pop() {
            let SuffixNode { parent, token, first, .. } = self.nodes[node as usize];
            self.children.remove(&(parent, token));
            let mut child = first;
            while let Some(place) = child {
                child = self.nodes[place as usize].after;
                self.leave_group(place);
                below.push(place);
            }
            self.free_nodes.push(node);
        }
    }

    /// The best chain after the last tokens of a text whose score is above `least`: of each number
    /// of them that occurs, the most frequent continuation. The longest of equally good ones is
    /// taken.
    ///
    /// `grown` is the sequence that ends with the text, if there is one: its ends are the places of
    /// all runs that are not longer than it, so that they are not searched from the root.
    pub fn best(
        &self,
        last: &[u32],
        grown: Option<SequenceId>,
        rule: &SuffixRule,
        (most, least): (usize, f32),
    ) -> SuffixMatch {
        let places = self.places(last, grown);
        let mut best = SuffixMatch { score: least, ..SuffixMatch::default() };
        // Long runs first: their chains are the longest ones, and once a chain is better than short
        // runs can have, these need no look.
        for (at, place) in places.into_iter().enumerate().rev() {
            let matched = at + 1;
            let limit = ((f64::from(matched as f32 * rule.max_spec_factor) + 1e-6) as usize).min(most);
            if limit as f32 <= best.score {
                break;
            }
            let (length, score) = self.expected(place, limit, (rule.min_token_prob, best.score));
            if length > 0 && score > best.score {
                best = SuffixMatch { matched, place, length, score };
            }
        }
        if best.length > 0 { best } else { SuffixMatch::default() }
    }

    /// The places of the last token, the last two and so on of a text, as long as something may
    /// follow them.
    fn places(&self, last: &[u32], grown: Option<SequenceId>) -> Vec<TreePosition> {
        let most = last.len().saturating_sub(1);
        let mut places = Vec::with_capacity(most);
        if let Some(grown) = grown.and_then(|id| self.sequence(id)) {
            // A run that occurs at the end of the text alone has nothing after it, nor has a longer
            // one.
            let alone = grown.ends.partition_point(|node| self.nodes[*node as usize].count <= 1);
            let ends = grown.ends.iter().skip(alone).rev().take(most);
            places.extend(ends.enumerate().map(|(at, node)| TreePosition { node: *node, depth: at + 1 }));
            if alone > 0 {
                return places;
            }
        }
        for matched in places.len() + 1..=most {
            let Some(place) = self.find(&last[last.len() - matched..]) else { break };
            places.push(place);
        }
        places
    }

    /// Reads the chain that was found into an empty one.
    pub fn read(&self, found: SuffixMatch, drafts: &mut Speculation) {
        drafts.matched = found.matched;
        for (token, share) in self.most_frequent(found.place).take(found.length) {
            drafts.tokens.push(token);
            drafts.shares.push(share);
        }
    }

    fn find(&self, run: &[u32]) -> Option<TreePosition> {
        let root = TreePosition { node: ROOT, depth: 0 };
        run.iter().try_fold(root, |place, token| {
            let depth = place.depth + 1;
            match self.nodes[place.node as usize].only {
                Some(only) => {
                    (self.continuation(only, place.depth)? == *token).then_some(TreePosition { depth, ..place })
                }
                None => self.children.get(&(place.node, *token)).map(|node| TreePosition { node: *node, depth }),
            }
        })
    }

    /// The number of tokens after a place until their path is less probable than `least`, and the
    /// expected number of accepted ones; (0, 0) as soon as that cannot be above `bound`.
    fn expected(&self, place: TreePosition, limit: usize, (least, bound): (f32, f32)) -> (usize, f32) {
        /// More than what rounding can add to a sum.
        const ROUNDING: f32 = 1.0 + 1e-4;
        let (mut length, mut score, mut probability) = (0, 0.0, 1.0_f32);
        for (_, share) in self.most_frequent(place).take(limit) {
            probability *= share;
            if probability < least {
                break;
            }
            if (score + probability * (limit - length) as f32) * ROUNDING < bound {
                return (0, 0.0);
            }
            length += 1;
            score += probability;
        }
        (length, score)
    }

    /// Follows the most frequent children of a place: each token, with its share of the occurrences
    /// of what is before it.
    fn most_frequent(&self, mut place: TreePosition) -> impl Iterator<Item = (u32, f32)> {
        std::iter::from_fn(move || {
            let node = &self.nodes[place.node as usize];
            let (token, next, share) = match node.only {
                Some(only) => (self.continuation(only, place.depth)?, place.node, 1.0),
                None => {
                    let first = node.first?;
                    let child = &self.nodes[first as usize];
                    (child.token, first, child.count as f32 / node.count as f32)
                }
            };
            place = TreePosition { node: next, depth: place.depth + 1 };
            Some((token, share))
        })
    }
}
