//! Texts with the target's states as tensors of a batch.

use std::sync::Arc;

use candle_core::{DType, Device, Result, Tensor};
use engine::TextStates;

use crate::{
    head::Rows,
    teacher::{Labels, Teacher},
};

/// A text and what the target left after its positions.
#[derive(Clone, Debug)]
pub struct Known {
    /// Prompt and answer.
    pub tokens: Vec<u32>,
    /// How many of them are the prompt.
    pub prompt_tokens: usize,
    /// Of all positions but the last.
    pub states: Arc<TextStates>,
}

/// Rows of a text that train together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The position of the first row.
    pub start: usize,
    /// Rows.
    pub rows: usize,
}

/// A batch for an unrolled pass.
pub struct Batch {
    /// Its rows.
    pub rows: Rows,
    /// Rows that are rows of texts; the others fill up.
    pub real: usize,
    /// What the target left at each row, `[batch · rows, width]`: captured layers, or its final state.
    pub of_target: Tensor,
    /// Tokens after the rows, `[batch, rows + depth]`.
    tokens: Tensor,
    /// The target's final states at the positions after the rows, `[batch, rows + depth, hidden]`.
    last: Tensor,
    /// Labels of the positions after the rows, `[batch, rows + depth, draft vocabulary]`.
    probabilities: Tensor,
    /// `[batch, rows + depth, 1]`.
    mass: Tensor,
    /// The draft's token for the target's likeliest, or `u32::MAX` where none counts; `[batch · (rows + depth)]`.
    best: Vec<u32>,
    dtype: DType,
    device: Device,
}

/// What one step of the unrolled pass is compared with.
pub struct StepLabels {
    /// What the rows consume, `[batch · rows]`.
    pub tokens: Tensor,
    /// `[batch · rows, draft vocabulary]`.
    pub probabilities: Tensor,
    /// `[batch · rows, 1]`.
    pub mass: Tensor,
    /// The target's final states that the draft's state stands for, `[batch · rows, hidden]`.
    pub last: Tensor,
    /// 1 for rows that count, 0 for others: `[batch · rows]`.
    pub counts: Tensor,
    /// The draft's token for the target's likeliest of each row; `None` where the row does not count.
    pub best: Vec<Option<u32>>,
}

/// What does not count.
const NONE: u32 = u32::MAX;

/// The rows of a text of `tokens` tokens, in windows of at most `most`. A row needs a label: the state after the token
/// that it consumes. Windows in which no row is labelled are left out.
pub fn windows(tokens: usize, prompt_tokens: usize, most: usize) -> Vec<Window> {
    let (rows, most) = (tokens.saturating_sub(2), most.max(1));
    // Rows ahead of the answer have no label, but those that count attend to them.
    let windows = (0..rows).step_by(most).map(|start| Window { start, rows: most.min(rows - start) });
    windows.filter(|window| window.start + window.rows + 2 > prompt_tokens).collect()
}

impl Batch {
    /// Puts windows of texts together, for an unrolled pass of `depth` steps.
    ///
    /// # Errors
    /// When tensors cannot be made.
    pub fn new(
        windows: &[(&Known, Window)],
        depth: usize,
        teacher: &Teacher,
        (dtype, device): (DType, &Device),
    ) -> Result<Self> {
        let each = windows.iter().map(|(_, window)| window.rows).max().unwrap_or_default();
        let (batch, ahead) = (windows.len(), each + depth);
        let (mut tokens, mut of_target, mut last) = (Vec::new(), Vec::new(), Vec::new());
        let mut counted = Vec::new();
        for (known, window) in windows {
            let states = &known.states;
            let features = if states.captured.is_empty() { &states.last } else { &states.captured };
            put(&mut of_target, features, states.positions, window.start..window.start + each);
            // Position p has the token p and, after it, the state p: row i consumes token i + 1 and is compared with what
            // follows the state at i + 1.
            let after = window.start + 1..window.start + 1 + ahead;
            put(&mut last, &states.last, states.positions, after.clone());
            for position in after {
                tokens.push(known.tokens.get(position).copied().unwrap_or_default());
                counted.push(position < states.positions && position + 1 >= known.prompt_tokens);
            }
        }
        let real = windows.iter().map(|(_, window)| window.rows).sum();
        let tensor = |values: Vec<f32>, rows: usize| {
            let width = values.len() / rows.max(1);
            Tensor::from_vec(values, (rows, width), device)?.to_dtype(dtype)
        };
        let last = tensor(last, batch * ahead)?;
        let Labels { probabilities, mass, best } = teacher.labels(&last)?;
        let best = best.into_iter().zip(&counted).map(|(best, counted)| best.filter(|_| *counted).unwrap_or(NONE));
        let apart = |tensor: Tensor| {
            let width = tensor.dim(1)?;
            tensor.reshape((batch, ahead, width))
        };
        Ok(Self {
            rows: Rows { each, starts: windows.iter().map(|(_, window)| window.start).collect() },
            real,
            of_target: tensor(of_target, batch * each)?,
            tokens: Tensor::from_vec(tokens, (batch, ahead), device)?,
            best: best.collect(),
            last: apart(last)?,
            probabilities: apart(probabilities)?,
            mass: apart(mass)?,
            dtype,
            device: device.clone(),
        })
    }

    /// What step `k` consumes and is compared with. Rows that fill up, rows ahead of the answer, rows whose text has ended
    /// and rows whose token the draft cannot propose do not count.
    ///
    /// # Errors
    /// When tensors do not fit.
    pub fn step(&self, k: usize) -> Result<StepLabels> {
        let Rows { each, starts } = &self.rows;
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
            mass: rows(&self.mass)?,
            last: rows(&self.last)?,
            counts: Tensor::from_vec(counts, batch * each, &self.device)?.to_dtype(self.dtype)?,
            best,
        })
    }
}

/// Adds the values of positions; zeros for those that are not there.
fn put(to: &mut Vec<f32>, values: &[f32], positions: usize, wanted: std::ops::Range<usize>) {
    let width = values.len() / positions.max(1);
    for position in wanted {
        match values.get(position * width..(position + 1) * width) {
            Some(values) if position < positions => to.extend(values),
            _ => to.extend(std::iter::repeat_n(0.0, width)),
        }
    }
}
