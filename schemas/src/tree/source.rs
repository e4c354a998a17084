//! What fills the pool of proposals that a tree is chosen from, and so what the numbers of a shape
//! mean.

use serde::{Deserialize, Serialize};

use super::{ShapeError, TreeShape};
use crate::{
    algorithm::{Algorithm, parse_algorithm},
    engines::NEWEST_SGLANG,
};

/// A source of the nodes of a tree. Choosing, verifying and accepting a tree do not depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeSource {
    /// EAGLE heads and MTP layers: every step runs `topk` beams, each of which proposes `topk`
    /// tokens.
    #[default]
    Beams,
    /// DFLASH and DSPARK heads: one pass ranks the tokens of every depth, and each node proposes
    /// the `topk` best of the next.
    Block(Block),
    /// Look-ups of the last tokens in texts: n-gram, suffix and SGLang's trie. No pass is run, and
    /// a round has as many nodes as the look-up finds, up to the shape's.
    Text(TextNodes),
}

/// What look-ups of the last tokens can find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextNodes {
    /// Largest number of drafts along a path.
    pub depth: usize,
    /// Whether a token may have several continuations (a trie), so that `topk` is the maximum
    /// breadth below a node; otherwise the drafts are a chain.
    pub branches: bool,
}

/// The block of a head that drafts in one pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// Rows of the block that the head was trained with, the last token's row included.
    pub rows: usize,
    /// Whether the last token's row proposes too (DSPARK), so that a block of n rows is n deep
    /// instead of n − 1.
    pub anchored: bool,
    /// Whether users and config files give the size of a block as the number of its drafts (DSPARK)
    /// instead of its rows.
    pub sized_by_drafts: bool,
    /// The number of rows that the user asks for; `None` if it follows from the shape.
    pub given: Option<usize>,
}

/// Algorithms that SGLang does not have: vLLM's `ngram` and `suffix`.
const CHAINS_OF_TEXTS: [&str; 2] = ["PROMPT_LOOKUP", "SUFFIX"];

