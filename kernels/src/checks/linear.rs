//! Linear layers.

use super::{Numbers, compare, text, tolerance, values};
use crate::{
    device::{Buffer, Device, Element},
    launch::{Kernels, Linear, Parts, Rows, Unscaled, WeightScales, WeightType, fp8_order, squares_stride},
    reference::{Fp8Matrix, Fp8Scales, Matrix, linear},
};

/// A layer with random weights on a device, its input rows, and the expected output.
pub(super) struct LinearFixture {
    x: Buffer,
    weight: Buffer,
    /// For FP8 layers.
    scales: Option<(Buffer, Fp8Scales)>,
    bias: Buffer,
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    /// The rows without gaps, and the weights.
    pub(super) rows: Vec<f32>,
    pub(super) matrix: Matrix,
    /// `[rows, outputs]`.
    pub(super) expected: Vec<f32>,
    /// `[outputs]`: the bias included in `expected`.
    pub(super) added: Vec<f32>,
}

impl LinearFixture {
    /// For up to this many rows, with gaps between them.
    pub(super) fn random(
        kernels: &Kernels,
        numbers: &mut Numbers,
        [inputs, outputs]: [usize; 2],
        most_rows: usize,
    ) -> Result<Self, String> {
        let element = kernels.element();
        let weight = numbers.floats(outputs * inputs, element);
        let on_device = kernels.device().upload(&element.encode(&weight)).map_err(text)?;
        Self::with_matrix(kernels, numbers, (Matrix::new(outputs, inputs, weight), on_device, None), most_rows)
    }

    /// The same with FP8 weights.
    pub(super) fn random_fp8(
        kernels: &Kernels,
        numbers: &mut Numbers,
        [inputs, outputs]: [usize; 2],
        layout: Fp8Scales,
        most_rows: usize,
    ) -> Result<Self, String> {
        let matrix = random_fp8(numbers, [outputs, inputs], layout);
        let (weight, scales) = upload_fp8(kernels.device(), &matrix)?;
        Self::with_matrix(kernels, numbers, (matrix.matrix(), weight, Some((scales, layout))), most_rows)
    }

    fn with_matrix(
        kernels: &Kernels,
        numbers: &mut Numbers,
        (matrix, weight, scales): (Matrix, Buffer, Option<(Buffer, Fp8Scales)>),
        most_rows: usize,
    ) -> Result<Self, String> {
        let (device, element) = (kernels.device(), kernels.element());
        let (inputs, outputs) = (matrix.inputs(), matrix.outputs());
        let stride = inputs + APART;
        let added = numbers.floats(outputs, element);
        let x = numbers.floats(most_rows * stride, element);
        let on_device = |values: &[f32]| device.upload(&element.encode(values)).map_err(text);
        let rows_alone: Vec<f32> = x.chunks(stride).flat_map(|row| &row[..inputs]).copied().collect();
        let expected = linear(&rows_alone, &matrix, Some(&added));
        let (x, bias) = (on_device(&x)?, on_device(&added)?);
        Ok(Self { x, weight, scales, bias, inputs, outputs, rows: rows_alone, matrix, expected, added })
    }

    /// The type of the weights.
    pub(super) fn weights(&self) -> WeightType {
        if self.scales.is_some() { WeightType::Fp8 } else { WeightType::Plain }
    }

    /// The first rows, with a float result.
    pub(super) fn operands<'a>(&'a self, y: &'a Buffer, rows: usize) -> Linear<'a> {
        let Self { inputs, outputs, .. } = *self;
        Linear {
            y: y.slice(),
            y_is_float: true,
            x: Rows { at: self.x.slice(), stride: inputs + APART },
            weight: self.weight.slice(),
            scales: self.scales.as_ref().map(|(at, layout)| WeightScales { at: at.slice(), layout: *layout }),
            bias: Some(self.bias.slice()),
            rows,
            inputs,
            outputs,
            unscaled: None,
            row_scales: None,
            needed: None,
        }
    }
}

