//! Times the linear layers and norms of a model of a published shape as one captured graph: with
//! the streaming kernels, with warp groups and with the device's library, for several numbers of
//! rows. Source of the figures in `docs/notes/performance.md`, and of those of FP8 in
//! `docs/notes/performance/fp8.md`.
//!
//! `cargo run --release -p kernels --example linear_time [cuda:0 | emulator] [ROWS,…]
//! [llama-3.1-8b | llama-3.2-1b | qwen3.5-27b,…] [SECONDS]`; the emulator runs one small layer.
//! `llama-3.1-8b/head` is the product with the vocabulary alone; with `/fp8` layers have FP8
//! weights with a scale per output, with `/fp8-blocks` per block, which are dequantised for the
//! library. With `/fp8-products` and `/fp8-blocks-products` rows are in FP8 too, and the relative
//! differences of one layer's result from that of the streaming kernels are printed. With SECONDS
//! each variant runs for that time and prints when it starts and ends, for
//! `docs/notes/performance/energy_of.py`, which reports the energy that the GPU used meanwhile.

#[path = "linear_time/products.rs"]
mod products;
mod timing;

use std::{error::Error, time::Instant};

use kernels::{
    device::{
        Buffer, Device, DeviceError, Element, Slice,
        matmul::{Matmul, MatmulHandle, Operands, SearchSetup},
    },
    launch::{Added, Kernels, Linear, Parts, RmsNorm, RowForm, Rows, Stream, Unscaled, WeightScales, WeightType},
    reference::Fp8Scales,
};

use products::{Products, Route};
use timing::median;

const ELEMENT: Element = Element::BF16;
/// Number of runs of a graph; the median counts.
const RUNS: usize = 15;
/// Maximum number of rows that are multiplied with the vocabulary.
const HEAD_ROWS: usize = 128;

/// Widths of a model; attention is omitted.
struct Shape {
    layers: usize,
    hidden: usize,
    qkv: usize,
    intermediate: usize,
    vocabulary: usize,
    /// For layers in FP8.
    scales: Option<Fp8Scales>,
    /// Whether rows are in FP8 too.
    products: bool,
}

/// `[outputs, inputs]`.
struct Weight {
    at: Buffer,
    scales: Option<(Buffer, Fp8Scales)>,
}

struct Layer {
    qkv: Weight,
    output: Weight,
    gate_up: Weight,
    down: Weight,
}

struct Model {
    kernels: Kernels,
    shape: Shape,
    layers: Vec<Layer>,
    head: Weight,
    norm: Buffer,
}

/// The buffers of a pass over some rows.
struct Work {
    rows: usize,
    x: Buffer,
    stream: Buffer,
    y: Buffer,
    gated: Buffer,
    parts: Buffer,
    squares: Buffer,
    logits: Buffer,
    /// Memory for a dequantised matrix for the library.
    dequantised: Buffer,
    workspace: Buffer,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "cuda:0".into());
    let rows = arguments.next().unwrap_or_else(|| "1,4,8,16,17,24,32,48,64,96,128,256".into());
    let rows = rows.split(',').map(str::parse).collect::<Result<Vec<usize>, _>>()?;
    let shape_names = arguments.next().unwrap_or_else(|| "llama-3.1-8b".into());
    let seconds: Option<f64> = arguments.next().map(|seconds| seconds.parse()).transpose()?;
    let device = match name.strip_prefix("cuda:") {
        Some(number) => Device::cuda(number.parse()?)?,
        None => Device::emulated()?,
    };
    println!("{device:?}: milliseconds, and GB of weights a second");
    for shape_name in shape_names.split(',') {
        let mut shape = shape(shape_name)?;
        if device.properties().emulated {
            shape = Shape { layers: 1, hidden: 64, qkv: 96, intermediate: 128, vocabulary: 256, ..shape };
        }
        let model = Model::random(Kernels::new(device.clone(), ELEMENT), shape)?;
        println!("{shape_name}");
        match seconds {
            Some(seconds) => rows.iter().try_for_each(|rows| model.run_each_for(*rows, seconds))?,
            None => model.print(&rows)?,
        }
    }
    Ok(())
}

