//! The gated delta rule (arXiv 2412.06464) over rows of a sequence or of a tree: the recurrence in
//! float32, with one read and one write of the state, and rows in path order. A row of a tree has
//! the bits that it would have in a sequence.
//!
//! Each value head keeps a matrix S, `[key_dim, value_dim]`. A row with key k, value v and query q
//! changes it, then reads it: `S ← decay · S`, `d = β · (v − Sᵀk)`, `S ← S + k dᵀ`, `o = Sᵀq`.

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::{activation::sigmoid, dot::dot, exp::exp};

/// Added to the sum of squares of a query or key before the square root.
const EPSILON: f32 = 1e-6;

/// Sizes of a gated delta net.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaSizes {
    /// Heads of queries and keys; divides `value_heads`: neighbouring value heads share one.
    pub key_heads: usize,
    /// Heads of values, each with a state of its own.
    pub value_heads: usize,
    /// Dimensions of a query or key head.
    pub key_dim: usize,
    /// Dimensions of a value head.
    pub value_dim: usize,
    /// Rows that the convolution reads, including the row itself.
    pub taps: usize,
}

/// What the recurrence reads of some rows.
#[derive(Clone, Debug, Default)]
pub struct DeltaRows {
    /// Normed and scaled, `[rows, key_heads, key_dim]`.
    pub queries: Vec<f32>,
    /// Normed, `[rows, key_heads, key_dim]`.
    pub keys: Vec<f32>,
    /// `[rows, value_heads, value_dim]`.
    pub values: Vec<f32>,
    /// Factors of the state, `[rows, value_heads]`.
    pub decays: Vec<f32>,
    /// Shares of the correction that are written, β, `[rows, value_heads]`.
    pub betas: Vec<f32>,
}

impl DeltaSizes {
    /// Columns of the convolution: queries, keys and values.
    pub fn channels(&self) -> usize {
        2 * self.key_width() + self.value_width()
    }

    /// Width of all queries, and of all keys.
    pub fn key_width(&self) -> usize {
        self.key_heads * self.key_dim
    }

    /// Width of all values.
    pub fn value_width(&self) -> usize {
        self.value_heads * self.value_dim
    }

    /// Values of a head's state.
    pub fn head_state(&self) -> usize {
        self.key_dim * self.value_dim
    }

    /// Values of a sequence's state: one matrix per value head.
    pub fn state(&self) -> usize {
        self.value_heads * self.head_state()
    }

    /// Values of the rows that the convolution still needs of a sequence.
    pub fn history(&self) -> usize {
        (self.taps - 1) * self.channels()
    }
}

/// The causal depthwise convolution of `mixed`, `[rows, channels]` with queries first, then keys,
/// then values; followed by SiLU. `parents` holds for each row the row before it, which comes
/// earlier in the list, or `None` if that is the last row of `history`, the sequence's rows before
/// these, `[taps − 1, channels]`, oldest first. `weight` is `[channels, taps]`, the oldest tap
/// first.
///
/// # Panics
/// When lengths do not fit.
pub fn delta_convolution(
    sizes: &DeltaSizes,
    mixed: &[f32],
    parents: &[Option<usize>],
    history: &[f32],
    weight: &[f32],
) -> Vec<f32> {
    let (channels, taps) = (sizes.channels(), sizes.taps);
    assert_eq!((mixed.len(), history.len()), (parents.len() * channels, sizes.history()), "rows of the convolution");
    let mut y = vec![0.0; mixed.len()];
    for (row, y) in y.chunks_exact_mut(channels).enumerate() {
        // Taps are stored oldest first.
        let read = ancestry(row, parents, taps).into_iter().rev();
        let read: Vec<&[f32]> = read
            .map(|place| match place {
                TapSource::Row(row) => &mixed[row * channels..(row + 1) * channels],
                TapSource::Before(back) => &history[(taps - 1 - back) * channels..][..channels],
            })
            .collect();
        Arch::new().dispatch(Convolution { read: &read, weight, y });
    }
    y
}