/// Sums of squares of a layer's rows, from which its kernels compute the scale.
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
    /// With this many pieces per row.
    pub(super) fn random(device: &Device, numbers: &mut Numbers, count: usize, rows: usize) -> Result<Self, String> {
        let values: Vec<f32> = (0..squares_stride(count) * rows).map(|_| 1e3 * numbers.float().abs()).collect();
        Ok(Self { on_device: device.upload(&values).map_err(text)?, values, count, rows })
    }

    pub(super) fn unscaled(&self) -> Option<Unscaled<'_>> {
        Some(Unscaled { squares: self.on_device.slice(), count: self.count, epsilon: EPSILON })
    }

    /// The expected result of the layer's first rows with this scale.
    pub(super) fn expected(&self, layer: &LinearFixture) -> Vec<f32> {
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

/// For each row, the total of the sums of squares that a norm has left.
pub(super) fn sums_of_squares(device: &Device, unscaled: Unscaled<'_>, rows: usize) -> Result<Vec<f32>, String> {
    let Unscaled { squares, count, .. } = unscaled;
    let pieces: Vec<f32> = device.download(squares).map_err(text)?;
    Ok(pieces.chunks(squares_stride(count)).take(rows).map(|row| row[..count].iter().sum()).collect())
}

/// Elements between rows.
const APART: usize = 8;

/// The sum of parts of this many elements, in order.
pub(super) fn add_up(sums: &[f32], elements: usize) -> Vec<f32> {
    let mut all = vec![0.0; elements];
    for part in sums.chunks(elements) {
        all.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
    }
    all
}

/// A matrix of numbers of all magnitudes, with different scales.
pub(super) fn random_fp8(
    numbers: &mut Numbers,
    [outputs, inputs]: [usize; 2],
    layout: Fp8Scales,
) -> Fp8Matrix<'static> {
    // Magnitudes over a few exponents, both signs, and sometimes subnormals.
    let number = |numbers: &mut Numbers| match numbers.below(16) {
        0 => numbers.below(256) as u8 & 0x87,
        _ => (0x20 + numbers.below(0x30) as u8) | (numbers.below(2) as u8) << 7,
    };
    let values: Vec<u8> = (0..outputs * inputs).map(|_| number(numbers)).collect();
    let scales = (0..layout.count(outputs, inputs)).map(|_| 0.02 + 0.3 * numbers.float().abs()).collect();
    Fp8Matrix::new([outputs, inputs], values, layout, scales)
}

/// Uploads its numbers, in the order of the kernels, and its scales.
pub(super) fn upload_fp8(device: &Device, matrix: &Fp8Matrix<'_>) -> Result<(Buffer, Buffer), String> {
    let mut ordered = matrix.numbers().to_vec();
    fp8_order(&mut ordered);
    Ok((device.upload(&ordered).map_err(text)?, device.upload(matrix.scales()).map_err(text)?))
}

/// All layouts of scales.
pub(super) const LAYOUTS: [Fp8Scales; 3] = [Fp8Scales::Channels, Fp8Scales::Blocks, Fp8Scales::RowBlocks];

/// FP8 layers as in [`check_linear`], with all layouts of scales, including partial blocks.
pub fn check_linear_fp8(device: &Device, element: Element) -> Result<(), String> {
    let kernels = Kernels::new(device.clone(), element);
    let mut numbers = Numbers::new(41);
    for (at, sizes) in [[128, 64], [80, 40], [528, 17], [2192, 140], [1552, 8], [272, 600]].into_iter().enumerate() {
        let layout = LAYOUTS[at % LAYOUTS.len()];
        let layer = LinearFixture::random_fp8(&kernels, &mut numbers, sizes, layout, MOST_ROWS)?;
        if element == Element::F32 {
            let y = device.allocate(MOST_ROWS * sizes[1] * 4).map_err(text)?;
            match kernels.linear(layer.operands(&y, 1)) {
                Ok(()) => return Err("float32 kernels take weights in FP8 for others".into()),
                Err(_) => continue,
            }
        }
        check_layer(&kernels, &mut numbers, &layer, &[MOST_ROWS, 1, 9, 17, 64])?;
        check_pairs(&kernels, &mut numbers, &layer)?;
    }
    Ok(())
}

