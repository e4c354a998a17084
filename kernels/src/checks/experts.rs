//! Routers and layers of experts.

use super::{
    Numbers, compare,
    linear::{random_fp8, upload_fp8},
    quantise::{FIXED, Quantised},
    text, tolerance, values,
};
use crate::{
    device::{Buffer, Device, Element},
    launch::{
        Added, ExpertBiases, ExpertKernels, ExpertProducts, Experts, ExpertsShape, ExpertsWeights, ExpertsWork,
        Kernels, NarrowBlock, Parts, RowForm, Rows, WeightScales, WeightType, mxfp4_order, mxfp4_scales,
    },
    reference::{
        Expert, Fp8Rows, Fp8Scales, GateActivation, MXFP4_BLOCK, Matrix, Mxfp4Matrix, Router, Routes, Scoring, experts,
        linear, quantise_rows, sigmoid,
    },
};

const SOFTMAX: Router = Router {
    scoring: Scoring::Softmax,
    top_k: 4,
    groups: 1,
    top_k_groups: 1,
    renormalize: Some(0.0),
    scale: 1.0,
    uniform: false,
};
const SIGMOID: Router = Router { scoring: Scoring::Sigmoid, renormalize: Some(1e-20), scale: 2.5, ..SOFTMAX };

/// Maximum number of rows of each shape.
const MOST_ROWS: usize = 70;

/// A layer on a device and on the host.
struct ExpertsFixture {
    shape: ExpertsShape,
    correction: Option<Vec<f32>>,
    router: Matrix,
    experts: Vec<Expert>,
    x: Vec<f32>,
    on_device: [Buffer; 5],
    /// For FP8 experts.
    scales: Option<([Buffer; 2], Fp8Scales)>,
    /// For MXFP4 experts.
    mxfp4_scales: Option<[Buffer; 2]>,
    /// Of router, gate and up, and down; the router's also on the host.
    biases: Option<([Buffer; 3], Vec<f32>)>,
}

/// Elements between rows.
const APART: usize = 8;

impl ExpertsFixture {
    fn random(kernels: &Kernels, numbers: &mut Numbers, shape: ExpertsShape, corrected: bool) -> Result<Self, String> {
        let (device, element) = (kernels.device(), kernels.element());
        let ExpertsShape { routed, hidden, intermediate, .. } = shape;
        let scaled = |numbers: &mut Numbers, count: usize, by: f32| {
            let values: Vec<f32> = numbers.floats(count, element).iter().map(|value| value * by).collect();
            element.decode(&element.encode(&values))
        };
        let router = scaled(numbers, shape.logits() * hidden, 1.0);
        let gate_up = scaled(numbers, shape.experts() * 2 * intermediate * hidden, 0.25);
        let down = scaled(numbers, shape.experts() * hidden * intermediate, 0.25);
        let x = numbers.floats(MOST_ROWS * (hidden + APART), element);
        let correction: Vec<f32> = (0..routed).map(|_| 7.0 + numbers.float() * 0.3).collect();
        let half = intermediate * hidden;
        let expert = |at: usize| {
            let own = &gate_up[at * 2 * half..][..2 * half];
            Expert::new(
                Matrix::new(intermediate, hidden, own[..half].to_vec()),
                Matrix::new(intermediate, hidden, own[half..].to_vec()),
                Matrix::new(hidden, intermediate, down[at * half..][..half].to_vec()),
            )
        };
        let upload = |values: &[f32]| device.upload(&element.encode(values)).map_err(text);
        Ok(Self {
            shape,
            correction: corrected.then(|| correction.clone()),
            experts: (0..shape.experts()).map(expert).collect(),
            on_device: [
                upload(&router)?,
                upload(&gate_up)?,
                upload(&down)?,
                upload(&x)?,
                device.upload(&correction).map_err(text)?,
            ],
            router: Matrix::new(shape.logits(), hidden, router),
            x,
            scales: None,
            mxfp4_scales: None,
            biases: None,
        })
    }

