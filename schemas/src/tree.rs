//! The tree shape: (num_steps, topk, num_draft_tokens), and how many of its nodes are verified.

mod budget;
mod source;

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    budget::RowBudget,
    source::{Block, NodeSource, TextNodes},
};

/// How a round drafts: depth, branching and size of the tree that the target verifies.
///
/// `num_draft_tokens` counts the root (the token that the target has already produced), as SGLang
/// does, so a chain has `num_draft_tokens = num_steps + 1`. Speculation off is the shape
/// `(0, 1, 1)` of the same machinery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TreeShape {
    /// Draft steps: the depth of the tree below the root.
    pub num_steps: usize,
    /// Branches that each beam proposes at each step.
    pub topk: usize,
    /// Nodes of the tree, root included. The target verifies all of them unless there is a budget.
    pub num_draft_tokens: usize,
    /// Rows that the target verifies per request on average; all nodes if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row_budget: Option<RowBudget>,
}

/// Why a triple is not a tree shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// A number that is too small.
    #[error("topk and num_draft_tokens must be at least 1, and a tree with steps needs at least 2 draft tokens")]
    Zero,
    /// More nodes than expansion can produce.
    #[error("num_draft_tokens {found} is larger than the {bound} nodes that this tree can have ({formula})")]
    TooLarge {
        /// The requested number.
        found: usize,
        /// The largest possible.
        bound: usize,
        /// What the largest possible number is.
        formula: &'static str,
    },
    /// More steps than the block of a head has positions.
    #[error("num_steps {found} is too deep: a block of {rows} rows is {most} deep")]
    DeeperThanBlock {
        /// The requested number.
        found: usize,
        /// The largest possible.
        most: usize,
        /// Rows of the block.
        rows: usize,
    },
    /// More steps than the texts of a look-up are kept long.
    #[error("num_steps {found} is too deep: look-ups find at most {most} drafts in a row")]
    DeeperThanTexts {
        /// The requested number.
        found: usize,
        /// The largest possible.
        most: usize,
    },
    /// Branches where a look-up finds one continuation.
    #[error("topk {found}: this look-up drafts chains only, use topk 1")]
    OnlyChains {
        /// The requested topk.
        found: usize,
    },
    /// A chain whose size is not steps + 1.
    #[error("with topk 1 the tree is a chain: num_draft_tokens must be num_steps + 1 = {expected}, not {found}")]
    NotAChain {
        /// The requested number.
        found: usize,
        /// The only possible number.
        expected: usize,
    },
    /// A number that is larger than any engine uses.
    #[error("a number above {most} is out of range")]
    OutOfRange {
        /// The largest number that is accepted.
        most: usize,
    },
    /// More candidates than memory is reserved for.
    #[error(
        "{found} candidates (topk + (num_steps − 1)·topk²) are too many for a round, the maximum is {most}; use \
         a smaller topk"
    )]
    TooManyCandidates {
        /// The number of candidates of this shape.
        found: usize,
        /// The maximum.
        most: usize,
    },
    /// A budget that is no number of rows.
    #[error("a budget of verified rows is a number of rows per request above 1 and below {most}, in steps of 0.01")]
    Budget {
        /// The bound.
        most: usize,
    },
    /// A budget for all nodes or more.
    #[error("a budget of {found} rows per request cuts nothing off trees of {nodes} nodes: leave it out")]
    WholeBudget {
        /// The budget.
        found: RowBudget,
        /// Nodes of the tree.
        nodes: usize,
    },
    /// Not three integers.
    #[error(
        "a tree shape is written as three integers: num_steps,topk,num_draft_tokens; ~ and the rows to verify per \
         request may follow, such as 3,2,6~2.5"
    )]
    Syntax,
}

impl TreeShape {
    /// No speculation: one row per request and round.
    pub const OFF: Self = Self::whole_tree(0, 1, 1);

    /// Largest number in a shape, twenty times what any engine uses.
    pub const LARGEST: usize = 1024;
    /// Largest [pool](Self::pool_size): each of its candidates needs memory and is ranked in every
    /// round.
    pub const LARGEST_POOL: usize = 1 << 18;

    /// A checked shape of a draft that proposes by beams; for other drafts see
    /// [`NodeSource::shape`].
    ///
    /// # Errors
    /// If the triple is not a valid tree, or is too large: see [`ShapeError`].
    pub fn new(num_steps: usize, topk: usize, num_draft_tokens: usize) -> Result<Self, ShapeError> {
        NodeSource::Beams.shape(num_steps, topk, num_draft_tokens)
    }

    /// A shape of which all nodes are verified. It is not checked.
    pub const fn whole_tree(num_steps: usize, topk: usize, num_draft_tokens: usize) -> Self {
        Self { num_steps, topk, num_draft_tokens, row_budget: None }
    }

    /// The chain of `num_steps` drafts.
    pub fn chain(num_steps: usize) -> Self {
        if num_steps == 0 { Self::OFF } else { Self::whole_tree(num_steps, 1, num_steps + 1) }
    }

    /// The drafted tree, without a budget.
    pub fn drafted(self) -> Self {
        Self { row_budget: None, ..self }
    }

    /// Rows that the target verifies in a round of a batch, roots included.
    pub fn verified_rows(self, batch: usize) -> usize {
        let all = batch.saturating_mul(self.num_draft_tokens);
        self.row_budget.map_or(all, |budget| budget.rows(batch).min(all))
    }

    /// Whether the shape means no speculation.
    pub fn is_off(self) -> bool {
        self.num_steps == 0
    }