/// A layer with the pairs kernels: whole, in parts, and with unscaled rows.
fn check_pairs(kernels: &Kernels, numbers: &mut Numbers, layer: &LinearFixture) -> Result<(), String> {
    let LinearFixture { inputs, outputs, .. } = *layer;
    let device = kernels.device();
    for (rows, most_parts) in [(9, 1), (16, Kernels::MOST_PARTS), (17, 1), (32, Kernels::MOST_PARTS)] {
        let y = device.allocate(Kernels::MOST_PARTS * rows * outputs * 4).map_err(text)?;
        let squares = Squares::random(device, numbers, 11, rows)?;
        for unscaled in [None, squares.unscaled()] {
            let operands = Linear { unscaled, ..layer.operands(&y, rows) };
            let parts = kernels.linear_pairs(operands, most_parts).map_err(text)?;
            let sums: Vec<f32> = device.download(parts.map_or(y.slice(), |parts| parts.at)).map_err(text)?;
            let count = parts.map_or(1, |parts| parts.count);
            let found = add_up(&sums[..count * rows * outputs], rows * outputs);
            let expected =
                if unscaled.is_some() { squares.expected(layer) } else { layer.expected[..found.len()].to_vec() };
            let what = format!("linear of pairs {inputs}→{outputs}, {rows} rows, at most {most_parts} parts");
            compare(&what, &found, &expected, 1e-4)?;
        }
    }
    Ok(())
}

/// Dequantised FP8 numbers: each value rounded once to the element type.
pub fn check_dequantise(device: &Device, element: Element) -> Result<(), String> {
    if element == Element::F32 {
        return Ok(());
    }
    let kernels = Kernels::new(device.clone(), element);
    let mut numbers = Numbers::new(43);
    for layout in LAYOUTS {
        let matrix = random_fp8(&mut numbers, [140, 272], layout);
        let (weight, scales) = upload_fp8(device, &matrix)?;
        let out = device.allocate(140 * 272 * element.bytes()).map_err(text)?;
        let scales = WeightScales { at: scales.slice(), layout };
        kernels.dequantise(out.slice(), weight.slice(), scales, [140, 272]).map_err(text)?;
        let expected = element.decode(&element.encode(&matrix.values()));
        compare(&format!("dequantise {layout:?}"), &values(device, out.slice(), element)?, &expected, 0.0)?;
    }
    let random = device.allocate(4096).map_err(text)?;
    kernels.fill_random_fp8(random.slice(), 1).map_err(text)?;
    let random: Vec<u8> = device.download(random.slice()).map_err(text)?;
    if random.iter().any(|number| number & 0x7f == 0x7f) || random.iter().all(|number| *number == random[0]) {
        return Err("random numbers in FP8 are all the same, or none".into());
    }
    Ok(())
}

/// Maximum number of rows of a layer.
const MOST_ROWS: usize = 70;

/// Shapes with ragged ends, in one part and in several, rows from 1 to more than a block, bias,
/// float results, gaps between rows, and blocks of 4, 5, 7 and 8 warps in the emulator; and that
/// each row has the same bits regardless of the number of rows, and of whether its parts are added
/// in the kernel or later.
pub fn check_linear(device: &Device, element: Element) -> Result<(), String> {
    let kernels = Kernels::new(device.clone(), element);
    let mut numbers = Numbers::new(11);
    for (inputs, outputs) in [(128, 64), (72, 40), (520, 17), (2184, 100), (1544, 8), (72, 600), (72, 880), (72, 1000)]
    {
        let layer = LinearFixture::random(&kernels, &mut numbers, [inputs, outputs], MOST_ROWS)?;
        check_layer(&kernels, &mut numbers, &layer, &[MOST_ROWS, 1, 3, 4, 8, 9, 16, 17, 31, 33, 64])?;
    }
    Ok(())
}