/// The history after a path of rows: their last rows, preceded by those of the old history if the
/// path is shorter.
///
/// # Panics
/// When lengths do not fit.
pub fn delta_history(sizes: &DeltaSizes, mixed: &[f32], path: &[usize], history: &mut [f32]) {
    let channels = sizes.channels();
    let rows = path.iter().map(|row| &mixed[row * channels..(row + 1) * channels]);
    // Earlier rows would be shifted out again.
    for row in rows.skip(path.len().saturating_sub(sizes.taps - 1)) {
        history.copy_within(channels.., 0);
        history[(sizes.taps - 2) * channels..].copy_from_slice(row);
    }
}

/// What the recurrence reads of rows after the convolution. `a` and `b` are the projections of the
/// decay and of β, `[rows, value_heads]`; `rates` are the logarithms of the decay's rates and
/// `offsets` are added to `a`.
///
/// # Panics
/// When lengths do not fit.
pub fn delta_rows(
    sizes: &DeltaSizes,
    convolved: &[f32],
    (a, b): (&[f32], &[f32]),
    (rates, offsets): (&[f32], &[f32]),
) -> DeltaRows {
    let (width, heads) = (sizes.key_width(), sizes.value_heads);
    let mut rows = DeltaRows::default();
    for row in convolved.chunks_exact(sizes.channels()) {
        rows.queries.extend_from_slice(&row[..width]);
        rows.keys.extend_from_slice(&row[width..2 * width]);
        rows.values.extend_from_slice(&row[2 * width..]);
    }
    // Queries carry the scale of the scores, as keys of length one do not.
    normalise(&mut rows.queries, sizes.key_dim, 1.0 / (sizes.key_dim as f32).sqrt());
    normalise(&mut rows.keys, sizes.key_dim, 1.0);
    assert_eq!((rates.len(), offsets.len()), (heads, heads), "one rate and one offset per value head");
    assert_eq!((a.len(), b.len()), (convolved.len() / sizes.channels() * heads, a.len()), "gates of each row");
    let gates = a.chunks_exact(heads).flat_map(|a| a.iter().zip(rates).zip(offsets));
    rows.decays = gates.map(|((a, rate), offset)| exp(-exp(*rate) * softplus(a + offset))).collect();
    rows.betas = b.iter().copied().map(sigmoid).collect();
    rows
}

/// Runs rows of one sequence from its state, `[value_heads, key_dim, value_dim]`. `parents` is as
/// in [`delta_convolution`]. The result is `[rows, value_heads, value_dim]`. With `keeps` the rows
/// must be a chain, and the state becomes that after the last one; otherwise it stays.
///
/// A tree needs no state per node: the paths of each head are walked depth first, with a copy of
/// the head's state only where they branch.
pub fn delta_rule(
    sizes: &DeltaSizes,
    rows: &DeltaRows,
    parents: &[Option<usize>],
    state: &mut [f32],
    keeps: bool,
) -> Vec<f32> {
    let (count, heads, width) = (parents.len(), sizes.value_heads, sizes.value_dim);
    let tree = RowTree::from_parents(parents);
    let of_heads: Vec<Vec<f32>> = state
        .par_chunks_exact_mut(sizes.head_state())
        .enumerate()
        .map(|(head, state)| {
            let mut out = vec![0.0; count * width];
            let run = HeadRun { sizes, rows, head };
            if keeps {
                (0..count).for_each(|row| run.step(row, state, Some(&mut out[row * width..(row + 1) * width])));
            } else {
                // In a copy: the sequence's state changes only when a path is committed.
                run.walk(&tree, &tree.roots, &mut state.to_vec(), &mut out);
            }
            out
        })
        .collect();
    // Heads run in parallel and return their rows apart, while the result has all heads of a row
    // together.
    let mut out = vec![0.0; count * heads * width];
    for (row, out) in out.chunks_exact_mut(heads * width).enumerate() {
        for (out, of_head) in out.chunks_exact_mut(width).zip(&of_heads) {
            out.copy_from_slice(&of_head[row * width..(row + 1) * width]);
        }
    }
    out
}

