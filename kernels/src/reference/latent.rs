//! Latent attention, absorbed (arXiv 2405.04434): all heads read one latent vector per token, as
//! key and as value. `q · (W_UK c)` is `(W_UKᵀ q) · c`, and `Σ p (W_UV c)` is `W_UV Σ p c`: keys
//! and values of heads are never materialised. All CPU passes use this one form, as do those of a
//! GPU in batch-invariant mode, so that prompts, decoding and trees have the same bits.

use super::{
    Matrix, Visible,
    attention::{Planes, attend},
    linear,
};

/// The cache of one layer: for each position the normed latent vector, followed by the rotated key
/// that all heads share.
#[derive(Clone, Debug)]
pub struct Latents {
    /// `[rows, rank + rotated]`.
    pub rows: Vec<f32>,
    /// Size of the latent vector.
    pub rank: usize,
    /// Size of the rotated key.
    pub rotated: usize,
}

impl Latents {
    /// An empty cache.
    pub fn new(rows: usize, rank: usize, rotated: usize) -> Self {
        Self { rows: vec![0.0; rows * (rank + rotated)], rank, rotated }
    }

    /// Values per row.
    pub fn width(&self) -> usize {
        self.rank + self.rotated
    }

    /// Makes room for at least `rows` rows; existing rows stay.
    pub fn grow(&mut self, rows: usize) {
        let size = rows * self.width();
        if size > self.rows.len() {
            self.rows.resize(size, 0.0);
        }
    }

    /// Writes zeros to all rows, so that the system commits the memory.
    pub fn clear(&mut self) {
        self.rows.fill(0.0);
    }

    /// Writes rows: `latents` is `[rows.len(), rank]`, `keys` is `[rows.len(), rotated]`.
    pub fn write(&mut self, rows: &[u32], latents: &[f32], keys: &[f32]) {
        let (width, rank) = (self.width(), self.rank);
        let parts = latents.chunks_exact(rank).zip(keys.chunks_exact(self.rotated));
        for (row, (latent, key)) in rows.iter().zip(parts) {
            let row = &mut self.rows[*row as usize * width..(*row as usize + 1) * width];
            row[..rank].copy_from_slice(latent);
            row[rank..].copy_from_slice(key);
        }
    }

    /// Moves rows: `from[i]` to `to[i]`, in ascending order; no source may precede its destination
    /// in the same list.
    pub fn compact(&mut self, from: &[u32], to: &[u32]) {
        let width = self.width();
        for (from, to) in from.iter().zip(to).filter(|(from, to)| from != to) {
            let (from, to) = (*from as usize * width, *to as usize * width);
            self.rows.copy_within(from..from + width, to);
        }
    }
}