impl NodeSource {
    /// The source of an algorithm whose head is not known: its block may have any number of rows.
    pub fn from_algorithm(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Dflash => Self::Block(Block::DFLASH.with_size(TreeShape::LARGEST)),
            Algorithm::Dspark => Self::Block(Block::DSPARK.with_size(TreeShape::LARGEST)),
            Algorithm::Ngram => Self::Text(TextNodes { depth: TreeShape::LARGEST, branches: true }),
            _ => Self::Beams,
        }
    }

    /// The source of the algorithm of this name, SGLang's or spectune's; beams if there is no such
    /// algorithm.
    pub fn named(algorithm: &str) -> Self {
        if CHAINS_OF_TEXTS.iter().any(|name| name.eq_ignore_ascii_case(algorithm)) {
            return Self::Text(TextNodes { depth: TreeShape::LARGEST, branches: false });
        }
        parse_algorithm(algorithm, NEWEST_SGLANG).map_or(Self::Beams, |(algorithm, _)| Self::from_algorithm(algorithm))
    }

    /// Checks a shape for a source that is not known.
    ///
    /// # Errors
    /// If no source can fill the tree.
    pub fn check_any(shape: TreeShape) -> Result<(), ShapeError> {
        Self::Beams
            .check(shape)
            .or_else(|error| Self::from_algorithm(Algorithm::Dflash).check(shape).map_err(|_| error))
    }

    /// Reads a shape for a source that is not known, as [`parse`](Self::parse).
    ///
    /// # Errors
    /// If the text is not a shape, or as [`check_any`](Self::check_any).
    pub fn parse_any(text: &str) -> Result<TreeShape, ShapeError> {
        Self::Beams.parse(text).or_else(|error| Self::from_algorithm(Algorithm::Dflash).parse(text).map_err(|_| error))
    }

    /// A checked shape.
    ///
    /// # Errors
    /// If the triple is not a tree that this source can fill, or is too large.
    pub fn shape(self, num_steps: usize, topk: usize, num_draft_tokens: usize) -> Result<TreeShape, ShapeError> {
        let shape = TreeShape::whole_tree(num_steps, topk, num_draft_tokens);
        if shape == TreeShape::OFF {
            return Ok(shape);
        }
        if num_steps == 0 || topk == 0 || num_draft_tokens < 2 {
            return Err(ShapeError::Zero);
        }
        if num_steps.max(topk).max(num_draft_tokens) > TreeShape::LARGEST {
            return Err(ShapeError::OutOfRange { most: TreeShape::LARGEST });
        }
        let pool = self.pool_size(shape);
        if pool > TreeShape::LARGEST_POOL {
            return Err(ShapeError::TooManyCandidates { found: pool, most: TreeShape::LARGEST_POOL });
        }
        let is_trie = matches!(self, Self::Text(TextNodes { branches: true, .. }));
        if topk == 1 && num_draft_tokens != num_steps + 1 && !is_trie {
            return Err(ShapeError::NotAChain { found: num_draft_tokens, expected: num_steps + 1 });
        }
        let bound = self.most_nodes(num_steps, topk);
        if num_draft_tokens > bound {
            let formula = match self {
                Self::Beams => "1 + topk + (num_steps − 1)·topk²",
                Self::Block(_) => "1 + topk + topk² + … + topk^num_steps",
                Self::Text(_) => "the largest shape",
            };
            return Err(ShapeError::TooLarge { found: num_draft_tokens, bound, formula });
        }
        match self {
            Self::Block(block) if num_steps > block.depth(shape) => Err(ShapeError::DeeperThanBlock {
                found: num_steps,
                most: block.depth(shape),
                rows: block.rows_of(shape),
            }),
            Self::Text(text) if topk > 1 && !text.branches => Err(ShapeError::OnlyChains { found: topk }),
            Self::Text(text) if num_steps > text.depth => {
                Err(ShapeError::DeeperThanTexts { found: num_steps, most: text.depth })
            }
            _ => Ok(shape),
        }
    }

    /// Like [`shape`](Self::shape), for a shape that was read elsewhere.
    ///
    /// # Errors
    /// As [`shape`](Self::shape).
    pub fn check(self, shape: TreeShape) -> Result<(), ShapeError> {
        let nodes = shape.num_draft_tokens;
        self.shape(shape.num_steps, shape.topk, nodes)?;
        match shape.row_budget {
            Some(found) if found.rows(100) >= 100 * nodes => Err(ShapeError::WholeBudget { found, nodes }),
            _ => Ok(()),
        }
    }

    /// Reads a shape that is written as three integers, with a budget of rows after a `~` or
    /// without one.
    ///
    /// # Errors
    /// If it is not, or as [`shape`](Self::shape).
    pub fn parse(self, text: &str) -> Result<TreeShape, ShapeError> {
        let (text, budget) = text.split_once('~').map_or((text, None), |(tree, budget)| (tree, Some(budget)));
        let row_budget = budget.map(str::parse).transpose()?;
        let mut numbers = text.split(',').map(|part| part.trim().parse::<usize>().map_err(|_| ShapeError::Syntax));
        let mut next = || numbers.next().unwrap_or(Err(ShapeError::Syntax));
        let (num_steps, topk, num_draft_tokens) = (next()?, next()?, next()?);
        if numbers.next().is_some() {
            return Err(ShapeError::Syntax);
        }
        let shape = TreeShape { row_budget, ..TreeShape::whole_tree(num_steps, topk, num_draft_tokens) };
        self.check(shape).map(|()| shape)
    }

    /// The upper bound of `num_draft_tokens`.
    pub fn most_nodes(self, num_steps: usize, topk: usize) -> usize {
        match self {
            Self::Beams => TreeShape::whole_tree(num_steps, topk, 2).largest_num_draft_tokens(),
            Self::Block(_) => {
                let level = |level: &mut usize, _| {
                    *level = level.saturating_mul(topk);
                    Some(*level)
                };
                // Deeper levels only exceed the largest shape further.
                (0..num_steps.min(TreeShape::LARGEST)).scan(1, level).fold(1, usize::saturating_add)
            }
            // Continuations of several suffixes are joined below the root.
            Self::Text(_) => TreeShape::LARGEST,
        }
    }

    /// Largest number of proposals that a tree of this shape is chosen from. Of a block, only nodes
    /// that the tree can still contain propose.
    pub fn pool_size(self, shape: TreeShape) -> usize {
        match self {
            Self::Beams => shape.pool_size(),
            Self::Block(_) | Self::Text(_) if shape.is_off() => 0,
            Self::Text(_) => shape.drafts(),
            Self::Block(_) => {
                let widest = shape.drafts().saturating_mul(shape.topk);
                shape.topk.saturating_add((shape.num_steps - 1).saturating_mul(widest))
            }
        }
    }

    /// The cheapest shape that drafts the same tree, whatever the scores are (see
    /// [`TreeShape::smallest_with_same_tree`]). The number of rows of a block may depend on whether
    /// it is a chain, so a tree is not replaced by one.
    pub fn smallest_with_same_tree(self, shape: TreeShape) -> TreeShape {
        let smallest = shape.smallest_with_same_tree();
        match self {
            Self::Block(block) if block.given.is_none() && smallest.topk == 1 => {
                TreeShape { topk: shape.topk.min(2), ..smallest }
            }
            // The numbers limit the look-up itself.
            Self::Text(_) => shape,
            _ => smallest,
        }
    }

    /// Shapes for which this agrees are read off the same proposals: the same `topk` of beams, the
    /// same rows of a block. Look-ups need no proposals.
    pub fn family(self, shape: TreeShape) -> usize {
        match self {
            Self::Text(_) => 0,
            Self::Beams => shape.topk,
            Self::Block(block) => block.rows_of(shape),
        }
    }

    /// Passes of the draft in a round, in addition to the one over accepted tokens, and rows of a
    /// request in each.
    pub fn passes(self, shape: TreeShape) -> (usize, usize) {
        match self {
            _ if shape.is_off() => (0, 0),
            Self::Text(_) => (0, 0),
            Self::Beams => (shape.num_steps - 1, shape.topk),
            Self::Block(block) => (1, block.rows_of(shape)),
        }
    }

    /// Rows of the draft's cache that a request needs during a round, besides those of its
    /// sequence.
    pub fn scratch_rows(self, shape: TreeShape) -> usize {
        let (passes, rows) = self.passes(shape);
        passes * rows
    }
}

