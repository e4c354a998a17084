//! The tree shapes of a sweep.

use schemas::{sweep::Space, tree::TreeShape};

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
    /// Combinations of the lists that are no tree.
    pub dropped: usize,
}

/// All shapes of a space, with no speculation and the engine's default. Combinations that are no tree are dropped and
/// counted; with topk 1 the number of draft tokens follows from the steps.
pub fn expand(space: &Space, default: TreeShape) -> Expanded {
    let mut shapes: Vec<TreeShape> = space.shapes.iter().filter_map(|shape| shape.parse().ok()).collect();
    let mut dropped = 0;
    for num_steps in &space.num_steps {
        for topk in &space.topk {
            if *topk == 1 {
                shapes.push(TreeShape::chain(*num_steps));
                continue;
            }
            for num_draft_tokens in &space.num_draft_tokens {
                match TreeShape::new(*num_steps, *topk, *num_draft_tokens) {
                    Ok(shape) => shapes.push(shape),
                    Err(_) => dropped += 1,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(space: Space, expected: &[&str], dropped: usize) {
        let expanded = expand(&space, TreeShape::chain(3));
        let shapes: Vec<String> = expanded.configurations.iter().map(|one| one.shape.to_string()).collect();
        assert_eq!(
            (shapes.iter().map(String::as_str).collect::<Vec<_>>(), expanded.dropped),
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
}
