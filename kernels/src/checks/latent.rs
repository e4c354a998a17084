//! Latent attention: cache rows, per-head products, and attention over the latent plane.

use super::{Numbers, compare, elementwise::InParts, text, tolerance, values};
use crate::{
    device::{Buffer, Device, Element},
    launch::{
        Kernels, LatentAttention, LatentDims, LatentQueries, LatentRows, LatentValues, RotaryRows, Rows, VisibleRows,
    },
    reference::{Latents, Matrix, Pairing, Rope, RopeScaling, Visible, latent_attention, per_head, rms_norm},
};

/// DeepSeek-V3's sizes, except the number of heads.
const PUBLISHED: LatentDims = LatentDims { heads: 2, nope: 128, rotated: 64, rank: 512, value: 128, interleaved: true };
/// Small sizes, for checks with many cases.
const SMALL: LatentDims = LatentDims { heads: 3, nope: 32, rotated: 16, rank: 64, value: 48, interleaved: false };
const POSITIONS: usize = 90;
const EPSILON: f32 = 1e-6;

pub(super) fn rope(dims: &LatentDims) -> Rope {
    let pairing = if dims.interleaved { Pairing::Interleaved } else { Pairing::Halves };
    Rope::partial(dims.rotated, dims.rotated, pairing, 10_000.0, RopeScaling::None)
}

pub(super) fn upload(device: &Device, values: &[f32], element: Element) -> Result<Buffer, String> {
    device.upload(&element.encode(values)).map_err(text)
}

/// One matrix per head, whose products are about as large as their inputs.
pub(super) fn matrices(
    numbers: &mut Numbers,
    element: Element,
    heads: usize,
    [outputs, inputs]: [usize; 2],
) -> Vec<Matrix> {
    let scale = 1.0 / (inputs as f32).sqrt();
    let values = |numbers: &mut Numbers| -> Vec<f32> {
        let values: Vec<f32> = (0..outputs * inputs).map(|_| numbers.float() * scale).collect();
        element.decode(&element.encode(&values))
    };
    (0..heads).map(|_| Matrix::new(outputs, inputs, values(numbers))).collect()
}

/// The values of all matrices.
pub(super) fn data(matrices: &[Matrix]) -> Vec<f32> {
    matrices.iter().flat_map(Matrix::data).copied().collect()
}

fn same_bits(some: &[f32], others: &[f32]) -> bool {
    some.len() == others.len() && some.iter().zip(others).all(|(a, b)| a.to_bits() == b.to_bits())
}

