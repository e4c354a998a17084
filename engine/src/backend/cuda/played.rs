//! Acceptance that is played from texts: its tables on the device, and the form of trees.

use std::{collections::BTreeMap, sync::Arc};

use kernels::{
    device::{Buffer, Device, DeviceError, Slice},
    launch::{GivenTrees, HostTrees, Played, PlayedTrees, TreeNodes, VerifyRows},
};
use schemas::tree::TreeShape;

use super::{CudaBackend, SimulationKey, machine::Machine, round::RoundMemory};
use crate::{
    error::EngineError,
    played::{PlayedAcceptance, PlayedText, PlayedTree, Simulated},
};

/// Words of a slot's place in the texts.
pub const PLACE_WORDS: usize = 4;

/// The accepted drafts of each shape at all positions.
pub struct PlayedTables {
    acceptance: Arc<PlayedAcceptance>,
    /// int32 `[shapes, positions]`.
    accepted: Buffer,
    shapes: Vec<TreeShape>,
    /// Parents and scores of the trees that are played: `[positions, nodes]` each.
    trees: BTreeMap<TreeShape, [Buffer; 2]>,
}

impl PlayedTables {
    fn new(device: &Device, acceptance: Arc<PlayedAcceptance>) -> Result<Self, DeviceError> {
        let shapes: Vec<TreeShape> = acceptance.shapes().map(|(shape, _)| shape).collect();
        let with_end = |(shape, accepted): (TreeShape, &[i32])| -> Vec<i32> {
            match acceptance.trees(shape) {
                Some(trees) => accepted.iter().zip(trees).map(|(accepted, tree)| entry(*accepted, tree)).collect(),
                None => accepted.to_vec(),
            }
        };
        let all: Vec<i32> = acceptance.shapes().flat_map(with_end).collect();
        let mut trees = BTreeMap::new();
        for shape in shapes.iter().copied().filter(|shape| is_formed(*shape)) {
            let Some(all) = acceptance.trees(shape) else { continue };
            let (parents, scores) = columns(all, shape.num_draft_tokens);
            trees.insert(shape, [device.upload(&parents)?, device.upload(&scores)?]);
        }
        Ok(Self { accepted: device.upload(&all)?, acceptance, shapes, trees })
    }

    /// What the kernels of a shape's round read; `None` for no speculation. `places` are those of
    /// the slots.
    pub fn of<'a>(&'a self, shape: TreeShape, places: Slice<'a>) -> Option<Played<'a>> {
        let at = self.shapes.iter().position(|known| *known == shape)?;
        let bytes = self.accepted.bytes() / self.shapes.len();
        Some(Played { accepted: self.accepted.range(at * bytes..(at + 1) * bytes), places })
    }

    /// The place of a slot in the texts.
    pub fn place(&self, played: Option<PlayedText>) -> [u32; PLACE_WORDS] {
        let [begin, positions, origin] = played.map_or([0; 3], |played| self.acceptance.place(played));
        [begin as u32, positions as u32, origin as u32, 0]
    }
}

/// Whether trees of a shape have more than one form, or are cut by score.
fn is_formed(shape: TreeShape) -> bool {
    shape.topk > 1 || shape.row_budget.is_some()
}

/// What the kernels read of a tree's acceptance: see [`Played`].
fn entry(accepted: i32, tree: &PlayedTree) -> i32 {
    accepted | (tree.end as i32) << 16
}

/// Parents and scores of the nodes of trees; nodes that do not exist have no parent.
fn columns(trees: &[PlayedTree], nodes: usize) -> (Vec<i32>, Vec<f32>) {
    let (mut parents, mut scores) = (Vec::new(), Vec::new());
    for (at, tree) in trees.iter().enumerate() {
        parents.push(-1);
        scores.push(0.0);
        parents.extend(tree.drafts.iter().map(|(parent, _)| *parent as i32));
        scores.extend(tree.drafts.iter().map(|(_, score)| *score));
        parents.resize((at + 1) * nodes, -1);
        scores.resize((at + 1) * nodes, f32::NEG_INFINITY);
    }
    (parents, scores)
}

impl Machine {
    /// Gives the drafted trees the form of the texts that are played, if that of the shape is
    /// known, and lays out the rows of the verify pass again.
    pub(super) fn play_trees(
        &self,
        memory: RoundMemory<'_>,
        shape: TreeShape,
        batch: usize,
        tree: TreeNodes<'_>,
        verify: VerifyRows<'_>,
    ) -> Result<(), DeviceError> {
        let RoundMemory { arrays, round, .. } = memory;
        let trees = self.played.as_ref().and_then(|played| played.trees.get(&shape));
        let Some([parent, score]) = trees else { return Ok(()) };
        let bytes = batch * tree.nodes * 4;
        let [token, given_parent, given_score] = [0, 1, 2].map(|at| round.played.range(at * bytes..(at + 1) * bytes));
        let (batch_slot, sequences) = (round.slot.slice(), self.slots.sequences(&self.capacity));
        let played = PlayedTrees { parent: parent.slice(), score: score.slice(), places: self.slots.played.slice() };
        let given = GivenTrees { token, parent: given_parent, score: given_score };
        self.kernels.play_trees(given, played, (batch, batch_slot), tree, sequences)?;
        let trees = HostTrees {
            batch,
            steps: shape.num_steps,
            batch_slot,
            token,
            parent: given_parent,
            score: Some(given_score),
            own: self.listed_own(arrays),
        };
        // The kernel that has grown the trees has advanced the output.
        let verify = VerifyRows { outputs: None, ..verify };
        self.kernels.host_trees(trees, sequences, tree, arrays.pass(), verify)
    }
}

impl CudaBackend {
    /// Sets how acceptance is simulated. Graphs of played rounds contain the addresses of the
    /// tables.
    pub(super) fn set_simulation(&mut self, simulated: Option<Simulated>) -> Result<(), EngineError> {
        self.device.synchronize()?;
        self.graphs.retain(|key, _| key.simulation != Some(SimulationKey::Played));
        self.machine.played = None;
        self.simulated = None;
        if let Some(Simulated::Played(acceptance)) = &simulated {
            self.machine.played = Some(PlayedTables::new(&self.device, Arc::clone(acceptance))?);
        }
        self.simulated = simulated;
        Ok(())
    }
}