    /// The same with MXFP4 experts.
    fn in_mxfp4(mut self, kernels: &Kernels, numbers: &mut Numbers) -> Result<Self, String> {
        let ExpertsShape { hidden, intermediate, .. } = self.shape;
        let sizes = [[2 * intermediate, hidden], [hidden, intermediate]];
        let (mut bytes, mut words) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        for expert in &mut self.experts {
            let [gate_up, down] = sizes.map(|[rows, inputs]| {
                let all: Vec<u8> = (0..rows * inputs / 2).map(|_| numbers.bits() as u8).collect();
                // Small enough for every element type; sums stay near one.
                let scales: Vec<u8> = (0..rows * inputs / MXFP4_BLOCK).map(|_| 120 + numbers.below(5) as u8).collect();
                Mxfp4Matrix::new([rows, inputs], all, scales)
            });
            for (at, matrix) in [&gate_up, &down].into_iter().enumerate() {
                let mut own = matrix.numbers().to_vec();
                mxfp4_order(&mut own);
                bytes[at].extend(own);
                words[at].extend(mxfp4_scales(matrix.scales(), sizes[at][0]));
            }
            expert.gate = gate_up.cut(0..intermediate, 0..hidden).matrix();
            expert.up = gate_up.cut(intermediate..2 * intermediate, 0..hidden).matrix();
            expert.down = down.matrix();
        }
        let device = kernels.device();
        self.on_device[1] = device.upload(&bytes[0]).map_err(text)?;
        self.on_device[2] = device.upload(&bytes[1]).map_err(text)?;
        self.mxfp4_scales = Some([device.upload(&words[0]).map_err(text)?, device.upload(&words[1]).map_err(text)?]);
        self.shape.weights = WeightType::Mxfp4;
        Ok(self)
    }

    /// The same with biases, and with the clamped activation.
    fn biased(mut self, kernels: &Kernels, numbers: &mut Numbers) -> Result<Self, String> {
        let (device, element) = (kernels.device(), kernels.element());
        let ExpertsShape { routed, hidden, intermediate, .. } = self.shape;
        let router = numbers.floats(routed, element);
        let [mut gate_up, mut down] = [const { Vec::<f32>::new() }; 2];
        // Low enough that both bounds are met.
        let activation = GateActivation::Clamped { alpha: 1.702, limit: 0.75 };
        for expert in &mut self.experts {
            let [gate, up, own] = [intermediate, intermediate, hidden].map(|count| numbers.floats(count, element));
            gate_up.extend(gate.iter().chain(&up));
            down.extend(&own);
            expert.biases = Some([gate, up, own]);
            expert.activation = activation;
        }
        let upload = |values: &[f32]| device.upload(&element.encode(values)).map_err(text);
        self.biases = Some(([upload(&router)?, upload(&gate_up)?, upload(&down)?], router));
        self.shape.biased = true;
        self.shape.activation = activation;
        Ok(self)
    }

    /// The same with FP8 experts.
    fn in_fp8(mut self, kernels: &Kernels, numbers: &mut Numbers, layout: Fp8Scales) -> Result<Self, String> {
        let ExpertsShape { hidden, intermediate, .. } = self.shape;
        let count = self.shape.experts();
        let gate_up = random_fp8(numbers, [count * 2 * intermediate, hidden], layout);
        let down = random_fp8(numbers, [count * hidden, intermediate], layout);
        let (of_gate_up, of_down) = (gate_up.values(), down.values());
        let half = intermediate * hidden;
        let expert = |at: usize| {
            Expert::new(
                Matrix::new(intermediate, hidden, of_gate_up[2 * at * half..][..half].to_vec()),
                Matrix::new(intermediate, hidden, of_gate_up[(2 * at + 1) * half..][..half].to_vec()),
                Matrix::new(hidden, intermediate, of_down[at * half..][..half].to_vec()),
            )
        };
        self.experts = (0..count).map(expert).collect();
        let (gate_up, gate_up_scales) = upload_fp8(kernels.device(), &gate_up)?;
        let (down, down_scales) = upload_fp8(kernels.device(), &down)?;
        self.on_device[1] = gate_up;
        self.on_device[2] = down;
        self.scales = Some(([gate_up_scales, down_scales], layout));
        self.shape.weights = WeightType::Fp8;
        Ok(self)
    }

