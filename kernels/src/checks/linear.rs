//! Linear layers.

use super::{Numbers, compare, text, tolerance, values};
use crate::{
    device::{Buffer, Device, Element},
    launch::{Kernels, Linear, Parts, Rows, Unscaled, squares_stride},
    reference::{Matrix, linear},
};

/// A layer of random weights on a device, rows that go into it, and what comes out.
pub(super) struct Layer {
    x: Buffer,
    weight: Buffer,
    bias: Buffer,
    inputs: usize,
    outputs: usize,
    /// `[rows, outputs]`.
    pub(super) expected: Vec<f32>,
    /// `[outputs]`: what of it is the bias.
    added: Vec<f32>,
}

impl Layer {
    /// For up to so many rows, which lie apart.
    pub(super) fn random(
        kernels: &Kernels,
        numbers: &mut Numbers,
        [inputs, outputs]: [usize; 2],
        most_rows: usize,
    ) -> Result<Self, String> {
        let (device, element, stride) = (kernels.device(), kernels.element(), inputs + APART);
        let weight = numbers.floats(outputs * inputs, element);
        let bias = numbers.floats(outputs, element);
        let x = numbers.floats(most_rows * stride, element);
        let on_device = |values: &[f32]| device.upload(&element.encode(values)).map_err(text);
        let on_device = [on_device(&x)?, on_device(&weight)?, on_device(&bias)?];
        let rows_alone: Vec<f32> = x.chunks(stride).flat_map(|row| &row[..inputs]).copied().collect();
        let expected = linear(&rows_alone, &Matrix::new(outputs, inputs, weight), Some(&bias));
        let [x, weight, on_device_bias] = on_device;
        Ok(Self { x, weight, bias: on_device_bias, inputs, outputs, expected, added: bias })
    }

    /// Its first rows, with a float result.
    pub(super) fn operands<'a>(&'a self, y: &'a Buffer, rows: usize) -> Linear<'a> {
        let Self { inputs, outputs, .. } = *self;
        Linear {
            y: y.slice(),
            y_is_float: true,
            x: Rows { at: self.x.slice(), stride: inputs + APART },
            weight: self.weight.slice(),
            bias: Some(self.bias.slice()),
            rows,
            inputs,
            outputs,
            unscaled: None,
            awaited: None,
        }
    }
}

/// Sums of squares of the rows of a layer, for its kernels to scale them by.
pub(super) struct Squares {
    on_device: Buffer,
    /// `[rows, stride]`, of which `count` are used.
    values: Vec<f32>,
    count: usize,
    rows: usize,
}

/// Added to the mean square.
const EPSILON: f32 = 1e-3;

impl Squares {
    /// Of so many pieces a row.
    pub(super) fn random(device: &Device, numbers: &mut Numbers, count: usize, rows: usize) -> Result<Self, String> {
        let values: Vec<f32> = (0..squares_stride(count) * rows).map(|_| 1e3 * numbers.float().abs()).collect();
        Ok(Self { on_device: device.upload(&values).map_err(text)?, values, count, rows })
    }

    pub(super) fn unscaled(&self) -> Option<Unscaled<'_>> {
        Some(Unscaled { squares: self.on_device.slice(), count: self.count, epsilon: EPSILON })
    }

    /// What the layer's first rows yield when they are scaled so.
    pub(super) fn expected(&self, layer: &Layer) -> Vec<f32> {
        let scale = |row: usize| {
            let sum: f32 = self.values[row * squares_stride(self.count)..][..self.count].iter().sum();
            1.0 / (sum / layer.inputs as f32 + EPSILON).sqrt()
        };
        let scaled = |(at, value): (usize, &f32)| {
            let (row, added) = (at / layer.outputs, layer.added[at % layer.outputs]);
            (value - added) * scale(row) + added
        };
        layer.expected[..self.rows * layer.outputs].iter().enumerate().map(scaled).collect()
    }
}

/// Of each row, the sum of the sums of squares that a norm has left.
pub(super) fn sums_of_squares(device: &Device, unscaled: Unscaled<'_>, rows: usize) -> Result<Vec<f32>, String> {
    let Unscaled { squares, count, .. } = unscaled;
    let pieces: Vec<f32> = device.download(squares).map_err(text)?;
    Ok(pieces.chunks(squares_stride(count)).take(rows).map(|row| row[..count].iter().sum()).collect())
}

/// Elements between rows.
const APART: usize = 8;

/// The sum of parts of so many elements, in their order.
pub(super) fn add_up(sums: &[f32], elements: usize) -> Vec<f32> {
    let mut all = vec![0.0; elements];
    for part in sums.chunks(elements) {
        all.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
    }
    all
}

