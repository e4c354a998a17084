//! Experts that a router chooses for each row.

use kernels::{
    device::DeviceError,
    launch::{Added, Experts, RmsNorm, Rows},
};

use super::super::{
    input::Input,
    layer::{LayerOutput, NextNorm},
};
use crate::backend::cuda::{machine::Machine, weights::ExpertBuffers, workspace::Activations};

impl Machine {
    pub(super) fn routed<'a>(
        &'a self,
        work: &'a Activations,
        experts: &'a ExpertBuffers,
        input: Input<'a>,
        norm: RmsNorm<'a>,
        next: Option<NextNorm<'a>>,
    ) -> Result<LayerOutput<'a>, DeviceError> {
        let add = self.sum_of_experts(work, experts, input, norm.rows)?;
        match next {
            Some(NextNorm { norm: weight, epsilon, readers, keep }) => {
                let norm = RmsNorm { add: Some(add), weight: weight.slice(), epsilon, keep, ..norm };
                let normed = match experts.is_partial {
                    true => self.sum_and_norm(work, add, norm, readers),
                    false => self.norm_for(work, norm, readers),
                };
                normed.map(LayerOutput::Normed)
            }
            None if experts.is_partial => {
                self.over_ranks(work, add, norm.rows, experts.shape.hidden).map(LayerOutput::Added)
            }
            None => Ok(LayerOutput::Added(add)),
        }
    }

    /// The output of the experts, to be added to the stream: in `work.added`, or in partials.
    fn sum_of_experts<'a>(
        &'a self,
        work: &'a Activations,
        experts: &'a ExpertBuffers,
        Input { rows: x, fp8, .. }: Input<'a>,
        rows: usize,
    ) -> Result<Added<'a>, DeviceError> {
        let shape = experts.shape;
        let by = self.kernels.expert_kernels(&shape, rows, self.batch_invariant);
        let all = self.rows(&work.added, shape.hidden);
        let from = |rows: Rows<'a>, first: usize| Rows {
            at: rows.at.range(first * rows.stride * self.element_bytes()..rows.at.bytes()),
            ..rows
        };
        // Rows are independent: more rows than the workspace holds are computed in batches.
        let lot = by.most_rows();
        let quantisers = experts.quantisers.as_ref();
        let products = quantisers
            .map(|both| self.expert_products(work, &shape, both, (lot.min(rows), fp8.is_some() && rows <= lot)));
        let mut add = Added::Rows(all);
        for first in (0..rows).step_by(lot) {
            let operands = Experts {
                shape,
                weights: experts.weights(),
                x: from(x, first),
                rows: lot.min(rows - first),
                work: work.experts.operands(),
                by,
                products,
                whole: rows > lot,
            };
            let added = self.kernels.experts(operands, from(all, first))?;
            self.count_chosen(experts, operands)?;
            if rows <= lot {
                add = added;
            }
        }
        Ok(add)
    }
    /// Reads what the router has chosen, if experts are counted.
    fn count_chosen(&self, experts: &ExpertBuffers, operands: Experts<'_>) -> Result<(), DeviceError> {
        if !experts.tally.is_on() {
            return Ok(());
        }
        let mut chosen = vec![0_i32; operands.rows * operands.shape.chosen()];
        let bytes = size_of_val(&chosen[..]);
        self.device().read(operands.work.expert.range(0..bytes), &mut chosen)?;
        experts.tally.add(chosen.into_iter().filter_map(|expert| u32::try_from(expert).ok()), operands.shape.routed);
        Ok(())
    }
}
