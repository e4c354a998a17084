//! How long the experts of a layer take for several numbers of rows, by each of the kernels that
//! compute them: the figures of `docs/notes/performance/experts.md`.
//!
//! `cargo run --release -p kernels --example experts_time [cuda:0 | emulator] [ROWS,…] [SHAPE,…]
//! ['BLOCK …']`, with shapes such as `qwen3-30b-a3b`, `qwen3-235b-a22b/4` (a quarter of each
//! expert, as one of four GPUs has it), with `:fp8` after the name for blocks in FP8, and
//! `:products` or `:values` for FP8 whose rows are quantised too, to numbers or to values of them.
//! Each row chooses among the experts at random and evenly. The emulator runs one small shape.
//!
//! With BLOCKs, WARPS,SHARES,STAGES each, narrow kernels with such blocks are timed instead: all of
//! them, those of gate and up alone, and those of down alone.

mod timing;

use std::error::Error;

use kernels::{
    device::{Buffer, Device, DeviceError, Element},
    launch::{
        ExpertBiases, ExpertKernels, ExpertProducts, Experts, ExpertsShape, ExpertsWeights, ExpertsWork, Kernels,
        NarrowBlock, QuantiseTo, RowForm, Rows, WeightScales, WeightType, mxfp4_scale_bytes,
    },
    reference::{Fp8Rows, Fp8Scales, GateActivation, Router, Scoring},
};
use rayon::prelude::*;

const ELEMENT: Element = Element::BF16;
/// Runs of a graph of [`LAYERS`]; the median is printed.
const RUNS: usize = 9;
/// Layers of a graph, each with its own weights where they fit, so that none are left in the
/// second-level cache.
const LAYERS: usize = 12;

/// What is timed.
#[derive(Clone, Copy)]
struct Case<'a> {
    name: &'a str,
    shape: ExpertsShape,
    /// How rows are quantised, if they are.
    form: Option<RowForm>,
    rows: &'a [usize],
}

/// Weights of a layer.
struct Layer {
    router: Buffer,
    gate_up: Buffer,
    down: Buffer,
    scales: Option<[Buffer; 2]>,
    biases: Option<[Buffer; 3]>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "cuda:0".into());
    let rows = arguments.next().unwrap_or_else(|| "1,2,4,8,16,32,64,128,256".into());
    let rows = rows.split(',').map(str::parse).collect::<Result<Vec<usize>, _>>()?;
    let shapes = arguments.next().unwrap_or_else(|| "qwen3-235b-a22b/4:fp8".into());
    let blocks = arguments.next().unwrap_or_default();
    let blocks = blocks.split_whitespace().map(str::parse).collect::<Result<Vec<NarrowBlock>, _>>()?;
    let device = match name.strip_prefix("cuda:") {
        Some(number) => Device::cuda(number.parse()?)?,
        None => Device::emulated()?,
    };
    let kernels = Kernels::new(device.clone(), ELEMENT);
    for name in shapes.split(',') {
        let (mut shape, form) = shape(name)?;
        if device.properties().emulated {
            shape = ExpertsShape { routed: 16, hidden: 128, intermediate: 64, ..shape };
        }
        let case = Case { name, shape, form, rows: &rows };
        if blocks.is_empty() { time(&kernels, case)? } else { time_blocks(&kernels, case, &blocks)? }
    }
    Ok(())
}

/// The experts of a published model, or a part of each, and how their rows are quantised.
fn shape(text: &str) -> Result<(ExpertsShape, Option<RowForm>), String> {
    let (name, kind) = text.split_once(':').unwrap_or((text, "plain"));
    let (weights, form) = match kind {
        "plain" => (WeightType::Plain, None),
        "fp8" => (WeightType::Fp8, None),
        "products" => (WeightType::Fp8, Some(RowForm::Numbers)),
        "values" => (WeightType::Fp8, Some(RowForm::Values)),
        _ => return Err(format!("{text}: not one of fp8, products, values after :")),
    };
    let (name, ranks) = name.split_once('/').unwrap_or((name, "1"));
    let ranks: usize = ranks.parse().map_err(|_| format!("{text}: no number of ranks after /"))?;
    let (routed, top_k, hidden, intermediate) = match name {
        "qwen3-30b-a3b" => (128, 8, 2048, 768),
        "qwen3-235b-a22b" => (128, 8, 4096, 1536),
        "qwen3.5-35b-a3b" => (256, 8, 2048, 512),
        "deepseek-v3" => (256, 8, 7168, 2048),
        "gpt-oss-20b" => (32, 4, 2880, 2880),
        "gpt-oss-120b" => (128, 4, 2880, 2880),
        _ => {
            return Err(format!(
                "{name}: not one of qwen3-30b-a3b, qwen3-235b-a22b, qwen3.5-35b-a3b, deepseek-v3, gpt-oss-20b, \
                 gpt-oss-120b"
            ));
        }
    };
    let is_gpt_oss = name.starts_with("gpt-oss");
    let has_shared = name.starts_with("qwen3.5");
    let router = Router {
        scoring: Scoring::Softmax,
        top_k,
        groups: 1,
        top_k_groups: 1,
        renormalize: Some(0.0),
        scale: 1.0,
        uniform: false,
    };
    let shape = ExpertsShape {
        routed,
        shared: usize::from(has_shared),
        gated: has_shared,
        router,
        rounds_logits: false,
        hidden,
        intermediate: intermediate / ranks,
        weights: if is_gpt_oss { WeightType::Mxfp4 } else { weights },
        activation: match is_gpt_oss {
            true => GateActivation::Clamped { alpha: 1.702, limit: 7.0 },
            false => GateActivation::Silu,
        },
        biased: is_gpt_oss,
    };
    Ok((shape, form))
}

