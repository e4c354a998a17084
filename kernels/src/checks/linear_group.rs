//! Linear layers of up to 32 rows with warp-group kernels.

use super::{
    Numbers,
    linear::{LinearFixture, Squares},
    linear_wide::check_partitioned,
    text,
};
use crate::{
    device::{Device, Element},
    launch::{Kernels, Linear, WeightType},
};

/// Layers with ragged ends, in one part and in several, for 1 to 32 rows, with and without bias and
/// float results, unscaled rows, needed and not; gated layers have the same bits as layer and
/// activation separately. Does nothing if there is no such kernel.
pub fn check_linear_group(device: &Device, element: Element) -> Result<(), String> {
    let kernels = Kernels::new(device.clone(), element);
    if !kernels.has_group(8, 8, 16) {
        return Ok(());
    }
    let mut numbers = Numbers::new(13);
    // A ring that wraps around, parts, few inputs, and several blocks.
    for (inputs, outputs, all_rows) in [(1096, 80, vec![1, 27]), (72, 48, vec![8, 32]), (520, 272, vec![4, 9, 24])] {
        let layer = LinearFixture::random(&kernels, &mut numbers, [inputs, outputs], 64)?;
        for rows in all_rows {
            let y = device.allocate(Kernels::MOST_PARTS * rows * outputs * 4).map_err(text)?;
            let squares = Squares::random(device, &mut numbers, 9, rows)?;
            for most_parts in [1, Kernels::MOST_PARTS] {
                let what = format!("{inputs}→{outputs}, {rows} rows, at most {most_parts} parts");
                let parts =
                    if most_parts == 1 { 1 } else { kernels.parts_of_group(rows, inputs, outputs, WeightType::Plain) };
                let check = |operands: Linear<'_>, expected: &[f32], what: &str| {
                    check_partitioned(
                        (&kernels, operands, parts),
                        (what, expected, 1e-4),
                        |linear| kernels.linear_group(linear, most_parts),
                        |linear| kernels.linear_group_gated(linear),
                    )
                };
                let plain = layer.operands(&y, rows);
                check(plain, &layer.expected[..rows * outputs], &what)?;
                let unscaled = Linear { unscaled: squares.unscaled(), ..plain };
                check(unscaled, &squares.expected(&layer), &format!("unscaled {what}"))?;
            }
        }
    }
    Ok(())
}
