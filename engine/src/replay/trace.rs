//! Traces by position: what a draft would propose at every position of known texts, with the
//! target's probability of each node.
//!
//! A [replay](super) visits the positions at which rounds of given shapes start. A policy that
//! changes the shape, or verifies a different number of rows in each round, starts its rounds
//! elsewhere, so a simulation of policies needs all positions. A trace is one record for each
//! source of nodes and topk (or block size), with a limit: it contains the tree of every shape
//! within the limit, at every position. Drafts that are looked up in texts have no trace: what they
//! find depends on the requests before.

mod check;

use schemas::tree::TreeShape;
use serde::{Deserialize, Serialize};

use super::{ReplayText, ShapeAcceptance};
use crate::backend::Pool;

/// Version of the format of a trace.
pub const FORMAT: u32 = 2;
/// Oldest version that is read: it has no confidences.
pub const OLDEST: u32 = 1;

/// The parent of a child of the root, in [`Nodes::parent`].
pub const ROOT: u16 = u16::MAX;

/// What one source proposes at every position of texts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PositionTrace {
    /// [`FORMAT`].
    pub format: u32,
    /// The draft's algorithm, such as `EAGLE3`.
    pub source: String,
    /// The limit: the deepest, widest and largest tree.
    pub limit: TreeShape,
    /// The largest tree of each depth (and topk) that the trace contains; smaller ones of that
    /// depth are in it, too.
    pub largest: Vec<TreeShape>,
    /// The texts, in the order in which they were given.
    pub texts: Vec<TextTrace>,
}

/// The positions of a text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TextTrace {
    /// Length of the prompt.
    pub prompt_tokens: usize,
    /// Length of the output.
    pub output_tokens: usize,
    /// Whether the output was sampled; a greedy target takes the text's tokens for certain.
    pub sampled: bool,
    /// Entry i: a round whose root is token i of the output. The last token of the output has no
    /// entry.
    pub positions: Vec<Nodes>,
}

/// The nodes below a root, parents before children; one value per node in each list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Nodes {
    /// The draft's log-probability of the path from the root.
    pub score: Vec<f32>,
    /// Place of the parent in these lists, [`ROOT`] for a child of the root.
    pub parent: Vec<u16>,
    /// Number of better children of the same parent.
    pub rank: Vec<u16>,
    /// Depth: 1 for a child of the root.
    pub depth: Vec<u16>,
    /// The target's probability of the node's token after its parent, if the path to the parent is
    /// the text. For other nodes it is unknown: the target has not processed their path.
    pub chance: Vec<Option<f32>>,
    /// Places of the nodes on the text, one per depth, as far as there are any.
    pub on_text: Vec<u16>,
    /// By depth, the log-odds of a confidence head that the target takes the best child of the best
    /// node of the depth before, given that it takes that one; empty without such a head.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub confidence: Vec<f32>,
}

impl PositionTrace {
    /// Whether the trees of a shape are in the trace.
    pub fn contains(&self, shape: TreeShape) -> bool {
        let within = |largest: &TreeShape| {
            (largest.num_steps, largest.topk) == (shape.num_steps, shape.topk)
                && shape.num_draft_tokens <= largest.num_draft_tokens
        };
        shape.is_off() || self.largest.iter().any(within)
    }

    /// What rounds of a shape accept along each text; `None` if the trace does not
    /// [contain](Self::contains) the shape.
    pub fn acceptance(&self, shape: TreeShape) -> Option<Vec<ShapeAcceptance>> {
        self.contains(shape).then(|| self.texts.iter().map(|text| text.acceptance(shape)).collect())
    }
}

impl TextTrace {
    /// A text without positions so far.
    pub(super) fn new(text: &ReplayText) -> Self {
        Self {
            prompt_tokens: text.prompt_tokens,
            output_tokens: text.output_tokens(),
            sampled: !text.sampling.is_greedy(),
            positions: Vec::new(),
        }
    }

    /// What rounds of a shape accept along the text. The trace must contain the shape.
    fn acceptance(&self, shape: TreeShape) -> ShapeAcceptance {
        let mut counted = ShapeAcceptance {
            output_tokens: self.output_tokens,
            expected_drafts: self.sampled.then_some(0.0),
            ..ShapeAcceptance::default()
        };
        let mut at = 0;
        while let Some(nodes) = self.positions.get(at) {
            let kept = nodes.kept(shape);
            if let Some(expected) = &mut counted.expected_drafts {
                *expected += nodes.expected(&kept);
            }
            at += counted.count(shape, nodes.accepted(&kept), self.positions.len() - at);
        }
        counted
    }
}

