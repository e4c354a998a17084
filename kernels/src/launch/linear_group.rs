//! `cuda/linear_group.cu`.

use super::{
    Kernels, Linear, Parts, grid, int,
    linear::{Deal, WIDE_LAYER, deal, options, stage_bytes, stages},
    linear_wide::has_warp_groups,
};
use crate::device::{DeviceError, KernelFile, Split};

pub(super) const FILE: KernelFile =
    KernelFile { name: "linear_group.cu", text: include_str!("../../cuda/linear_group.cu"), split: Split::Shared };

/// Rows from which on these kernels are the faster ones.
const LEAST_ROWS: usize = 9;
/// Threads of a block.
const THREADS: u32 = 256;

/// Rows of a block, and the kernels of such blocks: plain and gated.
const NAMES: [(usize, [&str; 2]); 3] =
    [(16, ["group_16", "group_16_gated"]), (24, ["group_24", "group_24_gated"]), (32, ["group_32", "group_32_gated"])];

impl Kernels {
    /// Whether [`linear_group`](Self::linear_group) computes a layer, and is the fastest of our kernels: 9 to 32 rows on Hopper, of
    /// two-byte types, where inputs and outputs are 4,096 or more. Of those of 2,048 it is the slower one.
    pub fn suits_group(&self, rows: usize, inputs: usize, outputs: usize) -> bool {
        self.has_group(rows, inputs) && self.is_wide(inputs.min(outputs), WIDE_LAYER)
    }

    /// Whether there is such a kernel.
    pub(crate) fn has_group(&self, rows: usize, inputs: usize) -> bool {
        has_warp_groups(self.element, self.device.properties())
            && inputs.is_multiple_of(8)
            && rows >= LEAST_ROWS
            && kernel_for(rows).is_some()
    }

    /// `y = x · weightᵀ + bias` in an order of its own. In one part `y` is the result; in several, of which there are at most
    /// `most_parts`, it is float `[parts, rows, outputs]`, which are returned for the next kernel to add up.
    ///
    /// # Errors
    /// When a buffer is too short, there is no such kernel for the layer, or the device fails.
    pub fn linear_group<'a>(&self, linear: Linear<'a>, most_parts: usize) -> Result<Option<Parts<'a>>, DeviceError> {
        let Linear { y, y_is_float, rows, inputs, outputs, .. } = linear;
        let deal = deal(self.device.properties(), inputs, outputs, most_parts);
        let linear = Linear { y_is_float: y_is_float || deal.parts > 1, ..linear };
        self.launch_group(linear, deal, false)?;
        let parts = || Parts { at: y.range(0..deal.parts * rows * outputs * 4), count: deal.parts };
        Ok((deal.parts > 1).then(parts))
    }

    /// `y = silu(x · gateᵀ) · (x · upᵀ)`: the weight is `[2 · outputs, inputs]`, gate first, the bias likewise.
    ///
    /// # Errors
    /// As [`linear_group`](Self::linear_group).
    pub fn linear_group_gated(&self, linear: Linear<'_>) -> Result<(), DeviceError> {
        let deal = deal(self.device.properties(), linear.inputs, 2 * linear.outputs, 1);
        self.launch_group(linear, deal, true)
    }

    fn launch_group(&self, linear: Linear<'_>, deal: Deal, gated: bool) -> Result<(), DeviceError> {
        let Linear { rows, inputs, outputs, .. } = linear;
        let Deal { warps, share, parts } = deal;
        let sums = if gated { 2 * outputs } else { outputs };
        let kernel = kernel_for(rows).filter(|_| self.has_group(rows, inputs));
        let Some((most_rows, [plain, of_gated])) = kernel else {
            let name = self.element.name();
            return Err(DeviceError::Shape(format!(
                "no linear layer of warp groups has {rows} rows of {name}, {inputs} → {outputs}"
            )));
        };
        self.check_linear(linear, parts, sums)?;
        let properties = self.device.properties();
        let kernel =
            self.device.kernel(FILE, &options(self.element, properties), if gated { of_gated } else { plain })?;
        let tile = 16 * warps;
        let arguments = [&linear.arguments()[..], &linear.scale_arguments(), &[int(share), int(tile)]].concat();
        let shared = stages(properties, most_rows) * stage_bytes(most_rows);
        let geometry = grid([sums.div_ceil(tile), parts, 1], THREADS, shared);
        // SAFETY: lengths are checked above.
        unsafe { self.device.launch(&kernel, geometry, &arguments) }
    }
}

/// The kernels with room for so many rows.
fn kernel_for(rows: usize) -> Option<(usize, [&'static str; 2])> {
    NAMES.into_iter().find(|(most, _)| rows <= *most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::linear::tests::h200;

    #[test]
    fn copies_are_under_way_while_a_stage_is_used() {
        for (rows, _) in NAMES {
            assert!(stages(&h200(), rows) >= 4, "{rows} rows");
        }
    }
}
