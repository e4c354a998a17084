//! Acceptance that is played from texts whose traces are known, in place of the target's decisions.
//!
//! What a round accepts is a function of the request's text, its position in it and the shape. So
//! rounds of models with random weights run with the acceptance of real ones, however a policy
//! places them, and whatever the batch. Drafts still run. Where the trees of a shape are known,
//! their form is played too: parents and scores of the nodes, and where the path ends, so that what
//! is verified by score is what a real draft would have verified. Else trees have the form that the
//! draft gives them.

use std::{collections::BTreeMap, sync::Arc};

use schemas::tree::TreeShape;

use crate::{
    error::EngineError,
    tree::{Pool, Proposal, simulated_count},
};

/// How rounds accept without regard to the target.
#[derive(Clone, Debug, PartialEq)]
pub enum Simulated {
    /// This many tokens per round on average, bonus token included; at least 1.
    Length(f32),
    /// As known texts do, for requests that have one
    /// ([`SamplingParams::played`](crate::SamplingParams::played)); the target decides about the
    /// others.
    Played(Arc<PlayedAcceptance>),
}

/// The tree of a shape at a position of a text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlayedTree {
    /// Its drafts: the node above each, counted from the root, which is 0, and the log-probability
    /// of the path. Nodes are ordered by depth.
    pub drafts: Vec<(usize, f32)>,
    /// The last accepted node; 0 if no draft is accepted.
    pub end: usize,
}

/// Accepted drafts of some shapes at every position of texts.
#[derive(Clone, Debug, PartialEq)]
pub struct PlayedAcceptance {
    /// For each text, where it begins in a list of all positions, and how many it has; at least
    /// one.
    texts: Vec<(usize, usize)>,
    /// Accepted drafts at all positions, by shape. Never empty, and all of the same length. Of a
    /// shape with a budget those of its whole trees.
    shapes: BTreeMap<TreeShape, Vec<i32>>,
    /// The trees at all positions, of shapes for which they are known.
    trees: BTreeMap<TreeShape, Vec<PlayedTree>>,
}

impl PlayedTree {
    /// Whether a shape can have this tree.
    fn is_of(&self, shape: TreeShape) -> bool {
        let mut depths = vec![0];
        for (parent, score) in &self.drafts {
            let Some(above) = depths.get(*parent).filter(|_| !score.is_nan()) else { return false };
            depths.push(above + 1);
        }
        let within = self.drafts.len() <= shape.drafts() && self.end <= self.drafts.len();
        within && depths.is_sorted() && depths.iter().all(|depth| *depth <= shape.num_steps)
    }

    /// The proposals of a draft that make this tree, with tokens of what was drafted.
    pub(crate) fn pool(&self, drafted: &[u32]) -> Pool {
        let mut pool = Pool::default();
        let mut depths = vec![0];
        let mut step: Vec<Proposal> = Vec::new();
        for (at, (parent, score)) in self.drafts.iter().enumerate() {
            let depth = depths[*parent] + 1;
            if depths.last() != Some(&depth) && !step.is_empty() {
                pool.push_step(std::mem::take(&mut step));
            }
            depths.push(depth);
            let rank = self.drafts[..at].iter().filter(|one| one.0 == *parent).count();
            let token = drafted.get(at).copied().unwrap_or_default();
            step.push(Proposal { token, score: *score, parent: parent.checked_sub(1), rank });
        }
        pool.push_step(step);
        pool
    }

    /// The node at which acceptance ends if only these drafts are verified, in the tree that is
    /// left of them: places of the pool, ascending.
    pub(crate) fn end_within(&self, places: &[usize]) -> usize {
        let within = self.path().into_iter().map_while(|node| places.binary_search(&(node - 1)).ok());
        within.last().map_or(0, |place| place + 1)
    }

    /// The accepted nodes, from the first draft on.
    pub fn path(&self) -> Vec<usize> {
        let mut path = Vec::new();
        let mut node = self.end;
        while node > 0 {
            path.push(node);
            node = self.drafts[node - 1].0;
        }
        path.reverse();
        path
    }
}

/// The text that a request follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlayedText {
    /// The text, modulo their number.
    pub text: usize,
    /// The position of the text that is at position 0 of the sequence, modulo its length: a text
    /// that ends starts again. With a prompt of p tokens, the first round starts at `origin + p`.
    pub origin: usize,
}

