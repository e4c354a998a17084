//! Linear layers that quantise their rows themselves.

use super::{
    Numbers, compare,
    linear::{Layer, Squares},
    quantise::Quantised,
    text,
};
use crate::{
    device::{Device, Element, Slice},
    launch::{Kernels, Linear, Parts, QuantiseRows, RowForm, RowScales, Rows, Stream, Unscaled},
    reference::{Fp8Rows, Fp8Scales},
};

/// Rows that are scaled already, or lack the scale of a norm; a scale per row or a static one; layers with ragged ends, in
/// parts, gated, halved, and added to a stream: the bits of the same kernel over rows that were quantised before it.
pub fn check_unrounded_rows(device: &Device, element: Element) -> Result<(), String> {
    if element == Element::F32 {
        return Ok(());
    }
    let kernels = Kernels::new(device.clone(), element);
    let mut numbers = Numbers::new(83);
    for (sizes, layout) in [
        ([144, 48], Fp8Rows::Row),
        ([1296, 24], Fp8Rows::Tensor),
        ([2192, 72], Fp8Rows::Row),
        ([9232, 64], Fp8Rows::Row),
        ([4624, 136], Fp8Rows::Tensor),
    ] {
        let layer = Layer::random_fp8(&kernels, &mut numbers, sizes, Fp8Scales::Channels, 8)?;
        for rows in [1, 3, 4, 8] {
            let squares = Squares::random(device, &mut numbers, 37, rows)?;
            for unscaled in [None, squares.unscaled()] {
                check_rows(&kernels, &layer, (sizes, rows), (layout, unscaled))?;
            }
        }
    }
    Ok(())
}

/// Runs a layer with rows that were quantised before it, and with the rows as they are.
fn check_rows(
    kernels: &Kernels,
    layer: &Layer,
    ([inputs, outputs], rows): ([usize; 2], usize),
    (layout, unscaled): (Fp8Rows, Option<Unscaled<'_>>),
) -> Result<(), String> {
    let device = kernels.device();
    let parts = kernels.parts_of(inputs, outputs, layer.weights());
    let y = device.allocate(parts.max(1) * rows * outputs * 4).map_err(text)?;
    let plain = layer.operands(&y, rows);
    let quantised = Quantised::new(device, rows, inputs)?;
    let to = quantised.to(layout, RowForm::Values);
    let out = quantised.out.slice();
    let of_rows = kernels
        .quantise_rows(QuantiseRows { out, to, x: plain.x, unscaled, gated: false, rows, inputs })
        .map_err(text)?;
    let before = Linear { x: Rows { at: out, stride: inputs }, row_scales: Some(of_rows), ..plain };
    let at = to.fixed.unwrap_or(Slice::NONE);
    let within = Linear { unscaled, row_scales: Some(RowScales { at, layout, form: RowForm::Unrounded }), ..plain };
    let what = format!("{inputs}→{outputs}, {rows} rows, {layout:?}, unscaled: {}", unscaled.is_some());
    let same = |kernel: &str, run: &dyn Fn(Linear<'_>) -> Result<usize, String>| -> Result<(), String> {
        let [expected, found] = [before, within].map(|linear| {
            device.fill(y.slice(), 0xff).map_err(text)?;
            let count = run(linear)?;
            let bits: Vec<f32> = device.download(y.slice()).map_err(text)?;
            Ok::<_, String>(bits[..count].to_vec())
        });
        compare(&format!("{kernel}, {what}"), &found?, &expected?, 0.0)
    };
    same("linear in parts", &|linear| {
        let Parts { count, .. } = kernels.linear_in_parts(linear).map_err(text)?;
        Ok(count * rows * outputs)
    })?;
    if parts == 1 && (outputs / 2).is_multiple_of(8) {
        same("gated", &|linear| {
            let half = Linear { y_is_float: true, outputs: outputs / 2, ..linear };
            kernels.linear_gated(half).map_err(text).map(|()| rows * outputs / 2)
        })?;
    }
    if rows <= 4 {
        same("few", &|linear| kernels.linear_few(linear).map_err(text).map(|()| rows * outputs))?;
        check_stream(kernels, [before, within], (rows, outputs), &what)?;
    } else if kernels.linear_few(within).is_ok() {
        return Err(format!("few, {what}: too many rows were accepted"));
    }
    let blocks = RowScales { at, layout: Fp8Rows::RowBlocks, form: RowForm::Unrounded };
    if kernels.linear_in_parts(Linear { row_scales: Some(blocks), ..within }).is_ok() {
        return Err(format!("{what}: scales of blocks were accepted"));
    }
    Ok(())
}

/// The layer added to a residual stream: sum, norm and squares.
fn check_stream(
    kernels: &Kernels,
    both: [Linear<'_>; 2],
    (rows, outputs): (usize, usize),
    what: &str,
) -> Result<(), String> {
    let (device, element) = (kernels.device(), kernels.element());
    let values: Vec<f32> = (0..rows * outputs).map(|at| (at % 17) as f32 * 0.25 - 2.0).collect();
    let norm = device.upload(&element.encode(&values[..outputs])).map_err(text)?;
    let run = |linear: Linear<'_>| -> Result<Vec<f32>, String> {
        let stream = device.upload(&element.encode(&values)).map_err(text)?;
        let normed = device.zeros(rows * outputs * element.bytes()).map_err(text)?;
        let squares = device.zeros(Kernels::squares_bytes(rows, outputs)).map_err(text)?;
        let to =
            Stream { keep: None, norm: norm.slice(), normed: normed.slice(), squares: squares.slice(), epsilon: 1e-5 };
        kernels.few_to_stream(Linear { y: stream.slice(), y_is_float: false, ..linear }, to).map_err(text)?;
        let mut all = super::values(device, stream.slice(), element)?;
        all.extend(super::values(device, normed.slice(), element)?);
        all.extend(device.download::<f32>(squares.slice()).map_err(text)?);
        Ok(all)
    };
    let [before, within] = both;
    compare(&format!("few to a stream, {what}"), &run(within)?, &run(before)?, 0.0)
}
