//! The space of a sweep: tree shapes, tables of shapes by batch size, and settings.

mod drafts;
pub mod settings;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use schemas::{
    sweep::{KnobLists, Space},
    tree::{NodeSource, ShapeError, TreeShape},
};

use crate::trials::{
    configuration::{Configuration, Knobs, Real, TableRow},
    record::CandidateRole,
};

pub use self::drafts::{LeftOut, together};

/// A configuration and why it is in the race.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The configuration.
    pub configuration: Configuration,
    /// Why it is in the race.
    pub role: CandidateRole,
}

/// The configurations of a sweep file's space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expanded {
    /// No speculation first, then the engine's default, then the rest, without duplicates. Settings
    /// that need a restart vary slowest.
    pub entrants: Vec<Candidate>,
    /// Combinations of the lists that are not valid trees, and why.
    pub dropped: Vec<Dropped>,
    /// Shapes that draft the same tree as another one for every text, which is in the race and
    /// costs no more.
    pub same_tree: Vec<SameTree>,
    /// Configurations that an imported acceptance table does not cover: no accept length can be
    /// simulated for them.
    pub uncovered: Vec<Configuration>,
    /// Drafts of a sweep of several that take no part, since they cannot be loaded.
    pub left_out: Vec<LeftOut>,
}

/// A combination of the lists that is not a valid tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Draft steps.
    pub num_steps: usize,
    /// Branches per step.
    pub topk: usize,
    /// Requested number of nodes.
    pub num_draft_tokens: usize,
    /// Why it is not valid.
    pub reason: ShapeError,
}

/// A shape that is not measured, because another one drafts the same tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SameTree {
    /// The shape that is not measured.
    pub shape: TreeShape,
    /// The shape that is measured instead: no more draft steps, and no more branches with the same
    /// number of steps.
    pub measured: TreeShape,
}

impl fmt::Display for Dropped {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{},{},{}: {}", self.num_steps, self.topk, self.num_draft_tokens, self.reason)
    }
}

impl Expanded {
    /// One sentence for each reason to skip configurations.
    pub fn skipped(&self) -> Vec<String> {
        let dropped = match self.dropped.as_slice() {
            [] => None,
            [one] => Some(format!("1 combination is not a valid tree and is skipped ({one})")),
            [first, ..] => {
                let count = self.dropped.len();
                Some(format!("{count} combinations are not valid trees and are skipped (for example {first})"))
            }
        };
        let uncovered = match self.uncovered.as_slice() {
            [] => None,
            [one] => Some(format!("1 configuration has no row in the acceptance table and is skipped ({one})")),
            [first, ..] => {
                let count = self.uncovered.len();
                Some(format!(
                    "{count} configurations have no row in the acceptance table and are skipped (for example {first})"
                ))
            }
        };
        let drafts = self.drafts_left_out();
        drafts.chain(dropped).chain(self.same_trees()).chain(uncovered).collect()
    }

    /// The shapes that are not measured because of an equal tree, with the shape that is measured
    /// instead.
    fn same_trees(&self) -> Option<String> {
        let mut instead: BTreeMap<TreeShape, Vec<String>> = BTreeMap::new();
        for one in &self.same_tree {
            instead.entry(one.measured).or_default().push(one.shape.to_string());
        }
        let each = instead.iter().map(|(measured, shapes)| format!("{} = {measured}", shapes.join(" = ")));
        let each: Vec<String> = each.collect();
        match self.same_tree.len() {
            0 => None,
            1 => Some(format!(
                "1 shape always drafts the same tree as a cheaper one, which is measured instead ({})",
                each.join("; ")
            )),
            count => Some(format!(
                "{count} shapes always draft the same tree as a cheaper one, which is measured instead ({})",
                each.join("; ")
            )),
        }
    }

    /// Keeps both baselines, and the candidates for which `covers` is true.
    pub fn retain_covered(&mut self, covers: impl Fn(&Configuration) -> bool) {
        let kept = |one: &mut Candidate| one.role != CandidateRole::Candidate || covers(&one.configuration);
        let left_out = self.entrants.extract_if(.., |one| !kept(one));
        self.uncovered = left_out.map(|one| one.configuration).collect();
    }
}