/// Checks that the acceptance of shapes is known, if texts are played.
///
/// # Errors
/// When it is not.
pub(crate) fn expect_played(simulated: Option<&Simulated>, shapes: &[TreeShape]) -> Result<(), EngineError> {
    match simulated {
        Some(Simulated::Played(played)) => shapes.iter().try_for_each(|shape| played.expect(*shape)),
        _ => Ok(()),
    }
}

impl Simulated {
    /// The mean number of tokens per round, if it is given.
    pub fn length(&self) -> Option<f32> {
        if let Self::Length(length) = self { Some(*length) } else { None }
    }

    /// The tree of a shape after `length` positions of a sequence, if it is played.
    pub(crate) fn tree(&self, shape: TreeShape, played: Option<PlayedText>, length: usize) -> Option<&PlayedTree> {
        if let Self::Played(acceptance) = self { acceptance.tree(shape, played?, length) } else { None }
    }

    /// Tokens that a round of a shape yields after `length` positions of a sequence, before its
    /// tree limits it; `None` if the target decides.
    pub(crate) fn count(
        &self,
        shape: TreeShape,
        played: Option<PlayedText>,
        seed: u64,
        length: usize,
    ) -> Option<usize> {
        match self {
            Self::Length(expected) => Some(simulated_count(*expected, seed, length)),
            Self::Played(acceptance) => acceptance.count(shape, played?, length),
        }
    }
}

impl PlayedAcceptance {
    /// For each shape, the drafts that are accepted at each position of each text.
    ///
    /// # Errors
    /// Without texts or positions, or when lists have different lengths.
    pub fn new(shapes: Vec<(TreeShape, Vec<Vec<u16>>)>) -> Result<Self, EngineError> {
        let wrong = |reason: String| EngineError::Configuration(format!("simulated acceptance: {reason}"));
        let lengths = |texts: &[Vec<u16>]| texts.iter().map(Vec::len).collect::<Vec<_>>();
        let Some(first) = shapes.first().map(|(_, texts)| lengths(texts)) else {
            return Err(wrong("expected at least one tree shape".into()));
        };
        if first.is_empty() || first.contains(&0) {
            return Err(wrong("expected at least one text, each with a position".into()));
        }
        if let Some((shape, _)) = shapes.iter().find(|(_, texts)| lengths(texts) != first) {
            return Err(wrong(format!("the texts of {shape} have other lengths than those of the first shape")));
        }
        let begins = first.iter().scan(0, |begin, length| {
            let text = (*begin, *length);
            *begin += length;
            Some(text)
        });
        let texts = begins.collect();
        let accepted = |texts: Vec<Vec<u16>>| texts.into_iter().flatten().map(i32::from).collect();
        let shapes: BTreeMap<TreeShape, Vec<i32>> =
            shapes.into_iter().map(|(shape, texts)| (shape, accepted(texts))).collect();
        let trees = BTreeMap::new();
        let unknown = shapes.keys().find(|shape: &&TreeShape| shape.row_budget.is_some()).copied();
        let made = Self { texts, shapes, trees };
        // A budget goes by scores.
        unknown.map_or(Ok(made), |shape| Err(wrong(format!("the trees of {shape} are not known"))))
    }

    /// For each shape, its tree at each position of each text.
    ///
    /// # Errors
    /// As [`new`](Self::new), and when a tree is none of its shape.
    pub fn with_trees(shapes: Vec<(TreeShape, Vec<Vec<PlayedTree>>)>) -> Result<Self, EngineError> {
        let wrong = |reason: String| EngineError::Configuration(format!("simulated acceptance: {reason}"));
        let (mut accepted, mut trees) = (Vec::new(), BTreeMap::new());
        for (shape, texts) in shapes {
            if let Some(tree) = texts.iter().flatten().find(|tree| !tree.is_of(shape)) {
                return Err(wrong(format!("{tree:?} is no tree of {shape}")));
            }
            let depths = texts.iter().map(|text| text.iter().map(|tree| tree.path().len() as u16).collect()).collect();
            // Budgets are checked with the tree that they cut.
            accepted.push((shape.drafted(), depths));
            trees.insert(shape, texts.into_iter().flatten().collect::<Vec<_>>());
        }
        let whole = Self::new(accepted)?;
        let of = |shape: &TreeShape| whole.shapes.get(&shape.drafted()).cloned().unwrap_or_default();
        let shapes = trees.keys().map(|shape| (*shape, of(shape))).collect();
        Ok(Self { shapes, trees, ..whole })
    }