/// Softmax attention of all heads over the latent rows. `queries` is
/// `[visible.len(), heads, rank + rotated]`: the absorbed part of each head, followed by its
/// rotated part. The result is `[visible.len(), heads, rank]`: the weighted means of latent
/// vectors. `scale` is the factor on the scores.
pub fn latent_attention(
    queries: &[f32],
    heads: usize,
    visible: &[Visible<'_>],
    cache: &Latents,
    scale: f32,
) -> Vec<f32> {
    let (rows, width) = (&cache.rows, cache.width());
    // One plane for both: the key is the whole row, the value its latent vector.
    let (key_dim, value_dim) = (width, cache.rank);
    let planes = Planes { keys: rows, values: rows, width, key_dim, value_dim, group: heads, scale, sinks: None };
    attend(queries, heads, visible, planes)
}

/// One product per head: `x` is `[rows, heads, inputs]`, with one matrix per head, all of the same
/// shape; the result is `[rows, heads, outputs]`.
pub fn per_head(x: &[f32], heads: &[Matrix]) -> Vec<f32> {
    let Some(first) = heads.first() else { return Vec::new() };
    let (inputs, outputs, count) = (first.inputs(), first.outputs(), heads.len());
    assert_eq!(x.len() % (count * inputs), 0, "rows of {count} heads of {inputs} values");
    let rows = x.len() / (count * inputs);
    let mut y = vec![0.0; rows * count * outputs];
    for (head, weight) in heads.iter().enumerate() {
        let of_head: Vec<f32> = x.chunks_exact(inputs).skip(head).step_by(count).flatten().copied().collect();
        let product = linear(&of_head, weight, None);
        let places = y.chunks_exact_mut(outputs).skip(head).step_by(count);
        places.zip(product.chunks_exact(outputs)).for_each(|(place, product)| place.copy_from_slice(product));
    }
    y
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: usize, seed: u32) -> Vec<f32> {
        (0..count as u32).map(|at| ((at.wrapping_mul(2_654_435_761) ^ seed) >> 8) as f32 / 8_388_608.0 - 1.0).collect()
    }

    /// Keys and values of heads as defined, without absorption, in f64.
    #[test]
    fn absorbed_attention_is_attention_over_projected_keys_and_values() {
        let (heads, nope, rotated, rank, value) = (3, 5, 4, 7, 6);
        let scale = 0.37;
        let mut cache = Latents::new(9, rank, rotated);
        cache.rows = numbers(9 * (rank + rotated), 1);
        let keys: Vec<Matrix> = (0..heads).map(|at| Matrix::new(nope, rank, numbers(nope * rank, 10 + at))).collect();
        let absorb: Vec<Matrix> = keys
            .iter()
            .map(|key| Matrix::new(rank, nope, (0..rank).flat_map(|r| (0..nope).map(move |n| key.row(n)[r])).collect()))
            .collect();
        let values: Vec<Matrix> =
            (0..heads).map(|at| Matrix::new(value, rank, numbers(value * rank, 20 + at))).collect();
        let (plain, turned) = (numbers(2 * 3 * nope, 3), numbers(2 * 3 * rotated, 4));
        let absorbed = per_head(&plain, &absorb);
        let queries: Vec<f32> =
            absorbed.chunks(rank).zip(turned.chunks(rotated)).flat_map(|(a, b)| a.iter().chain(b)).copied().collect();
        let visible = [Visible { prefix: &[4, 2, 8], own: &[0] }, Visible { prefix: &[4, 2], own: &[1, 7, 3] }];
        let found = per_head(&latent_attention(&queries, 3, &visible, &cache, scale), &values);

        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
        for (row, visible) in visible.iter().enumerate() {
            for head in 0..3 {
                let query = (row * 3 + head) * nope;
                let turned = &turned[(row * 3 + head) * rotated..][..rotated];
                let (mut sum, mut mixed) = (0.0, vec![0.0; value]);
                for position in visible.prefix.iter().chain(visible.own) {
                    let (latent, key) = cache.rows[*position as usize * 11..][..11].split_at(rank);
                    let projected: f64 =
                        (0..nope).map(|n| f64::from(plain[query + n]) * dot(keys[head].row(n), latent)).sum();
                    let weight = (f64::from(scale) * (projected + dot(turned, key))).exp();
                    sum += weight;
                    (0..value).for_each(|v| mixed[v] += weight * dot(values[head].row(v), latent));
                }
                for (v, mixed) in mixed.iter().enumerate() {
                    let found = f64::from(found[(row * 3 + head) * value + v]);
                    assert!((found - mixed / sum).abs() < 1e-5, "{found} {}", mixed / sum);
                }
            }
        }
    }

    #[test]
    fn a_row_has_the_bits_of_the_same_row_alone() {
        let mut cache = Latents::new(60, 32, 8);
        cache.rows = numbers(60 * 40, 1);
        let queries = numbers(20 * 4 * 40, 2);
        let prefix: Vec<u32> = (0..50).collect();
        let visible: Vec<Visible<'_>> = (0..20).map(|_| Visible { prefix: &prefix, own: &[50, 51] }).collect();
        let together = latent_attention(&queries, 4, &visible, &cache, 0.1);
        let long: Vec<u32> = (0..52).collect();
        let alone = latent_attention(&queries[160..320], 4, &[Visible { prefix: &long, own: &[] }], &cache, 0.1);
        assert_eq!(together[128..256], alone);
    }

    #[test]
    fn rows_are_written_and_moved_whole() {
        let mut cache = Latents::new(2, 2, 2);
        cache.grow(4);
        cache.write(&[3, 1], &[1.0, 2.0, 5.0, 6.0], &[3.0, 4.0, 7.0, 8.0]);
        assert_eq!(cache.rows[12..], [1.0, 2.0, 3.0, 4.0]);
        cache.compact(&[1, 3], &[0, 1]);
        assert_eq!(cache.rows[..8], [5.0, 6.0, 7.0, 8.0, 1.0, 2.0, 3.0, 4.0]);
    }
}