/// The shape with this name.
fn shape(name: &str) -> Result<Shape, String> {
    let vocabulary = 128_256;
    if let Some(name) = name.strip_suffix("/head") {
        return Ok(Shape { layers: 0, ..shape(name)? });
    }
    if let Some(name) = name.strip_suffix("-products") {
        return Ok(Shape { products: true, ..shape(name)? });
    }
    for (suffix, layout) in [("/fp8", Fp8Scales::Channels), ("/fp8-blocks", Fp8Scales::Blocks)] {
        if let Some(name) = name.strip_suffix(suffix) {
            return Ok(Shape { scales: Some(layout), ..shape(name)? });
        }
    }
    let (scales, products) = (None, false);
    let of_8b = Shape { layers: 32, hidden: 4096, qkv: 6144, intermediate: 14336, vocabulary, scales, products };
    match name {
        "llama-3.1-8b" => Ok(of_8b),
        "llama-3.2-1b" => Ok(Shape { layers: 16, hidden: 2048, qkv: 3072, intermediate: 8192, ..of_8b }),
        // Projections of its delta nets; that of the output has as many inputs as outputs here.
        "qwen3.5-27b" => Ok(Shape { layers: 16, hidden: 5120, qkv: 16384, intermediate: 17408, ..of_8b }),
        _ => Err(format!("{name}: none of llama-3.1-8b, llama-3.2-1b and qwen3.5-27b")),
    }
}

/// Runs a graph of this work for a given time.
fn run_for(
    device: &Device,
    seconds: f64,
    name: &str,
    work: impl Fn() -> Result<(), DeviceError>,
) -> Result<(), DeviceError> {
    // Number of launches in flight, so that the device never waits for the host.
    const TOGETHER: usize = 20;
    work()?;
    let graph = device.capture(work)?;
    let mut passes = 0;
    // The first part lets the clock settle.
    let (mut begin, mut counts) = (Instant::now(), false);
    loop {
        for _ in 0..TOGETHER {
            device.run(&graph)?;
        }
        let end = device.event()?;
        end.wait()?;
        passes += TOGETHER;
        let elapsed = begin.elapsed().as_secs_f64();
        if !counts && elapsed > seconds / 3.0 {
            println!("begin {name}");
            (begin, passes, counts) = (Instant::now(), 0, true);
        } else if counts && elapsed > seconds {
            println!("end {name}: {passes} passes of {:.3} ms", elapsed * 1e3 / passes as f64);
            return Ok(());
        }
    }
}

impl Model {
    /// Times passes over these numbers of rows.
    fn print(&self, all_rows: &[usize]) -> Result<(), DeviceError> {
        println!(
            "{:>6} {:>18} {:>18} {:>18} {:>18} {:>18}",
            "rows", "streamed", "of numbers", "groups of few", "warp groups", "library"
        );
        for &rows in all_rows {
            let work = self.work(rows)?;
            let Some(layout) = self.shape.scales.filter(|_| self.shape.products) else {
                let streamed = self.time(|| self.streamed(&work))?;
                let groups = self.has_groups(rows).then(|| self.time(|| self.by_groups(&work))).transpose()?;
                let library = self.library(&work)?;
                let library = library.map(|plans| self.time(|| self.by_library(&work, &plans))).transpose()?;
                self.print_times(rows, [Some(streamed), None, None, groups, library]);
                continue;
            };
            let products = Products::new(self, &work, layout)?;
            let plans = products.library()?;
            let streamed = self.time(|| products.pass(Route::Streamed(RowForm::Values)))?;
            let numbers = self.time(|| products.pass(Route::Streamed(RowForm::Numbers)))?;
            let few = products.has_few().then(|| self.time(|| products.pass(Route::Few))).transpose()?;
            let groups = products.has_groups().then(|| self.time(|| products.pass(Route::Groups))).transpose()?;
            let library = plans.as_ref().map(|plans| self.time(|| products.pass(Route::Library(plans)))).transpose()?;
            self.print_times(rows, [Some(streamed), Some(numbers), few, groups, library]);
            let or_none = |found: Option<f64>| found.map_or("none".into(), |found| format!("{found:.1e}"));
            let [few, groups, library, plain] = products.differences(plans.as_ref())?.map(or_none);
            println!(
                "       differences: groups of few {few}, warp groups {groups}, library {library}, 16-bit rows {plain}"
            );
        }
        Ok(())
    }