    fn operands<'a>(&'a self, work: &'a [Buffer; 7], rows: usize, by: ExpertKernels) -> Experts<'a> {
        let [router, gate_up, down, x, correction] = &self.on_device;
        let [logits, counters, expert, weight, tiles, gated, outputs] = work.each_ref().map(Buffer::slice);
        Experts {
            shape: self.shape,
            weights: ExpertsWeights {
                router: router.slice(),
                correction: self.correction.as_ref().map(|_| correction.slice()),
                gate_up: gate_up.slice(),
                down: down.slice(),
                scales: self
                    .scales
                    .as_ref()
                    .map(|(both, layout)| both.each_ref().map(|at| WeightScales { at: at.slice(), layout: *layout })),
                mxfp4_scales: self.mxfp4_scales.as_ref().map(|both| both.each_ref().map(Buffer::slice)),
                biases: self.biases.as_ref().map(|([router, gate_up, down], _)| ExpertBiases {
                    router: router.slice(),
                    gate_up: gate_up.slice(),
                    down: down.slice(),
                }),
            },
            x: Rows { at: x.slice(), stride: self.shape.hidden + APART },
            rows,
            work: ExpertsWork { logits, counters, expert, weight, tiles, gated, outputs },
            by,
            products: None,
            whole: rows == 4,
        }
    }

    /// The reference's results for the first rows: logits, routes with shared experts, and the
    /// layer's output.
    fn expected(&self, rows: usize, element: Element, of_rows: Option<Fp8Rows>) -> (Vec<f32>, Routes, Vec<f32>) {
        let ExpertsShape { routed, hidden, shared, .. } = self.shape;
        let x: Vec<f32> = self.x.chunks(hidden + APART).take(rows).flat_map(|row| &row[..hidden]).copied().collect();
        let mut logits = linear(&x, &self.router, self.biases.as_ref().map(|(_, router)| &router[..]));
        if self.shape.rounds_logits {
            logits = element.decode(&element.encode(&logits));
        }
        let of_experts: Vec<f32> =
            logits.chunks_exact(self.shape.logits()).flat_map(|row| &row[..routed]).copied().collect();
        let chosen = self.shape.router.route(&of_experts, routed, self.correction.as_deref());
        let mut routes = Routes { top_k: self.shape.chosen(), experts: Vec::new(), weights: Vec::new() };
        for row in 0..rows {
            let gate = logits[row * self.shape.logits()..][..self.shape.logits()].get(routed);
            let weight = gate.map_or(1.0, |gate| sigmoid(*gate));
            let shared = (routed..routed + shared).map(|expert| (expert as u32, weight));
            for (expert, weight) in chosen.row(row).chain(shared) {
                routes.experts.push(expert);
                routes.weights.push(weight);
            }
        }
        let y = match of_rows {
            None => experts(&x, &routes, &self.experts),
            Some(layout) => self.products(&x, &routes, (layout, element)),
        };
        (logits, routes, y)
    }

    /// The output of rows quantised before each product.
    fn products(&self, x: &[f32], routes: &Routes, (layout, element): (Fp8Rows, Element)) -> Vec<f32> {
        let ExpertsShape { hidden, intermediate, .. } = self.shape;
        let mut y = vec![0.0; x.len()];
        for (row, (x, y)) in x.chunks(hidden).zip(y.chunks_mut(hidden)).enumerate() {
            let x = quantise_rows(x, hidden, layout, FIXED).values();
            for (expert, weight) in routes.row(row) {
                let Expert { gate, up, down, .. } = &self.experts[expert as usize];
                let both = linear(&x, gate, None).into_iter().zip(linear(&x, up, None));
                let joined: Vec<f32> = both.map(|(gate, up)| gate * sigmoid(gate) * up).collect();
                let joined = element.decode(&element.encode(&joined));
                let joined = quantise_rows(&joined, intermediate, layout, FIXED).values();
                y.iter_mut().zip(linear(&joined, down, None)).for_each(|(y, own)| *y += weight * own);
            }
        }
        y
    }
}