    /// Number of candidates that expansion collects below the root: topk + (num_steps − 1)·topk².
    /// SGLang `speculative/eagle_utils.py`, `organize_draft_results`.
    pub fn pool_size(self) -> usize {
        if self.is_off() { 0 } else { self.topk.saturating_add(self.beam_rows().saturating_mul(self.topk)) }
    }

    /// The upper bound of `num_draft_tokens`: 1 + [`pool_size`](Self::pool_size).
    pub fn largest_num_draft_tokens(self) -> usize {
        self.pool_size().saturating_add(1)
    }

    /// The cheapest shape that drafts the same tree as this one, whatever the draft's scores are.
    /// Two shapes draft the same trees exactly if this agrees.
    ///
    /// A tree has `d = num_draft_tokens − 1` drafts, the best of the pool, and each comes after its
    /// ancestors and after all better proposals of its step. So no draft is deeper than d, none of
    /// its ancestors is worse than the d-th beam, and none of them is worse than the d-th proposal
    /// of its beam: steps and branches beyond d only add proposals that are never kept. Up to d,
    /// each step and each branch changes some tree.
    pub fn smallest_with_same_tree(self) -> Self {
        let drafts = self.drafts();
        if self.is_off() || drafts == 0 {
            return self;
        }
        // More steps, or wider ones, than drafts only offer candidates that are not kept.
        Self { num_steps: self.num_steps.min(drafts), topk: self.topk.min(drafts), ..self }
    }

    /// Number of drafts in the tree: its nodes without the root.
    pub fn drafts(self) -> usize {
        self.num_draft_tokens.saturating_sub(1)
    }

    /// Number of nodes on the longest path that the steps can grow, root included: the entries that
    /// a round reserves per request for the path that it accepts. A tree of fewer nodes than that
    /// yields [less](Self::max_tokens_per_round).
    pub fn longest_path(self) -> usize {
        self.num_steps.saturating_add(1)
    }

    /// Maximum number of tokens that one round can yield, bonus token included.
    pub fn max_tokens_per_round(self) -> usize {
        self.longest_path().min(self.drafts().saturating_add(1))
    }

    /// Whether rounds of this tree can yield this many tokens on average, bonus token included.
    pub fn reaches(self, accept_length: f64) -> bool {
        (1.0..=self.max_tokens_per_round() as f64).contains(&accept_length)
    }

    /// Number of cache rows that the beams of one request write while its tree grows:
    /// (num_steps − 1)·topk. The first step's rows are those of the accepted tokens.
    pub fn beam_rows(self) -> usize {
        self.num_steps.saturating_sub(1).saturating_mul(self.topk)
    }
}

impl fmt::Display for TreeShape {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{},{},{}", self.num_steps, self.topk, self.num_draft_tokens)?;
        self.row_budget.map_or(Ok(()), |budget| write!(formatter, "~{budget}"))
    }
}

impl FromStr for TreeShape {
    type Err = ShapeError;

    fn from_str(text: &str) -> Result<Self, ShapeError> {
        NodeSource::Beams.parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_the_pool_plus_the_root() {
        assert!(TreeShape::new(3, 4, 37).is_ok());
        assert_eq!(
            TreeShape::new(3, 4, 38),
            Err(ShapeError::TooLarge { found: 38, bound: 37, formula: "1 + topk + (num_steps − 1)·topk²" })
        );
        assert_eq!(TreeShape::new(1, 8, 9).map(TreeShape::pool_size), Ok(8));
    }

    #[test]
    fn a_chain_has_steps_plus_one_tokens() {
        assert_eq!("3,1,4".parse(), Ok(TreeShape::chain(3)));
        assert_eq!("3,1,5".parse::<TreeShape>(), Err(ShapeError::NotAChain { found: 5, expected: 4 }));
        assert_eq!("0,1,1".parse(), Ok(TreeShape::OFF));
    }

    #[test]
    fn what_no_memory_holds_is_refused() {
        assert_eq!(TreeShape::new(1024, 1, 1025), Err(ShapeError::OutOfRange { most: 1024 }));
        assert_eq!(TreeShape::new(5, 1 << 60, 8), Err(ShapeError::OutOfRange { most: 1024 }));
        let found = 1000 + 999 * 1_000_000;
        assert_eq!(TreeShape::new(1000, 1000, 8), Err(ShapeError::TooManyCandidates { found, most: 1 << 18 }));
        assert!(TreeShape::new(64, 64, 1024).is_ok());
    }

    #[test]
    fn steps_and_branches_beyond_the_drafts_do_not_change_the_tree() {
        for (shape, smallest) in [
            ("1,2,2", "1,1,2"),
            ("1,8,2", "1,1,2"),
            ("5,4,2", "1,1,2"),
            ("1,8,4", "1,3,4"),
            ("5,8,4", "3,3,4"),
            ("5,4,8", "5,4,8"),
            ("3,4,37", "3,4,37"),
            ("3,1,4", "3,1,4"),
            ("0,1,1", "0,1,1"),
        ] {
            let found = shape.parse::<TreeShape>().expect("a shape").smallest_with_same_tree();
            assert_eq!(found.to_string(), smallest, "{shape}");
            assert_eq!(TreeShape::new(found.num_steps, found.topk, found.num_draft_tokens), Ok(found));
        }
    }

    #[test]
    fn nonsense_is_an_error_and_never_a_panic() {
        for text in ["", "1,2", "1,2,3,4", "a,b,c", "0,0,0", "1,0,2", "18446744073709551615,18446744073709551615,2"] {
            let _ = text.parse::<TreeShape>();
        }
        assert_eq!("3,1".parse::<TreeShape>(), Err(ShapeError::Syntax));
    }
}