    fn time(&self, work: impl Fn() -> Result<(), DeviceError>) -> Result<f64, DeviceError> {
        median(self.kernels.device(), RUNS, work)
    }

    fn print_times(&self, rows: usize, seconds: [Option<f64>; 5]) {
        let cell = |seconds: f64| format!("{:.3} {:>8.0}", seconds * 1e3, self.bytes() / seconds / 1e9);
        let [streamed, numbers, few, groups, library] = seconds.map(|seconds| seconds.map_or("none".into(), cell));
        println!("{rows:>6} {streamed:>18} {numbers:>18} {few:>18} {groups:>18} {library:>18}");
    }

    /// Whether warp groups support this many rows.
    fn has_groups(&self, rows: usize) -> bool {
        let Shape { hidden, scales, .. } = self.shape;
        self.suits_group(rows, hidden, hidden) || !self.kernels.wide(rows, [hidden, hidden], 1, scales).is_empty()
    }

    /// Whether the warp-group kernels for few rows are the fastest for a layer.
    fn suits_group(&self, rows: usize, inputs: usize, sums: usize) -> bool {
        self.shape.scales.is_none() && self.kernels.suits_group(rows, inputs, sums, WeightType::Plain)
    }

    /// Runs each variant for a given time.
    fn run_each_for(&self, rows: usize, seconds: f64) -> Result<(), DeviceError> {
        let (device, work) = (self.kernels.device(), self.work(rows)?);
        run_for(device, seconds, &format!("{rows} rows streamed"), || self.streamed(&work))?;
        if self.has_groups(rows) {
            run_for(device, seconds, &format!("{rows} rows by warp groups"), || self.by_groups(&work))?;
        }
        if let Some(plans) = self.library(&work)? {
            run_for(device, seconds, &format!("{rows} rows by the library"), || self.by_library(&work, &plans))?;
        }
        Ok(())
    }

    fn random(kernels: Kernels, shape: Shape) -> Result<Self, DeviceError> {
        let make = |elements: usize| {
            let buffer = kernels.device().allocate(elements * ELEMENT.bytes())?;
            kernels.fill_random(buffer.slice(), 0.02, 1).map(|()| buffer)
        };
        let weight = |inputs: usize, outputs: usize| {
            let Some(layout) = shape.scales else { return Ok(Weight { at: make(inputs * outputs)?, scales: None }) };
            let at = kernels.device().allocate(inputs * outputs)?;
            kernels.fill_random_fp8(at.slice(), 1)?;
            let scales = kernels.device().upload(&vec![1e-4_f32; layout.count(outputs, inputs)])?;
            Ok::<_, DeviceError>(Weight { at, scales: Some((scales, layout)) })
        };
        let Shape { hidden, qkv, intermediate, vocabulary, .. } = shape;
        let layer = |_| {
            Ok(Layer {
                qkv: weight(hidden, qkv)?,
                output: weight(hidden, hidden)?,
                gate_up: weight(hidden, 2 * intermediate)?,
                down: weight(intermediate, hidden)?,
            })
        };
        let layers = (0..shape.layers).map(layer).collect::<Result<_, DeviceError>>()?;
        let (head, norm) = (Weight { at: make(hidden * vocabulary)?, scales: None }, make(hidden)?);
        Ok(Self { layers, head, norm, kernels, shape })
    }

