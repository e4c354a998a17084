//! Batches and the capture sizes that they pad up to.

use launch::Syntax;
use schemas::flags::Key;

use crate::rules::Context;

/// Batch sizes for which an engine that decodes captures a graph.
pub(super) struct Captured<'a>(&'a [usize]);

impl<'a> Captured<'a> {
    /// The capture sizes, if speculation is on and they are known and not empty.
    pub fn of(context: &Context<'a>) -> Option<Self> {
        let mode = context.launch.setting(Key::DisaggregationMode);
        let decodes = match mode {
            None => true,
            Some(_) => context.launch.text(Key::DisaggregationMode)?.value != "prefill",
        };
        let sizes = context.resolved.capture_sizes.as_ref().filter(|_| context.resolved.speculative && decodes)?;
        (!sizes.value.is_empty()).then_some(Self(&sizes.value))
    }

    /// The largest size.
    pub fn largest(&self) -> usize {
        self.0.last().copied().unwrap_or_default()
    }

    /// Number of graphs.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The capture size at which a batch runs; `None` beyond the largest, where it runs without a graph.
    pub fn padded(&self, batch: usize) -> Option<usize> {
        self.0.get(self.0.partition_point(|size| *size < batch)).copied()
    }

    /// The smallest batch of at most `up_to` that is padded, and its capture size.
    pub fn first_gap(&self, up_to: usize) -> Option<(usize, usize)> {
        let mut before = 0_usize;
        for size in self.0 {
            if *size > before.saturating_add(1) && before < up_to {
                return Some((before.saturating_add(1), *size));
            }
            before = *size;
        }
        None
    }

    /// The batch of at most `up_to` with the most padding relative to itself, and its capture size.
    pub fn widest_gap(&self, up_to: usize) -> Option<(usize, usize)> {
        let starts = std::iter::once(0).chain(self.0.iter().copied());
        let gaps = starts.zip(self.0.iter().copied()).map(|(before, size)| (before.saturating_add(1), size));
        let within = gaps.filter(|(batch, size)| size > batch && *batch <= up_to);
        let ratio = |size: usize, batch: usize| size as u128 * batch as u128;
        within.max_by(|(one, wide), (other, wider)| ratio(*wide, *other).cmp(&ratio(*wider, *one)))
    }

    /// Padded rows as a share of the needed rows, over all batches of at most `up_to` that have a graph.
    pub fn mean_waste(&self, up_to: usize) -> f64 {
        let (mut wanted, mut computed) = (0_u64, 0_u64);
        for batch in 1..=up_to.min(self.largest()) {
            wanted += batch as u64;
            computed = computed.saturating_add(self.padded(batch).unwrap_or(batch) as u64);
        }
        if wanted == 0 { 0.0 } else { (computed - wanted) as f64 / wanted as f64 }
    }
}

/// The flag with a list of sizes without gaps, as this launch's user would write it.
pub(super) fn dense_line(context: &Context<'_>, largest: usize) -> String {
    let flag = context.flag(Key::CudaGraphBs);
    match context.launch.syntax {
        Syntax::Toml => format!("{flag} = [1, 2, …, {largest}]"),
        Syntax::YamlConfig | Syntax::YamlOverrides => format!("{flag}: [1, 2, …, {largest}]"),
        Syntax::YamlWords => format!("{flag} 1 2 … {largest}"),
        Syntax::CommandLine | Syntax::ShellArray | Syntax::Composed => format!("{flag} $(seq 1 {largest})"),
    }
}
