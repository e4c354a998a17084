//! Linear layers.

use super::{Numbers, compare, text, tolerance, values};
use crate::{
    device::{Device, Element},
    launch::{Kernels, Linear, LinearBlocks, Rows},
    reference::{Matrix, linear},
};

const BLOCKS: [LinearBlocks; 2] = [LinearBlocks::Narrow, LinearBlocks::Wide];

/// Shapes with ragged ends, rows from 1 to more than a block, bias, float results, gathered rows; and that each row has
/// the same bits whatever the number of rows and whichever the kernel.
pub fn check_linear(device: &Device, element: Element) -> Result<(), String> {
    let kernels = Kernels::new(device.clone(), element);
    let mut numbers = Numbers::new(11);
    for (inputs, outputs) in [(128, 64), (72, 40), (520, 17), (2184, 100)] {
        let weight = numbers.floats(outputs * inputs, element);
        let bias = numbers.floats(outputs, element);
        let most = 70;
        let x = numbers.floats(most * inputs, element);
        let on_device = |values: &[f32]| device.upload(&element.encode(values)).map_err(text);
        let (w, b, x_device) = (on_device(&weight)?, on_device(&bias)?, on_device(&x)?);
        let expected = linear(&x, &Matrix::new(outputs, inputs, weight.clone()), Some(&bias));
        let mut all_bits: Option<Vec<u32>> = None;
        let counts = [most, 1, 3, 8, 9, 16, 17, 31, 33];
        for (rows, blocks) in counts.into_iter().flat_map(|rows| BLOCKS.map(|blocks| (rows, blocks))) {
            let y = device.allocate(rows * outputs * 4).map_err(text)?;
            let run = |y_is_float: bool, bias| {
                kernels.linear(Linear {
                    y: y.slice(),
                    y_stride: outputs,
                    y_is_float,
                    x: Rows { at: x_device.slice(), stride: inputs },
                    source: None,
                    weight: w.slice(),
                    bias,
                    rows,
                    inputs,
                    outputs,
                    blocks,
                })
            };
            run(true, Some(b.slice())).map_err(text)?;
            let found: Vec<f32> = device.download(y.slice()).map_err(text)?;
            let what = format!("linear {inputs}→{outputs}, {rows} rows, {blocks:?}");
            compare(&what, &found, &expected[..rows * outputs], 1e-4)?;
            let bits: Vec<u32> = found[..rows * outputs].iter().map(|value| value.to_bits()).collect();
            if all_bits.get_or_insert_with(|| bits.clone())[..bits.len()] != bits {
                return Err(format!("{what}: bits depend on the number of rows"));
            }
            run(false, Some(b.slice())).map_err(text)?;
            let found = values(device, y.slice(), element)?;
            compare(&what, &found, &expected[..rows * outputs], tolerance(element))?;
        }
        for gathered_rows in [9, 11, 41] {
            let source: Vec<i32> = (0..gathered_rows).map(|_| numbers.below(most) as i32).collect();
            let map = device.upload(&source).map_err(text)?;
            let y = device.allocate(source.len() * outputs * 4).map_err(text)?;
            let gathered = kernels.linear(Linear {
                y: y.slice(),
                y_stride: outputs,
                y_is_float: true,
                x: Rows { at: x_device.slice(), stride: inputs },
                source: Some(map.slice()),
                weight: w.slice(),
                bias: Some(b.slice()),
                rows: source.len(),
                inputs,
                outputs,
                blocks: if gathered_rows == 9 { LinearBlocks::Narrow } else { LinearBlocks::Wide },
            });
            gathered.map_err(text)?;
            let found: Vec<f32> = device.download(y.slice()).map_err(text)?;
            let expected: Vec<f32> = source
                .iter()
                .flat_map(|row| &expected[*row as usize * outputs..(*row as usize + 1) * outputs])
                .copied()
                .collect();
            compare("linear of gathered rows", &found, &expected, 1e-4)?;
        }
    }
    Ok(())
}

/// Gated layers of every kernel, with ragged ends and bias: the bits of the layer and the activation apart.
pub fn check_linear_gated(device: &Device, element: Element) -> Result<(), String> {
    if element == Element::F32 {
        return Ok(());
    }
    let kernels = Kernels::new(device.clone(), element);
    let mut numbers = Numbers::new(12);
    for (inputs, outputs) in [(128, 64), (72, 40), (1160, 24)] {
        let most = 35;
        let on_device = |values: &[f32]| device.upload(&element.encode(values)).map_err(text);
        let w = on_device(&numbers.floats(2 * outputs * inputs, element))?;
        let b = on_device(&numbers.floats(2 * outputs, element))?;
        let x = on_device(&numbers.floats(most * inputs, element))?;
        for (rows, blocks) in [1, 8, 13, most].into_iter().flat_map(|rows| BLOCKS.map(|blocks| (rows, blocks))) {
            for bias in [None, Some(b.slice())] {
                let both = device.allocate(rows * 2 * outputs * element.bytes()).map_err(text)?;
                let expected = device.allocate(rows * outputs * element.bytes()).map_err(text)?;
                let found = device.allocate(rows * outputs * element.bytes()).map_err(text)?;
                let linear = Linear {
                    y: both.slice(),
                    y_stride: 2 * outputs,
                    y_is_float: false,
                    x: Rows { at: x.slice(), stride: inputs },
                    source: None,
                    weight: w.slice(),
                    bias,
                    rows,
                    inputs,
                    outputs: 2 * outputs,
                    blocks,
                };
                kernels.linear(linear).map_err(text)?;
                kernels.silu_gate(expected.slice(), both.slice(), rows, outputs).map_err(text)?;
                kernels
                    .linear_gated(Linear { y: found.slice(), y_stride: outputs, outputs, ..linear })
                    .map_err(text)?;
                let what = format!("gated linear {inputs}→{outputs}, {rows} rows, {blocks:?}");
                let expected = values(device, expected.slice(), element)?;
                compare(&what, &values(device, found.slice(), element)?, &expected, 0.0)?;
            }
        }
    }
    Ok(())
}
