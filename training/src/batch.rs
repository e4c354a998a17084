//! Texts with the target's states, as tensors of a batch.

use candle_core::{DType, Device, Result, Tensor};
use engine::TextStates;

use crate::{
    head::HeadRows,
    teacher::{Labels, Teacher},
};

/// A text and the target's states of its positions. Clones share the tensors.
#[derive(Clone, Debug)]
pub struct Known {
    /// Prompt and answer.
    pub tokens: Vec<u32>,
    /// Length of the prompt.
    pub prompt_tokens: usize,
    /// States of all positions but the last.
    pub left: Left,
}

/// The target's states after the positions of a text, on the device of the training steps.
#[derive(Clone, Debug)]
pub struct Left {
    /// Features that the draft reads: captured layers, or the final state; `[positions, width]`.
    seen: Tensor,
    /// The final state, `[positions, hidden]`.
    last: Tensor,
}

/// Rows of a text that are trained together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The position of the first row.
    pub start: usize,
    /// Number of rows.
    pub rows: usize,
}

/// A batch for an unrolled pass.
pub struct TrainBatch {
    /// Its rows.
    pub rows: HeadRows,
    /// Number of rows that are rows of texts; the others are padding.
    pub real: usize,
    /// The target's output at each row, `[batch · rows, width]`: captured layers, or its final
    /// state.
    pub of_target: Tensor,
    /// Tokens after the rows, `[batch, rows + depth]`.
    tokens: Tensor,
    /// The target's final states at the positions after the rows, `[batch, rows + depth, hidden]`.
    last: Tensor,
    /// Labels of the positions after the rows, `[batch, rows + depth, draft vocabulary]`.
    probabilities: Tensor,
    /// `Σ p · log p` of the labels, `[batch, rows + depth, 1]`.
    negative_entropy: Tensor,
    /// The target's probability of the draft's vocabulary as a whole, `[batch, rows + depth, 1]`.
    mass: Tensor,
    /// The draft's token for the target's most likely token, or `u32::MAX` for positions that do
    /// not count; `[batch · (rows + depth)]`.
    best: Vec<u32>,
}

/// Inputs and labels of one step of the unrolled pass.
pub struct StepLabels {
    /// Input tokens of the rows, `[batch · rows]`.
    pub tokens: Tensor,
    /// Probabilities over the draft's vocabulary, `[batch · rows, draft vocabulary]`.
    pub probabilities: Tensor,
    /// `Σ p · log p` of these, `[batch · rows, 1]`.
    pub negative_entropy: Tensor,
    /// The target's probability of the draft's vocabulary as a whole, `[batch · rows, 1]`.
    pub mass: Tensor,
    /// The target's final states that the draft's state approximates, `[batch · rows, hidden]`.
    pub last: Tensor,
    /// 1 for rows that count, 0 for others: `[batch · rows]`.
    pub counts: Tensor,
    /// The draft's token for the target's most likely token of each row; `None` if the row does not
    /// count.
    pub best: Vec<Option<u32>>,
}

/// Marks positions that do not count.
const NONE: u32 = u32::MAX;

/// The rows of a text of `tokens` tokens, in windows of at most `most` rows. A row needs a label:
/// the state after the token that it reads. Windows without a labelled row are omitted.
pub fn windows(tokens: usize, prompt_tokens: usize, most: usize) -> Vec<Window> {
    let (rows, most) = (tokens.saturating_sub(2), most.max(1));
    // Rows before the answer have no label, but labelled rows attend to them.
    let windows = (0..rows).step_by(most).map(|start| Window { start, rows: most.min(rows - start) });
    windows.filter(|window| window.start + window.rows + 2 > prompt_tokens).collect()
}

impl Left {
    /// Converts states to tensors of this type on this device.
    ///
    /// # Errors
    /// When the tensors cannot be created.
    pub fn new(states: &TextStates, (dtype, device): (DType, &Device)) -> Result<Self> {
        let tensor = |values: &[f32]| {
            let width = values.len() / states.positions.max(1);
            Tensor::from_slice(values, (states.positions, width), device)?.to_dtype(dtype)
        };
        let last = tensor(&states.last)?;
        let seen = if states.captured.is_empty() { last.clone() } else { tensor(&states.captured)? };
        Ok(Self { seen, last })
    }

    /// From tensors: the features that the draft reads, and final states.
    ///
    /// # Errors
    /// When their numbers of positions differ.
    pub fn from_tensors(seen: Tensor, last: Tensor) -> Result<Self> {
        if seen.dim(0)? != last.dim(0)? {
            candle_core::bail!("{:?} and {:?} have different numbers of positions", seen.shape(), last.shape());
        }
        Ok(Self { seen, last })
    }