/// Commits a path of rows: the state becomes that after its last one, with the bits that
/// [`delta_rule`] had there.
pub fn delta_commit(sizes: &DeltaSizes, rows: &DeltaRows, path: &[usize], state: &mut [f32]) {
    state.par_chunks_exact_mut(sizes.head_state()).enumerate().for_each(|(head, state)| {
        let run = HeadRun { sizes, rows, head };
        path.iter().for_each(|row| run.step(*row, state, None));
    });
}

/// The children of each row, and the rows after the committed state.
struct RowTree {
    roots: Vec<usize>,
    children: Vec<Vec<usize>>,
}

/// One value head's part of the rows.
struct HeadRun<'a> {
    sizes: &'a DeltaSizes,
    rows: &'a DeltaRows,
    head: usize,
}

struct StateStep<'a> {
    state: &'a mut [f32],
    key: &'a [f32],
    value: &'a [f32],
    /// With the place of the output; a commit needs none.
    query: Option<(&'a [f32], &'a mut [f32])>,
    decay: f32,
    beta: f32,
}

/// The convolution of one row.
struct Convolution<'a> {
    /// The rows that it reads, the oldest first.
    read: &'a [&'a [f32]],
    weight: &'a [f32],
    /// Zeros.
    y: &'a mut [f32],
}

struct Normalise<'a> {
    rows: &'a mut [f32],
    width: usize,
    scale: f32,
}

/// The place of a row that the convolution reads.
enum TapSource {
    Row(usize),
    /// The number of rows before the first row after the history.
    Before(usize),
}

impl RowTree {
    fn from_parents(parents: &[Option<usize>]) -> Self {
        let mut tree = Self { roots: Vec::new(), children: vec![Vec::new(); parents.len()] };
        for (row, parent) in parents.iter().enumerate() {
            assert!(parent.is_none_or(|parent| parent < row), "a row comes after the row before it");
            match parent {
                Some(parent) => tree.children[*parent].push(row),
                None => tree.roots.push(row),
            }
        }
        tree
    }
}

impl HeadRun<'_> {
    /// Runs rows that follow the same state, and all rows after them. The last branch continues in
    /// place.
    fn walk(&self, tree: &RowTree, rows: &[usize], state: &mut [f32], out: &mut [f32]) {
        let mut rows = rows;
        while let Some((last, others)) = rows.split_last() {
            for row in others {
                let mut branch = state.to_vec();
                self.step_out(*row, &mut branch, out);
                self.walk(tree, &tree.children[*row], &mut branch, out);
            }
            self.step_out(*last, state, out);
            rows = &tree.children[*last];
        }
    }

    fn step_out(&self, row: usize, state: &mut [f32], out: &mut [f32]) {
        let width = self.sizes.value_dim;
        self.step(row, state, Some(&mut out[row * width..(row + 1) * width]));
    }

    fn step(&self, row: usize, state: &mut [f32], out: Option<&mut [f32]>) {
        let DeltaSizes { key_heads, value_heads, key_dim, value_dim, .. } = *self.sizes;
        let key_head = self.head / (value_heads / key_heads);
        let key_at = (row * key_heads + key_head) * key_dim;
        let at = row * value_heads + self.head;
        let keys = key_at..key_at + key_dim;
        Arch::new().dispatch(StateStep {
            state,
            key: &self.rows.keys[keys.clone()],
            value: &self.rows.values[at * value_dim..(at + 1) * value_dim],
            query: out.map(|out| (&self.rows.queries[keys], out)),
            decay: self.rows.decays[at],
            beta: self.rows.betas[at],
        });
    }
}

impl WithSimd for StateStep<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let Self { state, key, value, query, decay, beta } = self;
        let width = value.len();
        let mut correction = vec![0.0_f32; width];
        for (row, key) in state.chunks_exact_mut(width).zip(key) {
            for (state, seen) in row.iter_mut().zip(&mut correction) {
                *state *= decay;
                *seen = key.mul_add(*state, *seen);
            }
        }
        for (correction, value) in correction.iter_mut().zip(value) {
            *correction = beta * (value - *correction);
        }
        for (row, key) in state.chunks_exact_mut(width).zip(key) {
            for (state, correction) in row.iter_mut().zip(&correction) {
                *state = key.mul_add(*correction, *state);
            }
        }
        let Some((query, out)) = query else { return };
        out.fill(0.0);
        for (row, query) in state.chunks_exact(width).zip(query) {
            for (out, state) in out.iter_mut().zip(row) {
                *out = query.mul_add(*state, *out);
            }
        }
    }
}