/// All configurations of a space, with no speculation, the engine's default and what runs now.
/// Combinations that are not valid trees for the draft are dropped and counted; with topk 1 the
/// number of draft tokens follows from the steps. Each combination of settings is combined with
/// every shape.
pub fn expand(
    space: &Space,
    knobs: &KnobLists,
    tables: &[Vec<TableRow>],
    nodes: NodeSource,
    default: TreeShape,
) -> Expanded {
    let mut shapes: Vec<TreeShape> = space.shapes.iter().filter_map(|shape| nodes.parse(shape).ok()).collect();
    let mut dropped = Vec::new();
    for num_steps in unique(&space.num_steps) {
        for topk in unique(&space.topk) {
            if topk == 1 {
                let shape = TreeShape::chain(num_steps);
                match nodes.check(shape) {
                    Ok(()) => shapes.push(shape),
                    Err(reason) => {
                        let num_draft_tokens = shape.num_draft_tokens;
                        dropped.push(Dropped { num_steps, topk, num_draft_tokens, reason });
                    }
                }
                continue;
            }
            for num_draft_tokens in unique(&space.num_draft_tokens) {
                match nodes.shape(num_steps, topk, num_draft_tokens) {
                    Ok(shape) => shapes.push(shape),
                    Err(reason) => dropped.push(Dropped { num_steps, topk, num_draft_tokens, reason }),
                }
            }
        }
    }
    let current = space.current.as_ref().and_then(|shape| nodes.parse(shape).ok());
    // A baseline that runs now is already in the race, under its own role.
    let current = current.filter(|shape| *shape != TreeShape::OFF && *shape != default);
    shapes.retain(|shape| *shape != TreeShape::OFF && *shape != default && Some(*shape) != current);
    shapes.sort_unstable();
    shapes.dedup();
    let same_tree = without_equal_trees(&mut shapes, nodes, default);
    let candidate = |configuration| Candidate { configuration, role: CandidateRole::Candidate };
    let mut entrants = vec![
        Candidate { configuration: Configuration::from_shape(TreeShape::OFF), role: CandidateRole::NoSpeculation },
        Candidate { configuration: Configuration::from_shape(default), role: CandidateRole::EngineDefault },
    ];
    entrants.extend(
        current
            .map(|shape| Candidate { configuration: Configuration::from_shape(shape), role: CandidateRole::Current }),
    );
    entrants.extend(shapes.iter().copied().map(Configuration::from_shape).map(candidate));
    entrants.extend(tables.iter().filter_map(|rows| {
        let shape = rows.last()?.shape;
        Some(candidate(Configuration { shape, table: rows.clone(), draft: String::new(), knobs: Knobs::default() }))
    }));
    for knobs in combinations(knobs) {
        // Also the baselines: a setting changes the speed without speculation too, and only pairs
        // with the same setting tell what speculation adds.
        let every = [TreeShape::OFF, default].into_iter().chain(current).chain(shapes.iter().copied());
        entrants.extend(
            every.map(|shape| candidate(Configuration { knobs: knobs.clone(), ..Configuration::from_shape(shape) })),
        );
    }
    Expanded { entrants, dropped, same_tree, ..Expanded::default() }
}

/// Keeps the cheapest of the sorted shapes that draft the same tree, and returns the others. The
/// engine's default is measured in any case, so it replaces shapes that are not cheaper.
fn without_equal_trees(shapes: &mut Vec<TreeShape>, nodes: NodeSource, default: TreeShape) -> Vec<SameTree> {
    // Draft steps are passes of the draft one after the other; branches are rows of these passes.
    let cost = |shape: &TreeShape| (shape.num_steps, shape.topk);
    let smallest = |shape: &TreeShape| nodes.smallest_with_same_tree(*shape);
    let mut cheapest = BTreeMap::from([(smallest(&default), default)]);
    for shape in shapes.iter() {
        let known = cheapest.entry(smallest(shape)).or_insert(*shape);
        *known = *std::cmp::min_by_key(&*known, shape, |shape| cost(shape));
    }
    let measured = |shape: &TreeShape| cheapest.get(&smallest(shape)).copied().unwrap_or(*shape);
    let same = shapes.extract_if(.., |shape| measured(shape) != *shape);
    same.map(|shape| SameTree { shape, measured: measured(&shape) }).collect()
}