    /// Number of positions.
    pub fn positions(&self) -> usize {
        self.last.dims().first().copied().unwrap_or_default()
    }

    /// Bytes of memory of the tensors.
    pub fn bytes(&self) -> usize {
        let bytes = |tensor: &Tensor| tensor.elem_count() * tensor.dtype().size_in_bytes();
        bytes(&self.seen) + if self.seen.id() == self.last.id() { 0 } else { bytes(&self.last) }
    }
}

impl TrainBatch {
    /// Combines windows of texts into a batch for an unrolled pass of `depth` steps.
    ///
    /// # Errors
    /// When tensors cannot be created.
    pub fn new(windows: &[(&Known, Window)], depth: usize, teacher: &Teacher) -> Result<Self> {
        let each = windows.iter().map(|(_, window)| window.rows).max().unwrap_or_default();
        let (batch, ahead) = (windows.len(), each + depth);
        let (mut seen, mut last) = (Vec::new(), Vec::new());
        let (mut tokens, mut counted) = (Vec::new(), Vec::new());
        for (known, window) in windows {
            seen.push(rows_of(&known.left.seen, window.start, each)?);
            // Position p has token p and, after it, state p: row i reads token i + 1, and its label
            // follows from the state at i + 1.
            last.push(rows_of(&known.left.last, window.start + 1, ahead)?);
            let positions = known.left.positions();
            for position in window.start + 1..window.start + 1 + ahead {
                tokens.push(known.tokens.get(position).copied().unwrap_or_default());
                counted.push(position < positions && position + 1 >= known.prompt_tokens);
            }
        }
        let (seen, last) = (Tensor::cat(&seen, 0)?, Tensor::cat(&last, 0)?);
        let Labels { probabilities, negative_entropy, mass, best } = teacher.labels(&last)?;
        let best = best.into_iter().zip(&counted).map(|(best, counted)| best.filter(|_| *counted).unwrap_or(NONE));
        let apart = |tensor: Tensor| {
            let width = tensor.dim(1)?;
            tensor.reshape((batch, ahead, width))
        };
        Ok(Self {
            rows: HeadRows { each, starts: windows.iter().map(|(_, window)| window.start).collect() },
            real: windows.iter().map(|(_, window)| window.rows).sum(),
            tokens: Tensor::from_vec(tokens, (batch, ahead), last.device())?,
            of_target: seen,
            best: best.collect(),
            last: apart(last)?,
            probabilities: apart(probabilities)?,
            negative_entropy: apart(negative_entropy)?,
            mass: apart(mass)?,
        })
    }

    /// Inputs and labels of step `k`. Padding rows, rows before the answer, rows whose text has
    /// ended, and rows whose token the draft cannot propose do not count.
    ///
    /// # Errors
    /// When tensors do not fit together.
    pub fn step(&self, k: usize) -> Result<StepLabels> {
        let HeadRows { each, starts } = &self.rows;
        let (batch, each) = (starts.len(), *each);
        let ahead = self.best.len() / batch.max(1);
        let rows = |tensor: &Tensor| {
            let width = tensor.dim(2)?;
            tensor.narrow(1, k, each)?.contiguous()?.reshape((batch * each, width))
        };
        let of_text = |text: usize| &self.best[text * ahead + k..text * ahead + k + each];
        let best: Vec<Option<u32>> =
            (0..batch).flat_map(of_text).map(|best| Some(*best).filter(|best| *best != NONE)).collect();
        let counts: Vec<f32> = best.iter().map(|best| if best.is_some() { 1.0 } else { 0.0 }).collect();
        Ok(StepLabels {
            tokens: self.tokens.narrow(1, k, each)?.contiguous()?.flatten_all()?,
            probabilities: rows(&self.probabilities)?,
            negative_entropy: rows(&self.negative_entropy)?,
            mass: rows(&self.mass)?,
            last: rows(&self.last)?,
            counts: Tensor::from_vec(counts, batch * each, self.last.device())?.to_dtype(self.mass.dtype())?,
            best,
        })
    }
}

/// Rows of a matrix from a row on; zeros for missing ones.
fn rows_of(matrix: &Tensor, start: usize, rows: usize) -> Result<Tensor> {
    let all = matrix.dim(0)?;
    let start = start.min(all);
    let there = rows.min(all - start);
    matrix.narrow(0, start, there)?.pad_with_zeros(0, 0, rows - there)
}
