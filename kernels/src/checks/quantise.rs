//! Rows quantised to FP8.

use super::{Numbers, compare, layout::same, text, tolerance, values};
use crate::{
    device::{Buffer, Device, Element, Slice},
    launch::{
        Added, Kernels, NormOutputs, Parts, QuantiseRows, QuantiseTo, RmsNorm, RowForm, RowScales, Rows, Unscaled,
        fp8_order, squares_stride,
    },
    reference::{FP8_BLOCK, FP8_LARGEST, Fp8Rows, from_e4m3, quantise_rows},
};

/// All layouts of scales of rows.
pub(super) const ROW_LAYOUTS: [Fp8Rows; 3] = [Fp8Rows::Tensor, Fp8Rows::Row, Fp8Rows::RowBlocks];
/// The scale of a layout with a fixed one.
pub(super) const FIXED: f32 = 0.011;
/// Memory for quantised rows.
pub(super) struct Quantised {
    pub(super) out: Buffer,
    scales: Buffer,
    fixed: Buffer,
}

impl Quantised {
    pub(super) fn new(device: &Device, rows: usize, inputs: usize) -> Result<Self, String> {
        let allocate = |bytes: usize| device.allocate(bytes).map_err(text);
        let bytes = Kernels::row_scales_bytes(Fp8Rows::RowBlocks, rows, inputs).max(4 * rows);
        let fixed = device.upload(&[FIXED]).map_err(text)?;
        Ok(Self { out: allocate(2 * rows * inputs)?, scales: allocate(bytes)?, fixed })
    }

    pub(super) fn to(&self, layout: Fp8Rows, form: RowForm) -> QuantiseTo<'_> {
        let fixed = (layout == Fp8Rows::Tensor).then(|| self.fixed.slice());
        QuantiseTo { scales: self.scales.slice(), fixed, layout, form }
    }

    /// Compares with the expected numbers and scales, both exactly.
    fn check(
        &self,
        (device, element): (&Device, Element),
        scales: RowScales<'_>,
        (what, rows, inputs): (&str, &[f32], usize),
    ) -> Result<(), String> {
        let expected = quantise_rows(rows, inputs, scales.layout, FIXED);
        let mut numbers = expected.numbers().to_vec();
        let what = format!("{what}, {:?}, {:?}", scales.layout, scales.form);
        match scales.form {
            RowForm::Values => {
                let found = values(device, self.out.slice(), element)?;
                let expected: Vec<f32> = numbers.iter().map(|number| from_e4m3(*number)).collect();
                compare(&what, &found, &expected, 0.0)?;
            }
            RowForm::Numbers => {
                fp8_order(&mut numbers);
                let found: Vec<u8> = device.download(self.out.slice()).map_err(text)?;
                same(&what, &found[..numbers.len()], &numbers)?;
            }
        }
        let found: Vec<f32> = device.download(scales.at).map_err(text)?;
        let count = rows.len() / inputs;
        let stride = if scales.layout == Fp8Rows::RowBlocks { count.next_multiple_of(4) } else { 0 };
        let columns = scales.layout.columns(inputs);
        let place = |at: usize| at % columns * stride + at / columns;
        let found: Vec<f32> = (0..count * columns).map(|at| found[place(at)]).collect();
        compare(&format!("scales of {what}"), &found, expected.scales(), 0.0)
    }
}

/// Rows of all magnitudes, among them zeros and a row of zeros, with every layout and form: as they
/// are, unscaled, gated, and as a norm leaves them, whole and in parts.
pub fn check_quantise(device: &Device, element: Element) -> Result<(), String> {
    if element == Element::F32 {
        return Ok(());
    }
    let kernels = Kernels::new(device.clone(), element);
    let mut numbers = Numbers::new(59);
    for (rows, inputs) in [(5, 144), (1, 16), (2, 400), (1, 8208), (1, 16_400), (66, 48)] {
        let stride = 2 * inputs + 8;
        let mut x: Vec<f32> = (0..rows * stride).map(|at| numbers.float() * 10.0_f32.powi(at as i32 % 7 - 4)).collect();
        x[..inputs].iter_mut().filter(|_| rows > 1).for_each(|value| *value = 0.0);
        let x = element.decode(&element.encode(&x));
        let on_device = device.upload(&element.encode(&x)).map_err(text)?;
        let plain: Vec<f32> = x.chunks(stride).flat_map(|row| &row[..inputs]).copied().collect();
        let to = Quantised::new(device, rows, inputs)?;
        let gated = gate(&kernels, &x, [rows, inputs, stride])?;
        for (layout, form) in forms() {
            let operands = QuantiseRows {
                out: to.out.slice(),
                to: to.to(layout, form),
                x: Rows { at: on_device.slice(), stride },
                unscaled: None,
                gated: false,
                rows,
                inputs,
            };
            let found = kernels.quantise_rows(operands).map_err(text)?;
            to.check((device, element), found, (&format!("{rows} rows of {inputs}"), &plain, inputs))?;
            let found = kernels.quantise_rows(QuantiseRows { gated: true, ..operands }).map_err(text)?;
            to.check((device, element), found, (&format!("{rows} gated rows of {inputs}"), &gated, inputs))?;
        }
        check_unscaled(&kernels, &mut numbers, (&on_device, &plain), [rows, inputs, stride])?;
        check_normed(&kernels, &mut numbers, [rows, inputs])?;
    }
    Ok(())
}

