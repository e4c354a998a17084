//! Gated delta nets: `cuda/delta.cu`; their convolution is in `delta_convolve.rs`.
//!
//! States belong to places: slots and snapshots. The rows of a pass are projected by a linear
//! layer and convolved. Both are kept until the accepted path is committed: a state is read once to
//! verify a tree, and read and written once to commit.

use super::{Groups, Kernels, Rows, address, check_ints, grid, int};
use crate::{
    device::{Arg, DeviceError, Element, Geometry, Kernel, KernelFile, Slice, Split},
    reference::DeltaSizes,
};

pub(super) const FILE: KernelFile =
    KernelFile { name: "delta.cu", text: include_str!("../../cuda/delta.cu"), split: Split::Shared };

pub(super) const CONVOLVE: KernelFile =
    KernelFile { name: "delta_convolve.cu", text: include_str!("../../cuda/delta_convolve.cu"), split: Split::Shared };

/// Columns of a state in a block of few states.
const COLUMNS: usize = 32;
/// The most elements of a key for which a lane may have a column.
const MOST_COLUMN: usize = 128;
/// Threads of a block.
const THREADS: u32 = 128;
/// Maximum number of levels at which states of a tree are kept in shared memory.
const MOST_LEVELS: usize = 8;
/// Number of them that is used: paths that part further down are walked again.
const USEFUL_LEVELS: usize = 4;
/// Maximum number of nodes of a tree.
const MOST_NODES: usize = 128;

/// The states of all places, and of all layers that have one.
#[derive(Clone, Copy, Debug)]
pub struct DeltaStates<'a> {
    /// Float `[places, layers, value heads, key dim, value dim]`.
    pub matrices: Slice<'a>,
    /// The last rows before the convolution, oldest first: `[places, layers, taps − 1, channels]`.
    pub histories: Slice<'a>,
    /// Number of places.
    pub places: usize,
    /// Number of layers.
    pub layers: usize,
    /// The slot of padding, which has no state. All other slots that rows name are below `places`.
    pub dummy: usize,
}

/// Weights of all layers that have a state, layer by layer.
#[derive(Clone, Copy, Debug)]
pub struct DeltaWeights<'a> {
    /// `[layers, channels, taps]`, the oldest tap first.
    pub convolution: Slice<'a>,
    /// Logarithms of the decays' rates, float `[layers, value heads]`.
    pub rates: Slice<'a>,
    /// Added to the decays' projection, float `[layers, value heads]`.
    pub offsets: Slice<'a>,
}

/// What a layer's projections yield for the rows of a pass, or those of several layers, each
/// `layer` elements after the one before; and what becomes of it.
#[derive(Clone, Copy, Debug)]
pub struct DeltaInputs<'a> {
    /// Queries, keys and values before the convolution: the first channels of each row.
    pub mixed: Rows<'a>,
    /// Elements from one layer to the next.
    pub mixed_layer: usize,
    /// Of each value head β before the sigmoid, then of each the decay.
    pub gates: Rows<'a>,
    /// Elements from one layer to the next.
    pub gates_layer: usize,
    /// Queries, keys and values after the convolution: `[rows, channels]`, layer by layer. Passes
    /// write it, commits read it.
    pub convolved: Slice<'a>,
    /// Rows of a layer.
    pub rows: usize,
}

/// The steps over the trees of a pass, as [`Kernels::delta_steps`] lays them out.
#[derive(Clone, Copy, Debug)]
pub struct DeltaSteps<'a> {
    /// int32 `[requests, stride]`.
    pub at: Slice<'a>,
    /// As many as [`stride_of`](Self::stride_of) the trees.
    pub stride: usize,
    /// The node before each node, int32 `[requests, nodes]`; −1 for roots and for nodes that do not
    /// exist.
    pub parent: Slice<'a>,
    /// Nodes of a request.
    pub nodes: usize,
    /// Levels at which states are kept.
    pub levels: usize,
}

/// The order of the rows of a pass.
#[derive(Clone, Copy, Debug)]
pub enum DeltaOrder<'a> {
    /// Each row follows the one before it in its group.
    Chain {
        /// Whether they continue their sequences, so that the states become those after the last
        /// rows.
        writes: bool,
    },
    /// Each group is a tree.
    Tree(DeltaSteps<'a>),
}

/// Operands of [`Kernels::delta_rows`].
#[derive(Clone, Copy, Debug)]
pub struct DeltaPass<'a> {
    /// Sizes of the layer.
    pub sizes: DeltaSizes,
    /// Its index among the layers with a state.
    pub layer: usize,
    /// Its rows.
    pub inputs: DeltaInputs<'a>,
    /// Which rows belong to the same sequence.
    pub groups: Groups<'a>,
    /// The slot of each row, int32: that of its place.
    pub row_slot: Slice<'a>,
    /// Their order.
    pub order: DeltaOrder<'a>,
}

