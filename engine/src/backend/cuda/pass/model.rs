//! Passes of a draft whose beams run step by step, whatever its kind, and those of a whole model.

use kernels::{
    device::{Buffer, DeviceError, Slice},
    launch::{RmsNorm, Rows},
};

use super::layers::LayerStack;
use crate::backend::cuda::{
    machine::{Machine, Pass},
    weights::{ModelWeights, StepwiseWeights},
    workspace::{Activations, RowArrays},
};

impl Machine {
    /// Runs a draft over rows that continue the states in rows `source` of `states`, and stores
    /// theirs in `work.states[to]`. Returns the input of its vocabulary head, valid until the next
    /// pass.
    pub fn step<'a>(
        &'a self,
        draft: StepwiseWeights<'a>,
        pass: Pass<'a>,
        states: &Buffer,
        source: Option<Slice<'_>>,
        to: usize,
    ) -> Result<Rows<'a>, DeviceError> {
        match draft {
            StepwiseWeights::Head(head) => self.draft_pass(head, pass, states, source, to, None),
            StepwiseWeights::Model(model) => self.model_pass(model, pass, to),
        }
    }

    /// The input of a draft's vocabulary head after rows of its state: those in `work.states[0]`,
    /// or kept ones.
    pub fn ranked_states<'a>(
        &'a self,
        draft: StepwiseWeights<'a>,
        work: &'a Activations,
        kept: Option<(Rows<'a>, Slice<'_>)>,
        rows: usize,
    ) -> Result<Rows<'a>, DeviceError> {
        let model = match draft {
            StepwiseWeights::Head(head) => return self.proposing(head, work, kept, rows),
            StepwiseWeights::Model(model) => model,
        };
        let state = self.rows(&work.states[0], model.spec.hidden);
        if let Some((from, source)) = kept {
            self.kernels.gather_rows(state, None, from, Some(source), rows, model.spec.hidden)?;
        }
        Ok(state)
    }

    /// Moves rows that are laid out for a head to where a draft reads their tokens; with `writes`,
    /// to the cache rows of these positions.
    pub fn place_rows(
        &self,
        draft: StepwiseWeights<'_>,
        arrays: &RowArrays,
        rows: usize,
        writes: bool,
    ) -> Result<(), DeviceError> {
        if !draft.is_ahead() {
            return Ok(());
        }
        self.kernels.next_positions(arrays.pass(), self.slots.sequences(&self.capacity), writes, rows)
    }

    /// Runs a whole model over rows. Their states after the last norm, which are the input of its
    /// vocabulary head, go to `work.states[to]`.
    pub fn model_pass<'a>(
        &'a self,
        model: &'a ModelWeights,
        pass: Pass<'a>,
        to: usize,
    ) -> Result<Rows<'a>, DeviceError> {
        let Pass { rows, arrays, work, .. } = pass;
        let (width, vocabulary) = (model.spec.hidden, model.spec.vocabulary);
        let stream = self.rows(&work.stream, width);
        self.kernels.embed(stream, model.embedding.slice(), arrays.token.slice(), rows, width, vocabulary)?;
        let kv = model.spec.kv();
        let stack = LayerStack {
            layers: &model.layers,
            width,
            rotations: self.draft_rotations.slice(),
            cache: &|at| self.draft_layer_cache(kv, at),
            pass: &|_| pass,
            // Nothing reads the layers of a whole model that drafts.
            kept: &|_| Vec::new(),
        };
        let add = self.run_layers(work, rows, stack)?;
        let out = self.rows(&work.states[to], width);
        self.kernels.rms_norm(RmsNorm {
            out,
            stream,
            add,
            weight: model.norm.slice(),
            keep: None,
            source: None,
            rows,
            width,
            epsilon: model.spec.epsilon,
        })?;
        Ok(out)
    }
}