impl WithSimd for Convolution<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let taps = self.read.len();
        // Tap by tap, so that channels lie side by side; a channel's sum has the order of its taps
        // all the same.
        for (tap, read) in self.read.iter().enumerate() {
            let weights = self.weight[tap..].iter().step_by(taps);
            self.y.iter_mut().zip(*read).zip(weights).for_each(|((y, x), weight)| *y = weight.mul_add(*x, *y));
        }
        self.y.iter_mut().for_each(|y| *y = silu(*y));
    }
}

impl WithSimd for Normalise<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        for row in self.rows.chunks_exact_mut(self.width) {
            let scale = self.scale / (dot(simd, row, row) + EPSILON).sqrt();
            row.iter_mut().for_each(|x| *x *= scale);
        }
    }
}

/// Divides each row of `width` values by its length, and scales it.
fn normalise(rows: &mut [f32], width: usize, scale: f32) {
    Arch::new().dispatch(Normalise { rows, width, scale });
}

/// The row itself and the rows before it, newest first: as many as the convolution reads.
fn ancestry(row: usize, parents: &[Option<usize>], taps: usize) -> Vec<TapSource> {
    let mut places = Vec::with_capacity(taps);
    let mut at = Some(row);
    let mut back = 0;
    while places.len() < taps {
        match at {
            Some(row) => {
                places.push(TapSource::Row(row));
                at = parents[row];
            }
            None => {
                back += 1;
                places.push(TapSource::Before(back));
            }
        }
    }
    places
}