/// All layouts and forms.
pub(super) fn forms() -> impl Iterator<Item = (Fp8Rows, RowForm)> {
    ROW_LAYOUTS.into_iter().flat_map(|layout| [RowForm::Values, RowForm::Numbers].map(|form| (layout, form)))
}

/// `silu(gate) · up` of the first elements of rows, as `silu_gate` computes it.
fn gate(kernels: &Kernels, x: &[f32], [rows, inputs, stride]: [usize; 3]) -> Result<Vec<f32>, String> {
    let (device, element) = (kernels.device(), kernels.element());
    let both: Vec<f32> = x.chunks(stride).flat_map(|row| &row[..2 * inputs]).copied().collect();
    let both = device.upload(&element.encode(&both)).map_err(text)?;
    let out = device.allocate(rows * inputs * element.bytes()).map_err(text)?;
    kernels.silu_gate(out.slice(), both.slice(), rows, inputs).map_err(text)?;
    values(device, out.slice(), element)
}

/// Rows with a pending scale: close to the scaled rows, as numbers may be rounded differently.
fn check_unscaled(
    kernels: &Kernels,
    numbers: &mut Numbers,
    (x, plain): (&Buffer, &[f32]),
    [rows, inputs, stride]: [usize; 3],
) -> Result<(), String> {
    let (device, element, count) = (kernels.device(), kernels.element(), 35);
    let squares: Vec<f32> = (0..rows * squares_stride(count)).map(|_| 1e3 * numbers.float().abs()).collect();
    let on_device = device.upload(&squares).map_err(text)?;
    let scale = |row: usize| {
        let sum: f32 = squares[row * squares_stride(count)..][..count].iter().sum();
        1.0 / (sum / inputs as f32 + 1e-3).sqrt()
    };
    let scaled: Vec<f32> = plain.iter().enumerate().map(|(at, value)| value * scale(at / inputs)).collect();
    let to = Quantised::new(device, rows, inputs)?;
    let operands = QuantiseRows {
        out: to.out.slice(),
        to: to.to(Fp8Rows::Row, RowForm::Values),
        x: Rows { at: x.slice(), stride },
        unscaled: Some(Unscaled { squares: on_device.slice(), count, epsilon: 1e-3 }),
        gated: false,
        rows,
        inputs,
    };
    let found = kernels.quantise_rows(operands).map_err(text)?;
    let scales: Vec<f32> = device.download(found.at).map_err(text)?;
    let found = values(device, to.out.slice(), element)?;
    for row in 0..rows {
        let found: Vec<f32> = found[row * inputs..][..inputs].iter().map(|value| value * scales[row]).collect();
        let what = format!("unscaled row {row} of {inputs}");
        compare(&what, &found, &scaled[row * inputs..][..inputs], 1.0 / 16.0)?;
    }
    Ok(())
}

