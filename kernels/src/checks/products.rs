//! Linear layers with rows and weights in FP8.

use super::{
    Numbers, compare,
    linear::{LinearFixture, add_up},
    linear_wide::check_partitioned,
    quantise::{FIXED, Quantised},
    text, values,
};
use crate::{
    device::{Buffer, Device, Element},
    launch::{Kernels, Linear, Parts, QuantiseRows, RowForm, Rows, WeightType},
    reference::{Fp8Rows, Fp8Scales, linear, quantise_rows},
};

/// Layouts of the scales of weights and of rows that occur together.
const PAIRS: [(Fp8Scales, Fp8Rows); 4] = [
    (Fp8Scales::Channels, Fp8Rows::Row),
    (Fp8Scales::Blocks, Fp8Rows::RowBlocks),
    (Fp8Scales::Channels, Fp8Rows::Tensor),
    (Fp8Scales::RowBlocks, Fp8Rows::RowBlocks),
];

/// The largest error of sums by warp groups, relative to the largest sum: Hopper adds up 128
/// products of FP8 numbers with about 14 bits. Measured: 1.4e-4.
const ACCURACY: f32 = 1e-3;

/// A layer's quantised rows, and its results with them.
struct Products<'a> {
    kernels: &'a Kernels,
    layer: &'a LinearFixture,
    layout: Fp8Rows,
    expected: Vec<f32>,
}

impl<'a> Products<'a> {
    fn new(kernels: &'a Kernels, layer: &'a LinearFixture, layout: Fp8Rows) -> Self {
        let rows = quantise_rows(&layer.rows, layer.inputs, layout, FIXED).values();
        Self { kernels, layer, layout, expected: linear(&rows, &layer.matrix, Some(&layer.added)) }
    }

    /// The operands of the first rows, quantised to this memory.
    fn operands<'b>(
        &'b self,
        to: &'b Quantised,
        y: &'b Buffer,
        (rows, form): (usize, RowForm),
    ) -> Result<Linear<'b>, String> {
        let plain = self.layer.operands(y, rows);
        let inputs = plain.inputs;
        let operands = QuantiseRows {
            out: to.out.slice(),
            to: to.to(self.layout, form),
            x: plain.x,
            unscaled: None,
            gated: false,
            rows,
            inputs,
        };
        let row_scales = Some(self.kernels.quantise_rows(operands).map_err(text)?);
        Ok(Linear { x: Rows { at: to.out.slice(), stride: inputs }, row_scales, ..plain })
    }
}

/// Streaming kernels with FP8 numbers, and with their values: every kernel by the number of its
/// rows, in one part and in several, with the same bits for a row among others and alone; and
/// layers with plain weights, and devices without such products, refuse them.
pub fn check_products(device: &Device, element: Element) -> Result<(), String> {
    if element == Element::F32 {
        return Ok(());
    }
    let kernels = Kernels::new(device.clone(), element);
    let mut numbers = Numbers::new(61);
    for (at, (weights, layout)) in PAIRS.into_iter().enumerate() {
        let sizes = [[144, 48], [1296, 24], [1040, 32], [272, 40]][at];
        let layer = LinearFixture::random_fp8(&kernels, &mut numbers, sizes, weights, 70)?;
        let products = Products::new(&kernels, &layer, layout);
        for form in [RowForm::Values, RowForm::Numbers] {
            if form == RowForm::Numbers && !device.properties().multiplies_fp8() {
                check_refused(&products, sizes)?;
                continue;
            }
            check_streamed(&products, &[70, 33, 1, 9, 17], sizes, form)?;
            check_few(&products, sizes, form)?;
            check_pairs(&products, sizes, form)?;
            check_gated(&products, &[1, 9, 40], sizes, form)?;
        }
    }
    Ok(())
}

/// FP8 numbers on a device whose warps do not multiply them.
fn check_refused(products: &Products<'_>, [inputs, outputs]: [usize; 2]) -> Result<(), String> {
    let device = products.kernels.device();
    let y = device.allocate(outputs * 4).map_err(text)?;
    let to = Quantised::new(device, 1, inputs)?;
    let operands = products.operands(&to, &y, (1, RowForm::Numbers))?;
    if products.kernels.linear(operands).is_ok() || products.kernels.linear_few(operands).is_ok() {
        return Err(format!("products {inputs}→{outputs}: FP8 numbers were accepted"));
    }
    Ok(())
}

