//! Attention of prompts over expanded keys and values, compared with the absorbed reference.

use super::{
    Numbers, compare,
    latent::{data, matrices, rope, upload},
    text, tolerance, values,
};
use crate::{
    device::{Device, Element},
    launch::{GatheredLatents, Kernels, LatentDims, LatentPrompt, Linear, RotaryRows, Rows},
    reference::{Latents, Matrix, Visible, latent_attention, per_head},
};

const PAGE_SIZE: usize = 8;

/// One row and many; from the first position on and later; heads in two calls.
pub fn check_latent_prompt(device: &Device, element: Element) -> Result<(), String> {
    let published = LatentDims { heads: 2, nope: 128, rotated: 64, rank: 512, value: 128, interleaved: true };
    let small = LatentDims { heads: 3, nope: 32, rotated: 16, rank: 64, value: 64, interleaved: false };
    // There is no such kernel for this device or element type.
    if !Kernels::expands_latents(element, &published, device.properties()) {
        return Ok(());
    }
    for (dims, start, rows) in [(small, 0, 1), (small, 0, 200), (small, 75, 129), (published, 62, 3)] {
        LatentPromptFixture::new(element, dims, start + rows).check(device, start, rows)?;
    }
    Ok(())
}

/// The cache of a slot whose pages are shuffled, and the weights of heads.
struct LatentPromptFixture {
    element: Element,
    dims: LatentDims,
    pages: Vec<i32>,
    cache: Latents,
    /// `[rank, nope]` and `[value, rank]` per head.
    absorb: Vec<Matrix>,
    expand: Vec<Matrix>,
    numbers: Numbers,
}

impl LatentPromptFixture {
    fn new(element: Element, dims: LatentDims, positions: usize) -> Self {
        let mut numbers = Numbers::new(positions as u64);
        let count = positions.div_ceil(PAGE_SIZE);
        let pages = numbers.shuffled(count);
        let mut cache = Latents::new(count * PAGE_SIZE, dims.rank, dims.rotated);
        cache.rows = numbers.floats(cache.rows.len(), element);
        let absorb = matrices(&mut numbers, element, dims.heads, [dims.rank, dims.nope]);
        let expand = matrices(&mut numbers, element, dims.heads, [dims.value, dims.rank]);
        Self { element, dims, pages, cache, absorb, expand, numbers }
    }

    fn check(mut self, device: &Device, start: usize, rows: usize) -> Result<(), String> {
        let (element, dims) = (self.element, self.dims);
        let query = self.numbers.floats(rows * dims.query_width(), element);
        let scale = 1.3 / ((dims.nope + dims.rotated) as f32).sqrt();
        let found = self.run(device, start, &query, scale)?;
        let expected = self.expected(start, &query, scale);
        let what = format!("latent_prompt of {rows} rows from {start}, {} + {} values", dims.nope, dims.rotated);
        // Keys and values are rounded once more than absorbed ones.
        compare(&what, &found, &expected, 2.0 * tolerance(element))
    }

    /// The kernels' result.
    fn run(&self, device: &Device, start: usize, query: &[f32], scale: f32) -> Result<Vec<f32>, String> {
        let (element, dims) = (self.element, self.dims);
        let kernels = Kernels::new(device.clone(), element);
        let upload = |values: &[f32]| upload(device, values, element);
        let space = |count: usize| device.allocate(count * element.bytes()).map_err(text);
        let rows = query.len() / dims.query_width();
        let (positions, padded) = (start + rows, (start + rows).next_multiple_of(32));
        let (absorb, expand) = (upload(&data(&self.absorb))?, upload(&data(&self.expand))?);
        let (pages, cache, query) =
            (device.upload(&self.pages).map_err(text)?, upload(&self.cache.rows)?, upload(query)?);
        let table = device.upload(&rope(&self.dims).table(positions)).map_err(text)?;
        let position: Vec<i32> = (start..positions).map(|at| at as i32).collect();
        let position = device.upload(&position).map_err(text)?;

        let weights = space(dims.heads * dims.nope * dims.rank)?;
        kernels.turn_latent_weights(weights.slice(), absorb.slice(), dims).map_err(text)?;
        let (latents, turned) = (space(padded * dims.rank)?, space(padded * dims.rotated)?);
        let gathered = GatheredLatents {
            latents: latents.slice(),
            turned: turned.slice(),
            cache: cache.slice(),
            pages: pages.slice(),
            page_size: PAGE_SIZE,
            count: positions,
            padded,
            dims,
        };
        kernels.gather_latents(gathered).map_err(text)?;
        kernels
            .turn_latent_queries(
                query.slice(),
                RotaryRows { table: table.slice(), positions, position: position.slice() },
                rows,
                dims,
            )
            .map_err(text)?;
        let out = space(rows * dims.heads * dims.value)?;
        for (first_head, heads) in [(0, dims.heads - 1), (dims.heads - 1, 1)] {
            let (keys, heads_values) = (space(padded * heads * dims.nope)?, space(padded * heads * dims.value)?);
            for (y, of, outputs) in [(&keys, &weights, dims.nope), (&heads_values, &expand, dims.value)] {
                let weight = of.range(first_head * outputs * dims.rank * element.bytes()..of.bytes());
                let linear = Linear {
                    y: y.slice(),
                    y_is_float: false,
                    x: Rows { at: latents.slice(), stride: dims.rank },
                    weight,
                    scales: None,
                    bias: None,
                    rows: padded,
                    inputs: dims.rank,
                    outputs: heads * outputs,
                    unscaled: None,
                    row_scales: None,
                    needed: None,
                };
                kernels.linear(linear).map_err(text)?;
            }
            let prompt = LatentPrompt {
                out: out.slice(),
                query: query.slice(),
                keys: keys.slice(),
                values: heads_values.slice(),
                turned: turned.slice(),
                first_head,
                heads,
                start,
                rows,
                dims,
                scale,
            };
            kernels.latent_prompt(prompt).map_err(text)?;
        }
        values(device, out.slice(), element)
    }

    /// The absorbed reference's result.
    fn expected(&self, start: usize, query: &[f32], scale: f32) -> Vec<f32> {
        let LatentDims { heads, nope, rotated, rank, .. } = self.dims;
        let rows = query.len() / self.dims.query_width();
        let of_heads = || query.chunks_exact(nope + rotated);
        let plain: Vec<f32> = of_heads().flat_map(|head| &head[..nope]).copied().collect();
        let mut turned: Vec<f32> = of_heads().flat_map(|head| &head[nope..]).copied().collect();
        let positions: Vec<usize> = (start..start + rows).collect();
        rope(&self.dims).apply(&mut turned, &positions);
        let absorbed = per_head(&plain, &self.absorb);
        let parts = absorbed.chunks_exact(rank).zip(turned.chunks_exact(rotated));
        let queries: Vec<f32> = parts.flat_map(|(absorbed, turned)| absorbed.iter().chain(turned)).copied().collect();
        let cache_row = |at: usize| self.pages[at / PAGE_SIZE] as u32 * PAGE_SIZE as u32 + (at % PAGE_SIZE) as u32;
        let all: Vec<u32> = (0..start + rows).map(cache_row).collect();
        let visible: Vec<Visible<'_>> = positions.iter().map(|at| Visible { prefix: &all[..=*at], own: &[] }).collect();
        per_head(&latent_attention(&queries, heads, &visible, &self.cache, scale), &self.expand)
    }
}