/// A layer with several numbers of rows, the largest first.
fn check_layer(
    kernels: &Kernels,
    numbers: &mut Numbers,
    layer: &LinearFixture,
    all_rows: &[usize],
) -> Result<(), String> {
    let (device, element) = (kernels.device(), kernels.element());
    let LinearFixture { inputs, outputs, .. } = *layer;
    let expected = &layer.expected;
    let parts = kernels.parts_of(inputs, outputs, layer.weights());
    let mut all_bits: Option<Vec<u32>> = None;
    for rows in all_rows.iter().copied() {
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
        let squares = Squares::random(device, numbers, 11, rows)?;
        let unscaled = Linear { unscaled: squares.unscaled(), ..operands };
        if element == Element::F32 || rows > 32 {
            if kernels.linear(unscaled).is_ok() {
                return Err(format!("{what}: unscaled rows were accepted as scaled"));
            }
            continue;
        }
        let parts = kernels.linear_in_parts(unscaled).map_err(text)?;
        let found = add_up(&device.download::<f32>(parts.at).map_err(text)?, rows * outputs);
        compare(&format!("unscaled {what}"), &found[..rows * outputs], &squares.expected(layer), 1e-4)?;
    }
    Ok(())
}

/// Gated layers for every number of rows per block, with ragged ends and bias: the same bits as
/// layer and activation separately.
pub fn check_linear_gated(device: &Device, element: Element) -> Result<(), String> {
    if element == Element::F32 {
        return Ok(());
    }
    let kernels = Kernels::new(device.clone(), element);
    let mut numbers = Numbers::new(12);
    let plain = [[128, 64], [72, 40], [1000, 24], [72, 304], [72, 440]].map(|sizes| (sizes, None));
    let fp8 = [([128, 64], Fp8Scales::Channels), ([272, 304], Fp8Scales::Blocks), ([1008, 24], Fp8Scales::RowBlocks)];
    for ([inputs, outputs], layout) in plain.into_iter().chain(fp8.map(|(sizes, layout)| (sizes, Some(layout)))) {
        let most = MOST_ROWS;
        let on_device = |values: &[f32]| device.upload(&element.encode(values)).map_err(text);
        let (w, scales) = match layout {
            None => (on_device(&numbers.floats(2 * outputs * inputs, element))?, None),
            Some(layout) => {
                let matrix = random_fp8(&mut numbers, [2 * outputs, inputs], layout);
                let (weight, scales) = upload_fp8(device, &matrix)?;
                (weight, Some((scales, layout)))
            }
        };
        let scales = scales.as_ref().map(|(at, layout)| WeightScales { at: at.slice(), layout: *layout });
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
                    scales,
                    bias,
                    rows,
                    inputs,
                    outputs: 2 * outputs,
                    unscaled,
                    row_scales: None,
                    needed: None,
                };
                kernels.linear(linear).map_err(text)?;
                kernels.silu_gate(expected.slice(), both.slice(), rows, outputs).map_err(text)?;
                kernels.linear_gated(Linear { y: found.slice(), outputs, ..linear }).map_err(text)?;
                let what = format!("gated linear {inputs}→{outputs}, {rows} rows");
                let expected = values(device, expected.slice(), element)?;
                compare(&what, &values(device, found.slice(), element)?, &expected, 0.0)?;
                if kernels.suits_pairs(rows, linear.weights()) {
                    kernels.linear_pairs_gated(Linear { y: found.slice(), outputs, ..linear }).map_err(text)?;
                    // Sums of squares are added in another order.
                    let allowed = if unscaled.is_some() { tolerance(element) } else { 0.0 };
                    compare(&format!("{what}, pairs"), &values(device, found.slice(), element)?, &expected, allowed)?;
                }
            }
        }
    }
    Ok(())
}
