//! Rows of several requests, stacked so that a pass reads the weights once.

use kernels::reference::Visible;

use super::attention::{RowPlacement, SlotRows, WindowPlacement};
use crate::{
    adjust::Adjuster,
    backend::{ProducedToken, choice::choose, windows::WindowMap},
    error::EngineError,
    request::SamplingParams,
    sampling,
};

/// The rows of a pass.
#[derive(Debug, Default)]
pub struct PassInput<'a> {
    /// The token that each row reads.
    pub tokens: Vec<u32>,
    positions: Vec<usize>,
    write: Vec<u32>,
    prefixes: Vec<&'a [u32]>,
    own: Vec<Vec<u32>>,
    sequences: Vec<SlotRows>,
}

impl<'a> PassInput<'a> {
    /// Adds a row: its token, its position, the cache row that it writes, and the cache rows that
    /// it attends to (its own included).
    pub fn push(&mut self, token: u32, position: usize, write: u32, prefix: &'a [u32], own: Vec<u32>) {
        self.tokens.push(token);
        self.positions.push(position);
        self.write.push(write);
        self.prefixes.push(prefix);
        self.own.push(own);
    }

    /// Adds consecutive causal rows: `tokens` at positions from `start` on, of a sequence in cache
    /// rows `rows`.
    pub fn push_causal(&mut self, tokens: &[u32], start: usize, rows: &'a [u32]) {
        for (position, token) in (start..).zip(tokens) {
            // The row itself is the last one of its prefix.
            self.push(*token, position, rows[position], &rows[..=position], Vec::new());
        }
    }

    /// Says of the rows since `first` that they continue the sequence with this place of states.
    pub fn continues(&mut self, place: usize, first: usize) {
        self.sequences.push(SlotRows::chain(place, first..self.len()));
    }

    /// Says of the rows since `first` that they are a tree after the sequence with this place of
    /// states: the parent of each row, counted from the first.
    pub fn branches(&mut self, place: usize, first: usize, parents: Vec<Option<usize>>) {
        self.sequences.push(SlotRows { place, rows: first..self.len(), parents, continues: false });
    }

    /// Number of rows so far.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Runs `pass` on the rows.
    pub fn run<T>(&self, pass: impl FnOnce(&[u32], RowPlacement<'_>) -> T) -> T {
        self.run_on(&self.visible(), None, pass)
    }

    /// The same for the target, whose layers with a window may have pages of their own.
    ///
    /// # Errors
    /// When a row sees or writes a page without a window page.
    pub fn run_windowed<T>(
        &self,
        map: Option<&WindowMap>,
        pass: impl FnOnce(&[u32], RowPlacement<'_>) -> T,
    ) -> Result<T, EngineError> {
        let visible = self.visible();
        let Some(map) = map else { return Ok(self.run_on(&visible, None, pass)) };
        // Cut before rows are translated: pages that no window reaches have no window page.
        let within = visible.iter().map(|visible| visible.last(map.window()));
        let rows: Vec<(Vec<u32>, Vec<u32>)> = within
            .map(|visible| Ok((map.rows(visible.prefix)?, map.rows(visible.own)?)))
            .collect::<Result<_, EngineError>>()?;
        let within: Vec<Visible<'_>> = rows.iter().map(|(prefix, own)| Visible { prefix, own }).collect();
        let windowed = WindowPlacement { write: &map.rows(&self.write)?, visible: &within };
        Ok(self.run_on(&visible, Some(windowed), pass))
    }

    fn run_on<T>(
        &self,
        visible: &[Visible<'_>],
        windowed: Option<WindowPlacement<'_>>,
        pass: impl FnOnce(&[u32], RowPlacement<'_>) -> T,
    ) -> T {
        let (positions, write, sequences) = (&self.positions, &self.write, &self.sequences);
        pass(&self.tokens, RowPlacement { positions, write, visible, sequences, windowed })
    }

    fn visible(&self) -> Vec<Visible<'_>> {
        self.prefixes.iter().zip(&self.own).map(|(prefix, own)| Visible { prefix, own }).collect()
    }
}

/// Some rows of a matrix of `width` columns, in the given order.
pub fn select(values: &[f32], width: usize, rows: impl IntoIterator<Item = usize>) -> Vec<f32> {
    rows.into_iter().flat_map(|row| &values[row * width..(row + 1) * width]).copied().collect()
}

/// The target's choice at a position (see [`choose`]), with log-probabilities if the request wants
/// them.
pub fn produce(
    logits: &[f32],
    parameters: &SamplingParams,
    adjuster: Option<&mut Adjuster>,
    position: usize,
) -> Option<ProducedToken> {
    let id = choose(logits, parameters, adjuster, position)?;
    Some(ProducedToken { id, logprobs: parameters.logprobs.map(|count| sampling::logprobs(logits, id, count)) })
}
