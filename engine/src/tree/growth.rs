//! Grows several trees together, one step at a time, so that a draft pass contains rows of all of
//! them.

use schemas::tree::TreeShape;

use super::expansion::{Beam, Expansion};

/// A row of a draft pass.
#[derive(Clone, Copy, Debug)]
pub struct BeamRow<'a> {
    /// The tree that it belongs to.
    pub tree: usize,
    /// The beam that it runs.
    pub beam: &'a Beam,
    /// The row of the previous pass whose state it continues; in the first pass the index of its
    /// tree.
    pub source: usize,
}

/// The shape whose expansion serves all of some shapes with the same `topk`: as deep as the deepest
/// and as large as the largest.
pub fn largest(shapes: &[TreeShape]) -> TreeShape {
    let most = |of: fn(&TreeShape) -> usize| shapes.iter().map(of).max().unwrap_or_default();
    let (num_steps, topk) = (most(|shape| shape.num_steps), most(|shape| shape.topk));
    TreeShape::whole_tree(num_steps, topk, most(|shape| shape.num_draft_tokens))
}

/// Grows a tree from each set of first proposals. `prune` may drop beams of a tree before they run.
/// `run` receives the number of the step, starting at 1, and its rows, tree by tree; it returns the
/// proposals of each row, best first.
///
/// # Errors
/// The errors of `run`.
pub fn grow<E>(
    shape: TreeShape,
    first: &[Vec<(u32, f32)>],
    mut prune: impl FnMut(usize, &mut Expansion),
    mut run: impl FnMut(usize, &[BeamRow<'_>]) -> Result<Vec<Vec<(u32, f32)>>, E>,
) -> Result<Vec<Expansion>, E> {
    let mut trees: Vec<Expansion> = first.iter().map(|first| Expansion::new(shape, first)).collect();
    // The first row of each tree in the previous pass.
    let mut begins: Vec<usize> = (0..trees.len()).collect();
    for step in 1..shape.num_steps {
        trees.iter_mut().enumerate().for_each(|(at, tree)| prune(at, tree));
        let mut rows = Vec::new();
        for ((at, tree), begin) in trees.iter().enumerate().zip(&mut begins) {
            let source = *begin;
            *begin = rows.len();
            rows.extend(tree.beams().iter().map(|beam| BeamRow { tree: at, beam, source: source + beam.source }));
        }
        if rows.is_empty() {
            break;
        }
        let mut proposals = run(step, &rows)?.into_iter();
        for tree in &mut trees {
            let own: Vec<_> = proposals.by_ref().take(tree.beams().len()).collect();
            tree.expand(&own);
        }
    }
    Ok(trees)
}