/// Shapes with ragged ends, in one part and in several, rows from 1 to more than a block, bias, float results, rows apart, and blocks
/// of 4, 5, 7 and 8 warps in the emulator; and that each row has the same bits whatever the number of rows, and whether its parts are
/// added at once or later.
pub fn check_linear(device: &Device, element: Element) -> Result<(), String> {
    let kernels = Kernels::new(device.clone(), element);
    let mut numbers = Numbers::new(11);
    for (inputs, outputs) in [(128, 64), (72, 40), (520, 17), (2184, 100), (1544, 8), (72, 600), (72, 880), (72, 1000)]
    {
        let most = 70;
        let layer = Layer::random(&kernels, &mut numbers, [inputs, outputs], most)?;
        let expected = &layer.expected;
        let parts = kernels.parts_of(inputs, outputs);
        let mut all_bits: Option<Vec<u32>> = None;
        for rows in [most, 1, 3, 4, 8, 9, 16, 17, 31, 33, 64] {
            let y = device.allocate(parts * rows * outputs * 4).map_err(text)?;
            let operands = layer.operands(&y, rows);
            let what = format!("linear {inputs}→{outputs}, {rows} rows");
            let mut same_bits = |found: &[f32], how: &str| {
                let bits: Vec<u32> = found[..rows * outputs].iter().map(|value| value.to_bits()).collect();
                let equal = all_bits.get_or_insert_with(|| bits.clone())[..bits.len()] == bits;
                if equal { Ok(()) } else { Err(format!("{what}, {how}: bits depend on the number of rows")) }
            };
            kernels.linear(operands).map_err(text)?;
            let found: Vec<f32> = device.download(y.slice()).map_err(text)?;
            compare(&what, &found[..rows * outputs], &expected[..rows * outputs], 1e-4)?;
            same_bits(&found, "added at once")?;
            if element != Element::F32 && rows <= Kernels::MOST_ROWS_IN_PARTS {
                let Parts { at, count } = kernels.linear_in_parts(operands).map_err(text)?;
                let sums: Vec<f32> = device.download(at).map_err(text)?;
                let found = add_up(&sums, rows * outputs);
                if count != parts || (inputs > 1024) != (count > 1) {
                    return Err(format!("{what}: {count} parts"));
                }
                same_bits(&found, "added later")?;
            }
            kernels.linear(Linear { y_is_float: false, ..operands }).map_err(text)?;
            let found = values(device, y.slice(), element)?;
            compare(&what, &found[..rows * outputs], &expected[..rows * outputs], tolerance(element))?;
            let squares = Squares::random(device, &mut numbers, 11, rows)?;
            let unscaled = Linear { unscaled: squares.unscaled(), ..operands };
            if element == Element::F32 || rows > 32 {
                if kernels.linear(unscaled).is_ok() {
                    return Err(format!("{what}: rows that are yet to be scaled are taken for scaled"));
                }
                continue;
            }
            let parts = kernels.linear_in_parts(unscaled).map_err(text)?;
            let found = add_up(&device.download::<f32>(parts.at).map_err(text)?, rows * outputs);
            compare(&format!("unscaled {what}"), &found[..rows * outputs], &squares.expected(&layer), 1e-4)?;
        }
    }
    Ok(())
}

/// Gated layers for every number of rows a block, with ragged ends and bias: the bits of the layer and the activation apart.
pub fn check_linear_gated(device: &Device, element: Element) -> Result<(), String> {
    if element == Element::F32 {
        return Ok(());
    }
    let kernels = Kernels::new(device.clone(), element);
    let mut numbers = Numbers::new(12);
    for (inputs, outputs) in [(128, 64), (72, 40), (1000, 24), (72, 304), (72, 440)] {
        let most = 70;
        let on_device = |values: &[f32]| device.upload(&element.encode(values)).map_err(text);
        let w = on_device(&numbers.floats(2 * outputs * inputs, element))?;
        let b = on_device(&numbers.floats(2 * outputs, element))?;
        let x = on_device(&numbers.floats(most * inputs, element))?;
        for rows in [1, 8, 13, 32, most] {
            let squares = Squares::random(device, &mut numbers, 5, rows)?;
            let unscaled = squares.unscaled().filter(|_| rows <= 32);
            for (bias, unscaled) in [(None, None), (Some(b.slice()), None), (Some(b.slice()), unscaled)] {
                let both = device.allocate(rows * 2 * outputs * element.bytes()).map_err(text)?;
                let expected = device.allocate(rows * outputs * element.bytes()).map_err(text)?;
                let found = device.allocate(rows * outputs * element.bytes()).map_err(text)?;
                let linear = Linear {
                    y: both.slice(),
                    y_is_float: false,
                    x: Rows { at: x.slice(), stride: inputs },
                    weight: w.slice(),
                    bias,
                    rows,
                    inputs,
                    outputs: 2 * outputs,
                    unscaled,
                    awaited: None,
                };
                kernels.linear(linear).map_err(text)?;
                kernels.silu_gate(expected.slice(), both.slice(), rows, outputs).map_err(text)?;
                kernels.linear_gated(Linear { y: found.slice(), outputs, ..linear }).map_err(text)?;
                let what = format!("gated linear {inputs}→{outputs}, {rows} rows");
                let expected = values(device, expected.slice(), element)?;
                compare(&what, &values(device, found.slice(), element)?, &expected, 0.0)?;
            }
        }
    }
    Ok(())
}
