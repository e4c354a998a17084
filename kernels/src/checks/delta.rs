//! Gated delta nets: rows of sequences and of trees, commits of paths, and gates of outputs.

mod chunks;

pub use chunks::check_delta_chunks;

use super::{
    Numbers, compare,
    layout::ints,
    quantise::{Quantised, check_near},
    text, tolerance, values,
};
use crate::{
    device::{Buffer, Device, Element, Slice},
    launch::{
        DeltaInputs, DeltaOrder, DeltaPass, DeltaPaths, DeltaStates, DeltaSteps, DeltaWeights, Groups, Kernels,
        RowForm, Rows,
    },
    reference::{
        DeltaRows, DeltaSizes, Fp8Rows, delta_commit, delta_convolution, delta_history, delta_rows, delta_rule,
        rms_norm, silu_gate,
    },
};

const SIZES: [DeltaSizes; 3] = [
    DeltaSizes { key_heads: 2, value_heads: 6, key_dim: 32, value_dim: 32, taps: 4 },
    DeltaSizes { key_heads: 2, value_heads: 2, key_dim: 64, value_dim: 96, taps: 2 },
    DeltaSizes { key_heads: 1, value_heads: 2, key_dim: 128, value_dim: 128, taps: 4 },
];
/// Layers with a state, and slots, the last of which is padding without one.
const LAYERS: usize = 2;
const SLOTS: usize = 4;

/// A layer's or several layers' rows, weights and states, on host and device.
struct World {
    element: Element,
    kernels: Kernels,
    sizes: DeltaSizes,
    rows: usize,
    /// Elements from one row to the next: channels, then gates, then what others read.
    stride: usize,
    projected: Vec<f32>,
    convolution: Vec<f32>,
    rates: Vec<f32>,
    offsets: Vec<f32>,
    matrices: Vec<f32>,
    histories: Vec<f32>,
    on_device: OnDevice,
}

struct OnDevice {
    projected: Buffer,
    convolved: Buffer,
    convolution: Buffer,
    rates: Buffer,
    offsets: Buffer,
    matrices: Buffer,
    histories: Buffer,
}

/// Chains in ranges, and trees with several levels of kept states; each with padding.
pub fn check_delta_rows(device: &Device, element: Element) -> Result<(), String> {
    let mut numbers = Numbers::new(71);
    for sizes in SIZES {
        check_chains(device, element, sizes, &mut numbers)?;
        for levels in [0, 1, 8] {
            check_trees(device, element, sizes, levels, &mut numbers)?;
        }
    }
    Ok(())
}

/// The steps over trees: each node once, after the one before it, from the state of that one.
pub fn check_delta_steps(device: &Device) -> Result<(), String> {
    let mut numbers = Numbers::new(73);
    let kernels = Kernels::new(device.clone(), Element::F32);
    for (nodes, levels) in [(1, 0), (2, 1), (9, 0), (9, 2), (33, 1), (64, 8), (128, 3)] {
        let parents: Vec<i32> = (0..2).flat_map(|_| tree(&mut numbers, nodes)).collect();
        let stride = DeltaSteps::stride_of(nodes, nodes);
        let at = device.allocate(2 * stride * 4).map_err(text)?;
        let parent = device.upload(&parents).map_err(text)?;
        let steps = DeltaSteps { at: at.slice(), stride, parent: parent.slice(), nodes, levels };
        kernels.delta_steps(&SIZES[0], steps, 2).map_err(text)?;
        let all = ints(device, &at)?;
        for (steps, parents) in all.chunks_exact(stride).zip(parents.chunks_exact(nodes)) {
            let steps = &steps[1..=steps[0] as usize];
            follow(steps, parents, levels)
                .map_err(|what| format!("delta_steps of {nodes} nodes, {levels} levels: {what}"))?;
        }
    }
    Ok(())
}