/// Compressed queries and copied ones; whole rows and parts; both pairings; rows that write
/// nothing.
pub fn check_latent_write(device: &Device, element: Element) -> Result<(), String> {
    let kernels = Kernels::new(device.clone(), element);
    let mut numbers = Numbers::new(31);
    let round = |values: &[f32]| element.decode(&element.encode(values));
    for (dims, first, normed, in_parts) in [
        // Compressed queries of the published rank, then those of 2 heads that are not compressed.
        (PUBLISHED, 1536, true, false),
        (PUBLISHED, 2 * 192, false, true),
        (SMALL, 40, true, true),
        (SMALL, 144, false, false),
    ] {
        let (rows, width) = (4, first + dims.width());
        let x = numbers.floats(rows * width, element);
        let (query_norm, norm) = (numbers.floats(first, element), numbers.floats(dims.rank, element));
        let (position, write) = ([3, 89, 0, 41], [5, 0, -1, 2]);
        let mut expected = Latents::new(6, dims.rank, dims.rotated);
        let mut queries = Vec::new();
        for (row, x) in x.chunks_exact(width).enumerate() {
            let (query, rest) = x.split_at(first);
            let (latent, key) = rest.split_at(dims.rank);
            queries.extend(if normed { rms_norm(query, &query_norm, EPSILON) } else { query.to_vec() });
            let mut key = key.to_vec();
            rope(&dims).apply(&mut key, &[position[row] as usize]);
            if let Ok(to) = u32::try_from(write[row]) {
                expected.write(&[to], &rms_norm(latent, &norm, EPSILON), &key);
            }
        }
        let stride = width + 8;
        // Values between the rows show a wrong stride.
        let spaced: Vec<f32> = x.chunks_exact(width).flat_map(|row| row.iter().copied().chain([9.0; 8])).collect();
        let parts = in_parts.then(|| InParts::upload(device, &x)).transpose()?;
        let (x, out) = (upload(device, &spaced, element)?, device.zeros(rows * first * element.bytes()).map_err(text)?);
        let (query_norm, norm) = (upload(device, &query_norm, element)?, upload(device, &norm, element)?);
        let cache = device.zeros(6 * dims.width() * element.bytes()).map_err(text)?;
        let table = device.upload(&rope(&dims).table(POSITIONS)).map_err(text)?;
        let (position, write) = (device.upload(&position).map_err(text)?, device.upload(&write).map_err(text)?);
        let operands = LatentRows {
            x: Rows { at: x.slice(), stride },
            parts: parts.as_ref().map(InParts::parts),
            first,
            query_norm: normed.then(|| query_norm.slice()),
            queries: out.slice(),
            norm: norm.slice(),
            epsilon: EPSILON,
            cache: cache.slice(),
            write: write.slice(),
            rotary: RotaryRows { table: table.slice(), positions: POSITIONS, position: position.slice() },
            rows,
            dims,
        };
        kernels.write_latents(operands).map_err(text)?;
        let what = format!("latent_write of {first} + {} + {}", dims.rank, dims.rotated);
        compare(&what, &values(device, out.slice(), element)?, &round(&queries), tolerance(element))?;
        let found = values(device, cache.slice(), element)?;
        compare(&format!("{what}, the cache"), &found, &round(&expected.rows), tolerance(element))?;
    }
    Ok(())
}

/// Few, some and many rows, each with the same bits as alone.
pub fn check_latent_heads(device: &Device, element: Element) -> Result<(), String> {
    let kernels = Kernels::new(device.clone(), element);
    let mut numbers = Numbers::new(32);
    for (dims, most) in [(PUBLISHED, 3), (SMALL, 70), (LatentDims { heads: 1, rank: 128, value: 16, ..SMALL }, 17)] {
        let LatentDims { heads, nope, rotated, rank, value, .. } = dims;
        let absorb = matrices(&mut numbers, element, heads, [rank, nope]);
        let expand = matrices(&mut numbers, element, heads, [value, rank]);
        let (on_absorb, on_expand) =
            (upload(device, &data(&absorb), element)?, upload(device, &data(&expand), element)?);
        let (x, means) =
            (numbers.floats(most * dims.query_width(), element), numbers.floats(most * heads * rank, element));
        let at: Vec<usize> = (0..most).map(|_| numbers.below(POSITIONS)).collect();
        let table = device.upload(&rope(&dims).table(POSITIONS)).map_err(text)?;
        let run = |first: usize, rows: usize| -> Result<(Vec<f32>, Vec<f32>), String> {
            let x = upload(device, &x[first * dims.query_width()..][..rows * dims.query_width()], element)?;
            let means = upload(device, &means[first * heads * rank..][..rows * heads * rank], element)?;
            let position: Vec<i32> = at[first..][..rows].iter().map(|at| *at as i32).collect();
            let position = device.upload(&position).map_err(text)?;
            let space = |width: usize| device.allocate(rows * heads * width * element.bytes()).map_err(text);
            let (queries, out) = (space(dims.width())?, space(value)?);
            let operands = LatentQueries {
                out: queries.slice(),
                x: x.slice(),
                absorb: on_absorb.slice(),
                rotary: RotaryRows { table: table.slice(), positions: POSITIONS, position: position.slice() },
                rows,
                dims,
            };
            kernels.latent_queries(operands).map_err(text)?;
            let operands = LatentValues { out: out.slice(), x: means.slice(), expand: on_expand.slice(), rows, dims };
            kernels.latent_values(operands).map_err(text)?;
            Ok((values(device, queries.slice(), element)?, values(device, out.slice(), element)?))
        };
        let heads_of = || x.chunks_exact(nope + rotated);
        let plain: Vec<f32> = heads_of().flat_map(|head| &head[..nope]).copied().collect();
        let mut turned: Vec<f32> = heads_of().flat_map(|head| &head[nope..]).copied().collect();
        rope(&dims).apply(&mut turned, &at);
        let absorbed = per_head(&plain, &absorb);
        let parts = absorbed.chunks_exact(rank).zip(turned.chunks_exact(rotated));
        let queries: Vec<f32> = parts.flat_map(|(absorbed, turned)| absorbed.iter().chain(turned)).copied().collect();
        let together = run(0, most)?;
        let what = format!("heads of latent attention of rank {rank}");
        compare(&format!("{what}, queries"), &together.0, &queries, tolerance(element))?;
        compare(&format!("{what}, values"), &together.1, &per_head(&means, &expand), tolerance(element))?;
        for row in [0, most / 2, most - 1] {
            let alone = run(row, 1)?;
            let (wide, narrow) = (heads * dims.width(), heads * value);
            if !same_bits(&alone.0, &together.0[row * wide..][..wide])
                || !same_bits(&alone.1, &together.1[row * narrow..][..narrow])
            {
                return Err(format!("{what}, row {row}: bits depend on the batch"));
            }
        }
    }
    Ok(())
}

