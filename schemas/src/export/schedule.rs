//! A policy table of chains as ranges of batch sizes, each with a number of drafted tokens.

use super::{ExportError, Tuning};
use crate::tree::TreeShape;

/// A table of chains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// First and last batch size, and drafted tokens: 0 is no speculation. Ascending, without gaps, from 1 on; neighbours differ.
    pub ranges: Vec<(usize, usize, usize)>,
}

impl Schedule {
    /// The table of a tuned configuration; its last range ends at `running` requests where that is beyond the table.
    ///
    /// # Errors
    /// When the table is empty, or holds a tree.
    pub fn of(tuning: &Tuning, running: Option<usize>) -> Result<Self, ExportError> {
        if let Some((_, tree)) = tuning.table.iter().find(|(_, shape)| shape.topk > 1) {
            return Err(ExportError::Tree(*tree));
        }
        let (finite, last) = match tuning.table.split_last() {
            Some((last, rest)) => (rest, last),
            None => return Err(ExportError::EmptyTable),
        };
        let tokens = |shape: &TreeShape| shape.num_steps;
        let mut ranges: Vec<(usize, usize, usize)> = Vec::new();
        let mut first = 1;
        for (largest, shape) in finite {
            ranges.push((first, *largest, tokens(shape)));
            first = largest.saturating_add(1);
        }
        let measured = if last.0 == usize::MAX { first } else { last.0 };
        ranges.push((first, measured.max(running.unwrap_or_default()).max(first), tokens(&last.1)));
        ranges.dedup_by(|next, before| {
            let same = next.2 == before.2;
            if same {
                before.1 = next.1;
            }
            same
        });
        Ok(Self { ranges })
    }

    /// The most tokens that are drafted at any batch size.
    pub fn most(&self) -> usize {
        self.ranges.iter().map(|range| range.2).max().unwrap_or_default()
    }
}
