//! Wide linear layers.

use super::{
    Numbers, compare,
    linear::{Layer, add_up},
    text, tolerance, values,
};
use crate::{
    device::{Device, Element},
    launch::{Kernels, Linear, Parts},
};

/// All ways to deal layers with ragged ends, in one part and in several, for rows from 17 to 64, with and without bias and
/// float results; gated layers have the bits of layer and activation apart. Nothing where there is no such kernel.
pub fn check_linear_wide(device: &Device, element: Element) -> Result<(), String> {
    let kernels = Kernels::new(device.clone(), element);
    let mut numbers = Numbers::new(13);
    // A ring that comes round, parts, few inputs, and several blocks.
    for (inputs, outputs, all_rows) in [(1096, 80, vec![17, 61]), (72, 48, vec![32]), (520, 272, vec![64])] {
        let layer = Layer::random(&kernels, &mut numbers, [inputs, outputs], 64)?;
        let expected = &layer.expected;
        for rows in all_rows {
            for wide in kernels.wide(rows, inputs, outputs, 2) {
                let y = device.allocate(wide.parts() * rows * outputs * 4).map_err(text)?;
                let operands = layer.operands(&y, rows);
                let what = format!("{inputs}→{outputs}, {rows} rows, {wide:?}");
                let sums = match kernels.linear_wide(operands, wide).map_err(text)? {
                    Some(Parts { at, count }) if count == wide.parts() && count > 1 => at,
                    None if wide.parts() == 1 => y.slice(),
                    found => return Err(format!("{what}: left in {found:?}")),
                };
                let sums: Vec<f32> = device.download(sums).map_err(text)?;
                let found = add_up(&sums, rows * outputs);
                compare(&what, &found, &expected[..rows * outputs], 1e-4)?;
                if wide.parts() > 1 {
                    continue;
                }
                kernels.linear_wide(Linear { y_is_float: false, ..operands }, wide).map_err(text)?;
                let rounded = values(device, y.slice(), element)?;
                compare(&what, &rounded[..rows * outputs], &expected[..rows * outputs], tolerance(element))?;
                // The same weights, as gate and up.
                let half = outputs / 2;
                let gated = device.allocate(rows * half * element.bytes()).map_err(text)?;
                let apart = device.allocate(rows * half * element.bytes()).map_err(text)?;
                kernels.silu_gate(apart.slice(), y.slice(), rows, half).map_err(text)?;
                if half.is_multiple_of(8) {
                    let operands = Linear { y: gated.slice(), y_is_float: false, outputs: half, ..operands };
                    kernels.linear_wide_gated(operands, wide).map_err(text)?;
                    let (found, expected) =
                        (values(device, gated.slice(), element)?, values(device, apart.slice(), element)?);
                    compare(&format!("gated {what}"), &found, &expected, 0.0)?;
                }
            }
        }
    }
    Ok(())
}