/// The kernels with the one order of sums.
fn check_streamed(
    products: &Products<'_>,
    all_rows: &[usize],
    [inputs, outputs]: [usize; 2],
    form: RowForm,
) -> Result<(), String> {
    let Products { kernels, layer, layout, expected } = products;
    let device = kernels.device();
    let parts = kernels.parts_of(inputs, outputs, layer.weights());
    let mut all: Option<Vec<f32>> = None;
    for rows in all_rows.iter().copied() {
        let y = device.allocate(parts * rows * outputs * 4).map_err(text)?;
        let to = Quantised::new(device, rows, inputs)?;
        let operands = products.operands(&to, &y, (rows, form))?;
        let what = format!("products {inputs}→{outputs}, {rows} rows, {layout:?} {form:?}");
        kernels.linear(operands).map_err(text)?;
        let found: Vec<f32> = device.download(y.slice()).map_err(text)?;
        let found = &found[..rows * outputs];
        compare(&what, found, &expected[..rows * outputs], 1e-4)?;
        let all = all.get_or_insert_with(|| found.to_vec());
        compare(&format!("{what}, alone"), found, &all[..rows * outputs], 0.0)?;
        if rows <= Kernels::MOST_ROWS_IN_PARTS {
            let Parts { at, count } = kernels.linear_in_parts(operands).map_err(text)?;
            let sums: Vec<f32> = device.download(at).map_err(text)?;
            let added = add_up(&sums[..count * rows * outputs], rows * outputs);
            compare(&format!("{what}, in parts"), &added, &all[..rows * outputs], 0.0)?;
        }
        if kernels.linear(Linear { scales: None, ..operands }).is_ok() {
            return Err(format!("{what}: plain weights were accepted"));
        }
    }
    Ok(())
}

/// Up to 4 rows.
fn check_few(products: &Products<'_>, [inputs, outputs]: [usize; 2], form: RowForm) -> Result<(), String> {
    let Products { kernels, layout, expected, .. } = products;
    let device = kernels.device();
    for rows in [4, 1] {
        let y = device.allocate(rows * outputs * 4).map_err(text)?;
        let to = Quantised::new(device, rows, inputs)?;
        kernels.linear_few(products.operands(&to, &y, (rows, form))?).map_err(text)?;
        let found: Vec<f32> = device.download(y.slice()).map_err(text)?;
        compare(
            &format!("few products {inputs}→{outputs}, {rows} rows, {layout:?} {form:?}"),
            &found,
            &expected[..found.len()],
            1e-4,
        )?;
    }
    Ok(())
}

/// 9 to 32 rows.
fn check_pairs(products: &Products<'_>, [inputs, outputs]: [usize; 2], form: RowForm) -> Result<(), String> {
    let Products { kernels, layout, expected, .. } = products;
    let device = kernels.device();
    for (rows, most_parts) in [(9, 1), (30, Kernels::MOST_PARTS)] {
        let y = device.allocate(Kernels::MOST_PARTS * rows * outputs * 4).map_err(text)?;
        let to = Quantised::new(device, rows, inputs)?;
        let operands = products.operands(&to, &y, (rows, form))?;
        let parts = kernels.linear_pairs(operands, most_parts).map_err(text)?;
        let sums: Vec<f32> = device.download(parts.map_or(y.slice(), |parts| parts.at)).map_err(text)?;
        let found = add_up(&sums[..parts.map_or(1, |parts| parts.count) * rows * outputs], rows * outputs);
        compare(
            &format!("products of pairs {inputs}→{outputs}, {rows} rows, {layout:?} {form:?}"),
            &found,
            &expected[..found.len()],
            1e-4,
        )?;
    }
    Ok(())
}

/// Gated layers with the same weights: the bits of layer and activation.
fn check_gated(
    products: &Products<'_>,
    all_rows: &[usize],
    [inputs, outputs]: [usize; 2],
    form: RowForm,
) -> Result<(), String> {
    let Products { kernels, layout, .. } = products;
    let (device, element, half) = (kernels.device(), kernels.element(), outputs / 2);
    if kernels.parts_of(inputs, outputs, products.layer.weights()) > 1 || !half.is_multiple_of(8) {
        return Ok(());
    }
    for rows in all_rows.iter().copied() {
        let allocate = |count: usize| device.allocate(count * element.bytes()).map_err(text);
        let (y, apart, found) = (allocate(rows * outputs)?, allocate(rows * half)?, allocate(rows * half)?);
        let to = Quantised::new(device, rows, inputs)?;
        let operands = Linear { y_is_float: false, ..products.operands(&to, &y, (rows, form))? };
        kernels.linear(operands).map_err(text)?;
        kernels.silu_gate(apart.slice(), y.slice(), rows, half).map_err(text)?;
        kernels.linear_gated(Linear { y: found.slice(), outputs: half, ..operands }).map_err(text)?;
        let what = format!("gated products {inputs}→{half}, {rows} rows, {layout:?} {form:?}");
        let (found, expected) = (values(device, found.slice(), element)?, values(device, apart.slice(), element)?);
        compare(&what, &found, &expected, 0.0)?;
    }
    Ok(())
}

