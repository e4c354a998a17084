//! Sampling of tokens from logits: `cuda/sampling.cu`.

use super::{Kernels, Logits, address, check_ints, int, line};
use crate::device::{DeviceError, KernelFile, Slice, Split};

pub(super) const FILE: KernelFile =
    KernelFile { name: "sampling.cu", text: include_str!("../../cuda/sampling.cu"), split: Split::Shared };

/// Sampling parameters of each slot; arrays of `slots`.
#[derive(Clone, Copy, Debug)]
pub struct SamplingState<'a> {
    /// Number of slots, including the one for padding.
    pub slots: usize,
    /// f32; 0 is greedy.
    pub temperature: Slice<'a>,
    /// f32; 1 is off.
    pub top_p: Slice<'a>,
    /// int32; 0 is off.
    pub top_k: Slice<'a>,
    /// f32; 0 is off.
    pub min_p: Slice<'a>,
    /// 64-bit integers.
    pub seed: Slice<'a>,
}

impl Kernels {
    /// Draws the tokens of the rows whose slots do not choose greedily; `chosen`, int32 `[rows]`,
    /// holds the output of [`argmax_rows`](Self::argmax_rows), and keeps it if that is not a token.
    /// `row_slot` and `row_sample_position` are int32 `[rows]`; the slots are trusted to exist.
    ///
    /// # Errors
    /// When a buffer is too short, or the device fails.
    pub fn sample_rows(
        &self,
        chosen: Slice<'_>,
        logits: Logits<'_>,
        row_slot: Slice<'_>,
        row_sample_position: Slice<'_>,
        state: SamplingState<'_>,
    ) -> Result<(), DeviceError> {
        logits.check()?;
        for rows in [chosen, row_slot, row_sample_position] {
            check_ints(rows, logits.rows)?;
        }
        for values in [state.temperature, state.top_p, state.top_k, state.min_p] {
            check_ints(values, state.slots)?;
        }
        state.seed.check(state.slots * 8)?;
        let kernel = self.device.kernel(FILE, &[], "sample_rows")?;
        let arguments = [
            address(chosen),
            address(logits.at),
            int(logits.stride),
            int(logits.vocabulary),
            address(row_slot),
            address(row_sample_position),
            address(state.temperature),
            address(state.top_p),
            address(state.top_k),
            address(state.min_p),
            address(state.seed),
        ];
        // SAFETY: lengths are checked above; slots of rows come from the kernels that lay rows out.
        unsafe { self.device.launch(&kernel, line(logits.rows, 512), &arguments) }
    }
}
