//! A policy table of chains as ranges of batch sizes, each with a number of drafted tokens.

use super::ExportError;
use crate::tree::TreeShape;

/// A table of chains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportSchedule {
    /// First and last batch size, and number of drafted tokens (0 for no speculation). Ascending
    /// from batch size 1 and without gaps; adjacent ranges differ.
    pub ranges: Vec<(usize, usize, usize)>,
}

impl ExportSchedule {
    /// The ranges of a table, which ends at `running` requests: later rows are left out, and the
    /// last one is extended.
    ///
    /// # Errors
    /// If the table is empty or contains a tree.
    pub fn from_table(table: &[(usize, TreeShape)], running: Option<usize>) -> Result<Self, ExportError> {
        if let Some((_, tree)) = table.iter().find(|(_, shape)| shape.topk > 1) {
            return Err(ExportError::Tree(*tree));
        }
        let mut ranges: Vec<(usize, usize, usize)> = Vec::new();
        let mut first = 1;
        for (largest, shape) in table {
            if running.is_some_and(|running| first > running) {
                break;
            }
            let end = if *largest == usize::MAX { first } else { *largest };
            let end = running.map_or(end, |running| end.min(running));
            match ranges.last_mut() {
                Some((_, last, tokens)) if *tokens == shape.num_steps => *last = end,
                _ => ranges.push((first, end, shape.num_steps)),
            }
            first = end.saturating_add(1);
        }
        let Some((_, last, _)) = ranges.last_mut() else { return Err(ExportError::EmptyTable) };
        *last = (*last).max(running.unwrap_or_default());
        Ok(Self { ranges })
    }

    /// Maximum number of drafted tokens over all batch sizes.
    pub fn most(&self) -> usize {
        self.ranges.iter().map(|range| range.2).max().unwrap_or_default()
    }

    /// Whether some batch sizes do not speculate.
    pub fn has_off(&self) -> bool {
        self.ranges.iter().any(|range| range.2 == 0)
    }
}
