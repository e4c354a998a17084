//! Batches and the capture sizes that they pad up to.

use std::fmt::Display;

use launch::Syntax;
use schemas::{
    defaults::{MOST_SIZES, default_capture_sizes},
    flags::Key,
};

use crate::rules::Context;

/// Batch sizes for which an engine that decodes captures a graph.
pub(super) struct Captured<'a>(&'a [usize]);

impl<'a> Captured<'a> {
    /// The capture sizes, if speculation is on and they are known and not empty.
    pub fn from_context(context: &Context<'a>) -> Option<Self> {
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

    /// The capture size at which a batch runs; `None` beyond the largest, where it runs without a
    /// graph.
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
        // Two ratios are compared by products: no division, so no rounding.
        let ratio = |size: usize, batch: usize| size as u128 * batch as u128;
        within.max_by(|(one, wide), (other, wider)| ratio(*wide, *other).cmp(&ratio(*wider, *one)))
    }

    /// Padded rows as a share of the needed rows, over all batches of at most `up_to` that have a
    /// graph.
    pub fn mean_waste(&self, up_to: usize) -> f64 {
        let (mut wanted, mut computed) = (0_u64, 0_u64);
        // Above the largest there is no graph, and so no padding.
        for batch in 1..=up_to.min(self.largest()) {
            wanted += batch as u64;
            computed = computed.saturating_add(self.padded(batch).unwrap_or(batch) as u64);
        }
        if wanted == 0 { 0.0 } else { (computed - wanted) as f64 / wanted as f64 }
    }
}

/// The flag with the capture sizes that every rule recommends, as this launch's user would write
/// it: SGLang's own list for speculation up to `largest`, or every size if the backend must not
/// pad. The list stays within the requests that can run together, and contains only sizes that can
/// be spread over the GPUs of each attention.
pub(super) fn advised_line(context: &Context<'_>, largest: usize, may_pad: bool) -> String {
    let largest = largest.min(context.requests_per_worker().unwrap_or(usize::MAX)).clamp(1, MOST_SIZES);
    let ranks = context.launch.attention_ranks().filter(|ranks| *ranks > 1);
    let share = ranks.and_then(|ranks| Some(context.resolved.tp_size.as_ref()?.value / ranks)).unwrap_or(1).max(1);
    // The engine rounds the limit of requests up to what can be spread.
    let largest = largest.checked_next_multiple_of(share).unwrap_or(largest).min(MOST_SIZES);
    let mut sizes = if may_pad { default_capture_sizes(largest) } else { (1..=largest).collect() };
    sizes.retain(|size| size.is_multiple_of(share));
    let flag = context.flag(Key::CudaGraphBs);
    match context.launch.syntax {
        Syntax::Toml => format!("{flag} = [{}]", shown(&sizes, ", ", dotted)),
        Syntax::YamlConfig | Syntax::YamlOverrides => format!("{flag}: [{}]", shown(&sizes, ", ", dotted)),
        Syntax::YamlWords => format!("{flag} {}", shown(&sizes, " ", dotted)),
        Syntax::CommandLine | Syntax::ShellArray | Syntax::Composed => {
            format!(
                "{flag} {}",
                shown(&sizes, " ", |first, step, last, _| match step {
                    1 => format!("$(seq {first} {last})"),
                    _ => format!("$(seq {first} {step} {last})"),
                })
            )
        }
    }
}

/// Sizes as text. A run of four or more with a constant step is written by `run`, from its first
/// size, step and last size.
fn shown(sizes: &[usize], separator: &str, run: impl Fn(usize, usize, usize, &str) -> String) -> String {
    let mut parts = Vec::new();
    let mut rest = sizes;
    while let Some((&first, after)) = rest.split_first() {
        let step = after.first().map_or(1, |second| second - first);
        let length = rest.windows(2).take_while(|pair| pair[1] - pair[0] == step).count() + 1;
        // Up to three numbers are shorter written out than as a run.
        let length = if length < 4 { 1 } else { length };
        let (taken, left) = rest.split_at(length);
        parts.push(match taken.last() {
            Some(&last) if length > 1 => run(first, step, last, separator),
            _ => first.to_string(),
        });
        rest = left;
    }
    parts.join(separator)
}

/// A run of sizes in languages without ranges: `1, 2, …, 8`.
fn dotted(first: usize, step: usize, last: usize, separator: &str) -> String {
    [&first as &dyn Display, &(first + step), &"…", &last].map(ToString::to_string).join(separator)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_sizes_are_short_texts() {
        let text = shown(&default_capture_sizes(48), ", ", dotted);
        assert_eq!(text, "1, 2, …, 8, 10, 12, …, 32, 40, 44, 48");
        assert_eq!(shown(&[2, 4, 6], " ", dotted), "2 4 6");
        assert_eq!(shown(&[], " ", dotted), "");
    }
}