#[inline(always)]
fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// `ln(1 + e^x)`; above 20 that is x.
fn softplus(x: f32) -> f32 {
    // The threshold of PyTorch's softplus.
    if x > 20.0 { x } else { f64::from(exp(x)).ln_1p() as f32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: DeltaSizes = DeltaSizes { key_heads: 2, value_heads: 6, key_dim: 12, value_dim: 20, taps: 4 };

    fn numbers(count: usize, seed: u32) -> Vec<f32> {
        (0..count as u32).map(|at| ((at.wrapping_mul(2_654_435_761) ^ seed) >> 8) as f32 / 8_388_608.0 - 1.0).collect()
    }

    /// The state before, and rows of the recurrence.
    fn rows(mixed: &[f32], parents: &[Option<usize>], history: &[f32]) -> DeltaRows {
        let heads = SIZES.value_heads;
        let convolved = delta_convolution(&SIZES, mixed, parents, history, &numbers(SIZES.channels() * SIZES.taps, 3));
        let gates = (numbers(parents.len() * heads, 4), numbers(parents.len() * heads, 5));
        delta_rows(&SIZES, &convolved, (&gates.0, &gates.1), (&numbers(heads, 6), &numbers(heads, 7)))
    }

    fn chain(count: usize) -> Vec<Option<usize>> {
        (0..count).map(|row| row.checked_sub(1)).collect()
    }

    /// The definition in f64, for one head.
    fn expected(rows: &DeltaRows, head: usize, mut state: Vec<f64>) -> Vec<f64> {
        let DeltaSizes { key_heads, value_heads, key_dim, value_dim, .. } = SIZES;
        let key_head = head / (value_heads / key_heads);
        let mut out = Vec::new();
        for row in 0..rows.decays.len() / value_heads {
            let wide = |x: &[f32]| x.iter().copied().map(f64::from).collect::<Vec<_>>();
            let key = wide(&rows.keys[(row * key_heads + key_head) * key_dim..][..key_dim]);
            let query = wide(&rows.queries[(row * key_heads + key_head) * key_dim..][..key_dim]);
            let at = row * value_heads + head;
            let value = wide(&rows.values[at * value_dim..][..value_dim]);
            state.iter_mut().for_each(|state| *state *= f64::from(rows.decays[at]));
            for column in 0..value_dim {
                let seen: f64 = (0..key_dim).map(|i| state[i * value_dim + column] * key[i]).sum();
                let delta = f64::from(rows.betas[at]) * (value[column] - seen);
                (0..key_dim).for_each(|i| state[i * value_dim + column] += key[i] * delta);
                out.push((0..key_dim).map(|i| state[i * value_dim + column] * query[i]).sum());
            }
        }
        out
    }

    #[test]
    fn a_sequence_follows_the_definition() {
        let (count, channels) = (9, SIZES.channels());
        let rows = rows(&numbers(count * channels, 1), &chain(count), &numbers(SIZES.history(), 2));
        let mut state = numbers(SIZES.state(), 8);
        let before = state.clone();
        let found = delta_rule(&SIZES, &rows, &chain(count), &mut state, true);
        let width = SIZES.value_dim;
        for head in 0..SIZES.value_heads {
            let own = before[head * SIZES.head_state()..][..SIZES.head_state()].iter().copied().map(f64::from);
            let expected = expected(&rows, head, own.collect());
            for (at, expected) in expected.iter().enumerate() {
                let found = found[(at / width * SIZES.value_heads + head) * width + at % width];
                assert!((f64::from(found) - expected).abs() < 1e-5, "head {head}, {at}: {found} {expected}");
            }
        }
    }

    #[test]
    fn a_path_of_a_tree_has_the_bits_of_a_sequence_and_is_committed_with_them() {
        // A node, its children 1 and 2, theirs 3, 4 and 5, and 6 after 4.
        let parents = [None, Some(0), Some(0), Some(1), Some(1), Some(2), Some(4)];
        let channels = SIZES.channels();
        let (mixed, history) = (numbers(parents.len() * channels, 1), numbers(SIZES.history(), 2));
        let heads = SIZES.value_heads;
        let of_tree = rows(&mixed, &parents, &history);
        let before = numbers(SIZES.state(), 8);
        let mut state = before.clone();
        let found = delta_rule(&SIZES, &of_tree, &parents, &mut state, false);
        assert_eq!(state, before, "a tree leaves the state as it is");
        for path in [&[0, 1, 4, 6][..], &[0, 2, 5], &[0, 1, 3], &[0]] {
            let pick = |values: &[f32], width: usize| -> Vec<f32> {
                path.iter().flat_map(|row| values[row * width..(row + 1) * width].to_vec()).collect()
            };
            let along = pick(&mixed, channels);
            let convolved =
                delta_convolution(&SIZES, &along, &chain(path.len()), &history, &numbers(channels * SIZES.taps, 3));
            let alone = DeltaRows {
                decays: pick(&of_tree.decays, heads),
                betas: pick(&of_tree.betas, heads),
                ..delta_rows(
                    &SIZES,
                    &convolved,
                    (&vec![0.0; path.len() * heads], &vec![0.0; path.len() * heads]),
                    (&vec![0.0; heads], &vec![0.0; heads]),
                )
            };
            let mut state = before.clone();
            let out = delta_rule(&SIZES, &alone, &chain(path.len()), &mut state, true);
            assert_eq!(out, pick(&found, SIZES.value_width()), "{path:?}");
            let mut committed = before.clone();
            delta_commit(&SIZES, &of_tree, path, &mut committed);
            assert!(committed == state, "{path:?}");
        }
    }

    #[test]
    fn the_history_is_the_last_rows_of_a_path() {
        let channels = SIZES.channels();
        let (mixed, old) = (numbers(6 * channels, 1), numbers(SIZES.history(), 2));
        let row = |at: usize| mixed[at * channels..(at + 1) * channels].to_vec();
        let after = |path: &[usize]| {
            let mut history = old.clone();
            delta_history(&SIZES, &mixed, path, &mut history);
            history
        };
        assert_eq!(after(&[]), old);
        assert_eq!(after(&[4]), [&old[channels..], &row(4)].concat());
        assert_eq!(after(&[0, 2, 3, 5]), [row(2), row(3), row(5)].concat());
    }
}