    fn work(&self, rows: usize) -> Result<Work, DeviceError> {
        let Shape { hidden, qkv, intermediate, vocabulary, .. } = self.shape;
        let device = self.kernels.device();
        let zeros = |elements: usize| device.zeros(elements * ELEMENT.bytes());
        // Products of zeros need less power, which makes large ones faster.
        let random = |elements: usize| {
            let buffer = zeros(elements)?;
            self.kernels.fill_random(buffer.slice(), 1.0, 2).map(|()| buffer)
        };
        let workspace = if device.properties().emulated { 16 } else { 32 << 20 };
        Ok(Work {
            rows,
            x: random(rows * hidden)?,
            stream: random(rows * hidden)?,
            y: zeros(rows * 2 * intermediate.max(qkv))?,
            gated: random(rows * intermediate)?,
            parts: device.zeros(Kernels::MOST_PARTS * rows * qkv.max(hidden) * 4)?,
            squares: device.zeros(Kernels::squares_bytes(rows, hidden))?,
            logits: device.zeros(rows * vocabulary * 4)?,
            dequantised: zeros(self.shape.scales.map_or(0, |_| 2 * hidden * intermediate.max(qkv)).max(16))?,
            workspace: device.zeros(workspace)?,
        })
    }

    /// Bytes of all weights.
    fn bytes(&self) -> f64 {
        let Shape { layers, hidden, qkv, intermediate, vocabulary, scales, .. } = self.shape;
        let of_layer = (qkv + hidden + 3 * intermediate) * scales.map_or(ELEMENT.bytes(), |_| 1);
        ((layers * of_layer + vocabulary * ELEMENT.bytes()) * hidden) as f64
    }