    /// The trees of a shape at all positions, in the order of the texts; `None` if they are not
    /// known.
    pub fn trees(&self, shape: TreeShape) -> Option<&[PlayedTree]> {
        self.trees.get(&shape).map(Vec::as_slice)
    }

    /// The tree of a shape after `length` positions of a sequence; `None` if it is not known.
    pub fn tree(&self, shape: TreeShape, played: PlayedText, length: usize) -> Option<&PlayedTree> {
        let [begin, positions, origin] = self.place(played);
        self.trees.get(&shape)?.get(begin + (origin + length % positions) % positions)
    }

    /// Checks that a shape is known. No speculation always is.
    ///
    /// # Errors
    /// When it is not.
    pub fn expect(&self, shape: TreeShape) -> Result<(), EngineError> {
        if shape.is_off() || self.shapes.contains_key(&shape) {
            return Ok(());
        }
        let known: Vec<String> = self.shapes.keys().map(ToString::to_string).collect();
        Err(EngineError::Configuration(format!(
            "the acceptance of the tree shape {shape} is not known: it is simulated for {}",
            known.join("; ")
        )))
    }

    /// Number of texts.
    pub fn texts(&self) -> usize {
        self.texts.len()
    }

    /// Accepted drafts at all positions, for each shape in order.
    pub fn shapes(&self) -> impl Iterator<Item = (TreeShape, &[i32])> {
        self.shapes.iter().map(|(shape, accepted)| (*shape, accepted.as_slice()))
    }

    /// A request with a prompt of this many tokens, whose first round starts at position `start` of
    /// a text.
    pub fn at(&self, text: usize, start: usize, prompt_tokens: usize) -> PlayedText {
        let (_, positions) = self.texts[text % self.texts.len()];
        // The prompt's length is taken off, so that the first output token is at `start`.
        PlayedText { text, origin: start % positions + positions - prompt_tokens % positions }
    }

    /// Where a request's text begins in the list of all positions, how many it has, and the one of
    /// these at position 0 of the sequence.
    pub fn place(&self, played: PlayedText) -> [usize; 3] {
        let (begin, positions) = self.texts[played.text % self.texts.len()];
        [begin, positions, played.origin % positions]
    }

    /// Tokens of a round of a shape after `length` positions of a sequence, if the shape is known:
    /// the accepted drafts and the bonus token.
    pub fn count(&self, shape: TreeShape, played: PlayedText, length: usize) -> Option<usize> {
        if shape.is_off() {
            return Some(1);
        }
        let [begin, positions, origin] = self.place(played);
        let accepted = self.shapes.get(&shape)?[begin + (origin + length % positions) % positions];
        Some(1 + accepted.max(0) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_ends_starts_again_and_each_shape_has_its_own_acceptance() {
        let (one, two) = (TreeShape::chain(1), TreeShape::chain(2));
        let lists = vec![(one, vec![vec![1, 0], vec![0]]), (two, vec![vec![2, 0], vec![1]])];
        let played = PlayedAcceptance::new(lists).expect("lists");
        let count = |shape, text, origin, length| played.count(shape, PlayedText { text, origin }, length);
        assert_eq!([0, 1, 2, 3].map(|length| count(two, 0, 0, length)), [3, 1, 3, 1].map(Some));
        assert_eq!([count(one, 0, 5, 0), count(one, 1, 9, 9), count(two, 3, 0, 0)], [Some(1), Some(1), Some(2)]);
        assert_eq!((count(TreeShape::OFF, 0, 0, 0), count(TreeShape::chain(3), 0, 0, 0)), (Some(1), None));
        let unknown = played.expect(TreeShape::chain(3)).expect_err("unknown").to_string();
        assert!(unknown.contains("3,1,4") && unknown.contains("1,1,2; 2,1,3"), "{unknown}");
        for wrong in [vec![], vec![(one, vec![])], vec![(one, vec![vec![]])], vec![(one, vec![vec![1]]), (two, vec![])]]
        {
            assert!(PlayedAcceptance::new(wrong).is_err());
        }
    }
}
