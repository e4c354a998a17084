//! Gated delta nets in passes and rounds.
//!
//! Rows of prompts, and of rounds without speculation, continue a sequence and change its state at
//! once. Rows of trees leave it as it is; what their projections yield is kept until the accepted
//! path is committed, before and after the convolution.

use kernels::{
    device::{Buffer, DeviceError, Slice},
    launch::{DeltaInputs, DeltaOrder, DeltaPaths, DeltaStates, DeltaSteps, Groups, Rows},
    reference::DeltaSizes,
};

use super::{
    CudaBackend,
    machine::{Machine, Pass},
    round::{RoundMemory, Verifying},
    slot_states::States,
    weights::{DeltaTables, DeltaWeights, delta_outputs},
    workspace::Activations,
};
use crate::{
    backend::{Slot, Snapshot},
    error::EngineError,
    spec::AttentionSpec,
};

impl Machine {
    /// Operands of the kernels that read or change states.
    pub(super) fn delta_states<'a>(&self, states: &'a States) -> DeltaStates<'a> {
        states.operands(self.capacity.slots)
    }

    /// The order of the nodes of the verified trees.
    pub(super) fn order_of_nodes<'a>(&self, verifying: Verifying<'a>) -> DeltaOrder<'a> {
        let Verifying { memory: RoundMemory { work, .. }, shape, tree, .. } = verifying;
        // In a chain every node follows the one before it; padding comes last.
        match &self.target.delta {
            // The only row of a request is certain, so the pass may advance the state itself.
            _ if shape.is_off() => DeltaOrder::Chain { writes: true },
            Some(DeltaTables { sizes, .. }) if self.has_branches(shape) => DeltaOrder::Tree(DeltaSteps {
                at: work.delta.steps.slice(),
                stride: DeltaSteps::stride_of(tree.nodes, shape.num_steps),
                parent: tree.parent,
                nodes: tree.nodes,
                levels: self.kernels.delta_levels(sizes, shape.num_steps),
            }),
            // Drafts may be rejected; `commit_states` advances the states after acceptance.
            _ => DeltaOrder::Chain { writes: false },
        }
    }

    /// Whether the rows of a pass run through layers with a state in chunks.
    pub(super) fn in_chunks(&self, pass: Pass<'_>, sizes: &DeltaSizes) -> bool {
        self.chunks_deltas
            && match pass.groups {
                Groups::Ranges { .. } => true,
                Groups::Even(nodes) => {
                    self.kernels.prefers_delta_chunks(sizes, pass.order, pass.rows / nodes.max(1), nodes)
                }
            }
    }

    /// Lays out the steps over the trees of a pass, for all layers, unless they run in chunks.
    pub(super) fn lay_out_steps(&self, pass: Pass<'_>) -> Result<(), DeviceError> {
        match (&self.target.delta, pass.order) {
            (Some(tables), DeltaOrder::Tree(steps)) if !self.in_chunks(pass, &tables.sizes) => {
                self.kernels.delta_steps(&tables.sizes, steps, pass.rows / steps.nodes.max(1))
            }
            _ => Ok(()),
        }
    }

    /// Where the projections and the convolution of a layer store their results: those of all
    /// layers of a round are kept, those of a prompt are overwritten by the next layer.
    pub(super) fn delta_projected<'a>(
        &self,
        work: &'a Activations,
        weights: &DeltaWeights,
        rows: usize,
        is_prompt: bool,
    ) -> [Slice<'a>; 3] {
        // A round keeps the rows of all layers, because states are computed again along the
        // accepted path. A prompt's are not used after their layer.
        let at = if is_prompt { 0 } else { weights.index };
        let of = |buffer: &'a Buffer, outputs: usize| {
            let bytes = rows * outputs * self.element_bytes();
            buffer.range(at * bytes..(at + 1) * bytes)
        };
        let rates = weights.rates.as_ref().map_or(0, |rates| rates.outputs);
        [
            of(&work.delta.projected, weights.entry.outputs),
            of(&work.delta.rates, rates),
            of(&work.delta.convolved, weights.spec.sizes.channels()),
        ]
    }

    /// Makes the accepted paths part of the states.
    pub(super) fn commit_states(&self, verifying: Verifying<'_>) -> Result<(), DeviceError> {
        let Verifying { memory: RoundMemory { work, round, .. }, shape, batch, tree, .. } = verifying;
        let (Some(states), Some(tables)) = (&self.states, &self.target.delta) else { return Ok(()) };
        let Some((spec, formats)) = self.target.spec.layers.iter().find_map(|layer| match &layer.attention {
            AttentionSpec::Delta(delta) => Some((delta, layer.formats)),
            AttentionSpec::Grouped(_) | AttentionSpec::Latent(_) => None,
        }) else {
            return Ok(());
        };
        let (outputs, rates) = delta_outputs(spec, formats);
        let rows = batch * tree.nodes;
        let inputs = delta_inputs(
            [work.delta.projected.slice(), work.delta.rates.slice(), work.delta.convolved.slice()],
            (spec.sizes.channels() + spec.sizes.value_width(), outputs, rates),
            rows,
            self.element_bytes(),
        );
        let paths = DeltaPaths {
            batch,
            nodes: tree.nodes,
            slot: round.slot.slice(),
            node: round.accepted_node.slice(),
            most: shape.longest_path(),
            count: round.group_rows.slice(),
        };
        let of_states = self.delta_states(states);
        // Without drafts the pass has advanced the matrices, but not the histories.
        if !shape.is_off() {
            self.kernels.delta_commit(&tables.sizes, inputs, paths, tables.operands(), of_states)?;
        }
        self.kernels.delta_histories(&tables.sizes, inputs, paths, of_states)
    }
}

/// What the projections and the convolution of a layer, or of several, have left: `whole` is the
/// width of queries, keys, values and gates of outputs; then come the outputs of the first
/// projection, and of the second, if there is one.
pub(super) fn delta_inputs<'a>(
    [projected, of_rates, convolved]: [Slice<'a>; 3],
    (whole, outputs, rates): (usize, usize, usize),
    rows: usize,
    element: usize,
) -> DeltaInputs<'a> {
    let (gates, gates_layer) = match rates {
        0 => (Rows { at: projected.range(whole * element..projected.bytes()), stride: outputs }, rows * outputs),
        stride => (Rows { at: of_rates, stride }, rows * stride),
    };
    DeltaInputs {
        mixed: Rows { at: projected, stride: outputs },
        mixed_layer: rows * outputs,
        gates,
        gates_layer,
        convolved,
        rows,
    }
}

impl CudaBackend {
    /// Copies a state between a slot and a snapshot, in the direction that `order` chooses.
    pub(super) fn copy_state(
        &self,
        slot: Slot,
        snapshot: Snapshot,
        order: impl Fn(usize, usize) -> (usize, usize),
    ) -> Result<(), EngineError> {
        let Some(states) = &self.machine.states else { return Ok(()) };
        let (slot, snapshot) = self.slots.state_places(slot, snapshot)?;
        let (from, to) = order(slot, snapshot);
        Ok(states.copy(&self.device, from, to)?)
    }
}