/// Norms and gates of each head, of rows within wider ones.
pub fn check_delta_gate(device: &Device, element: Element) -> Result<(), String> {
    let mut numbers = Numbers::new(72);
    let kernels = Kernels::new(device.clone(), element);
    for sizes in SIZES {
        let (rows, width, stride) = (5, sizes.value_width(), sizes.value_width() + 8);
        let (x, gate) = (numbers.floats(rows * width, element), numbers.floats(rows * stride, element));
        let weight = numbers.floats(sizes.value_dim, element);
        let upload = |values: &[f32]| device.upload(&element.encode(values)).map_err(text);
        let (out, gates, norm) = (upload(&x)?, upload(&gate)?, upload(&weight)?);
        kernels
            .delta_gate(&sizes, out.slice(), Rows { at: gates.slice(), stride }, (norm.slice(), 1e-6), rows)
            .map_err(text)?;
        let own: Vec<f32> = gate.chunks_exact(stride).flat_map(|row| &row[..width]).copied().collect();
        let expected = silu_gate(&own, &rms_norm(&x, &weight, 1e-6));
        compare("delta_gate", &values(device, out.slice(), element)?, &expected, tolerance(element))?;
        let gate = Rows { at: gates.slice(), stride };
        check_gate_in_fp8(&kernels, sizes, (upload(&x)?.slice(), gate, norm.slice()), &expected)?;
    }
    Ok(())
}

