//! Wide linear layers.

use super::{
    Numbers, compare,
    layout::same,
    linear::{LAYOUTS, LinearFixture, Squares, add_up},
    text, tolerance, values,
};
use crate::{
    device::{Device, DeviceError, Element, Slice},
    launch::{Kernels, Linear, Parts},
    reference::Fp8Scales,
};

/// All divisions of layers with ragged ends, in one part and in several, for rows from 17 to 128,
/// scaled and not, with and without bias and float results, needed and not; gated layers have the
/// same bits as layer and activation separately. Does nothing if there is no such kernel.
pub fn check_linear_wide(device: &Device, element: Element) -> Result<(), String> {
    let kernels = Kernels::new(device.clone(), element);
    let mut numbers = Numbers::new(13);
    // A ring that wraps around, parts, few inputs, and several blocks.
    for (sizes, all_rows) in [([1096, 80], [17, 61]), ([72, 48], [32, 70]), ([520, 272], [64, 128])] {
        let layer = LinearFixture::random(&kernels, &mut numbers, sizes, 128)?;
        check_partitions(&kernels, &mut numbers, (&layer, sizes, None), &all_rows)?;
    }
    Ok(())
}

/// The same with FP8 weights, with every layout of scales, and with more rows than a block takes.
pub fn check_linear_wide_fp8(device: &Device, element: Element) -> Result<(), String> {
    if element == Element::F32 {
        return Ok(());
    }
    let kernels = Kernels::new(device.clone(), element);
    let mut numbers = Numbers::new(47);
    for layout in LAYOUTS {
        for (sizes, all_rows) in [([1104, 80], [33, 61]), ([80, 48], [64, 70]), ([528, 272], [64, 128])] {
            let layer = LinearFixture::random_fp8(&kernels, &mut numbers, sizes, layout, 128)?;
            check_partitions(&kernels, &mut numbers, (&layer, sizes, Some(layout)), &all_rows)?;
        }
        let sizes = [272, 160];
        let layer = LinearFixture::random_fp8(&kernels, &mut numbers, sizes, layout, 300)?;
        check_partitions(&kernels, &mut numbers, (&layer, sizes, Some(layout)), &[129, 300])?;
    }
    Ok(())
}

/// All divisions of a layer with these inputs and outputs, with scales of this layout.
fn check_partitions(
    kernels: &Kernels,
    numbers: &mut Numbers,
    (layer, [inputs, outputs], layout): (&LinearFixture, [usize; 2], Option<Fp8Scales>),
    all_rows: &[usize],
) -> Result<(), String> {
    let device = kernels.device();
    for &rows in all_rows {
        for wide in kernels.wide(rows, [inputs, outputs], 2, layout) {
            let y = device.allocate(wide.parts() * rows * outputs * 4).map_err(text)?;
            let operands = layer.operands(&y, rows);
            let what = format!("{inputs}→{outputs}, {rows} rows, {wide:?}, scales {layout:?}");
            let check = |operands: Linear<'_>, what: &str, expected: &[f32]| {
                check_partitioned(
                    (kernels, operands, wide.parts()),
                    (what, expected, 1e-4),
                    |linear| kernels.linear_wide(linear, wide),
                    |linear| kernels.linear_wide_gated(linear, wide),
                )
            };
            check(operands, &what, &layer.expected[..rows * outputs])?;
            let squares = Squares::random(device, numbers, 5, rows)?;
            let unscaled = Linear { unscaled: squares.unscaled(), ..operands };
            let what = format!("unscaled {what}");
            if rows <= Kernels::MOST_ROWS_LEFT_IN_PARTS {
                check(unscaled, &what, &squares.expected(layer))?;
            } else if kernels.linear_wide(unscaled, wide).is_ok() {
                return Err(format!("{what}: accepted, although the blocks scale fewer rows"));
            }
        }
    }
    Ok(())
}

/// A layer that a warp-group kernel computes in this many parts; in one, also rounded, and gated
/// with the same weights.
pub(super) fn check_partitioned(
    (kernels, linear, parts): (&Kernels, Linear<'_>, usize),
    (what, expected, allowed): (&str, &[f32], f32),
    run: impl for<'a> Fn(Linear<'a>) -> Result<Option<Parts<'a>>, DeviceError>,
    run_gated: impl Fn(Linear<'_>) -> Result<(), DeviceError>,
) -> Result<(), String> {
    let Linear { y, rows, outputs, .. } = linear;
    let (device, element, count) = (kernels.device(), kernels.element(), rows * outputs);
    let sums = match run(linear).map_err(text)? {
        Some(found) if found.count == parts && parts > 1 => found.at,
        None if parts == 1 => y,
        found => return Err(format!("{what}: unexpected result {found:?}")),
    };
    let sums: Vec<f32> = device.download(sums).map_err(text)?;
    compare(what, &add_up(&sums[..parts * count], count), expected, allowed)?;
    check_awaited(device, (what, y), |needed| run(Linear { needed, ..linear }).map(|_| ()))?;
    if parts > 1 {
        return Ok(());
    }
    run(Linear { y_is_float: false, ..linear }).map_err(text)?;
    compare(what, &values(device, y, element)?[..count], expected, allowed + tolerance(element))?;
    let half = outputs / 2;
    if !half.is_multiple_of(8) {
        return Ok(());
    }
    let gated = device.allocate(rows * half * element.bytes()).map_err(text)?;
    let apart = device.allocate(rows * half * element.bytes()).map_err(text)?;
    kernels.silu_gate(apart.slice(), y, rows, half).map_err(text)?;
    let operands = Linear { y: gated.slice(), y_is_float: false, outputs: half, ..linear };
    run_gated(operands).map_err(text)?;
    let (found, expected) = (values(device, gated.slice(), element)?, values(device, apart.slice(), element)?);
    let what = format!("gated {what}");
    compare(&what, &found, &expected, 0.0)?;
    check_awaited(device, (&what, gated.slice()), |needed| run_gated(Linear { needed, ..operands }))
}

/// A layer writes nothing if its result is not needed; if it is needed, the flag does not change
/// its bits.
fn check_awaited(
    device: &Device,
    (what, y): (&str, Slice<'_>),
    run: impl Fn(Option<Slice<'_>>) -> Result<(), DeviceError>,
) -> Result<(), String> {
    let bits = || device.download::<i32>(y).map_err(text);
    let [no, yes] = [device.upload(&[0]).map_err(text)?, device.upload(&[1]).map_err(text)?];
    let poison = || device.fill(y, 0xA5).map_err(text);
    poison()?;
    let poisoned = bits()?;
    run(Some(no.slice())).map_err(text)?;
    same(&format!("{what}, not needed"), &bits()?, &poisoned)?;
    run(None).map_err(text)?;
    let written = bits()?;
    poison()?;
    run(Some(yes.slice())).map_err(text)?;
    same(&format!("{what}, needed"), &bits()?, &written)
}