impl Block {
    /// SGLang's default for DFLASH.
    pub const DFLASH: Self = Self { rows: 16, anchored: false, sized_by_drafts: false, given: None };
    /// SGLang's default for DSPARK.
    pub const DSPARK: Self = Self { rows: 7, anchored: true, sized_by_drafts: true, given: None };

    /// The same head with a block of another size, as users and config files give it.
    #[must_use]
    pub fn with_size(self, size: usize) -> Self {
        Self { rows: self.rows_for(size), ..self }
    }

    /// Rows of a block of a size, as users and config files give it.
    pub fn rows_for(self, size: usize) -> usize {
        size.saturating_add(usize::from(self.sized_by_drafts && !self.anchored))
    }

    /// The chain of all its drafts: the default, as in SGLang.
    pub fn chain(self) -> TreeShape {
        TreeShape::chain(self.depth_of(self.given.unwrap_or(self.rows)))
    }

    /// Rows of the pass that drafts a shape: those asked for; else a chain has a block of its own
    /// length, as in SGLang, and a tree the head's.
    pub fn rows_of(self, shape: TreeShape) -> usize {
        match self.given {
            Some(rows) => rows,
            None if shape.topk == 1 => shape.num_draft_tokens - usize::from(self.anchored),
            None => self.rows,
        }
    }

    /// Drafts along a path in the block of a shape.
    fn depth(self, shape: TreeShape) -> usize {
        self.depth_of(self.rows_of(shape))
    }

