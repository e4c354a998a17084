//! Linear layers of up to 4 rows.

use super::{
    Numbers, compare,
    linear::{LAYOUTS, LinearFixture, Squares, sums_of_squares},
    text, tolerance, values,
};
use crate::{
    device::{Device, Element},
    launch::{Kernels, Linear, Rows, Stream},
};

/// Ragged ends, layers with and without halved blocks, bias, float results, gaps between rows,
/// unscaled rows, layers that add to a residual stream; and that each row has the same bits
/// regardless of the number of rows.
pub fn check_linear_few(device: &Device, element: Element) -> Result<(), String> {
    // These kernels exist only for types of 2 bytes.
    if element == Element::F32 {
        return Ok(());
    }
    let kernels = Kernels::new(device.clone(), element);
    let mut numbers = Numbers::new(13);
    for (inputs, outputs) in [(128, 64), (72, 40), (2184, 17), (4616, 56), (520, 70), (9224, 60)] {
        let layer = LinearFixture::random(&kernels, &mut numbers, [inputs, outputs], MOST_ROWS)?;
        check_product(&kernels, &mut numbers, &layer, [inputs, outputs])?;
    }
    for (at, sizes) in [[128, 64], [80, 40], [2192, 17], [4624, 136], [9232, 60], [272, 150]].into_iter().enumerate() {
        let layer = LinearFixture::random_fp8(&kernels, &mut numbers, sizes, LAYOUTS[at % LAYOUTS.len()], MOST_ROWS)?;
        check_product(&kernels, &mut numbers, &layer, sizes)?;
    }
    Ok(())
}

const MOST_ROWS: usize = 4;

fn check_product(
    kernels: &Kernels,
    numbers: &mut Numbers,
    layer: &LinearFixture,
    [inputs, outputs]: [usize; 2],
) -> Result<(), String> {
    let device = kernels.device();
    let mut all_bits: Option<Vec<u32>> = None;
    // Most rows first: fewer rows are compared with the beginning of their bits.
    for rows in [MOST_ROWS, 3, 1] {
        let y = device.allocate(rows * outputs * 4).map_err(text)?;
        kernels.linear_few(layer.operands(&y, rows)).map_err(text)?;
        let found: Vec<f32> = device.download(y.slice()).map_err(text)?;
        let what = format!("few linear {inputs}→{outputs}, {rows} rows");
        compare(&what, &found, &layer.expected[..rows * outputs], 1e-4)?;
        let bits: Vec<u32> = found.iter().map(|value| value.to_bits()).collect();
        if all_bits.get_or_insert_with(|| bits.clone())[..bits.len()] != bits {
            return Err(format!("{what}: bits depend on the number of rows"));
        }
        for count in [3, 300] {
            let squares = Squares::random(device, numbers, count, rows)?;
            kernels.linear_few(Linear { unscaled: squares.unscaled(), ..layer.operands(&y, rows) }).map_err(text)?;
            let found: Vec<f32> = device.download(y.slice()).map_err(text)?;
            compare(&format!("unscaled {what}"), &found, &squares.expected(layer), 1e-4)?;
        }
        check_stream(kernels, numbers, layer, [rows, outputs], &what)?;
    }
    Ok(())
}

/// The layer added to a residual stream, with a copy of the sum, and its norm without the scale.
fn check_stream(
    kernels: &Kernels,
    numbers: &mut Numbers,
    layer: &LinearFixture,
    [rows, outputs]: [usize; 2],
    what: &str,
) -> Result<(), String> {
    let (device, element, count) = (kernels.device(), kernels.element(), rows * outputs);
    let (stream, weight) = (numbers.floats(count, element), numbers.floats(outputs, element));
    let on_device = |values: &[f32]| device.upload(&element.encode(values)).map_err(text);
    let (y, norm) = (on_device(&stream)?, on_device(&weight)?);
    let stride = outputs.next_multiple_of(8) + 8;
    let keep = device.zeros(rows * stride * element.bytes()).map_err(text)?;
    let normed = device.allocate(count * element.bytes()).map_err(text)?;
    let squares = device.allocate(Kernels::squares_bytes(rows, outputs)).map_err(text)?;
    let operands = Linear { y_is_float: false, ..layer.operands(&y, rows) };
    let to = Stream {
        keep: outputs.is_multiple_of(8).then_some(Rows { at: keep.slice(), stride }),
        norm: norm.slice(),
        normed: normed.slice(),
        squares: squares.slice(),
        epsilon: 1e-5,
    };
    let unscaled = kernels.few_to_stream(operands, to).map_err(text)?;
    let found = values(device, y.slice(), element)?;
    let expected: Vec<f32> = stream.iter().zip(&layer.expected).map(|(stream, added)| stream + added).collect();
    compare(&format!("stream of {what}"), &found, &expected, 2.0 * tolerance(element))?;
    if to.keep.is_some() {
        let kept = values(device, keep.slice(), element)?;
        let kept: Vec<f32> = kept.chunks(stride).flat_map(|row| &row[..outputs]).copied().collect();
        compare(&format!("kept stream of {what}"), &kept, &found, 0.0)?;
    }
    let weighted: Vec<f32> = found.iter().enumerate().map(|(at, value)| value * weight[at % outputs]).collect();
    let weighted = element.decode(&element.encode(&weighted));
    compare(&format!("normed stream of {what}"), &values(device, normed.slice(), element)?, &weighted, 0.0)?;
    let sums = sums_of_squares(device, unscaled, rows)?;
    let expected: Vec<f32> = found.chunks(outputs).map(|row| row.iter().map(|value| value * value).sum()).collect();
    compare(&format!("squares of {what}"), &sums, &expected, 1e-4)
}