/// Routers of every kind (softmax and sigmoid, with and without correction, groups, shared experts
/// and their gate), with widths that fill no stage, from one row to many, with every kernel:
/// compares experts, their order, weights and sums with the reference. Where sums must have one
/// order, a row has the same bits regardless of the other rows.
pub fn check_experts(device: &Device, element: Element) -> Result<(), String> {
    let kernels = Kernels::new(device.clone(), element);
    let mut numbers = Numbers::new(31);
    let shape = |routed, shared, router, hidden, intermediate| ExpertsShape {
        routed,
        shared,
        gated: false,
        router,
        rounds_logits: false,
        hidden,
        intermediate,
        weights: WeightType::Plain,
        activation: GateActivation::Silu,
        biased: false,
    };
    let grouped = Router { groups: 4, top_k_groups: 2, ..SIGMOID };
    let plain = Router { renormalize: None, top_k: 2, ..SOFTMAX };
    for (shape, corrected) in [
        (shape(16, 0, SOFTMAX, 136, 72), false),
        (shape(24, 1, SIGMOID, 72, 40), true),
        (shape(32, 2, grouped, 264, 24), true),
        (shape(5, 0, plain, 520, 264), false),
        (ExpertsShape { gated: true, ..shape(32, 1, SOFTMAX, 72, 40) }, false),
        (ExpertsShape { gated: true, rounds_logits: true, ..shape(17, 2, plain, 136, 24) }, false),
        (ExpertsShape { rounds_logits: true, ..shape(20, 0, Router { top_k: 9, ..SOFTMAX }, 64, 16) }, false),
    ] {
        let layer = ExpertsFixture::random(&kernels, &mut numbers, shape, corrected)?;
        check_layer(&kernels, &layer, None)?;
    }
    // Inputs that fill no stage, or several; outputs that fill no block.
    for (shape, is_mxfp4) in [
        (shape(6, 0, SOFTMAX, 160, 96), true),
        (ExpertsShape { rounds_logits: true, ..shape(16, 0, SOFTMAX, 96, 288) }, true),
        (shape(6, 1, plain, 136, 72), false),
    ] {
        let layer = ExpertsFixture::random(&kernels, &mut numbers, shape, false)?.biased(&kernels, &mut numbers)?;
        check_layer(&kernels, &if is_mxfp4 { layer.in_mxfp4(&kernels, &mut numbers)? } else { layer }, None)?;
    }
    if element == Element::F32 {
        return Ok(());
    }
    for (shape, corrected, layout) in [
        (shape(16, 0, SOFTMAX, 144, 80), false, Fp8Scales::Channels),
        (shape(5, 1, SIGMOID, 528, 272), true, Fp8Scales::RowBlocks),
        (shape(4, 1, plain, 640, 128), false, Fp8Scales::Blocks),
    ] {
        let layer =
            ExpertsFixture::random(&kernels, &mut numbers, shape, corrected)?.in_fp8(&kernels, &mut numbers, layout)?;
        check_layer(&kernels, &layer, None)?;
    }
    Ok(())
}

/// Narrow blocks of other divisions than those that are taken, as [`check_experts`] checks all
/// kernels: for MXFP4, and for products in FP8.
pub fn check_narrow_experts(device: &Device, element: Element) -> Result<(), String> {
    if element == Element::F32 {
        return Ok(());
    }
    let block = |warps, shares, stages| NarrowBlock { warps, shares, stages };
    let kernels = Kernels::new(device.clone(), element);
    let kernels = kernels.with_narrow([block(3, 2, 3), block(1, 4, 4)]);
    let mut numbers = Numbers::new(47);
    let shape = ExpertsShape {
        routed: 6,
        shared: 1,
        gated: false,
        router: Router { top_k: 2, ..SOFTMAX },
        rounds_logits: false,
        hidden: 288,
        intermediate: 160,
        weights: WeightType::Plain,
        activation: GateActivation::Silu,
        biased: false,
    };
    let layer = ExpertsFixture::random(&kernels, &mut numbers, shape, false)?;
    check_layer(&kernels, &layer.biased(&kernels, &mut numbers)?.in_mxfp4(&kernels, &mut numbers)?, None)?;
    let layer = ExpertsFixture::random(&kernels, &mut numbers, shape, false)?;
    let layer = layer.in_fp8(&kernels, &mut numbers, Fp8Scales::RowBlocks)?;
    let form = RowForm::for_device(device.properties());
    check_layer(&kernels, &layer, Some((Fp8Rows::RowBlocks, form)))
}

