//! Texts with the target's states, as tensors of a batch.

use candle_core::{DType, Device, Result, Tensor};
use engine::TextStates;

use crate::{
    head::HeadRows,
    statistics::Random,
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

/// Where drafts start, and how far they go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DraftPlan {
    /// Number of drafts after each anchor.
    pub depth: usize,
    /// The maximum number of anchors of a window, and the seed with which they are drawn from the
    /// rows whose first draft has a label. `None` if every row is an anchor.
    pub anchors: Option<(usize, u64)>,
}

/// A batch for a pass of a head.
pub struct TrainBatch {
    /// Its rows.
    pub rows: HeadRows,
    /// Number of rows that are rows of texts; the others are padding.
    pub real: usize,
    /// Number of anchors that are rows of texts.
    pub anchors: usize,
    /// The target's output at each row, `[batch · rows, width]`: captured layers, or its final
    /// state.
    pub of_target: Tensor,
    /// Tokens after the rows, `[batch · (rows + depth)]`.
    tokens: Tensor,
    /// The target's final states at the positions after the rows,
    /// `[batch · (rows + depth), hidden]`.
    last: Tensor,
    /// Labels of the positions after the rows.
    labels: Labels,
}

/// Inputs and labels of the drafts of one depth.
pub struct StepLabels {
    /// Tokens before the drafts, `[anchors]`.
    pub tokens: Tensor,
    /// Probabilities over the draft's vocabulary, `[anchors, draft vocabulary]`.
    pub probabilities: Tensor,
    /// `Σ p · log p` of these, `[anchors, 1]`.
    pub negative_entropy: Tensor,
    /// The target's probability of the draft's vocabulary as a whole, `[anchors, 1]`.
    pub mass: Tensor,
    /// The target's final states that the draft's state approximates, `[anchors, hidden]`.
    pub last: Tensor,
    /// 1 for drafts that count, 0 for others: `[anchors]`.
    pub counts: Tensor,
    /// The draft's token for the target's most likely token; `None` if the draft does not count.
    pub best: Vec<Option<u32>>,
}

/// The rows of a text of `tokens` tokens, in windows of at most `most` rows. A row needs a label:
/// the state after the token that it reads. Windows without a labelled row are omitted.
pub fn windows(tokens: usize, prompt_tokens: usize, most: usize) -> Vec<Window> {
    // A row needs the token after its own, and its label the state after that.
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
        // A clone shares the memory: such heads read the final state.
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
    /// Combines windows of texts into a batch.
    ///
    /// # Errors
    /// When tensors cannot be created.
    pub fn new(windows: &[(&Known, Window)], plan: DraftPlan, teacher: &Teacher) -> Result<Self> {
        let each = windows.iter().map(|(_, window)| window.rows).max().unwrap_or_default();
        let ahead = each + plan.depth;
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
        let mut labels = teacher.labels(&last)?;
        labels.best.iter_mut().zip(&counted).filter(|(_, counted)| !**counted).for_each(|(best, _)| *best = None);
        let texts = windows.iter().map(|(_, window)| window.rows).zip(counted.chunks(ahead.max(1)));
        let anchors = match plan.anchors {
            None => texts.flat_map(|(rows, _)| (0..each).map(move |row| Some(row).filter(|row| *row < rows))).collect(),
            Some((most, seed)) => drawn(texts, most, &mut Random::new(seed)),
        };
        Ok(Self {
            real: windows.iter().map(|(_, window)| window.rows).sum(),
            anchors: anchors.iter().flatten().count(),
            rows: HeadRows { each, starts: windows.iter().map(|(_, window)| window.start).collect(), anchors },
            tokens: Tensor::from_vec(tokens, windows.len() * ahead, last.device())?,
            of_target: seen,
            last,
            labels,
        })
    }

    /// Inputs and labels of the drafts of depth `k`. Anchors that fill up, drafts of the prompt, of
    /// what is after the text, and of tokens that the draft cannot propose do not count.
    ///
    /// # Errors
    /// When tensors do not fit together.
    pub fn step(&self, k: usize) -> Result<StepLabels> {
        let ahead = self.labels.best.len() / self.rows.texts().max(1);
        let anchors = self.rows.anchors.iter().enumerate();
        let places: Vec<(bool, usize)> = anchors
            .map(|(at, row)| (row.is_some(), at / self.rows.anchors_each() * ahead + row.unwrap_or_default() + k))
            .collect();
        let best: Vec<Option<u32>> =
            places.iter().map(|(real, place)| self.labels.best[*place].filter(|_| *real)).collect();
        let counts: Vec<f32> = best.iter().map(|best| if best.is_some() { 1.0 } else { 0.0 }).collect();
        let device = self.last.device();
        let places: Vec<u32> = places.into_iter().map(|(_, place)| place as u32).collect();
        let places = Tensor::from_vec(places, counts.len(), device)?;
        let Labels { probabilities, negative_entropy, mass, .. } = &self.labels;
        Ok(StepLabels {
            tokens: self.tokens.index_select(&places, 0)?,
            probabilities: probabilities.index_select(&places, 0)?,
            negative_entropy: negative_entropy.index_select(&places, 0)?,
            mass: mass.index_select(&places, 0)?,
            last: self.last.index_select(&places, 0)?,
            counts: Tensor::from_vec(counts, best.len(), device)?.to_dtype(mass.dtype())?,
            best,
        })
    }
}

/// Anchors of each text, drawn from its rows whose first draft has a label, and filled up to equal
/// numbers.
fn drawn<'a>(texts: impl Iterator<Item = (usize, &'a [bool])>, most: usize, random: &mut Random) -> Vec<Option<usize>> {
    let of_text = |(rows, counted): (usize, &[bool])| {
        let rows: Vec<usize> = (0..rows).filter(|row| counted[*row]).collect();
        let mut drawn: Vec<usize> = random.permutation(rows.len()).into_iter().take(most).map(|at| rows[at]).collect();
        // In the order of the text, as the mask of attention expects.
        drawn.sort_unstable();
        drawn
    };
    let drawn: Vec<Vec<usize>> = texts.map(of_text).collect();
    let each = drawn.iter().map(Vec::len).max().unwrap_or_default();
    drawn.iter().flat_map(|rows| (0..each).map(|at| rows.get(at).copied())).collect()
}

/// Rows of a matrix from a row on; zeros for missing ones.
fn rows_of(matrix: &Tensor, start: usize, rows: usize) -> Result<Tensor> {
    let all = matrix.dim(0)?;
    let start = start.min(all);
    let there = rows.min(all - start);
    matrix.narrow(0, start, there)?.pad_with_zeros(0, 0, rows - there)
}
