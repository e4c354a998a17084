//! Linear layers of warp groups.

use super::{
    Numbers, compare,
    linear::{Layer, Squares, add_up},
    text, tolerance, values,
};
use crate::{
    device::{Device, Element},
    launch::{Kernels, Linear, Parts},
};

/// Layers with ragged ends, in one part and in several, for rows from 9 to 32, with and without bias and
/// float results, and rows that are yet to be scaled; gated layers have the bits of layer and activation apart. Nothing where there is no such kernel.
pub fn check_linear_group(device: &Device, element: Element) -> Result<(), String> {
    let kernels = Kernels::new(device.clone(), element);
    if !kernels.has_group(9, 8) {
        return Ok(());
    }
    let mut numbers = Numbers::new(13);
    // A ring that comes round, parts, few inputs, and several blocks.
    for (inputs, outputs, all_rows) in [(1096, 80, vec![9, 27]), (72, 48, vec![32]), (520, 272, vec![17, 24])] {
        let layer = Layer::random(&kernels, &mut numbers, [inputs, outputs], 64)?;
        for rows in all_rows {
            let y = device.allocate(Kernels::MOST_PARTS * rows * outputs * 4).map_err(text)?;
            let squares = Squares::random(device, &mut numbers, 9, rows)?;
            for most_parts in [1, Kernels::MOST_PARTS] {
                let what = format!("{inputs}→{outputs}, {rows} rows, at most {most_parts} parts");
                let plain = layer.operands(&y, rows);
                check_group(&kernels, plain, most_parts, &layer.expected[..rows * outputs], &what)?;
                let unscaled = Linear { unscaled: squares.unscaled(), ..plain };
                check_group(&kernels, unscaled, most_parts, &squares.expected(&layer), &format!("unscaled {what}"))?;
            }
        }
    }
    Ok(())
}

fn check_group(
    kernels: &Kernels,
    linear: Linear<'_>,
    most_parts: usize,
    expected: &[f32],
    what: &str,
) -> Result<(), String> {
    let Linear { y, rows, inputs, outputs, .. } = linear;
    let (device, element) = (kernels.device(), kernels.element());
    let parts = kernels.group_parts(inputs, outputs, most_parts);
    let sums = match kernels.linear_group(linear, most_parts).map_err(text)? {
        Some(Parts { at, count }) if count == parts && count > 1 => at,
        None if parts == 1 => y,
        found => return Err(format!("{what}: left in {found:?}")),
    };
    let sums: Vec<f32> = device.download(sums).map_err(text)?;
    let found = add_up(&sums[..parts * rows * outputs], rows * outputs);
    compare(what, &found, expected, 1e-4)?;
    if parts > 1 {
        return Ok(());
    }
    kernels.linear_group(Linear { y_is_float: false, ..linear }, most_parts).map_err(text)?;
    let rounded = values(device, y, element)?;
    compare(what, &rounded[..rows * outputs], expected, tolerance(element))?;
    // The same weights, as gate and up.
    let half = outputs / 2;
    if !half.is_multiple_of(8) {
        return Ok(());
    }
    let gated = device.allocate(rows * half * element.bytes()).map_err(text)?;
    let apart = device.allocate(rows * half * element.bytes()).map_err(text)?;
    kernels.silu_gate(apart.slice(), y, rows, half).map_err(text)?;
    let operands = Linear { y: gated.slice(), y_is_float: false, outputs: half, ..linear };
    kernels.linear_group_gated(operands).map_err(text)?;
    let (found, expected) = (values(device, gated.slice(), element)?, values(device, apart.slice(), element)?);
    compare(&format!("gated {what}"), &found, &expected, 0.0)
}