/// Experts in FP8 whose rows are in FP8 too, with every layout of scales of rows and in each form,
/// as [`check_experts`] checks others.
pub fn check_expert_products(device: &Device, element: Element) -> Result<(), String> {
    if element == Element::F32 {
        return Ok(());
    }
    let kernels = Kernels::new(device.clone(), element);
    let mut numbers = Numbers::new(71);
    for (routed, sizes, layout, of_rows) in [
        (6, [144, 80], Fp8Scales::Channels, Fp8Rows::Row),
        (5, [272, 144], Fp8Scales::RowBlocks, Fp8Rows::RowBlocks),
        (4, [80, 48], Fp8Scales::Channels, Fp8Rows::Tensor),
    ] {
        let shape = ExpertsShape {
            routed,
            shared: 1,
            gated: false,
            router: Router { renormalize: None, top_k: 2, ..SOFTMAX },
            rounds_logits: false,
            hidden: sizes[0],
            intermediate: sizes[1],
            weights: WeightType::Plain,
            activation: GateActivation::Silu,
            biased: false,
        };
        let layer =
            ExpertsFixture::random(&kernels, &mut numbers, shape, false)?.in_fp8(&kernels, &mut numbers, layout)?;
        for form in [RowForm::Values, RowForm::Numbers] {
            if form == RowForm::Values || device.properties().multiplies_fp8() {
                check_layer(&kernels, &layer, Some((of_rows, form)))?;
            } else if check_layer(&kernels, &layer, Some((of_rows, form))).is_ok() {
                return Err("experts multiplied numbers on a device that does not".into());
            }
        }
    }
    Ok(())
}

