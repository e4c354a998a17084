//! Shapes that share their expansions.

use std::collections::HashMap;

use schemas::tree::{NodeSource, TreeShape};

use super::expected::Chances;
use crate::{
    backend::{Pool, ReplayPlace, RequiredTree},
    tree::{accepted, offered},
};

/// Shapes whose trees are read off the same pools ([`NodeSource::family`]), and the known outcomes
/// of their rounds.
pub struct ShapeFamily {
    /// Without duplicates.
    shapes: Vec<TreeShape>,
    /// Outcomes of the shapes, in their order, by text and position.
    known: HashMap<(usize, usize), Vec<RoundOutcome>>,
}

/// What is chosen from in place of the draft's pool, for a shape at a place; `None` if nothing else
/// is.
pub type Joins<'a> = &'a dyn Fn(&ReplayPlace<'_>, &Pool, TreeShape) -> Option<Pool>;

/// The outcome of a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoundOutcome {
    /// Number of accepted drafts.
    pub accepted: usize,
    /// Expected number of accepted drafts, given the text before each; 0 for a greedy text.
    pub expected: f64,
}

impl ShapeFamily {
    /// Groups shapes into families; shapes without speculation are in none.
    pub fn all(shapes: &[TreeShape], nodes: NodeSource) -> Vec<Self> {
        let mut shapes: Vec<TreeShape> = shapes.iter().copied().filter(|shape| !shape.is_off()).collect();
        shapes.sort_unstable_by_key(|shape| (nodes.family(*shape), *shape));
        shapes.dedup();
        let families = shapes.chunk_by(|a, b| nodes.family(*a) == nodes.family(*b));
        families.map(|shapes| Self { shapes: shapes.to_vec(), known: HashMap::new() }).collect()
    }

    /// The shapes, without duplicates.
    pub fn shapes(&self) -> &[TreeShape] {
        &self.shapes
    }

    /// The outcome of a round of a shape at a (text, position), if known.
    pub fn outcome(&self, place: (usize, usize), shape: TreeShape) -> Option<RoundOutcome> {
        let at = self.shapes.iter().position(|known| *known == shape)?;
        self.known.get(&place)?.get(at).copied()
    }

    /// The tokens that each shape offers after the root of a position, and after each accepted
    /// token of the text.
    pub fn offers(&self, place: &ReplayPlace<'_>, pool: &Pool, joins: Joins<'_>) -> Vec<Vec<Vec<u32>>> {
        let of = |shape: &TreeShape| {
            let joined = joins(place, pool, *shape);
            offered(joined.as_ref().unwrap_or(pool), *shape, place.text)
        };
        self.shapes.iter().map(of).collect()
    }

    /// Adds the outcomes that follow from the pool of a place.
    pub fn learn(
        &mut self,
        at: (usize, usize),
        place: &ReplayPlace<'_>,
        pool: &Pool,
        chances: &Chances,
        joins: Joins<'_>,
    ) {
        let outcome = |shape: &TreeShape| {
            let joined = joins(place, pool, *shape);
            let pool = joined.as_ref().unwrap_or(pool);
            RoundOutcome {
                accepted: accepted(pool, *shape, place.text),
                expected: match place.wanted {
                    RequiredTree::Accepted => 0.0,
                    RequiredTree::Offered | RequiredTree::Whole => {
                        chances.sum(place, &offered(pool, *shape, place.text))
                    }
                },
            }
        };
        let outcomes = self.shapes.iter().map(outcome).collect();
        self.known.insert(at, outcomes);
    }
}