    /// Drafts along a path in a block of this many rows.
    pub fn depth_of(self, rows: usize) -> usize {
        rows.saturating_sub(usize::from(!self.anchored))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DFLASH: NodeSource = NodeSource::Block(Block { rows: 8, ..Block::DFLASH });
    const DSPARK: NodeSource = NodeSource::Block(Block::DSPARK);

    fn given(rows: usize) -> NodeSource {
        NodeSource::Block(Block { rows: 8, given: Some(rows), ..Block::DFLASH })
    }

    fn chain(source: NodeSource) -> TreeShape {
        match source {
            NodeSource::Block(block) => block.chain(),
            _ => TreeShape::OFF,
        }
    }

    #[test]
    fn a_shape_means_what_its_source_makes_of_it() {
        assert!(
            NodeSource::Beams.parse("3,2,12").is_err_and(|error| error.to_string().contains("(num_steps − 1)·topk²"))
        );
        assert_eq!(DFLASH.parse("3,2,15").map(|shape| shape.num_draft_tokens), Ok(15));
        let error = DFLASH.parse("3,2,16").expect_err("1 + 2 + 4 + 8 nodes at most").to_string();
        assert!(error.contains("the 15 nodes") && error.contains("topk^num_steps"), "{error}");
        let error = DFLASH.parse("8,2,16").expect_err("seven drafts").to_string();
        assert!(error.contains("a block of 8 rows is 7 deep"), "{error}");
        assert!(DSPARK.parse("7,2,16").is_ok() && DSPARK.parse("8,2,16").is_err());
        for block in [NodeSource::from_algorithm(Algorithm::Dflash), NodeSource::from_algorithm(Algorithm::Dspark)] {
            assert!(block.parse("15,4,32").is_ok());
        }
    }

    #[test]
    fn a_chain_has_its_own_block_and_a_tree_the_heads() {
        let rows = |source: NodeSource, shape: &str| source.family(source.parse(shape).expect("a shape"));
        assert_eq!([rows(DFLASH, "4,1,5"), rows(DFLASH, "9,1,10"), rows(DFLASH, "4,2,8")], [5, 10, 8]);
        assert_eq!([rows(DSPARK, "4,1,5"), rows(DSPARK, "4,2,8")], [4, 7]);
        assert_eq!([rows(given(8), "4,1,5"), rows(given(5), "4,2,8")], [8, 5]);
        assert_eq!((chain(given(5)), chain(DFLASH)), (TreeShape::chain(4), TreeShape::chain(7)));
        assert!(given(4).parse("4,1,5").is_err_and(|error| error.to_string().contains("a block of 4 rows is 3 deep")));
        assert_eq!((DFLASH.scratch_rows(TreeShape::chain(4)), DSPARK.scratch_rows(TreeShape::chain(4))), (5, 4));
        assert_eq!((NodeSource::Beams.scratch_rows(TreeShape::chain(4)), DFLASH.scratch_rows(TreeShape::OFF)), (3, 0));
    }

    #[test]
    fn a_look_up_has_no_passes_and_its_own_bounds() {
        let chains = NodeSource::Text(TextNodes { depth: 24, branches: false });
        assert_eq!(chains.parse("24,1,25").map(|shape| chains.passes(shape)), Ok((0, 0)));
        assert!(chains.parse("3,2,4").is_err_and(|error| error.to_string().contains("chains only")));
        assert!(chains.parse("25,1,26").is_err_and(|error| error.to_string().contains("at most 24")));
        assert!(chains.parse("4,1,4").is_err());
        let trie = NodeSource::Text(TextNodes { depth: 17, branches: true });
        for shape in ["11,10,12", "1,1,30", "17,2,64"] {
            let parsed = trie.parse(shape).expect("any number of nodes");
            assert_eq!((trie.smallest_with_same_tree(parsed), trie.scratch_rows(parsed)), (parsed, 0));
        }
        assert!(trie.parse("18,2,64").is_err());
    }

    #[test]
    fn a_tree_of_a_block_is_no_chain_of_another_block() {
        let tree = DFLASH.parse("7,4,2").expect("a shape");
        let smallest = DFLASH.smallest_with_same_tree(tree);
        assert_eq!((smallest.to_string(), DFLASH.family(smallest)), ("1,2,2".to_owned(), 8));
        assert_eq!(given(8).smallest_with_same_tree(tree).to_string(), "1,1,2");
        assert_eq!(NodeSource::Beams.smallest_with_same_tree(tree).to_string(), "1,1,2");
    }
}