impl Nodes {
    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.score.len()
    }

    /// Whether it has no nodes.
    pub fn is_empty(&self) -> bool {
        self.score.is_empty()
    }

    /// Places of the drafts of a shape's tree, ascending; parents are always among them.
    pub fn kept(&self, shape: TreeShape) -> Vec<usize> {
        let mut within = vec![false; self.len()];
        for at in 0..self.len() {
            let above = self.parent[at] == ROOT || within[usize::from(self.parent[at])];
            let (depth, rank) = (usize::from(self.depth[at]), usize::from(self.rank[at]));
            within[at] = above && depth <= shape.num_steps && rank < shape.topk;
        }
        let mut kept: Vec<usize> = (0..self.len()).filter(|at| within[*at]).collect();
        // A stable sort keeps ties in the order of their places, as trees do.
        kept.sort_by(|a, b| self.score[*b].total_cmp(&self.score[*a]));
        kept.truncate(shape.drafts());
        kept.sort_unstable();
        kept
    }

    /// Number of drafts that the target accepts of the kept nodes, which are ascending and contain
    /// their parents.
    pub fn accepted(&self, kept: &[usize]) -> usize {
        self.on_text.iter().take_while(|at| kept.binary_search(&usize::from(**at)).is_ok()).count()
    }

    /// The expected number of accepted drafts of the kept nodes, given the text before each.
    pub fn expected(&self, kept: &[usize]) -> f64 {
        kept.iter().filter_map(|at| self.chance[*at]).map(f64::from).sum()
    }
}

/// The nodes of a pool that the trees of some shapes contain, with the text marked.
pub(super) struct Marked<'a> {
    pool: &'a Pool,
    /// Places in the pool, ascending.
    kept: Vec<usize>,
    /// Those on the text, one per depth.
    trail: Vec<usize>,
}

impl<'a> Marked<'a> {
    pub fn new(pool: &'a Pool, shapes: &[TreeShape], text: &[u32]) -> Self {
        let mut kept: Vec<usize> = shapes.iter().flat_map(|shape| pool.kept(*shape)).collect();
        kept.sort_unstable();
        kept.dedup();
        let mut trail: Vec<usize> = Vec::new();
        for token in text {
            let parent = trail.last().copied();
            // Of siblings with the same token, the first one ranks highest.
            let child = |at: &&usize| pool.all()[**at].parent == parent && pool.all()[**at].token == *token;
            let Some(child) = kept.iter().find(child) else { break };
            trail.push(*child);
        }
        Self { pool, kept, trail }
    }

    /// The tokens after the root and after each node on the text, without duplicates, at most this
    /// many times.
    pub fn offered(&self, most: usize) -> Vec<Vec<u32>> {
        let parents = std::iter::once(None).chain(self.trail.iter().copied().map(Some)).take(most);
        let children = |parent: Option<usize>| {
            let of = self.kept.iter().map(|at| self.pool.all()[*at]).filter(|one| one.parent == parent);
            let mut tokens: Vec<u32> = of.map(|one| one.token).collect();
            tokens.sort_unstable();
            tokens.dedup();
            tokens
        };
        parents.map(children).collect()
    }

    /// The nodes. `chance(depth of the parent, token)` is the target's probability after a node on
    /// the text, `None` if the text is greedy.
    pub fn nodes(&self, text: &[u32], chance: impl Fn(usize, u32) -> Option<f64>) -> Nodes {
        let mut nodes = Nodes::default();
        let place = |at: usize| self.kept.binary_search(&at).map_or(ROOT, |at| at as u16);
        for at in &self.kept {
            let one = self.pool.all()[*at];
            let parent = one.parent.map_or(ROOT, place);
            let above = nodes.depth.get(usize::from(parent)).copied().unwrap_or_default();
            // The depth of the parent, if it is on the text and the text goes on after it.
            let known = match one.parent {
                None => Some(0),
                Some(parent) => self.trail.iter().position(|at| *at == parent).map(|at| at + 1),
            }
            .filter(|depth| *depth < text.len());
            let first = |depth: usize| {
                let same = |other: &&usize| {
                    let other = self.pool.all()[**other];
                    other.parent == one.parent && other.token == one.token
                };
                // A later sibling with the same token is never accepted.
                let is_first = self.kept.iter().find(same) == Some(at);
                let reported =
                    chance(depth, one.token).unwrap_or_else(|| f64::from(u8::from(one.token == text[depth])));
                if is_first { reported as f32 } else { 0.0 }
            };
            nodes.score.push(one.score.max(f32::MIN));
            nodes.parent.push(parent);
            nodes.rank.push(one.rank as u16);
            nodes.depth.push(above + 1);
            nodes.chance.push(known.map(first));
        }
        nodes.on_text = self.trail.iter().map(|at| place(*at)).collect();
        let confidence = self.pool.confidence();
        if confidence.iter().all(|log_odds| log_odds.is_finite()) {
            nodes.confidence = confidence.to_vec();
        }
        nodes
    }
}
