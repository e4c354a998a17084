//! Experts in MXFP4 and their biases, in the kernels' layout.

use kernels::{
    device::{Buffer, Element},
    launch::{ExpertsShape, MOST_MXFP4_EXPONENT, mxfp4_order, mxfp4_scale_bytes, mxfp4_scales},
    reference::{MXFP4_BLOCK, Mxfp4Matrix},
};

use super::{Loader, WeightSource};
use crate::{
    checkpoint::Tensors,
    error::EngineError,
    spec::{ExpertsTensors, GatedTensors, LinearTensors, TensorSpec},
};

/// Root mean square of all numbers of the format.
const SPREAD: f32 = 2.926;

/// Biases of a layer of experts.
#[derive(Debug)]
pub struct BiasBuffers {
    /// `[routed]`.
    pub router: Buffer,
    /// `[experts, 2 · intermediate]`, gate first.
    pub gate_up: Buffer,
    /// `[experts, hidden]`; zeros on all ranks but the first, since outputs are summed over ranks.
    pub down: Buffer,
}

impl Loader<'_> {
    /// Gate and up of each expert, and down, as numbers and as scales.
    pub fn stacked_mxfp4(
        &self,
        shape: &ExpertsShape,
        tensors: &ExpertsTensors,
    ) -> Result<[(Buffer, Buffer); 2], EngineError> {
        let ExpertsShape { hidden, intermediate, .. } = *shape;
        let of = |layers: fn(&GatedTensors) -> Vec<&LinearTensors>| -> Vec<Vec<&TensorSpec>> {
            tensors
                .experts
                .iter()
                .map(|expert| layers(expert).into_iter().map(|layer| &layer.weight).collect())
                .collect()
        };
        Ok([
            self.stack_mxfp4(&of(|expert| vec![&expert.gate, &expert.up]), [2 * intermediate, hidden])?,
            self.stack_mxfp4(&of(|expert| vec![&expert.down]), [hidden, intermediate])?,
        ])
    }

    /// The matrices of each expert, concatenated by rows to one of `rows` rows.
    fn stack_mxfp4(
        &self,
        experts: &[Vec<&TensorSpec>],
        [rows, inputs]: [usize; 2],
    ) -> Result<(Buffer, Buffer), EngineError> {
        let device = self.kernels.device();
        let (bytes, scale_bytes) = (rows * inputs / 2, mxfp4_scale_bytes(rows, inputs));
        let numbers = device.allocate(experts.len() * bytes)?;
        let scales = device.allocate(experts.len() * scale_bytes)?;
        if self.is_random() {
            self.fill_random_mxfp4(&numbers, &scales, inputs)?;
            return Ok((numbers, scales));
        }
        for (at, matrices) in experts.iter().enumerate() {
            let (mut own, mut exponents) = (Vec::with_capacity(bytes), Vec::with_capacity(rows * inputs / MXFP4_BLOCK));
            for tensor in matrices {
                let matrix = self.mxfp4_matrix(tensor)?;
                own.extend_from_slice(matrix.numbers());
                exponents.extend_from_slice(matrix.scales());
            }
            mxfp4_order(&mut own);
            device.write(numbers.range(at * bytes..(at + 1) * bytes), &own)?;
            let words = mxfp4_scales(&exponents, rows);
            device.write(scales.range(at * scale_bytes..(at + 1) * scale_bytes), &words)?;
        }
        Ok((numbers, scales))
    }

    /// Random numbers, with scales that give the values about the spread of an initialised layer.
    fn fill_random_mxfp4(&self, numbers: &Buffer, scales: &Buffer, inputs: usize) -> Result<(), EngineError> {
        self.count.set(self.count.get() + 1);
        // Any byte is two numbers, and any random bytes will do for float32.
        match self.kernels.element() {
            Element::F32 => self.kernels.fill_random(numbers.slice(), 1.0, self.count.get())?,
            _ => self.kernels.fill_random_fp8(numbers.slice(), self.count.get())?,
        }
        let exponent = (1.0 / (inputs as f32).sqrt() / SPREAD).log2().round() as i32 + 127;
        Ok(self.kernels.device().fill(scales.slice(), exponent.clamp(0, 127) as u8)?)
    }

    /// A matrix of the checkpoint, or a rank's part of it.
    fn mxfp4_matrix(&self, tensor: &TensorSpec) -> Result<Mxfp4Matrix<'_>, EngineError> {
        let WeightSource::Checkpoint(weights) = self.source else {
            return Err(EngineError::Configuration(format!("{} is random", tensor.name)));
        };
        let tensors = Tensors::new(weights);
        // On a rank the description has the shape of its part, while the file holds the whole
        // matrix.
        let whole = tensors.shape(&tensor.name).filter(|_| self.share.is_part()).unwrap_or(&tensor.shape);
        let matrix = tensors.mxfp4(&TensorSpec { shape: whole.to_vec(), ..tensor.clone() })?;
        if let Some(exponent) = matrix.scales().iter().find(|exponent| **exponent > MOST_MXFP4_EXPONENT) {
            return Err(EngineError::Configuration(format!(
                "{}: a scale of 2^{} is above those that the GPU's kernels expand (up to 2): use --device cpu",
                tensor.name,
                i32::from(*exponent) - 127
            )));
        }
        if whole == tensor.shape {
            return Ok(matrix);
        }
        let [rows, columns] = [0, 1].map(|axis| self.share.range(whole[axis], tensor.shape[axis]));
        Ok(matrix.cut(
            // An axis that ranks do not split is kept whole on each of them.
            if whole[0] == tensor.shape[0] { 0..whole[0] } else { rows },
            if whole[1] == tensor.shape[1] { 0..whole[1] } else { columns },
        ))
    }

    /// The biases of router and experts, if there are any.
    pub fn expert_biases(&self, tensors: &ExpertsTensors) -> Result<Option<BiasBuffers>, EngineError> {
        let Some(router) = &tensors.router_bias else { return Ok(None) };
        let biases = |layers: fn(&GatedTensors) -> Vec<&LinearTensors>| -> Vec<&TensorSpec> {
            tensors.experts.iter().flat_map(layers).filter_map(|layer| layer.bias.as_ref()).collect()
        };
        let down = self.concatenated(&biases(|expert| vec![&expert.down]))?;
        if self.share.is_part() && self.share.rank > 0 {
            self.kernels.device().fill(down.slice(), 0)?;
        }
        Ok(Some(BiasBuffers {
            router: self.tensor(router)?,
            gate_up: self.concatenated(&biases(|expert| vec![&expert.gate, &expert.up]))?,
            down,
        }))
    }
}