/// Warp-group kernels with FP8 numbers: those of few rows, and units of every size, in one part and
/// in several, with ragged ends and more rows than a unit; gated layers have the bits of layer and
/// activation. Does nothing if there is no such kernel.
pub fn check_linear_products(device: &Device, element: Element) -> Result<(), String> {
    if element == Element::F32 {
        return Ok(());
    }
    let kernels = Kernels::new(device.clone(), element);
    let mut numbers = Numbers::new(67);
    for (at, (weights, layout)) in PAIRS.into_iter().enumerate() {
        // A ring that wraps around, in parts; few inputs and several blocks; more rows than one
        // unit has.
        for (sizes, rows) in [([1168, 48], 18), ([144, 240], 70), ([400, 160], 130)].into_iter().skip(at / 2) {
            let layer = LinearFixture::random_fp8(&kernels, &mut numbers, sizes, weights, rows)?;
            let products = Products::new(&kernels, &layer, layout);
            check_partitions(&products, sizes, (rows, weights))?;
            check_group(&products, sizes, &[1, rows.min(13), rows.min(24), rows.min(32)])?;
        }
    }
    Ok(())
}

/// Up to 32 rows.
fn check_group(products: &Products<'_>, [inputs, outputs]: [usize; 2], all_rows: &[usize]) -> Result<(), String> {
    let Products { kernels, layout, expected, .. } = products;
    let device = kernels.device();
    if !kernels.has_group(1, inputs, outputs) {
        return Ok(());
    }
    for rows in all_rows.iter().copied() {
        let to = Quantised::new(device, rows, inputs)?;
        for most_parts in [1, Kernels::MOST_PARTS] {
            let y = device.allocate(most_parts * rows * outputs * 4).map_err(text)?;
            let operands = products.operands(&to, &y, (rows, RowForm::Numbers))?;
            let of_layer = || kernels.parts_of_group(rows, inputs, outputs, WeightType::Fp8);
            let parts = if most_parts == 1 { 1 } else { of_layer() };
            check_partitioned(
                (kernels, operands, parts),
                (
                    &format!("group products {inputs}→{outputs}, {rows} rows, {layout:?}"),
                    &expected[..rows * outputs],
                    ACCURACY,
                ),
                |linear| kernels.linear_group(linear, most_parts),
                |linear| kernels.linear_group_gated(linear),
            )?;
            if kernels.linear_group(products.operands(&to, &y, (rows, RowForm::Values))?, most_parts).is_ok() {
                return Err(format!("group products {inputs}→{outputs}: values were accepted as numbers"));
            }
        }
    }
    Ok(())
}

/// All divisions of a layer.
fn check_partitions(
    products: &Products<'_>,
    [inputs, outputs]: [usize; 2],
    (rows, weights): (usize, Fp8Scales),
) -> Result<(), String> {
    let Products { kernels, layout, expected, .. } = products;
    let device = kernels.device();
    let to = Quantised::new(device, rows, inputs)?;
    for wide in kernels.wide_products(rows, [inputs, outputs], 2, (weights, *layout)) {
        let y = device.allocate(wide.parts() * rows * outputs * 4).map_err(text)?;
        let operands = products.operands(&to, &y, (rows, RowForm::Numbers))?;
        let what = format!("products {inputs}→{outputs}, {rows} rows, {wide:?}, scales {weights:?} and {layout:?}");
        check_partitioned(
            (kernels, operands, wide.parts()),
            (&what, expected, ACCURACY),
            |linear| kernels.linear_wide(linear, wide),
            |linear| kernels.linear_wide_gated(linear, wide),
        )?;
        if kernels.linear_wide(products.operands(&to, &y, (rows, RowForm::Values))?, wide).is_ok() {
            return Err(format!("{what}: values were accepted as numbers"));
        }
    }
    Ok(())
}
