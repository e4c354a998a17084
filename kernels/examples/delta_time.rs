//! Times a layer of a gated delta net: prompts, trees and chains as a recurrence and in chunks, and
//! commits.
//!
//! `delta_time cuda:0` runs on a GPU with the sizes of Qwen3.5-27B, and of 35B-A3B; `delta_time
//! emulator` checks with small ones that it runs at all. Microseconds per layer and 1,024 rows, or
//! per layer and round, from graphs of several layers.

mod timing;

use std::{env, error::Error, process::ExitCode};

use kernels::{
    device::{Buffer, Device, DeviceError, Element, Slice},
    launch::{
        DeltaChunks, DeltaInputs, DeltaOrder, DeltaPass, DeltaPaths, DeltaStates, DeltaSteps, DeltaWeights, Groups,
        Kernels, Rows, delta_chunk_bytes,
    },
    reference::DeltaSizes,
};

/// Qwen3.5-27B and 35B-A3B.
const SIZES: [(&str, DeltaSizes); 2] = [
    ("27B", DeltaSizes { key_heads: 16, value_heads: 48, key_dim: 128, value_dim: 128, taps: 4 }),
    ("35B-A3B", DeltaSizes { key_heads: 16, value_heads: 32, key_dim: 128, value_dim: 128, taps: 4 }),
];
const SMALL: [(&str, DeltaSizes); 1] =
    [("small", DeltaSizes { key_heads: 1, value_heads: 2, key_dim: 32, value_dim: 32, taps: 4 })];
/// Sequences of a pass, and rows of each.
const PROMPTS: [(usize, usize); 5] = [(1, 512), (1, 2048), (8, 512), (1, 8192), (64, 16)];
/// Requests of a round, nodes of each, and whether these are a binary tree instead of a chain.
const ROUNDS: [(usize, usize, bool); 25] = [
    (1, 1, false),
    (2, 1, false),
    (4, 1, false),
    (8, 1, false),
    (32, 1, false),
    (1, 2, false),
    (8, 2, false),
    (32, 2, false),
    (1, 4, false),
    (2, 4, false),
    (4, 4, false),
    (8, 4, false),
    (32, 4, false),
    (1, 8, false),
    (8, 8, false),
    (32, 8, false),
    (1, 3, true),
    (8, 3, true),
    (32, 3, true),
    (1, 15, true),
    (8, 15, true),
    (32, 15, true),
    (1, 31, true),
    (8, 31, true),
    (32, 31, true),
];

