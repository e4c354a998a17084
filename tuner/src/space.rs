//! The tree shapes of a sweep.

use std::{collections::BTreeSet, fmt};

use schemas::{
    sweep::Space,
    tree::{ShapeError, TreeShape},
};

use crate::record::Role;

/// A shape and why it is in the race.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// The tree.
    pub shape: TreeShape,
    /// Why it is here.
    pub role: Role,
}

/// What a space of a sweep file comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expanded {
    /// No speculation first, then the engine's default, then the rest in ascending order; each shape once.
    pub configurations: Vec<Configuration>,
    /// Combinations of the lists that are no tree, and why.
    pub dropped: Vec<Dropped>,
}

/// A combination of the lists that is no tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Draft steps.
    pub num_steps: usize,
    /// Branches a step.
    pub topk: usize,
    /// Nodes asked for.
    pub num_draft_tokens: usize,
    /// Why it is none.
    pub reason: ShapeError,
}

impl fmt::Display for Dropped {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{},{},{}: {}", self.num_steps, self.topk, self.num_draft_tokens, self.reason)
    }
}

impl Expanded {
    /// What was dropped, in words; `None` if nothing was.
    pub fn dropped_words(&self) -> Option<String> {
        match self.dropped.as_slice() {
            [] => None,
            [one] => Some(format!("1 combination is no tree and is left out ({one})")),
            [first, ..] => {
                let count = self.dropped.len();
                Some(format!("{count} combinations are no tree and are left out (such as {first})"))
            }
        }
    }
}

/// All shapes of a space, with no speculation and the engine's default. Combinations that are no tree are dropped and
/// counted; with topk 1 the number of draft tokens follows from the steps.
pub fn expand(space: &Space, default: TreeShape) -> Expanded {
    let mut shapes: Vec<TreeShape> = space.shapes.iter().filter_map(|shape| shape.parse().ok()).collect();
    let mut dropped = Vec::new();
    for num_steps in unique(&space.num_steps) {
        for topk in unique(&space.topk) {
            if topk == 1 {
                shapes.push(TreeShape::chain(num_steps));
                continue;
            }
            for num_draft_tokens in unique(&space.num_draft_tokens) {
                match TreeShape::new(num_steps, topk, num_draft_tokens) {
                    Ok(shape) => shapes.push(shape),
                    Err(reason) => dropped.push(Dropped { num_steps, topk, num_draft_tokens, reason }),
                }
            }
        }
    }
    shapes.retain(|shape| *shape != TreeShape::OFF && *shape != default);
    shapes.sort_unstable();
    shapes.dedup();
    let candidates = shapes.into_iter().map(|shape| Configuration { shape, role: Role::Candidate });
    let always = [
        Configuration { shape: TreeShape::OFF, role: Role::NoSpeculation },
        Configuration { shape: default, role: Role::EngineDefault },
    ];
    Expanded { configurations: always.into_iter().chain(candidates).collect(), dropped }
}

/// A number that is written twice counts once.
fn unique(numbers: &[usize]) -> BTreeSet<usize> {
    numbers.iter().copied().collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(space: Space, expected: &[&str], dropped: usize) {
        let expanded = expand(&space, TreeShape::chain(3));
        let shapes: Vec<String> = expanded.configurations.iter().map(|one| one.shape.to_string()).collect();
        assert_eq!(
            (shapes.iter().map(String::as_str).collect::<Vec<_>>(), expanded.dropped.len()),
            (expected.to_vec(), dropped)
        );
    }

    #[test]
    fn the_baselines_are_always_there_and_nothing_is_there_twice() {
        check(Space::default(), &["0,1,1", "3,1,4"], 0);
        let shapes = ["3,1,4", "0,1,1", "2,2,4", "2,2,4"].map(String::from).to_vec();
        check(Space { shapes, ..Space::default() }, &["0,1,1", "3,1,4", "2,2,4"], 0);
    }

    #[test]
    fn impossible_combinations_are_dropped_and_counted() {
        let space = Space { num_steps: vec![1, 3], topk: vec![1, 4], num_draft_tokens: vec![4, 8], shapes: Vec::new() };
        // (1,4,8) needs 7 candidates, and one step of topk 4 has 4.
        check(space, &["0,1,1", "3,1,4", "1,1,2", "1,4,4", "3,4,4", "3,4,8"], 1);
    }

    fn numbers() -> impl Strategy<Value = Vec<usize>> {
        prop::collection::vec(1..12_usize, 0..4)
    }

    proptest! {
        #[test]
        fn every_combination_is_a_shape_or_dropped_with_its_reason(
            num_steps in numbers(), topk in numbers(), num_draft_tokens in numbers(), default in 1..6_usize,
        ) {
            let space = Space { num_steps, topk, num_draft_tokens, shapes: Vec::new() };
            let expanded = expand(&space, TreeShape::chain(default));
            let shapes: BTreeSet<TreeShape> = expanded.configurations.iter().map(|one| one.shape).collect();
            prop_assert_eq!(shapes.len(), expanded.configurations.len(), "nothing is there twice");
            prop_assert_eq!(expanded.configurations[0].role, Role::NoSpeculation);
            prop_assert_eq!(expanded.configurations[1].shape, TreeShape::chain(default));
            for shape in &shapes {
                prop_assert_eq!(TreeShape::new(shape.num_steps, shape.topk, shape.num_draft_tokens), Ok(*shape));
            }
            for num_steps in &space.num_steps {
                for topk in &space.topk {
                    for num_draft_tokens in &space.num_draft_tokens {
                        let asked = if *topk == 1 { num_steps + 1 } else { *num_draft_tokens };
                        let dropped = expanded.dropped.iter().filter(|one| {
                            (one.num_steps, one.topk, one.num_draft_tokens) == (*num_steps, *topk, asked)
                        });
                        let kept = TreeShape::new(*num_steps, *topk, asked).is_ok_and(|shape| shapes.contains(&shape));
                        prop_assert_eq!(usize::from(kept) + dropped.count(), 1);
                    }
                }
            }
        }
    }
}
