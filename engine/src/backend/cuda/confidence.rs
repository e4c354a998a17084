//! What a confidence head says of the drafts of replayed places. The host computes it from the
//! hidden rows of the block pass: only traces ask for it, and the head is one row.

use kernels::{
    device::{Buffer, Slice},
    launch::Rows,
    reference::Matrix,
};

use super::{
    CudaBackend,
    weights::{BlockWeights, ConfidenceWeights, MarkovWeights},
};
use crate::{
    backend::{
        Pool, ReplayPlace, RequiredTree,
        confidence::{ConfidenceHead, before_drafts},
    },
    error::EngineError,
};

impl CudaBackend {
    /// The hidden rows of a block pass over some places, `[places · steps, hidden]`, if confidences
    /// are wanted of one of them. Must be read before the ranking of the first level.
    pub(super) fn confident_rows(
        &self,
        draft: &BlockWeights,
        hidden: Rows<'_>,
        steps: usize,
        places: &[ReplayPlace<'_>],
    ) -> Result<Option<Vec<f32>>, EngineError> {
        let rows = places.len() * steps;
        if draft.confidence.is_none() || rows == 0 || places.iter().all(|place| place.wanted != RequiredTree::Whole) {
            return Ok(None);
        }
        let width = draft.spec.hidden();
        // The buffer may end with the last row, before its stride does.
        let strided = self.read_floats(hidden.at, (rows - 1) * hidden.stride + width)?;
        Ok(Some(strided.chunks(hidden.stride).flat_map(|row| &row[..width]).copied().collect()))
    }

    /// Adds the confidences of the places whose whole trees are wanted. `hidden` has `steps` rows
    /// of each place.
    pub(super) fn add_confidences(
        &self,
        draft: &BlockWeights,
        hidden: &[f32],
        steps: usize,
        places: &[ReplayPlace<'_>],
        pools: &mut [Pool],
    ) -> Result<(), EngineError> {
        let Some(weights) = &draft.confidence else { return Ok(()) };
        let (head, width) = (self.confidence_head(weights)?, draft.spec.hidden());
        for (at, (place, pool)) in places.iter().zip(pools).enumerate() {
            if place.wanted != RequiredTree::Whole {
                continue;
            }
            let before = before_drafts(pool, place.root);
            let embedded = match draft.markov.as_ref().filter(|_| weights.spec.with_markov) {
                Some(markov) => self.markov_rows(markov, &before)?,
                None => vec![Vec::new(); before.len()],
            };
            let row = |depth: usize| {
                let first = (at * steps + depth) * width;
                (&hidden[first..first + width], embedded[depth].as_slice())
            };
            pool.set_confidence(head.log_odds((0..embedded.len()).map(row)));
        }
        Ok(())
    }

    /// The head on the host.
    fn confidence_head(&self, weights: &ConfidenceWeights) -> Result<ConfidenceHead, EngineError> {
        let ConfidenceWeights { spec, inputs, weight, bias } = weights;
        let values = self.read_floats(weight.slice(), *inputs)?;
        let bias = bias.as_ref().map(|bias| self.read_floats(bias.slice(), 1)).transpose()?;
        Ok(ConfidenceHead { weight: Matrix::new(1, *inputs, values), bias, with_markov: spec.with_markov })
    }

    /// W1's rows of tokens.
    fn markov_rows(&self, markov: &MarkovWeights, tokens: &[u32]) -> Result<Vec<Vec<f32>>, EngineError> {
        let (rank, bytes) = (markov.spec.rank, markov.spec.rank * self.options.element.bytes());
        let row = |from: &Buffer, token: u32| {
            let first = token as usize * bytes;
            self.read_floats(from.range(first..first + bytes), rank)
        };
        tokens.iter().map(|token| row(&markov.embedding, *token)).collect()
    }

    /// Numbers in the type of activations.
    fn read_floats(&self, from: Slice<'_>, count: usize) -> Result<Vec<f32>, EngineError> {
        let element = self.options.element;
        let mut bytes = vec![0_u8; count * element.bytes()];
        self.device.read(from, &mut bytes)?;
        Ok(element.decode(&bytes))
    }
}