/// Times narrow kernels with each of these blocks.
fn time_blocks(kernels: &Kernels, case: Case<'_>, blocks: &[NarrowBlock]) -> Result<(), DeviceError> {
    let Case { name, shape, form, rows } = case;
    let [gated, down] = NarrowBlock::for_weights(shape.weights);
    let ways: Vec<_> = blocks
        .iter()
        .flat_map(|block| [[*block; 2], [*block, down], [gated, *block]])
        .map(|both| kernels.clone().with_narrow(both))
        .collect();
    // A file takes seconds. Blocks that do not compile are shown as such below.
    ways.par_iter().for_each(|kernels| drop(kernels.load_experts(&shape, form)));
    let layers = (0..LAYERS).map(|at| layer(kernels, &shape, at as u64)).collect::<Result<Vec<_>, _>>()?;
    for rows in rows.iter().copied() {
        let one = |kernels: &Kernels| {
            let seconds = seconds(kernels, (&shape, form), &layers, rows, ExpertKernels::Narrow);
            seconds.map_or_else(|error| error.to_string(), |seconds| format!("{:6.1}", seconds / LAYERS as f64 * 1e6))
        };
        println!("{name}, {rows} rows: µs of a layer, its router included; as it is {}", one(kernels));
        for (block, ways) in blocks.iter().zip(ways.chunks(3)) {
            let NarrowBlock { warps, shares, stages } = block;
            let times: Vec<String> = ways.iter().map(one).collect();
            let [all, gated, down] = [0, 1, 2].map(|at| &times[at]);
            println!("  {warps},{shares},{stages}: both {all}  gate and up {gated}  down {down}");
        }
    }
    Ok(())
}

fn time(kernels: &Kernels, Case { name, shape, form, rows }: Case<'_>) -> Result<(), DeviceError> {
    use ExpertKernels::{Few, Many, Narrow};
    let layers = (0..LAYERS).map(|at| layer(kernels, &shape, at as u64)).collect::<Result<Vec<_>, _>>()?;
    println!("{name}: µs of a layer, its router included; * is what the engine takes");
    for rows in rows.iter().copied() {
        let mut line = format!("{rows:>5} rows");
        for by in
            [Narrow, Few(8), Few(16), Few(32), Many(64), Many(128)].into_iter().filter(|by| suits(&shape, rows, *by))
        {
            let seconds = seconds(kernels, (&shape, form), &layers, rows, by)? / LAYERS as f64;
            let taken = if kernels.expert_kernels(&shape, rows, false) == by { "*" } else { "" };
            line.push_str(&format!("  {by:?} {:.1}{taken}", seconds * 1e6));
        }
        println!("{line}");
    }
    Ok(())
}

/// Whether these kernels compute this many rows.
fn suits(shape: &ExpertsShape, rows: usize, by: ExpertKernels) -> bool {
    rows <= by.most_rows() && (by != ExpertKernels::Many(128) || shape.weights == WeightType::Plain)
}

