//! Shapes of one `topk`, which share their expansions.

use std::collections::HashMap;

use schemas::tree::TreeShape;

use super::expected::Chances;
use crate::{
    backend::{Pool, ReplayPlace, Wanted},
    tree::{accepted, offered},
};

/// The shapes, and what is known of their rounds.
pub struct Family {
    /// Each once.
    shapes: Vec<TreeShape>,
    /// Outcomes of the shapes, in their order, by text and position.
    known: HashMap<(usize, usize), Vec<Outcome>>,
}

/// What a round does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Drafts that it accepts.
    pub accepted: usize,
    /// How many it accepts on average, given the text before each; 0 for a greedy text.
    pub expected: f64,
}

impl Family {
    /// The families of some shapes; those without speculation have none.
    pub fn all(shapes: &[TreeShape]) -> Vec<Self> {
        let mut shapes: Vec<TreeShape> = shapes.iter().copied().filter(|shape| !shape.is_off()).collect();
        shapes.sort_unstable_by_key(|shape| (shape.topk, *shape));
        shapes.dedup();
        let of_one_topk = shapes.chunk_by(|a, b| a.topk == b.topk);
        of_one_topk.map(|shapes| Self { shapes: shapes.to_vec(), known: HashMap::new() }).collect()
    }

    /// Branches of a beam.
    pub fn topk(&self) -> usize {
        self.shapes.first().map_or(1, |shape| shape.topk)
    }

    /// A tree as deep as the deepest and as large as the largest.
    pub fn largest(&self) -> TreeShape {
        let most = |of: fn(&TreeShape) -> usize| self.shapes.iter().map(of).max().unwrap_or_default();
        TreeShape {
            num_steps: most(|shape| shape.num_steps),
            topk: self.topk(),
            num_draft_tokens: most(|shape| shape.num_draft_tokens),
        }
    }

    /// What a round of a shape does at a text and position, if it is known.
    pub fn outcome(&self, place: (usize, usize), shape: TreeShape) -> Option<Outcome> {
        let at = self.shapes.iter().position(|known| *known == shape)?;
        self.known.get(&place)?.get(at).copied()
    }

    /// The tokens that each shape offers after the root of a position, and after each accepted token of the text.
    pub fn offers(&self, place: &ReplayPlace<'_>, pool: &Pool) -> Vec<Vec<Vec<u32>>> {
        self.shapes.iter().map(|shape| offered(pool, *shape, place.text)).collect()
    }

    /// Takes in the pool of a place.
    pub fn learn(&mut self, at: (usize, usize), place: &ReplayPlace<'_>, pool: &Pool, chances: &Chances) {
        let outcome = |shape: &TreeShape| Outcome {
            accepted: accepted(pool, *shape, place.text),
            expected: match place.wanted {
                Wanted::Accepted => 0.0,
                Wanted::Offered => chances.sum(place, &offered(pool, *shape, place.text)),
            },
        };
        let outcomes = self.shapes.iter().map(outcome).collect();
        self.known.insert(at, outcomes);
    }
}
