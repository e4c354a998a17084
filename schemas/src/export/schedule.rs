//! A policy table of chains as ranges of batch sizes, each with a number of drafted tokens.

use super::{ExportError, Tuning};
use crate::tree::TreeShape;

/// A table of chains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// First and last batch size, and number of drafted tokens (0 for no speculation). Ascending from batch size 1 and
    /// without gaps; adjacent ranges differ.
    pub ranges: Vec<(usize, usize, usize)>,
}

impl Schedule {
    /// The table of a tuned configuration. Its last range is extended to `running` requests if the table ends earlier.
    ///
    /// # Errors
    /// If the table is empty or contains a tree.
    pub fn of(tuning: &Tuning, running: Option<usize>) -> Result<Self, ExportError> {
        if let Some((_, tree)) = tuning.table.iter().find(|(_, shape)| shape.topk > 1) {
            return Err(ExportError::Tree(*tree));
        }
        if tuning.table.is_empty() {
            return Err(ExportError::EmptyTable);
        }
        Ok(Self::of_chains(&tuning.table, running))
    }

    /// As [`of`](Self::of), for rows that are known to be chains.
    pub fn of_chains(table: &[(usize, TreeShape)], running: Option<usize>) -> Self {
        let mut ranges: Vec<(usize, usize, usize)> = Vec::new();
        let mut first = 1;
        for (largest, shape) in table {
            let end = if *largest == usize::MAX { first } else { *largest };
            match ranges.last_mut() {
                Some((_, last, tokens)) if *tokens == shape.num_steps => *last = end,
                _ => ranges.push((first, end, shape.num_steps)),
            }
            first = end.saturating_add(1);
        }
        if let Some((_, last, _)) = ranges.last_mut() {
            *last = (*last).max(running.unwrap_or_default());
        }
        Self { ranges }
    }

    /// Maximum number of drafted tokens over all batch sizes.
    pub fn most(&self) -> usize {
        self.ranges.iter().map(|range| range.2).max().unwrap_or_default()
    }
}