/// The same, quantised.
fn check_gate_in_fp8(
    kernels: &Kernels,
    sizes: DeltaSizes,
    (x, gate, norm): (Slice<'_>, Rows<'_>, Slice<'_>),
    expected: &[f32],
) -> Result<(), String> {
    let (device, element, width) = (kernels.device(), kernels.element(), sizes.value_width());
    if element == Element::F32 || !Kernels::gates_in_fp8(&sizes, Fp8Rows::RowBlocks) {
        return Ok(());
    }
    let rows = expected.len() / width;
    let to = Quantised::new(device, rows, width)?;
    for form in [RowForm::Values, RowForm::Numbers] {
        let to_rows = (to.out.slice(), to.to(Fp8Rows::RowBlocks, form));
        let found = kernels.delta_gate_quantised(&sizes, x, gate, (norm, 1e-6), to_rows, rows).map_err(text)?;
        check_near(&to, (device, element), found, ("delta_gate in FP8", expected, width))?;
    }
    Ok(())
}

/// A random tree: parents before children, and some nodes that do not exist.
fn tree(numbers: &mut Numbers, nodes: usize) -> Vec<i32> {
    let mut real = vec![0];
    let mut parents = vec![-1];
    for node in 1..nodes {
        let exists = numbers.below(8) > 0;
        // Of the last nodes more often than of the first, so that paths are long.
        let newest = real.len() - 1 - numbers.below(real.len().min(4));
        parents.push(if exists { real[newest] as i32 } else { -1 });
        if exists {
            real.push(node);
        }
    }
    parents
}

/// Follows steps: which state each starts from.
fn follow(steps: &[i32], parents: &[i32], levels: usize) -> Result<(), String> {
    let mut kept = vec![None; levels];
    let (mut now, mut done) = (-1_i32, vec![false; parents.len()]);
    for step in steps {
        let (node, yields, absent) = ((step & 0xff) as usize, step & 0x100 != 0, step & 0x200 != 0);
        let (from, keep) = ((step >> 12 & 0xff) as usize, (step >> 20 & 0xff) as usize);
        if (yields || absent) && std::mem::replace(&mut done[node], true) {
            return Err(format!("node {node} comes twice"));
        }
        if absent {
            if node == 0 || parents[node] >= 0 {
                return Err(format!("node {node} exists"));
            }
            continue;
        }
        now = match from {
            0 => now,
            1 => -1,
            level => kept.get(level - 2).copied().flatten().ok_or_else(|| format!("nothing is kept at {level}"))?,
        };
        if parents[node] != now {
            return Err(format!("node {node} starts after {now}, but follows {}", parents[node]));
        }
        now = node as i32;
        if keep > 0 {
            *kept.get_mut(keep - 1).ok_or_else(|| format!("there is no level {keep}"))? = Some(now);
        }
    }
    if done.iter().all(|done| *done) { Ok(()) } else { Err("a node is left out".into()) }
}

fn check_chains(device: &Device, element: Element, sizes: DeltaSizes, numbers: &mut Numbers) -> Result<(), String> {
    let (lengths, slots) = ([1_usize, 21, 3, 2], [2_usize, 0, SLOTS - 1, 1]);
    let rows: usize = lengths.iter().sum();
    let world = World::new(device, element, sizes, rows, numbers)?;
    let mut first = vec![0_i32];
    lengths.iter().for_each(|length| first.push(first[first.len() - 1] + *length as i32));
    let of_rows: Vec<i32> = lengths.iter().zip(slots).flat_map(|(length, slot)| vec![slot as i32; *length]).collect();
    let (ranges, row_slot) = (device.upload(&first).map_err(text)?, device.upload(&of_rows).map_err(text)?);
    let out = device.allocate(rows * sizes.value_width() * element.bytes()).map_err(text)?;
    let layer = 1;
    let pass = DeltaPass {
        sizes,
        layer,
        inputs: world.inputs(layer),
        groups: Groups::Ranges { first: ranges.slice(), count: lengths.len(), largest: 21 },
        row_slot: row_slot.slice(),
        order: DeltaOrder::Chain { writes: true },
    };
    world.kernels.delta_rows(out.slice(), pass, world.weights(), world.states()).map_err(text)?;
    world.kernels.delta_continue(pass, world.states()).map_err(text)?;
    let found = values(device, out.slice(), element)?;
    let mut matrices = world.matrices.clone();
    let mut histories = world.histories.clone();
    let width = sizes.value_width();
    for (group, slot) in slots.into_iter().enumerate() {
        let own = first[group] as usize..first[group + 1] as usize;
        let found = &found[own.start * width..own.end * width];
        if slot == SLOTS - 1 {
            compare("delta_rows of padding", found, &vec![0.0; found.len()], 0.0)?;
            continue;
        }
        let parents: Vec<Option<usize>> = (0..own.len()).map(|row| row.checked_sub(1)).collect();
        let read = world.read(layer, slot, own.clone(), &parents);
        let matrix = &mut matrices[world.matrix(layer, slot)];
        let expected = delta_rule(&sizes, &read, &parents, matrix, true);
        compare("delta_rows of a sequence", found, &expected, tolerance(element))?;
        let all: Vec<usize> = (0..own.len()).collect();
        delta_history(&sizes, &world.mixed(layer, own), &all, &mut histories[world.history(layer, slot)]);
    }
    compare("states after sequences", &world.found_matrices()?, &matrices, 1e-4)?;
    compare("histories after sequences", &world.found_histories()?, &histories, 0.0)
}

fn check_trees(
    device: &Device,
    element: Element,
    sizes: DeltaSizes,
    levels: usize,
    numbers: &mut Numbers,
) -> Result<(), String> {
    let (nodes, slots) = (19, [1_usize, SLOTS - 1, 0]);
    let (batch, width) = (slots.len(), sizes.value_width());
    let world = World::new(device, element, sizes, batch * nodes, numbers)?;
    let trees: Vec<Vec<i32>> = (0..batch).map(|_| tree(numbers, nodes)).collect();
    let stride = DeltaSteps::stride_of(nodes, nodes);
    let at = device.allocate(batch * stride * 4).map_err(text)?;
    let parent = device.upload(&trees.concat()).map_err(text)?;
    let of_rows: Vec<i32> = slots.iter().flat_map(|slot| vec![*slot as i32; nodes]).collect();
    let row_slot = device.upload(&of_rows).map_err(text)?;
    let steps = DeltaSteps { at: at.slice(), stride, parent: parent.slice(), nodes, levels };
    world.kernels.delta_steps(&sizes, steps, batch).map_err(text)?;
    let pass = |layer| DeltaPass {
        sizes,
        layer,
        inputs: world.inputs(layer),
        groups: Groups::Even(nodes),
        row_slot: row_slot.slice(),
        order: DeltaOrder::Tree(steps),
    };
    let out = device.allocate(batch * nodes * width * element.bytes()).map_err(text)?;
    // Of all layers, for the commit; the outputs are those of the last one.
    for layer in 0..LAYERS {
        world.kernels.delta_rows(out.slice(), pass(layer), world.weights(), world.states()).map_err(text)?;
    }
    let found = values(device, out.slice(), element)?;
    for (request, slot) in slots.into_iter().enumerate().filter(|(_, slot)| *slot < SLOTS - 1) {
        let own = request * nodes..(request + 1) * nodes;
        let exists = |node: usize| node == 0 || trees[request][node] >= 0;
        let parents: Vec<Option<usize>> = trees[request].iter().map(|parent| usize::try_from(*parent).ok()).collect();
        let read = world.read(1, slot, own.clone(), &parents);
        let mut matrix = world.matrices[world.matrix(1, slot)].to_vec();
        let mut expected = delta_rule(&sizes, &read, &parents, &mut matrix, false);
        let missing = (0..nodes).filter(|node| !exists(*node));
        missing.for_each(|node| expected[node * width..(node + 1) * width].fill(0.0));
        compare("delta_rows of a tree", &found[own.start * width..own.end * width], &expected, tolerance(element))?;
    }
    compare("states after trees", &world.found_matrices()?, &world.matrices, 0.0)?;
    check_commit(&world, &trees, &slots, &found, numbers)
}

/// A random path of each tree, in all layers: as the reference, and as the same rows as sequences.
fn check_commit(
    world: &World,
    trees: &[Vec<i32>],
    slots: &[usize],
    found: &[f32],
    numbers: &mut Numbers,
) -> Result<(), String> {
    let World { sizes, element, kernels, .. } = world;
    let (device, nodes, most) = (kernels.device(), trees[0].len(), trees[0].len());
    let paths: Vec<Vec<usize>> = trees
        .iter()
        .map(|parents| {
            let ends: Vec<usize> = (0..nodes).filter(|node| *node == 0 || parents[*node] >= 0).collect();
            let mut at = ends[numbers.below(ends.len())];
            let mut path = vec![at];
            while let Ok(parent) = usize::try_from(parents[at]) {
                at = parent;
                path.insert(0, at);
            }
            path
        })
        .collect();
    let padded =
        |path: &Vec<usize>| path.iter().map(|node| *node as i32).chain([-7; 128]).take(most).collect::<Vec<_>>();
    let upload = |values: &[i32]| device.upload(values).map_err(text);
    let node = upload(&paths.iter().flat_map(padded).collect::<Vec<_>>())?;
    let count = upload(&paths.iter().map(|path| path.len() as i32).collect::<Vec<_>>())?;
    let slot = upload(&slots.iter().map(|slot| *slot as i32).collect::<Vec<_>>())?;
    let given =
        DeltaPaths { batch: slots.len(), nodes, slot: slot.slice(), node: node.slice(), most, count: count.slice() };
    kernels.delta_commit(sizes, world.all_inputs(), given, world.weights(), world.states()).map_err(text)?;
    kernels.delta_histories(sizes, world.all_inputs(), given, world.states()).map_err(text)?;
    let (committed, histories) = (world.found_matrices()?, world.found_histories()?);
    let (mut expected, mut moved) = (world.matrices.clone(), world.histories.clone());
    for layer in 0..LAYERS {
        for (request, slot) in slots.iter().enumerate().filter(|(_, slot)| **slot < SLOTS - 1) {
            let own = request * nodes..(request + 1) * nodes;
            let parents: Vec<Option<usize>> =
                trees[request].iter().map(|parent| usize::try_from(*parent).ok()).collect();
            let read = world.read(layer, *slot, own.clone(), &parents);
            delta_commit(sizes, &read, &paths[request], &mut expected[world.matrix(layer, *slot)]);
            delta_history(sizes, &world.mixed(layer, own), &paths[request], &mut moved[world.history(layer, *slot)]);
        }
    }
    compare("states after paths", &committed, &expected, 1e-4)?;
    compare("histories after paths", &histories, &moved, 0.0)?;

    // The rows of the first path as a sequence, from the states before: outputs and state have the
    // same bits.
    let (path, width, bytes) = (&paths[0], sizes.value_width(), element.bytes());
    world.reset()?;
    let along: Vec<f32> = path
        .iter()
        .flat_map(|node| &world.projected[(world.rows + node) * world.stride..][..world.stride])
        .copied()
        .collect();
    let along = device.upload(&element.encode(&along)).map_err(text)?;
    let first = upload(&[0, path.len() as i32])?;
    let row_slot = upload(&vec![slots[0] as i32; path.len()])?;
    let out = device.allocate(path.len() * width * bytes).map_err(text)?;
    let convolved = device.allocate(path.len() * sizes.channels() * bytes).map_err(text)?;
    let rows = |from: usize| Rows { at: along.range(from * bytes..along.bytes()), stride: world.stride };
    let inputs = DeltaInputs {
        mixed: rows(0),
        mixed_layer: 0,
        gates: rows(sizes.channels()),
        gates_layer: 0,
        convolved: convolved.slice(),
        rows: path.len(),
    };
    let pass = DeltaPass {
        sizes: *sizes,
        layer: 1,
        inputs,
        groups: Groups::Ranges { first: first.slice(), count: 1, largest: path.len() },
        row_slot: row_slot.slice(),
        order: DeltaOrder::Chain { writes: true },
    };
    kernels.delta_rows(out.slice(), pass, world.weights(), world.states()).map_err(text)?;
    let of_path: Vec<f32> = path.iter().flat_map(|node| &found[node * width..(node + 1) * width]).copied().collect();
    compare("a path as a sequence", &values(device, out.slice(), *element)?, &of_path, 0.0)?;
    let own = world.matrix(1, slots[0]);
    compare("the state after a path as a sequence", &world.found_matrices()?[own.clone()], &committed[own], 0.0)
}

impl World {
    fn new(
        device: &Device,
        element: Element,
        sizes: DeltaSizes,
        rows: usize,
        numbers: &mut Numbers,
    ) -> Result<Self, String> {
        let stride = sizes.channels() + 2 * sizes.value_heads + 4;
        let heads = LAYERS * sizes.value_heads;
        let projected = numbers.floats(LAYERS * rows * stride, element);
        let convolution = numbers.floats(LAYERS * sizes.channels() * sizes.taps, element);
        let (mut rates, offsets) = (numbers.floats(heads, Element::F32), numbers.floats(heads, Element::F32));
        // Every other head keeps its state for long.
        rates.iter_mut().step_by(2).for_each(|rate| *rate -= 5.0);
        let matrices = numbers.floats((SLOTS - 1) * LAYERS * sizes.state(), Element::F32);
        let histories = numbers.floats((SLOTS - 1) * LAYERS * sizes.history(), element);
        let upload = |values: &[f32]| device.upload(&element.encode(values)).map_err(text);
        let floats = |values: &[f32]| device.upload(values).map_err(text);
        Ok(Self {
            on_device: OnDevice {
                projected: upload(&projected)?,
                convolved: device.allocate(LAYERS * rows * sizes.channels() * element.bytes()).map_err(text)?,
                convolution: upload(&convolution)?,
                rates: floats(&rates)?,
                offsets: floats(&offsets)?,
                matrices: floats(&matrices)?,
                histories: upload(&histories)?,
            },
            kernels: Kernels::new(device.clone(), element),
            element,
            sizes,
            rows,
            stride,
            projected,
            convolution,
            rates,
            offsets,
            matrices,
            histories,
        })
    }

    /// Restores the states on the device.
    fn reset(&self) -> Result<(), String> {
        let device = self.kernels.device();
        device.write(self.on_device.matrices.slice(), &self.matrices).map_err(text)?;
        device.write(self.on_device.histories.slice(), &self.element.encode(&self.histories)).map_err(text)
    }

    /// Fills rows of a layer with NaN.
    fn spoil(&mut self, layer: usize, rows: impl Iterator<Item = usize>) -> Result<(), String> {
        for row in rows {
            let from = (layer * self.rows + row) * self.stride;
            self.projected[from..from + self.stride].fill(f32::NAN);
        }
        let device = self.kernels.device();
        device.write(self.on_device.projected.slice(), &self.element.encode(&self.projected)).map_err(text)
    }

    fn all_inputs(&self) -> DeltaInputs<'_> {
        let layer = self.rows * self.stride;
        DeltaInputs { mixed_layer: layer, gates_layer: layer, ..self.inputs(0) }
    }

    fn inputs(&self, layer: usize) -> DeltaInputs<'_> {
        self.inputs_from(layer, 0..self.rows)
    }

    /// Some rows of a layer.
    fn inputs_from(&self, layer: usize, rows: std::ops::Range<usize>) -> DeltaInputs<'_> {
        let OnDevice { projected: all, convolved, .. } = &self.on_device;
        let row = (layer * self.rows + rows.start) * self.sizes.channels() * self.element.bytes();
        let columns = |from: usize| {
            let from = (layer * self.rows + rows.start) * self.stride + from;
            Rows { at: all.range(from * self.element.bytes()..all.bytes()), stride: self.stride }
        };
        DeltaInputs {
            mixed: columns(0),
            mixed_layer: 0,
            gates: columns(self.sizes.channels()),
            gates_layer: 0,
            convolved: convolved.range(row..convolved.bytes()),
            rows: rows.len(),
        }
    }

    fn weights(&self) -> DeltaWeights<'_> {
        let OnDevice { convolution, rates, offsets, .. } = &self.on_device;
        DeltaWeights { convolution: convolution.slice(), rates: rates.slice(), offsets: offsets.slice() }
    }

    fn states(&self) -> DeltaStates<'_> {
        let OnDevice { matrices, histories, .. } = &self.on_device;
        DeltaStates {
            matrices: matrices.slice(),
            histories: histories.slice(),
            places: SLOTS - 1,
            layers: LAYERS,
            dummy: SLOTS - 1,
        }
    }

    fn found_matrices(&self) -> Result<Vec<f32>, String> {
        self.kernels.device().download(self.on_device.matrices.slice()).map_err(text)
    }

    fn found_histories(&self) -> Result<Vec<f32>, String> {
        values(self.kernels.device(), self.on_device.histories.slice(), self.element)
    }

    fn matrix(&self, layer: usize, place: usize) -> std::ops::Range<usize> {
        let at = place * LAYERS + layer;
        at * self.sizes.state()..(at + 1) * self.sizes.state()
    }

    fn history(&self, layer: usize, place: usize) -> std::ops::Range<usize> {
        let at = place * LAYERS + layer;
        at * self.sizes.history()..(at + 1) * self.sizes.history()
    }

    /// The first columns of rows of a layer.
    fn mixed(&self, layer: usize, rows: std::ops::Range<usize>) -> Vec<f32> {
        self.columns(layer, rows, 0, self.sizes.channels())
    }

    fn columns(&self, layer: usize, rows: std::ops::Range<usize>, from: usize, width: usize) -> Vec<f32> {
        let all = rows.flat_map(|row| &self.projected[(layer * self.rows + row) * self.stride + from..][..width]);
        all.copied().collect()
    }

    /// What the recurrence reads, with convolved values rounded as in the kernels.
    fn read(&self, layer: usize, place: usize, rows: std::ops::Range<usize>, parents: &[Option<usize>]) -> DeltaRows {
        let Self { sizes, element, .. } = self;
        let (heads, weights) = (sizes.value_heads, sizes.channels() * sizes.taps);
        let convolution = &self.convolution[layer * weights..(layer + 1) * weights];
        let history = &self.histories[self.history(layer, place)];
        let convolved = delta_convolution(sizes, &self.mixed(layer, rows.clone()), parents, history, convolution);
        let convolved = element.decode(&element.encode(&convolved));
        let beta = self.columns(layer, rows.clone(), sizes.channels(), heads);
        let decay = self.columns(layer, rows, sizes.channels() + heads, heads);
        let own = layer * heads..(layer + 1) * heads;
        delta_rows(sizes, &convolved, (&decay, &beta), (&self.rates[own.clone()], &self.offsets[own]))
    }
}
