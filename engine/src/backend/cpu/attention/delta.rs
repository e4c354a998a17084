//! A gated delta net, and the states that it keeps of slots.

use std::ops::Range;

use kernels::reference::{
    DeltaRows, DeltaSizes, delta_commit, delta_convolution, delta_history, delta_rows, delta_rule, rms_norm, silu_gate,
};

use super::{super::linear::CpuLinear, RowPlacement};
use crate::{
    checkpoint::Tensors,
    error::EngineError,
    spec::{DeltaNet, DeltaTensors},
};

/// The rows of one slot in a pass.
#[derive(Clone, Debug)]
pub struct SlotRows {
    /// The place of the slot's state.
    pub place: usize,
    /// Its rows in the pass.
    pub rows: Range<usize>,
    /// For each of them the row before it, counted from the first of them; `None` if that is the
    /// slot's last committed row. A parent comes before its children.
    pub parents: Vec<Option<usize>>,
    /// Whether the rows are the continuation of the sequence, so that its state becomes the one
    /// after the last of them. If not, they are a tree, and [`CpuDeltaStates::commit`] follows once
    /// a path of it is accepted.
    pub continues: bool,
}

/// A gated delta net with its projections.
#[derive(Debug)]
pub struct Delta {
    sizes: DeltaSizes,
    mixed: CpuLinear,
    gate: CpuLinear,
    beta: CpuLinear,
    decay: CpuLinear,
    output: CpuLinear,
    /// `[channels, taps]`.
    convolution: Vec<f32>,
    decay_offset: Vec<f32>,
    decay_rate: Vec<f32>,
    norm: Vec<f32>,
    epsilon: f32,
}

/// States of a layer: one for each slot, then one for each snapshot.
#[derive(Clone, Debug)]
pub struct CpuDeltaStates {
    sizes: DeltaSizes,
    /// The last rows before the convolution, oldest first: `[states, taps − 1, channels]`.
    histories: Vec<f32>,
    /// `[states, value heads, key dim, value dim]`.
    matrices: Vec<f32>,
    /// What the last pass computed of trees: their rows, and the recurrence's inputs.
    verified: Vec<(SlotRows, Vec<f32>, DeltaRows)>,
}

impl SlotRows {
    /// Rows that continue a sequence one after the other.
    pub fn chain(place: usize, rows: Range<usize>) -> Self {
        let parents = (0..rows.len()).map(|row| row.checked_sub(1)).collect();
        Self { place, rows, parents, continues: true }
    }
}

impl Delta {
    /// Loads the layer.
    ///
    /// # Errors
    /// When a tensor is missing or has the wrong shape.
    pub fn load(from: Tensors<'_>, tensors: &DeltaTensors, shape: DeltaNet, epsilon: f32) -> Result<Self, EngineError> {
        let [mixed, gate] = CpuLinear::load_readers(from, [&tensors.mixed, &tensors.gate])?;
        Ok(Self {
            sizes: shape.sizes,
            mixed,
            gate,
            beta: CpuLinear::load(from, &tensors.beta)?,
            decay: CpuLinear::load(from, &tensors.decay)?,
            output: CpuLinear::load(from, &tensors.output)?,
            convolution: from.values(&tensors.convolution)?,
            decay_offset: from.vector(&tensors.decay_offset)?,
            decay_rate: from.vector(&tensors.decay_rate)?,
            norm: from.vector(&tensors.norm)?,
            epsilon,
        })
    }

    /// States of empty sequences.
    pub fn states(&self, count: usize) -> CpuDeltaStates {
        CpuDeltaStates {
            sizes: self.sizes,
            histories: vec![0.0; count * self.sizes.history()],
            matrices: vec![0.0; count * self.sizes.state()],
            verified: Vec::new(),
        }
    }

    /// Runs rows from the states of their slots. `x` is `[rows, input]`, the result is
    /// `[rows, output]`.
    pub fn forward(&self, x: &[f32], rows: RowPlacement<'_>, states: &mut CpuDeltaStates) -> Vec<f32> {
        let (channels, heads) = (self.sizes.channels(), self.sizes.value_heads);
        let mixed = self.mixed.forward(x);
        let (decay, beta) = (self.decay.forward(x), self.beta.forward(x));
        let mut out = Vec::with_capacity(rows.positions.len() * self.sizes.value_width());
        // A commit names rows of the last pass, so those of earlier passes are of no more use.
        states.verified.clear();
        for sequence in rows.sequences {
            let of = |width: usize| sequence.rows.start * width..sequence.rows.end * width;
            let mixed = &mixed[of(channels)];
            let gates = (&decay[of(heads)], &beta[of(heads)]);
            let (history, matrices) = states.state_at(sequence.place);
            let convolved = delta_convolution(&self.sizes, mixed, &sequence.parents, history, &self.convolution);
            let read = delta_rows(&self.sizes, &convolved, gates, (&self.decay_rate, &self.decay_offset));
            let parents = &sequence.parents;
            out.extend(delta_rule(&self.sizes, &read, parents, matrices, sequence.continues));
            if sequence.continues {
                let all: Vec<usize> = (0..parents.len()).collect();
                delta_history(&self.sizes, mixed, &all, history);
            } else {
                states.verified.push((sequence.clone(), mixed.to_vec(), read));
            }
        }
        let normed = rms_norm(&out, &self.norm, self.epsilon);
        self.output.forward(&silu_gate(&self.gate.forward(x), &normed))
    }
}

impl CpuDeltaStates {
    /// History and matrices of a state.
    fn state_at(&mut self, place: usize) -> (&mut [f32], &mut [f32]) {
        let (history, state) = (self.sizes.history(), self.sizes.state());
        (&mut self.histories[place * history..][..history], &mut self.matrices[place * state..][..state])
    }

    /// Commits an accepted path of the tree that the last pass verified for a place: rows of that
    /// pass, root first.
    pub fn commit(&mut self, place: usize, path: &[usize]) {
        // Rows that continued their sequence have already changed its state.
        let Some(found) = self.verified.iter().position(|(sequence, ..)| sequence.place == place) else { return };
        let (sequence, mixed, rows) = self.verified.swap_remove(found);
        let path: Vec<usize> = path.iter().map(|row| row - sequence.rows.start).collect();
        let sizes = self.sizes;
        let (history, matrices) = self.state_at(place);
        // Verifying left the state as it was, so the accepted rows run once more to change it.
        delta_commit(&sizes, &rows, &path, matrices);
        delta_history(&sizes, &mixed, &path, history);
    }

    /// Makes a state that of an empty sequence.
    pub fn reset(&mut self, place: usize) {
        let (history, matrices) = self.state_at(place);
        history.fill(0.0);
        matrices.fill(0.0);
    }

    /// Copies a state.
    pub fn copy(&mut self, from: usize, to: usize) {
        let (history, state) = (self.sizes.history(), self.sizes.state());
        self.histories.copy_within(from * history..(from + 1) * history, to * history);
        self.matrices.copy_within(from * state..(from + 1) * state, to * state);
    }

    /// Writes zeros to all states, so that their memory is committed.
    pub fn clear(&mut self) {
        self.histories.fill(0.0);
        self.matrices.fill(0.0);
    }
}