/// The accepted paths of a batch.
#[derive(Clone, Copy, Debug)]
pub struct DeltaPaths<'a> {
    /// Number of requests.
    pub batch: usize,
    /// Rows of a request in the pass.
    pub nodes: usize,
    /// Slots, int32 `[batch]`.
    pub slot: Slice<'a>,
    /// Nodes of the paths, int32 `[batch, most]`.
    pub node: Slice<'a>,
    /// Maximum number of nodes of a path.
    pub most: usize,
    /// Their numbers, int32 `[batch]`.
    pub count: Slice<'a>,
}

impl DeltaSteps<'_> {
    /// Number of integers for the steps over a tree of this many nodes, at most `depth` below its
    /// root.
    pub fn stride_of(nodes: usize, depth: usize) -> usize {
        1 + nodes * (depth + 1)
    }
}

impl DeltaStates<'_> {
    pub(super) fn check(&self, sizes: &DeltaSizes, element: Element) -> Result<(), DeviceError> {
        let Self { places, layers, .. } = *self;
        self.matrices.check(places * layers * sizes.state() * 4)?;
        self.histories.check(places * layers * sizes.history() * element.bytes())
    }
}

impl DeltaWeights<'_> {
    pub(super) fn check(&self, sizes: &DeltaSizes, layers: usize, element: Element) -> Result<(), DeviceError> {
        self.convolution.check(layers * sizes.channels() * sizes.taps * element.bytes())?;
        [self.rates, self.offsets].into_iter().try_for_each(|each| each.check(layers * sizes.value_heads * 4))
    }
}

/// The reason why no kernel supports these sizes, if none does.
pub fn refused_delta(sizes: &DeltaSizes) -> Option<String> {
    let DeltaSizes { key_heads, value_heads, key_dim, value_dim, taps } = *sizes;
    let odd = |dim: usize| !dim.is_multiple_of(32) || !(32..=256).contains(&dim);
    if odd(key_dim) || odd(value_dim) {
        return Some(format!(
            "linear attention with keys of {key_dim} and values of {value_dim} elements; the GPU's kernels need multiples of \
             32 up to 256"
        ));
    }
    if !(2..=8).contains(&taps) {
        return Some(format!("linear attention with a convolution over {taps} rows; the GPU's kernels have 2 to 8"));
    }
    let divides = key_heads > 0 && value_heads.is_multiple_of(key_heads);
    (!divides).then(|| format!("linear attention with {value_heads} value heads for {key_heads} key heads"))
}

/// Additional files for gated delta nets of these sizes.
pub fn delta_files(element: Element, sizes: &DeltaSizes) -> Vec<(KernelFile, Vec<String>)> {
    [FILE, CONVOLVE].map(|file| (file, options(element, sizes))).to_vec()
}

pub(super) fn options(element: Element, sizes: &DeltaSizes) -> Vec<String> {
    let DeltaSizes { key_dim, value_dim, taps, .. } = sizes;
    vec![element.option(), format!("-DKEY_DIM={key_dim}"), format!("-DVALUE_DIM={value_dim}"), format!("-DTAPS={taps}")]
}

impl Kernels {
    /// Levels at which states are kept in shared memory while the rows of trees of this depth run.
    pub fn delta_levels(&self, sizes: &DeltaSizes, depth: usize) -> usize {
        // The inputs of the rows take up to 40 KiB. With more levels fewer blocks would run on a
        // multiprocessor.
        let room = self.device.properties().shared_bytes.saturating_sub(48 << 10);
        (room / level_bytes(sizes)).min(depth).min(USEFUL_LEVELS)
    }

    /// Lays out the steps over the trees of a pass.
    ///
    /// # Errors
    /// When a buffer is too short, a tree is too large, or the device fails.
    pub fn delta_steps(&self, sizes: &DeltaSizes, steps: DeltaSteps<'_>, batch: usize) -> Result<(), DeviceError> {
        let DeltaSteps { at, stride, parent, nodes, levels } = steps;
        if nodes == 0 || nodes > MOST_NODES || levels > MOST_LEVELS {
            return Err(DeviceError::Shape(format!("trees of {nodes} nodes, with {levels} levels of kept states")));
        }
        check_ints(at, batch * stride)?;
        check_ints(parent, batch * nodes)?;
        let arguments = [address(at), int(stride), address(parent), int(nodes), int(levels)];
        let kernel = self.delta_kernel(sizes, "delta_steps")?;
        // SAFETY: lengths are checked above; parents are the caller's trees, in which they come
        // before their nodes.
        unsafe { self.device.launch(&kernel, grid([batch, 1, 1], 32, 0), &arguments) }
    }