/// One size's buffers. Weights and states are shared by all layers but the state of a slot.
struct Scene {
    kernels: Kernels,
    sizes: DeltaSizes,
    layers: usize,
    runs: usize,
    places: usize,
    stride: usize,
    projected: Buffer,
    convolved: Buffer,
    floats: Buffer,
    out: Buffer,
    histories: Buffer,
    states: Buffer,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("delta_time: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let name = env::args().nth(1).ok_or("give a device: cuda:N or emulator")?;
    let device = match name.strip_prefix("cuda:") {
        Some(number) => Device::cuda(number.parse()?)?,
        None => Device::emulated()?,
    };
    let emulated = device.properties().emulated;
    println!("{device:?}, microseconds a layer");
    for (name, sizes) in if emulated { &SMALL[..] } else { &SIZES } {
        let scene = Scene::new(&device, *sizes, if emulated { (1, 1) } else { (4, 9) })?;
        for (sequences, each) in PROMPTS.into_iter().take(if emulated { 1 } else { PROMPTS.len() }) {
            let times = scene.prompts(sequences, each)?;
            let [recurrence, chunks] = times.map(|seconds| seconds * 1e6 / scene.layers as f64);
            let share = 1024.0 / (sequences * each) as f64;
            println!(
                "{name}, {sequences} x {each} rows: recurrence {recurrence:.1} ({:.1} per 1,024 rows), chunks {chunks:.1} ({:.1})",
                recurrence * share,
                chunks * share
            );
        }
        for (batch, nodes, is_tree) in ROUNDS.into_iter().filter(|(batch, ..)| *batch == 1 || !emulated) {
            let times = scene.rounds(batch, nodes, is_tree)?;
            let [verify, chunk, commit] = times.map(|seconds| seconds * 1e6 / scene.layers as f64);
            let form = if is_tree { "trees" } else { "chains" };
            println!(
                "{name}, {batch} {form} of {nodes}: verify {verify:.1}, in a chunk {chunk:.1}, commit {commit:.1}"
            );
        }
    }
    Ok(())
}

impl Scene {
    fn new(device: &Device, sizes: DeltaSizes, (layers, runs): (usize, usize)) -> Result<Self, DeviceError> {
        let kernels = Kernels::new(device.clone(), Element::BF16);
        let (places, rows) = (64, 8192);
        let stride = (sizes.channels() + sizes.value_width() + 2 * sizes.value_heads).next_multiple_of(16);
        let projected = device.allocate(rows * stride * 2)?;
        kernels.fill_random(projected.slice(), 2.0, 1)?;
        let floats = device.allocate(layers * sizes.value_heads * 4)?;
        Kernels::new(device.clone(), Element::F32).fill_random(floats.slice(), 1.0, 2)?;
        Ok(Self {
            sizes,
            layers,
            runs,
            places,
            stride,
            projected,
            convolved: device.allocate(layers * rows * sizes.channels() * 2)?,
            floats,
            out: device.allocate(rows * sizes.value_width() * 2)?,
            histories: device.zeros(places * layers * sizes.history() * 2)?,
            states: device.zeros(places * layers * sizes.state() * 4)?,
            kernels,
        })
    }

    /// Rows of a layer, or with layer 0 those of all layers.
    fn inputs(&self, rows: usize, layer: usize) -> DeltaInputs<'_> {
        let columns =
            |from: usize| Rows { at: self.projected.range(from * 2..self.projected.bytes()), stride: self.stride };
        let gates = columns(self.sizes.channels() + self.sizes.value_width());
        let from = layer * rows * self.sizes.channels() * 2;
        let convolved = self.convolved.range(from..self.convolved.bytes());
        DeltaInputs { mixed: columns(0), mixed_layer: 0, gates, gates_layer: 0, convolved, rows }
    }