fn layer(kernels: &Kernels, shape: &ExpertsShape, seed: u64) -> Result<Layer, DeviceError> {
    let device = kernels.device();
    let make = |elements: usize, size: f32, seed: u64| {
        let buffer = device.allocate(elements * ELEMENT.bytes())?;
        kernels.fill_random(buffer.slice(), size, seed).map(|()| buffer)
    };
    let ExpertsShape { hidden, intermediate, .. } = *shape;
    let experts = shape.experts();
    let matrix = |outputs: usize, inputs: usize| match shape.weights {
        WeightType::Plain => Ok((make(outputs * inputs, 0.02, seed)?, None)),
        WeightType::Fp8 => {
            let weights = device.allocate(outputs * inputs)?;
            kernels.fill_random_fp8(weights.slice(), seed)?;
            let scales = device.upload(&vec![1e-4_f32; most_scales(outputs, inputs)])?;
            Ok::<_, DeviceError>((weights, Some(scales)))
        }
        WeightType::Mxfp4 => {
            let weights = device.allocate(outputs * inputs / 2)?;
            kernels.fill_random_fp8(weights.slice(), seed)?;
            let scales = device.allocate(mxfp4_scale_bytes(outputs, inputs))?;
            device.fill(scales.slice(), 120)?;
            Ok((weights, Some(scales)))
        }
    };
    let (gate_up, gate_up_scales) = matrix(experts * 2 * intermediate, hidden)?;
    let (down, down_scales) = matrix(experts * hidden, intermediate)?;
    let scales = gate_up_scales.zip(down_scales).map(|(gate_up, down)| [gate_up, down]);
    let biases = [shape.routed, experts * 2 * intermediate, experts * hidden].map(|count| make(count, 0.1, seed + 7));
    let [of_router, of_gate_up, of_down] = biases;
    let biases = if shape.biased { Some([of_router?, of_gate_up?, of_down?]) } else { None };
    Ok(Layer { router: make(shape.logits() * hidden, 1.0, seed + 99)?, gate_up, down, scales, biases })
}

/// Scales of a matrix in FP8, in either layout.
fn most_scales(outputs: usize, inputs: usize) -> usize {
    Fp8Scales::Blocks.count(outputs, inputs).max(Fp8Scales::Channels.count(outputs, inputs))
}

/// Median seconds of a graph of all layers.
fn seconds(
    kernels: &Kernels,
    (shape, form): (&ExpertsShape, Option<RowForm>),
    layers: &[Layer],
    rows: usize,
    by: ExpertKernels,
) -> Result<f64, DeviceError> {
    let device = kernels.device();
    let x = device.allocate(rows * shape.hidden * ELEMENT.bytes())?;
    kernels.fill_random(x.slice(), 1.0, 7)?;
    let out = device.zeros(rows * shape.hidden * ELEMENT.bytes())?;
    let bytes = Kernels::experts_bytes(ELEMENT, shape, rows, false);
    let work = bytes.iter().map(|bytes| device.zeros(*bytes)).collect::<Result<Vec<_>, _>>()?;
    let [logits, counters, expert, weight, tiles, gated, outputs] = std::array::from_fn(|at| work[at].slice());
    let work = ExpertsWork { logits, counters, expert, weight, tiles, gated, outputs };
    let pairs = rows * shape.chosen();
    let quantised = [rows * shape.hidden, pairs * shape.intermediate].map(|count| device.zeros(2 * count));
    let [first, second] = quantised;
    let (quantised, scales) = ([first?, second?], [device.zeros(4 * rows)?, device.zeros(4 * pairs)?]);
    let to = |at: usize, form| QuantiseTo { scales: scales[at].slice(), fixed: None, layout: Fp8Rows::Row, form };
    let products = form.map(|form| ExpertProducts {
        quantised: quantised.each_ref().map(Buffer::slice),
        to: [to(0, form), to(1, form)],
        is_ready: false,
    });
    // Products in FP8 have a scale for each output, as `--quantization fp8` makes them.
    let layout = if form.is_some() { Fp8Scales::Channels } else { Fp8Scales::Blocks };
    let run = || {
        layers.iter().try_for_each(|layer| {
            let scales = layer.scales.as_ref().map(|scales| {
                let of = |at: usize| WeightScales { at: scales[at].slice(), layout };
                [of(0), of(1)]
            });
            let weights = ExpertsWeights {
                router: layer.router.slice(),
                correction: None,
                gate_up: layer.gate_up.slice(),
                down: layer.down.slice(),
                scales: scales.filter(|_| shape.weights == WeightType::Fp8),
                mxfp4_scales: layer
                    .scales
                    .as_ref()
                    .filter(|_| shape.weights == WeightType::Mxfp4)
                    .map(|scales| [scales[0].slice(), scales[1].slice()]),
                biases: layer.biases.as_ref().map(|[router, gate_up, down]| ExpertBiases {
                    router: router.slice(),
                    gate_up: gate_up.slice(),
                    down: down.slice(),
                }),
            };
            let x = Rows { at: x.slice(), stride: shape.hidden };
            let experts = Experts { shape: *shape, weights, x, rows, work, products, by, whole: true };
            kernels.experts(experts, Rows { at: out.slice(), stride: shape.hidden }).map(|_| ())
        })
    };
    timing::median(device, RUNS, run)
}