    /// Runs the rows of a layer from the states of their slots; `out` is
    /// `[rows, value heads · value dim]`.
    ///
    /// # Errors
    /// When a buffer is too short, there are no kernels for the sizes, or the device fails.
    pub fn delta_rows(
        &self,
        out: Slice<'_>,
        pass: DeltaPass<'_>,
        weights: DeltaWeights<'_>,
        states: DeltaStates<'_>,
    ) -> Result<(), DeviceError> {
        let DeltaPass { sizes, layer, inputs, groups, row_slot, order } = pass;
        let rows = inputs.rows;
        out.check(rows * sizes.value_width() * self.element.bytes())?;
        self.delta_convolve(pass, weights, states)?;
        let shared = self.delta_arguments(&sizes, DeltaInputs { gates_layer: 0, ..inputs }, 1, weights, states)?;
        let (first, each, count) = ranges(groups, rows)?;
        let (steps, writes) = match order {
            DeltaOrder::Chain { writes } => (None, writes),
            DeltaOrder::Tree(steps) => (Some(steps), false),
        };
        if let Some(steps) = steps {
            check_ints(steps.at, count * steps.stride)?;
            if steps.nodes != each || steps.levels > MOST_LEVELS {
                return Err(DeviceError::Shape(format!("trees of {} nodes in groups of {each} rows", steps.nodes)));
            }
        }
        let own = [int(layer), address(row_slot), int(states.dummy)];
        let (name, geometry, rest) = match steps {
            Some(DeltaSteps { at, stride, levels, .. }) => {
                let kept = levels * level_bytes(&sizes);
                ("delta_trees", blocks_of_columns(&sizes, [count, 1], kept), vec![int(each), address(at), int(stride)])
            }
            None => {
                let (name, geometry) = self.delta_blocks(["delta_chains", "delta_chains_of_heads"], &sizes, [count, 1]);
                (name, geometry, vec![address(first), int(each), Arg::Int(writes.into())])
            }
        };
        let arguments = [&[address(out)][..], &shared, &own, &rest].concat();
        let kernel = self.delta_kernel(&sizes, name)?;
        // SAFETY: lengths are checked above; slots, groups and steps come from the caller's layout
        // kernels and are within bounds.
        unsafe { self.device.launch(&kernel, geometry, &arguments) }
    }