    fn weights(&self) -> DeltaWeights<'_> {
        let floats = self.floats.slice();
        DeltaWeights { convolution: self.projected.slice(), rates: floats, offsets: floats }
    }

    fn of_states(&self) -> DeltaStates<'_> {
        DeltaStates {
            matrices: self.states.slice(),
            histories: self.histories.slice(),
            places: self.places,
            layers: self.layers,
            dummy: self.places,
        }
    }

    /// Seconds of prompts in all layers: as a recurrence, and in chunks.
    fn prompts(&self, sequences: usize, each: usize) -> Result<[f64; 2], DeviceError> {
        let (device, rows) = (self.kernels.device(), sequences * each);
        let ints = |of: &dyn Fn(usize) -> usize, count: usize| {
            device.upload(&(0..count).map(|at| of(at) as i32).collect::<Vec<_>>())
        };
        let first = ints(&|at| at * each, sequences + 1)?;
        let row_slot = ints(&|row| row / each, rows)?;
        let position = ints(&|row| row % each, rows)?;
        let bytes = delta_chunk_bytes(Element::BF16, &self.sizes, rows, sequences);
        let [matrices, factors] = bytes.map(|bytes| device.allocate(bytes));
        let [matrices, factors] = [matrices?, factors?];
        let chunks = DeltaChunks { matrices: matrices.slice(), factors: factors.slice(), position: position.slice() };
        let pass = |layer| DeltaPass {
            sizes: self.sizes,
            layer,
            inputs: self.inputs(rows, layer),
            groups: Groups::Ranges { first: first.slice(), count: sequences, largest: each },
            row_slot: row_slot.slice(),
            order: DeltaOrder::Chain { writes: true },
        };
        let (out, weights, states) = (self.out.slice(), self.weights(), self.of_states());
        let recurrence =
            || (0..self.layers).try_for_each(|layer| self.kernels.delta_rows(out, pass(layer), weights, states));
        let in_chunks = || {
            (0..self.layers).try_for_each(|layer| self.kernels.delta_chunks(out, pass(layer), chunks, weights, states))
        };
        Ok([timing::median(device, self.runs, recurrence)?, timing::median(device, self.runs, in_chunks)?])
    }

    /// Seconds of rounds in all layers: chains or trees that are verified, as a recurrence and in a
    /// chunk, and paths of them that are committed: chains without their last node, and the first
    /// nodes of trees.
    fn rounds(&self, batch: usize, nodes: usize, is_tree: bool) -> Result<[f64; 3], DeviceError> {
        let (device, rows) = (self.kernels.device(), batch * nodes);
        let ints = |of: &dyn Fn(usize) -> usize, count: usize| {
            device.upload(&(0..count).map(|at| of(at) as i32).collect::<Vec<_>>())
        };
        let (row_slot, slot) = (ints(&|row| row / nodes, rows)?, ints(&|at| at, batch)?);
        // A binary tree of 15 nodes is 3 deep.
        let depth = nodes.ilog2() as usize;
        let accepted = if is_tree { depth } else { (nodes - 1).max(1) };
        let of_path = |at: usize| if is_tree { (1 << (at % nodes).min(depth)) - 1 } else { at % nodes };
        let (node, count) = (ints(&of_path, rows)?, ints(&|_| accepted, batch)?);
        let parents: Vec<i32> = (0..rows as i32).map(|row| (row % nodes as i32 + 1) / 2 - 1).collect();
        let parent = device.upload(&parents)?;
        let (stride, levels) = (DeltaSteps::stride_of(nodes, depth), self.kernels.delta_levels(&self.sizes, depth));
        let at = device.allocate(batch * stride * 4)?;
        let steps = DeltaSteps { at: at.slice(), stride, parent: parent.slice(), nodes, levels };
        self.kernels.delta_steps(&self.sizes, steps, batch)?;
        let paths =
            DeltaPaths { batch, nodes, slot: slot.slice(), node: node.slice(), most: nodes, count: count.slice() };
        let pass = |layer, writes| DeltaPass {
            sizes: self.sizes,
            layer,
            inputs: self.inputs(rows, layer),
            groups: Groups::Even(nodes),
            row_slot: row_slot.slice(),
            order: if is_tree { DeltaOrder::Tree(steps) } else { DeltaOrder::Chain { writes } },
        };
        let bytes = delta_chunk_bytes(Element::BF16, &self.sizes, rows, batch);
        let [matrices, factors] = bytes.map(|bytes| device.allocate(bytes));
        let [matrices, factors] = [matrices?, factors?];
        let chunks = DeltaChunks { matrices: matrices.slice(), factors: factors.slice(), position: Slice::NONE };
        let (out, weights, states) = (self.out.slice(), self.weights(), self.of_states());
        // A single row is certain, so it may change the state.
        let verify = |layer| self.kernels.delta_rows(out, pass(layer, nodes == 1), weights, states);
        let in_chunk = |layer| self.kernels.delta_chunks(out, pass(layer, false), chunks, weights, states);
        let commit = || self.kernels.delta_commit(&self.sizes, self.inputs(rows, 0), paths, weights, states);
        Ok([
            timing::median(device, self.runs, || (0..self.layers).try_for_each(verify))?,
            timing::median(device, self.runs, || (0..self.layers).try_for_each(in_chunk))?,
            timing::median(device, self.runs, commit)?,
        ])
    }
}