/// Every distinct combination of the lists except the one without changes.
fn combinations(lists: &KnobLists) -> Vec<Knobs> {
    let mut all = vec![Knobs::default()];
    vary(&mut all, &lists.max_running_requests, |knobs, value| knobs.max_running_requests = Some(*value));
    vary(&mut all, &lists.mem_fraction_static, |knobs, value| knobs.mem_fraction_static = Some(Real(*value)));
    vary(&mut all, &lists.attention_backend, |knobs, value| knobs.attention_backend = Some(value.clone()));
    vary(&mut all, &lists.page_size, |knobs, value| knobs.page_size = Some(*value));
    vary(&mut all, &lists.chunked_prefill_size, |knobs, value| knobs.chunked_prefill_size = Some(*value));
    vary(&mut all, &lists.capture_sizes, |knobs, value| knobs.capture_sizes = Some(value.clone()));
    let all: BTreeSet<Knobs> = all.into_iter().filter(|knobs| !knobs.are_default()).collect();
    all.into_iter().collect()
}

/// Multiplies the combinations by a list; an empty list leaves them unchanged.
fn vary<T>(all: &mut Vec<Knobs>, values: &[T], set: impl Fn(&mut Knobs, &T)) {
    if values.is_empty() {
        return;
    }
    let with = |knobs: &Knobs, value: &T| {
        let mut knobs = knobs.clone();
        set(&mut knobs, value);
        knobs
    };
    *all = all.iter().flat_map(|knobs| values.iter().map(move |value| with(knobs, value))).collect();
}