    fn streamed(&self, work: &Work) -> Result<(), DeviceError> {
        let Shape { hidden, qkv, intermediate, vocabulary, .. } = self.shape;
        let Work { rows, x, stream, y, gated, parts, squares, logits, .. } = work;
        let weights = WeightType::from_scales(self.shape.scales);
        // The addend of the stream.
        let linear = |layer: Linear<'_>| {
            let Linear { inputs, outputs, .. } = layer;
            let whole = Added::Rows(Rows { at: y.slice(), stride: outputs });
            let in_parts = |count: usize| Added::Parts(Parts { at: parts.slice(), count });
            let left = Linear { y: parts.slice(), ..layer };
            if self.kernels.suits_few(*rows, inputs, outputs, weights) {
                return self.kernels.linear_few(layer).map(|()| whole);
            }
            if self.kernels.suits_pairs(*rows, weights) {
                let of_pairs = if self.kernels.parts_of_pairs(inputs, outputs) > 1 { left } else { layer };
                let left = self.kernels.linear_pairs(of_pairs, Kernels::MOST_PARTS)?;
                return Ok(left.map_or(whole, |left| in_parts(left.count)));
            }
            if *rows > Kernels::MOST_ROWS_IN_PARTS || self.kernels.parts_of(inputs, outputs, weights) == 1 {
                return self.kernels.linear(layer).map(|()| whole);
            }
            self.kernels.linear_in_parts(left).map(|left| in_parts(left.count))
        };
        let add_and_norm = |layer: Linear<'_>| {
            let Linear { inputs, outputs, .. } = layer;
            if !self.kernels.suits_few_to_stream(*rows, inputs, outputs, weights) {
                return self.norm(work, linear(layer)?, false);
            }
            let (norm, squares) = (self.norm.slice(), squares.slice());
            let to = Stream { keep: None, norm, normed: x.slice(), squares, epsilon: 1e-5 };
            self.kernels.few_to_stream(Linear { y: stream.slice(), ..layer }, to).map(Some)
        };
        let mut unscaled = None;
        for own in &self.layers {
            linear(Linear { unscaled, ..layer(y, x, &own.qkv, *rows, hidden, qkv) })?;
            let between = add_and_norm(layer(y, x, &own.output, *rows, hidden, hidden))?;
            let gate_up = layer(gated, x, &own.gate_up, *rows, hidden, intermediate);
            let gate_up = Linear { unscaled: between, ..gate_up };
            match self.kernels.suits_pairs(*rows, weights) {
                true => self.kernels.linear_pairs_gated(gate_up)?,
                false => self.kernels.linear_gated(gate_up)?,
            }
            unscaled = add_and_norm(layer(y, gated, &own.down, *rows, intermediate, hidden))?;
        }
        // The norm before the head scales its rows itself.
        self.kernels.linear(Linear {
            y_is_float: true,
            ..layer(logits, x, &self.head, (*rows).min(HEAD_ROWS), hidden, vocabulary)
        })
    }

    fn by_groups(&self, work: &Work) -> Result<(), DeviceError> {
        let Shape { hidden, qkv, intermediate, vocabulary, .. } = self.shape;
        let Work { rows, x, gated, parts, logits, .. } = work;
        let product = |layer: Linear<'_>, most_parts: usize| {
            let Linear { rows, inputs, outputs, .. } = layer;
            let layout = layer.scales.map(|scales| scales.layout);
            let left = match self.kernels.wide(rows, [inputs, outputs], most_parts, layout).first() {
                _ if layout.is_none() && self.kernels.suits_group(rows, inputs, outputs, WeightType::Plain) => {
                    self.kernels.linear_group(layer, most_parts)?
                }
                Some(wide) => self.kernels.linear_wide(layer, *wide)?,
                None => return Err(DeviceError::Shape(format!("no warp groups for {rows} rows"))),
            };
            let whole = Added::Rows(Rows { at: parts.slice(), stride: outputs });
            Ok(left.map_or(whole, |left| Added::Parts(Parts { at: parts.slice(), count: left.count })))
        };
        let by_wide = !self.suits_group(*rows, hidden, hidden);
        let mut unscaled = None;
        for weights in &self.layers {
            let qkv = Linear { unscaled, ..layer(parts, x, &weights.qkv, *rows, hidden, qkv) };
            product(qkv, Kernels::MOST_PARTS)?;
            let output = layer(parts, x, &weights.output, *rows, hidden, hidden);
            let between = self.norm(work, product(output, Kernels::MOST_PARTS)?, by_wide)?;
            let gate_up =
                Linear { unscaled: between, ..layer(gated, x, &weights.gate_up, *rows, hidden, intermediate) };
            match self.kernels.wide(*rows, [hidden, 2 * intermediate], 1, self.shape.scales).first() {
                Some(wide) if !self.suits_group(*rows, hidden, 2 * intermediate) => {
                    self.kernels.linear_wide_gated(gate_up, *wide)?;
                }
                _ => self.kernels.linear_group_gated(gate_up)?,
            }
            let down = layer(parts, gated, &weights.down, *rows, intermediate, hidden);
            unscaled = self.norm(work, product(down, Kernels::MOST_PARTS)?, by_wide)?;
        }
        let head = layer(logits, x, &self.head, (*rows).min(HEAD_ROWS), hidden, vocabulary);
        product(Linear { y_is_float: true, ..head }, 1).map(|_| ())
    }

    /// Plans for qkv, output, gate and up, down and head, each searched once.
    fn library(&self, work: &Work) -> Result<Option<[MatmulHandle; 5]>, DeviceError> {
        let Shape { hidden, qkv, intermediate, vocabulary, .. } = self.shape;
        let device = self.kernels.device();
        let neighbour = || self.kernels.fill_random(work.workspace.range(0..16), 1.0, 0);
        let plan = |inputs: usize, outputs: usize, result: Element| -> Result<Option<MatmulHandle>, DeviceError> {
            let rows = if outputs == vocabulary { work.rows.min(HEAD_ROWS) } else { work.rows };
            let matmul = Matmul { rows, inputs, outputs, element: ELEMENT, fp8: None, result, most_parts: 1 };
            let Some(mut plan) = MatmulHandle::new(device, matmul, Some("linear_time"))? else { return Ok(None) };
            if plan.fastest().is_none() {
                let y = if result == Element::F32 { &work.logits } else { &work.y };
                let x = if inputs == hidden { &work.x } else { &work.gated };
                let operands = Operands {
                    y: y.slice(),
                    onto: None,
                    parts: Slice::NONE,
                    x: x.slice(),
                    w: self.head.at.slice(),
                    scales: None,
                    workspace: work.workspace.slice(),
                };
                let own_kernels =
                    SearchSetup { own_kernels: &[], neighbour: &neighbour, behind_library: None, user: None };
                plan.search(device, operands, own_kernels)?;
            }
            Ok(Some(plan))
        };
        let plans = [
            plan(hidden, qkv, ELEMENT)?,
            plan(hidden, hidden, ELEMENT)?,
            plan(hidden, 2 * intermediate, ELEMENT)?,
            plan(intermediate, hidden, ELEMENT)?,
            plan(hidden, vocabulary, Element::F32)?,
        ];
        let [Some(a), Some(b), Some(c), Some(d), Some(e)] = plans else { return Ok(None) };
        Ok(Some([a, b, c, d, e]))
    }

    fn by_library(
        &self,
        work: &Work,
        [qkv, output, gate_up, down, head]: &[MatmulHandle; 5],
    ) -> Result<(), DeviceError> {
        let Shape { hidden, qkv: width, intermediate, vocabulary, .. } = self.shape;
        let Work { rows, x, y, gated, logits, dequantised, workspace, .. } = work;
        let run = |plan: &MatmulHandle, y: &Buffer, x: &Buffer, [inputs, outputs]: [usize; 2], weight: &Weight| {
            let parts = Slice::NONE;
            let w = match &weight.scales {
                None => &weight.at,
                Some((at, layout)) => {
                    let scales = WeightScales { at: at.slice(), layout: *layout };
                    self.kernels.dequantise(dequantised.slice(), weight.at.slice(), scales, [outputs, inputs])?;
                    dequantised
                }
            };
            plan.run(Operands {
                y: y.slice(),
                onto: None,
                parts,
                x: x.slice(),
                w: w.slice(),
                scales: None,
                workspace: workspace.slice(),
            })
            .map(|_| ())
        };
        let add = || self.kernels.rms_norm(self.norm_of(work, Added::Rows(Rows { at: y.slice(), stride: hidden })));
        for weights in &self.layers {
            run(qkv, y, x, [hidden, width], &weights.qkv)?;
            run(output, y, x, [hidden, hidden], &weights.output)?;
            add()?;
            run(gate_up, y, x, [hidden, 2 * intermediate], &weights.gate_up)?;
            self.kernels.silu_gate(gated.slice(), y.slice(), *rows, intermediate)?;
            run(down, y, gated, [intermediate, hidden], &weights.down)?;
            add()?;
        }
        run(head, logits, x, [hidden, vocabulary], &self.head)
    }

    /// The norm after a layer; returns the pending scale of its rows, if that is left to the next
    /// layer.
    fn norm<'a>(&self, work: &'a Work, add: Added<'_>, by_wide: bool) -> Result<Option<Unscaled<'a>>, DeviceError> {
        let norm = self.norm_of(work, add);
        match self.kernels.suits_unscaled(work.rows, self.shape.hidden, by_wide) {
            true => self.kernels.rms_norm_unscaled(norm, work.squares.slice()).map(Some),
            false => self.kernels.rms_norm(norm).map(|()| None),
        }
    }

    fn norm_of<'a>(&'a self, work: &'a Work, add: Added<'a>) -> RmsNorm<'a> {
        let width = self.shape.hidden;
        RmsNorm {
            out: Rows { at: work.x.slice(), stride: width },
            stream: Rows { at: work.stream.slice(), stride: width },
            add: Some(add),
            weight: self.norm.slice(),
            keep: None,
            source: None,
            rows: work.rows,
            width,
            epsilon: 1e-5,
        }
    }
}

fn layer<'a>(
    y: &'a Buffer,
    x: &'a Buffer,
    weight: &'a Weight,
    rows: usize,
    inputs: usize,
    outputs: usize,
) -> Linear<'a> {
    let x = Rows { at: x.slice(), stride: inputs };
    Linear {
        y: y.slice(),
        y_is_float: false,
        x,
        weight: weight.at.slice(),
        scales: weight.scales.as_ref().map(|(at, layout)| WeightScales { at: at.slice(), layout: *layout }),
        bias: None,
        rows,
        inputs,
        outputs,
        unscaled: None,
        row_scales: None,
        needed: None,
    }
}