fn contiguous(at: Slice<'_>, stride: usize) -> Rows<'_> {
    Rows { at, stride }
}

/// A norm of rows with a residual, whole or in parts, has the numbers of `rms_norm` quantised, and
/// the same stream.
fn check_normed(kernels: &Kernels, numbers: &mut Numbers, [rows, width]: [usize; 2]) -> Result<(), String> {
    let (device, element, count) = (kernels.device(), kernels.element(), rows * width);
    let floats = |numbers: &mut Numbers, count: usize| -> Result<Buffer, String> {
        device.upload(&element.encode(&numbers.floats(count, element))).map_err(text)
    };
    let (add, weight) = (floats(numbers, count)?, floats(numbers, width)?);
    let before = element.encode(&numbers.floats(count, element));
    let parts: Vec<f32> = (0..3 * count).map(|_| numbers.float()).collect();
    let parts = device.upload(&parts).map_err(text)?;
    let allocate = || device.allocate(count * element.bytes()).map_err(text);
    let (normed, also, keep) = (allocate()?, allocate()?, allocate()?);
    let to = Quantised::new(device, rows, width)?;
    let in_parts = Added::Parts(Parts { at: parts.slice(), count: 3 });
    for add in [None, Some(Added::Rows(contiguous(add.slice(), width))), Some(in_parts)] {
        for (layout, form) in forms() {
            let fresh = || device.upload(&before).map_err(text);
            let (stream, other) = (fresh()?, fresh()?);
            let norm = RmsNorm {
                out: contiguous(normed.slice(), width),
                stream: contiguous(stream.slice(), width),
                add,
                weight: weight.slice(),
                keep: Some(contiguous(keep.slice(), width)),
                source: None,
                rows,
                width,
                epsilon: 1e-5,
            };
            kernels.rms_norm(norm).map_err(text)?;
            let expected = values(device, normed.slice(), element)?;
            let norm =
                RmsNorm { out: contiguous(also.slice(), width), stream: contiguous(other.slice(), width), ..norm };
            let outputs = (to.out.slice(), to.to(layout, form));
            let found = kernels.rms_norm_quantised(norm, outputs, NormOutputs::Both).map_err(text)?;
            let what = format!("norm of {rows} rows of {width}, {add:?}");
            // The sum of squares has another order.
            compare(&what, &values(device, also.slice(), element)?, &expected, tolerance(element))?;
            check_near(&to, (device, element), found, (&what, &expected, width))?;
            for (at, name) in [(other.slice(), "stream"), (keep.slice(), "copy of the stream")] {
                let expected = values(device, stream.slice(), element)?;
                compare(&format!("{name}, {what}"), &values(device, at, element)?, &expected, 0.0)?;
            }
        }
    }
    Ok(())
}

/// Rows of which each is normed by several blocks. All are compared: another order of adding up
/// changes few of the rounded values.
const FEW_ROWS: usize = 64;

/// Few and many rows are normed by different kernels, with the same bits.
pub fn check_norm_of_any_rows(device: &Device, element: Element) -> Result<(), String> {
    if element == Element::F32 {
        return Ok(());
    }
    let kernels = Kernels::new(device.clone(), element);
    let (mut numbers, most) = (Numbers::new(61), FEW_ROWS + 1);
    for width in [528, 5120, 8192, 8208] {
        let upload = |values: Vec<f32>| device.upload(&element.encode(&values)).map_err(text);
        let stream = upload(numbers.floats(most * width, element))?;
        let weight = upload(numbers.floats(width, element))?;
        let normed = device.allocate(most * width * element.bytes()).map_err(text)?;
        let to = Quantised::new(device, most, width)?;
        let run = |rows: usize| -> Result<(Vec<f32>, Vec<u8>), String> {
            let norm = RmsNorm {
                out: contiguous(normed.slice(), width),
                stream: contiguous(stream.slice(), width),
                add: None,
                weight: weight.slice(),
                keep: None,
                source: None,
                rows,
                width,
                epsilon: 1e-5,
            };
            let outputs = (to.out.slice(), to.to(Fp8Rows::RowBlocks, RowForm::Numbers));
            kernels.rms_norm_quantised(norm, outputs, NormOutputs::Both).map_err(text)?;
            let numbers: Vec<u8> = device.download(to.out.slice()).map_err(text)?;
            let first = 0..FEW_ROWS * width;
            Ok((values(device, normed.slice(), element)?[first.clone()].to_vec(), numbers[first].to_vec()))
        };
        let (few, many) = (run(FEW_ROWS)?, run(most)?);
        let what = format!("norm of width {width}, of {FEW_ROWS} rows and among {most}");
        compare(&what, &few.0, &many.0, 0.0)?;
        same(&what, &few.1, &many.1)?;
    }
    Ok(())
}

/// Quantised rows whose values may differ in the last bit before they were quantised.
pub(super) fn check_near(
    to: &Quantised,
    (device, element): (&Device, Element),
    scales: RowScales<'_>,
    (what, rows, inputs): (&str, &[f32], usize),
) -> Result<(), String> {
    let found = match scales.form {
        RowForm::Values => values(device, to.out.slice(), element)?,
        RowForm::Numbers => {
            let found: Vec<u8> = device.download(to.out.slice()).map_err(text)?;
            let mut order: Vec<u8> = (0..16).collect();
            fp8_order(&mut order);
            let mut plain = vec![0.0; rows.len()];
            for (at, number) in found[..rows.len()].iter().enumerate() {
                plain[at / 16 * 16 + usize::from(order[at % 16])] = from_e4m3(*number);
            }
            plain
        }
    };
    let factors: Vec<f32> = device.download(scales.at).map_err(text)?;
    let stride = if scales.layout == Fp8Rows::RowBlocks { (rows.len() / inputs).next_multiple_of(4) } else { 0 };
    let found: Vec<f32> = found[..rows.len()]
        .iter()
        .enumerate()
        .map(|(at, value)| value * factors[at % inputs / FP8_BLOCK * stride + at / inputs])
        .collect();
    let most = rows.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
    // A fixed scale cuts off what is larger than it maps to the largest number.
    let limit = if scales.layout == Fp8Rows::Tensor { FIXED * FP8_LARGEST } else { most };
    let expected: Vec<f32> = rows.iter().map(|value| value.clamp(-limit, limit)).collect();
    compare(
        &format!("{what}, {:?}, {:?}", scales.layout, scales.form),
        &found,
        &expected,
        1.0 / 16.0 + tolerance(element),
    )
}