    /// The kernel of two, for few states and for many, and its blocks.
    fn delta_blocks(
        &self,
        [few, many]: [&'static str; 2],
        sizes: &DeltaSizes,
        [groups, layers]: [usize; 2],
    ) -> (&'static str, Geometry) {
        let heads = sizes.value_heads * groups * layers;
        if sizes.key_dim > MOST_COLUMN || heads < self.device.properties().multiprocessors {
            return (few, blocks_of_columns(sizes, [groups, layers], 0));
        }
        (many, grid([sizes.value_heads, groups, layers], sizes.value_dim as u32, 0))
    }

    /// Norms and gates the outputs of a layer in place: `rms(out) · norm · silu(gate)` for each
    /// value head. Gates are the first `value heads · value dim` elements of rows.
    ///
    /// # Errors
    /// When a buffer is too short, or the device fails.
    pub fn delta_gate(
        &self,
        sizes: &DeltaSizes,
        out: Slice<'_>,
        gate: Rows<'_>,
        (norm, epsilon): (Slice<'_>, f32),
        rows: usize,
    ) -> Result<(), DeviceError> {
        let width = sizes.value_width();
        out.check(rows * width * self.element.bytes())?;
        self.check_delta_rows(gate, rows, width)?;
        norm.check(sizes.value_dim * self.element.bytes())?;
        let kernel = self.delta_kernel(sizes, "delta_gate")?;
        let arguments = [
            address(out),
            address(gate.at),
            int(gate.stride),
            address(norm),
            int(sizes.value_heads),
            Arg::Float(epsilon),
        ];
        // SAFETY: lengths are checked above.
        unsafe { self.device.launch(&kernel, grid([sizes.value_heads.div_ceil(4), rows, 1], THREADS, 0), &arguments) }
    }

    /// Commits the accepted paths of trees in all layers: states become those after the last node.
    /// `inputs` are those of all layers, as [`delta_rows`](Self::delta_rows) read them.
    ///
    /// # Errors
    /// As there.
    pub fn delta_commit(
        &self,
        sizes: &DeltaSizes,
        inputs: DeltaInputs<'_>,
        paths: DeltaPaths<'_>,
        weights: DeltaWeights<'_>,
        states: DeltaStates<'_>,
    ) -> Result<(), DeviceError> {
        let shared = self.delta_arguments(sizes, inputs, states.layers, weights, states)?;
        let DeltaPaths { batch, nodes, slot, node, most, count } = paths.checked(inputs.rows)?;
        let own = [address(slot), int(states.dummy), int(nodes), address(node), int(most), address(count)];
        let arguments = [&shared[..], &own].concat();
        let names = ["delta_commit", "delta_commit_of_heads"];
        let (name, geometry) = self.delta_blocks(names, sizes, [batch, states.layers]);
        let kernel = self.delta_kernel(sizes, name)?;
        // SAFETY: lengths are checked above; paths are those that acceptance has written.
        unsafe { self.device.launch(&kernel, geometry, &arguments) }
    }

    /// The arguments that all kernels share which change states.
    fn delta_arguments(
        &self,
        sizes: &DeltaSizes,
        inputs: DeltaInputs<'_>,
        layers: usize,
        weights: DeltaWeights<'_>,
        states: DeltaStates<'_>,
    ) -> Result<[Arg; 11], DeviceError> {
        self.check_delta(sizes, weights, states)?;
        let DeltaInputs { gates, gates_layer, convolved, rows, .. } = inputs;
        let convolved_layer = rows * sizes.channels();
        convolved.check(layers * convolved_layer * self.element.bytes())?;
        self.check_delta_layers(gates, gates_layer, rows, 2 * sizes.value_heads, layers)?;
        Ok([
            address(convolved),
            Arg::Long(convolved_layer as u64),
            address(gates.at),
            Arg::Long(gates.stride as u64),
            Arg::Long(gates_layer as u64),
            address(weights.rates),
            address(weights.offsets),
            address(states.matrices),
            int(states.layers),
            int(sizes.key_heads),
            int(sizes.value_heads),
        ])
    }

    /// Checks that there are kernels for the sizes, and what all layers share.
    pub(super) fn check_delta(
        &self,
        sizes: &DeltaSizes,
        weights: DeltaWeights<'_>,
        states: DeltaStates<'_>,
    ) -> Result<(), DeviceError> {
        if let Some(reason) = refused_delta(sizes) {
            return Err(DeviceError::Shape(reason));
        }
        weights.check(sizes, states.layers, self.element)?;
        states.check(sizes, self.element)
    }

    /// Checks rows that are read element by element.
    fn check_delta_rows(&self, rows: Rows<'_>, count: usize, width: usize) -> Result<(), DeviceError> {
        self.check_delta_layers(rows, 0, count, width, 1)
    }

    pub(super) fn check_delta_layers(
        &self,
        rows: Rows<'_>,
        layer: usize,
        count: usize,
        width: usize,
        layers: usize,
    ) -> Result<(), DeviceError> {
        let last = layers.saturating_sub(1) * layer + count.saturating_sub(1) * rows.stride;
        rows.at.check((last + width) * self.element.bytes())
    }

    fn delta_kernel(&self, sizes: &DeltaSizes, name: &'static str) -> Result<Kernel, DeviceError> {
        self.device.kernel(FILE, &options(self.element, sizes), name)
    }
}

impl<'a> DeltaPaths<'a> {
    pub(super) fn checked(self, rows: usize) -> Result<Self, DeviceError> {
        let Self { batch, nodes, slot, node, most, count } = self;
        if batch * nodes > rows {
            return Err(DeviceError::Shape(format!("{batch} trees of {nodes} nodes in {rows} rows")));
        }
        check_ints(slot, batch)?;
        check_ints(count, batch)?;
        check_ints(node, batch * most)?;
        Ok(self)
    }
}

/// Bytes of the kept states of a level in a block.
fn level_bytes(sizes: &DeltaSizes) -> usize {
    COLUMNS * sizes.key_dim * 4
}

/// The first rows of groups, or else their size; and their number.
pub(super) fn ranges<'a>(groups: Groups<'a>, rows: usize) -> Result<(Slice<'a>, usize, usize), DeviceError> {
    match groups {
        Groups::Even(each) => Ok((Slice::NONE, each, rows / each.max(1))),
        Groups::Ranges { first, count, .. } => check_ints(first, count + 1).map(|()| (first, 0, count)),
    }
}

/// A block for each [`COLUMNS`] of a head.
fn blocks_of_columns(sizes: &DeltaSizes, [groups, layers]: [usize; 2], shared: usize) -> Geometry {
    grid([sizes.value_heads * (sizes.value_dim / COLUMNS), groups, layers], THREADS, shared)
}