/// Rows with positions through shuffled pages, with own rows, with neither; one split, several, and
/// as many as suit the device; that a row has the same bits alone, and whether it sees positions or
/// own rows.
pub fn check_latent_attention(device: &Device, element: Element) -> Result<(), String> {
    let rows =
        [(0, 1, 0), (1, 399, 0), (2, 0, 3), (0, 130, 9), (1, 64, 1), (2, 0, 0), (2, 257, 4), (1, 390, 9), (0, 127, 1)];
    let few = [(1, 133, 3), (2, 0, 0), (0, 70, 0)];
    for (dims, rows) in [
        (LatentDims { heads: 4, ..SMALL }, &rows[..]),
        (LatentDims { heads: 20, ..SMALL }, &rows[..5]),
        (LatentDims { heads: 70, ..SMALL }, &rows[2..7]),
        (LatentDims { heads: 35, ..PUBLISHED }, &few[..]),
        (LatentDims { heads: 17, ..PUBLISHED }, &few[..1]),
    ] {
        let fixture = LatentFixture::new(device, element, dims, rows)?;
        for (max_splits, by_rows) in [(1, false), (3, false), (5, true)] {
            let batch = fixture.run(0, rows.len(), max_splits, by_rows)?;
            fixture.compare(&batch, &format!("{max_splits} splits"))?;
            // Then the number of splits depends on the rows of the batch, and so do the bits.
            if by_rows {
                continue;
            }
            for row in 0..rows.len() {
                let width = dims.heads * dims.rank;
                if !same_bits(&fixture.run(row, 1, max_splits, by_rows)?, &batch[row * width..][..width]) {
                    return Err(format!("{}, row {row}: bits depend on the batch", fixture.name));
                }
            }
            let mut positions = LatentFixture::new(device, element, dims, rows)?;
            positions.see_positions()?;
            if !same_bits(&positions.run(0, rows.len(), max_splits, by_rows)?, &batch) {
                return Err(format!("{}: bits depend on whether keys are positions", fixture.name));
            }
        }
    }
    Ok(())
}

const OWN_STRIDE: usize = 9;
const PAGE_SIZE: usize = 8;
const LONGEST: usize = 400;

/// A cache with shuffled pages, and rows that attend to it. Their own rows are the positions after
/// their prefix.
struct LatentFixture {
    name: String,
    kernels: Kernels,
    dims: LatentDims,
    table: Vec<i32>,
    /// (slot, prefix, own rows)
    rows: Vec<(i32, i32, i32)>,
    query: Vec<f32>,
    cache: Latents,
    on_device: [Buffer; 2],
}