/// A layer, with rows in FP8 if a layout of their scales and a form are given.
fn check_layer(kernels: &Kernels, layer: &ExpertsFixture, of_rows: Option<(Fp8Rows, RowForm)>) -> Result<(), String> {
    let (device, element, shape) = (kernels.device(), kernels.element(), layer.shape);
    use ExpertKernels::{Few, Float, Many, Narrow};
    let (float, packed) = (element == Element::F32, shape.weights != WeightType::Plain);
    let ways = |rows: usize| match rows {
        _ if float => &[Float][..],
        MOST_ROWS if packed => &[Narrow, Few(8), Few(16), Few(32), Many(64)],
        MOST_ROWS => &[Narrow, Few(8), Few(16), Few(32), Many(64), Many(128)],
        1 => &[Narrow, Few(8), Few(32), Many(64)],
        _ if packed => &[Few(16), Many(64)],
        _ => &[Few(16), Many(128)],
    };
    let bytes = Kernels::experts_bytes(element, &shape, MOST_ROWS, false);
    let allocated: Result<Vec<Buffer>, String> =
        bytes.iter().map(|bytes| device.allocate(*bytes).map_err(text)).collect();
    let work: [Buffer; 7] = allocated?.try_into().map_err(|_| "seven buffers".to_owned())?;
    device.fill(work[1].slice(), 0).map_err(text)?;
    let out = device.allocate(MOST_ROWS * shape.hidden * element.bytes()).map_err(text)?;
    // Of kernels with one order of sums each: for few rows, for many, and narrow ones.
    let mut all_bits: [Option<Vec<u32>>; 3] = [None, None, None];
    let quantised = [
        Quantised::new(device, MOST_ROWS, shape.hidden)?,
        Quantised::new(device, MOST_ROWS * shape.chosen(), shape.intermediate)?,
    ];
    let products = of_rows.map(|(layout, form)| ExpertProducts {
        quantised: quantised.each_ref().map(|to| to.out.slice()),
        to: quantised.each_ref().map(|to| to.to(layout, form)),
        is_ready: false,
    });
    // A number next to the middle of two may be rounded to either.
    let allowed = 3.0 * tolerance(element) + if of_rows.is_some() { 0.03 } else { 0.0 };
    for rows in [MOST_ROWS, 1, 4, 13] {
        let (logits, routes, expected) = layer.expected(rows, element, of_rows.map(|(layout, _)| layout));
        for by in ways(rows) {
            let what =
                format!("{} experts of {}→{}, {rows} rows, {by:?}", shape.routed, shape.hidden, shape.intermediate);
            let to = Rows { at: out.slice(), stride: shape.hidden };
            let operands = Experts { products, ..layer.operands(&work, rows, *by) };
            let added = kernels.experts(operands, to).map_err(text)?;
            let found: Vec<f32> = device.download(work[0].slice()).map_err(text)?;
            compare(
                &format!("logits of {what}"),
                &found,
                &logits,
                if shape.rounds_logits { tolerance(element) } else { 1e-4 },
            )?;
            check_routes(device, &work, &logits, &routes, layer, &what)?;
            let found = match added {
                Added::Rows(_) => values(device, out.slice(), element)?[..rows * shape.hidden].to_vec(),
                Added::Parts(Parts { at, count }) => {
                    let parts: Vec<f32> = device.download(at).map_err(text)?;
                    let mut sum = vec![0.0_f32; rows * shape.hidden];
                    for part in parts.chunks(sum.len()).take(count) {
                        sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
                    }
                    element.decode(&element.encode(&sum))
                }
            };
            // The inner activations and, with many rows, each expert's output are rounded too.
            compare(&what, &found, &expected, allowed)?;
            let bits: Vec<u32> = found.iter().map(|value| value.to_bits()).collect();
            let order = match by {
                Float | Few(_) => 0,
                Many(_) => 1,
                Narrow => 2,
            };
            let all_bits = &mut all_bits[order];
            if all_bits.get_or_insert_with(|| bits.clone())[..bits.len()] != bits {
                return Err(format!("{what}: bits depend on the other rows, or on the tile"));
            }
        }
    }
    Ok(())
}

/// Compares experts and weights. Where rounding differs, an expert may be replaced by one of nearly
/// the same rank.
fn check_routes(
    device: &Device,
    work: &[Buffer; 7],
    logits: &[f32],
    routes: &Routes,
    layer: &ExpertsFixture,
    what: &str,
) -> Result<(), String> {
    let found: Vec<i32> = device.download(work[2].slice()).map_err(text)?;
    let count = routes.experts.len();
    if let Some(at) = (0..count).find(|at| found[*at] != routes.experts[*at] as i32) {
        let (row, routed) = (at / routes.top_k, layer.shape.routed);
        return Err(format!(
            "{what}: row {row} goes to {:?}, expected {:?}; logits {:?}",
            &found[row * routes.top_k..][..routes.top_k],
            &routes.experts[row * routes.top_k..][..routes.top_k],
            &logits[row * layer.shape.logits()..][..routed],
        ));
    }
    let found: Vec<f32> = device.download(work[3].slice()).map_err(text)?;
    compare(&format!("weights of {what}"), &found[..count], &routes.weights, 1e-3)
}

