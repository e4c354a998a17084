//! Acceptance that is played from texts: its tables on the device.

use std::{collections::BTreeMap, sync::Arc};

use kernels::{
    device::{Buffer, Device, DeviceError, Slice},
    launch::{Played, PlayedTrees},
};
use schemas::tree::TreeShape;

use super::{CudaBackend, SimulationKey};
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
    pub fn for_shape<'a>(&'a self, shape: TreeShape, places: Slice<'a>) -> Option<Played<'a>> {
        let at = self.shapes.iter().position(|known| *known == shape)?;
        let bytes = self.accepted.bytes() / self.shapes.len();
        Some(Played { accepted: self.accepted.range(at * bytes..(at + 1) * bytes), places })
    }

    /// The trees of a shape, if their form is played. `places` are those of the slots.
    pub fn trees<'a>(&'a self, shape: TreeShape, places: Slice<'a>) -> Option<PlayedTrees<'a>> {
        let [parent, score] = self.trees.get(&shape)?;
        Some(PlayedTrees { parent: parent.slice(), score: score.slice(), places })
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