/// The distinct numbers.
fn unique(numbers: &[usize]) -> BTreeSet<usize> {
    numbers.iter().copied().collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(space: Space, expected: &[&str], dropped: usize) {
        let expanded = expand(&space, &KnobLists::default(), &[], NodeSource::Beams, TreeShape::chain(3));
        let shapes: Vec<String> = expanded.entrants.iter().map(|one| one.configuration.shape.to_string()).collect();
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
        let space = Space { num_steps: vec![1, 3], topk: vec![1, 4], num_draft_tokens: vec![4, 8], ..Space::default() };
        // (1,4,8) needs 7 candidates, and one step of topk 4 has 4.
        check(space, &["0,1,1", "3,1,4", "1,1,2", "1,4,4", "3,4,4", "3,4,8"], 1);
    }

    #[test]
    fn shapes_with_the_same_tree_are_one_candidate() {
        let space = Space {
            num_steps: vec![1, 2, 5],
            topk: vec![1, 2, 4, 8],
            num_draft_tokens: vec![2, 3],
            ..Space::default()
        };
        let expanded = expand(&space, &KnobLists::default(), &[], NodeSource::Beams, TreeShape::chain(3));
        let shapes: Vec<String> = expanded.entrants.iter().map(|one| one.configuration.shape.to_string()).collect();
        assert_eq!(shapes, ["0,1,1", "3,1,4", "1,1,2", "1,2,3", "2,1,3", "2,2,3", "5,1,6"]);
        let words = expanded.skipped().join("\n");
        for part in [
            "16 shapes always draft the same tree",
            "1,2,2 = 1,4,2 = 1,8,2 = 2,2,2 = 2,4,2 = 2,8,2 = 5,2,2 = 5,4,2 = 5,8,2 = 1,1,2",
            "1,4,3 = 1,8,3 = 1,2,3",
            "= 2,2,3",
        ] {
            assert!(words.contains(part), "{part}: {words}");
        }
    }

    #[test]
    fn what_runs_now_is_a_baseline_even_if_a_cheaper_shape_has_the_same_tree() {
        let space = Space { shapes: vec!["1,2,2".into()], current: Some("1,8,2".into()), ..Space::default() };
        let expanded = expand(&space, &KnobLists::default(), &[], NodeSource::Beams, TreeShape::chain(3));
        let found: Vec<_> = expanded.entrants.iter().map(|one| (one.configuration.to_string(), one.role)).collect();
        assert!(found.contains(&("1,8,2".to_owned(), CandidateRole::Current)), "{found:?}");
        assert!(found.contains(&("1,2,2".to_owned(), CandidateRole::Candidate)), "{found:?}");
        // The engine's default is measured in any case.
        let space = Space { current: Some("3,1,4".into()), ..Space::default() };
        assert_eq!(
            expand(&space, &KnobLists::default(), &[], NodeSource::Beams, TreeShape::chain(3)).entrants.len(),
            2
        );
    }

    #[test]
    fn the_engines_default_replaces_only_what_is_not_cheaper() {
        let check = |default: &str, shape: &str, expected: &[&str]| {
            let space = Space { shapes: vec![shape.into()], ..Space::default() };
            let expanded =
                expand(&space, &KnobLists::default(), &[], NodeSource::Beams, default.parse().expect("a shape"));
            let shapes: Vec<String> = expanded.entrants.iter().map(|one| one.configuration.shape.to_string()).collect();
            assert_eq!(shapes, expected, "{default} {shape}");
        };
        check("1,2,2", "4,2,2", &["0,1,1", "1,2,2"]);
        check("4,2,2", "1,2,2", &["0,1,1", "4,2,2", "1,2,2"]);
    }

    #[test]
    fn settings_are_combined_and_tried_with_every_shape() {
        let space = Space { shapes: vec!["2,2,4".into()], ..Space::default() };
        let knobs =
            KnobLists { page_size: vec![1, 16], chunked_prefill_size: vec![512, 2048, 512], ..KnobLists::default() };
        let all = expand(&space, &knobs, &[], NodeSource::Beams, TreeShape::chain(3)).entrants;
        let words: Vec<String> = all.iter().map(|one| one.configuration.to_string()).collect();
        assert_eq!(
            (words.len(), words[3].as_str()),
            (3 + 3 * 4, "no speculation page_size=1 chunked_prefill_size=512")
        );
        assert_eq!(all.iter().filter(|one| one.role != CandidateRole::Candidate).count(), 2);
        let settings: Vec<&Knobs> = all.iter().map(|one| &one.configuration.knobs).collect();
        assert_eq!(settings.windows(2).filter(|pair| pair[0] != pair[1]).count(), 4, "one restart each");
    }

    fn numbers() -> impl Strategy<Value = Vec<usize>> {
        prop::collection::vec(1..12_usize, 0..4)
    }

    proptest! {
        #[test]
        fn every_combination_is_a_shape_or_dropped_with_its_reason(
            num_steps in numbers(), topk in numbers(), num_draft_tokens in numbers(), default in 1..6_usize,
        ) {
            let space = Space { num_steps, topk, num_draft_tokens, ..Space::default() };
            let expanded = expand(&space, &KnobLists::default(), &[], NodeSource::Beams, TreeShape::chain(default));
            let shapes: BTreeSet<TreeShape> = expanded.entrants.iter().map(|one| one.configuration.shape).collect();
            prop_assert_eq!(shapes.len(), expanded.entrants.len(), "nothing is there twice");
            prop_assert_eq!(expanded.entrants[0].role, CandidateRole::NoSpeculation);
            prop_assert_eq!(&expanded.entrants[1].configuration, &Configuration::from_shape(TreeShape::chain(default)));
            for shape in &shapes {
                prop_assert_eq!(TreeShape::new(shape.num_steps, shape.topk, shape.num_draft_tokens), Ok(*shape));
            }
            for num_steps in &space.num_steps {
                for topk in &space.topk {
                    for num_draft_tokens in &space.num_draft_tokens {
                        let requested = if *topk == 1 { num_steps + 1 } else { *num_draft_tokens };
                        let dropped = expanded.dropped.iter().filter(|one| {
                            (one.num_steps, one.topk, one.num_draft_tokens) == (*num_steps, *topk, requested)
                        });
                        let shape = TreeShape::new(*num_steps, *topk, requested);
                        let kept = shape.is_ok_and(|shape| shapes.contains(&shape));
                        let same = expanded.same_tree.iter().filter(|one| {
                            shape == Ok(one.shape)
                                && shapes.contains(&one.measured)
                                && one.measured.smallest_with_same_tree() == one.shape.smallest_with_same_tree()
                        });
                        prop_assert_eq!(usize::from(kept) + dropped.count() + same.count(), 1);
                    }
                }
            }
        }
    }
}