/// A uniform router: the experts and weights that the reference chooses from the device's own
/// logits, since other bits of them are another choice.
pub fn check_uniform_router(device: &Device, element: Element) -> Result<(), String> {
    let kernels = Kernels::new(device.clone(), element);
    let mut numbers = Numbers::new(41);
    for (router, routed, corrected) in [
        (SOFTMAX, 20, false),
        (Router { renormalize: None, top_k: 8, ..SOFTMAX }, 128, false),
        (Router { groups: 8, top_k_groups: 4, top_k: 8, ..SIGMOID }, 256, true),
    ] {
        let shape = ExpertsShape {
            routed,
            shared: 0,
            gated: false,
            router: Router { uniform: true, ..router },
            rounds_logits: !corrected,
            hidden: 32,
            intermediate: 8,
            weights: WeightType::Plain,
            activation: GateActivation::Silu,
            biased: false,
        };
        let layer = ExpertsFixture::random(&kernels, &mut numbers, shape, corrected)?;
        let by = if element == Element::F32 { ExpertKernels::Float } else { ExpertKernels::Few(8) };
        let bytes = Kernels::experts_bytes(element, &shape, MOST_ROWS, true);
        let allocated: Result<Vec<Buffer>, String> =
            bytes.iter().map(|bytes| device.zeros(*bytes).map_err(text)).collect();
        let work: [Buffer; 7] = allocated?.try_into().map_err(|_| "seven buffers".to_owned())?;
        let out = device.allocate(MOST_ROWS * 32 * element.bytes()).map_err(text)?;
        for rows in [1, 13, MOST_ROWS] {
            kernels.experts(layer.operands(&work, rows, by), Rows { at: out.slice(), stride: 32 }).map_err(text)?;
            let logits: Vec<f32> = device.download(work[0].slice()).map_err(text)?;
            let logits = &logits[..rows * routed];
            let routes = shape.router.route(logits, routed, layer.correction.as_deref());
            let what = format!("{rows} rows of a uniform router to {routed} experts");
            check_routes(device, &work, logits, &routes, &layer, &what)?;
        }
    }
    Ok(())
}

/// Rows whose logits are equal, or NaN: ties go exactly to the lowest expert and the lowest group.
pub fn check_router_ties(device: &Device, element: Element) -> Result<(), String> {
    let kernels = Kernels::new(device.clone(), element);
    let mut numbers = Numbers::new(37);
    for (router, corrected) in [
        (SOFTMAX, false),
        (SIGMOID, false),
        (SIGMOID, true),
        (Router { groups: 4, top_k_groups: 2, ..SIGMOID }, false),
        (Router { groups: 8, top_k_groups: 3, ..SIGMOID }, true),
    ] {
        let shape = ExpertsShape {
            routed: 16,
            shared: 1,
            gated: false,
            router,
            rounds_logits: false,
            hidden: 32,
            intermediate: 8,
            weights: WeightType::Plain,
            activation: GateActivation::Silu,
            biased: false,
        };
        let mut layer = ExpertsFixture::random(&kernels, &mut numbers, shape, corrected)?;
        // Small integers: many sums are equal, and exact in every type.
        let whole = |values: usize, numbers: &mut Numbers| -> Vec<f32> {
            (0..values).map(|_| numbers.below(3) as f32 - 1.0).collect()
        };
        let (router, x) = (whole(16 * 32, &mut numbers), whole(MOST_ROWS * (32 + APART), &mut numbers));
        let mut x: Vec<f32> = x.iter().enumerate().map(|(at, x)| if at % 40 < 5 { *x } else { 0.0 }).collect();
        x[..32].fill(0.0);
        let correction: Vec<f32> = (0..16).map(|_| numbers.below(2) as f32).collect();
        layer.on_device[0] = device.upload(&element.encode(&router)).map_err(text)?;
        layer.on_device[3] = device.upload(&element.encode(&x)).map_err(text)?;
        layer.on_device[4] = device.upload(&correction).map_err(text)?;
        layer.router = Matrix::new(16, 32, router);
        layer.x = x;
        layer.correction = corrected.then_some(correction);
        let by = if element == Element::F32 { ExpertKernels::Float } else { ExpertKernels::Few(8) };
        let bytes = Kernels::experts_bytes(element, &shape, MOST_ROWS, true);
        let allocated: Result<Vec<Buffer>, String> =
            bytes.iter().map(|bytes| device.zeros(*bytes).map_err(text)).collect();
        let work: [Buffer; 7] = allocated?.try_into().map_err(|_| "seven buffers".to_owned())?;
        let out = device.allocate(MOST_ROWS * 32 * element.bytes()).map_err(text)?;
        kernels.experts(layer.operands(&work, MOST_ROWS, by), Rows { at: out.slice(), stride: 32 }).map_err(text)?;
        let (logits, routes, _) = layer.expected(MOST_ROWS, element, None);
        check_routes(device, &work, &logits, &routes, &layer, "ties")?;
    }
    Ok(())
}