impl LatentFixture {
    fn new(device: &Device, element: Element, dims: LatentDims, rows: &[(i32, i32, i32)]) -> Result<Self, String> {
        let mut numbers = Numbers::new((dims.heads + dims.rank) as u64);
        let pages = 3 * LONGEST / PAGE_SIZE;
        let table = numbers.shuffled(pages);
        let mut cache = Latents::new(pages * PAGE_SIZE, dims.rank, dims.rotated);
        cache.rows = numbers.floats(cache.rows.len(), element);
        let query = numbers.floats(rows.len() * dims.heads * dims.width(), element);
        let on_device = [upload(device, &cache.rows, element)?, device.upload(&table).map_err(text)?];
        let name = format!("latent attention of {} heads, rank {}", dims.heads, dims.rank);
        let kernels = Kernels::new(device.clone(), element);
        Ok(Self { name, kernels, dims, table, rows: rows.to_vec(), query, cache, on_device })
    }

    /// Turns the own rows of all rows into positions.
    fn see_positions(&mut self) -> Result<(), String> {
        for row in &mut self.rows {
            *row = (row.0, row.1 + row.2, 0);
        }
        Ok(())
    }

    fn cache_row(&self, slot: i32, position: usize) -> i32 {
        let pages = LONGEST / PAGE_SIZE;
        self.table[slot as usize * pages + position / PAGE_SIZE] * PAGE_SIZE as i32 + (position % PAGE_SIZE) as i32
    }

    fn scale(&self) -> f32 {
        // Not the inverse root alone: YaRN multiplies it by a factor.
        1.3 / (self.dims.width() as f32).sqrt()
    }

    fn run(&self, first: usize, count: usize, max_splits: usize, by_rows: bool) -> Result<Vec<f32>, String> {
        let (device, element, dims) = (self.kernels.device(), self.kernels.element(), self.dims);
        let rows = &self.rows[first..first + count];
        let ints = |values: Vec<i32>| device.upload(&values).map_err(text);
        let own = rows
            .iter()
            .flat_map(|(slot, prefix, count)| (0..OWN_STRIDE as i32).map(move |at| (*slot, prefix + at, at < *count)));
        let own = own.map(|(slot, position, real)| if real { self.cache_row(slot, position as usize) } else { -1 });
        let (slot, prefix) =
            (ints(rows.iter().map(|row| row.0).collect())?, ints(rows.iter().map(|row| row.1).collect())?);
        let (own_count, own) = (ints(rows.iter().map(|row| row.2).collect())?, ints(own.collect())?);
        let width = dims.heads * dims.width();
        let query = upload(device, &self.query[first * width..][..count * width], element)?;
        let out = device.allocate(count * dims.heads * dims.rank * element.bytes()).map_err(text)?;
        let space = Kernels::latent_workspace(count, &dims, max_splits).max(16);
        let partial = device.allocate(space).map_err(text)?;
        let [cache, table] = &self.on_device;
        let operands = LatentAttention {
            out: out.slice(),
            query: query.slice(),
            cache: cache.slice(),
            visible: VisibleRows {
                page_table: table.slice(),
                table_width: LONGEST / PAGE_SIZE,
                page_size: PAGE_SIZE,
                slot: slot.slice(),
                prefix: prefix.slice(),
                own_count: own_count.slice(),
                own: own.slice(),
                own_stride: OWN_STRIDE,
            },
            rows: count,
            dims,
            scale: self.scale(),
            partial: partial.slice(),
            max_splits,
            by_rows,
        };
        self.kernels.latent_attention(operands).map_err(text)?;
        values(device, out.slice(), element)
    }

    fn compare(&self, found: &[f32], what: &str) -> Result<(), String> {
        let LatentDims { heads, rank, .. } = self.dims;
        let width = heads * self.dims.width();
        for (at, (slot, prefix, own)) in self.rows.iter().enumerate() {
            let seen: Vec<u32> = (0..(prefix + own) as usize).map(|at| self.cache_row(*slot, at) as u32).collect();
            // The softmax of no scores would be NaN, and kernels write zeros instead.
            let expected = if seen.is_empty() {
                vec![0.0; heads * rank]
            } else {
                let visible = [Visible { prefix: &seen, own: &[] }];
                latent_attention(&self.query[at * width..][..width], heads, &visible, &self.cache, self.scale())
            };
            let found = &found[at * heads * rank..][..heads * rank];
            compare(&format!("{}, {what}, row {at}", self.name), found, &expected, tolerance(self.kernels.element()))?;
        }
        Ok(())
    }
}
