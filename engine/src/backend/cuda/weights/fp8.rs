//! FP8 matrices on a device in the kernels' layout: concatenated, with their scales.

use std::ops::Range;

use kernels::{
    device::Buffer,
    launch::fp8_order,
    reference::{FP8_BLOCK, Fp8Matrix, Fp8Scales, from_e4m3},
};

use super::{Loader, ScaleBuffer, WeightSource};
use crate::{
    checkpoint::Tensors,
    error::EngineError,
    spec::{TensorSpec, TensorSplit},
};

impl Loader<'_> {
    /// Matrices with the same number of inputs, concatenated by rows.
    pub fn fp8(&self, tensors: &[&TensorSpec], layout: Fp8Scales) -> Result<(Buffer, ScaleBuffer), EngineError> {
        self.fp8_parts(tensors, layout, |tensor| self.fp8_sections(tensor))
    }

    /// Like [`fp8`](Self::fp8), with some rows of each matrix: `rows[i]` are those of the matrix at
    /// place i, in their new order. They stay in their blocks, if there is one scale per block.
    pub fn fp8_rows(
        &self,
        tensors: &[&TensorSpec],
        layout: Fp8Scales,
        rows: &[Vec<usize>],
    ) -> Result<(Buffer, ScaleBuffer), EngineError> {
        let some = |(tensor, rows): (&&TensorSpec, &Vec<usize>)| {
            let shape = [&[rows.len()], &tensor.shape[1..]].concat();
            TensorSpec { shape, ..(*tensor).clone() }
        };
        let described: Vec<TensorSpec> = tensors.iter().zip(rows).map(some).collect();
        let described: Vec<&TensorSpec> = described.iter().collect();
        let mut all = tensors.iter().zip(rows);
        self.fp8_parts(&described, layout, |_| {
            // The closure is called once per description, in the order of the tensors.
            let Some((tensor, rows)) = all.next() else { return Ok(Vec::new()) };
            Ok(vec![self.fp8_matrix(tensor)?.with_scales(layout).reordered(rows)])
        })
    }

    /// The concatenation of what `parts` returns for each matrix.
    pub(super) fn fp8_parts<'t>(
        &'t self,
        tensors: &[&'t TensorSpec],
        layout: Fp8Scales,
        mut parts: impl FnMut(&'t TensorSpec) -> Result<Vec<Fp8Matrix<'t>>, EngineError>,
    ) -> Result<(Buffer, ScaleBuffer), EngineError> {
        let device = self.kernels.device();
        let bytes: u64 = tensors.iter().map(|tensor| tensor.values()).sum();
        let buffer = device.allocate(bytes as usize)?;
        if self.is_random() {
            return self.random_fp8(buffer, tensors, layout);
        }
        let (mut scales, mut start) = (Vec::new(), 0);
        for tensor in tensors {
            for matrix in parts(tensor)? {
                let matrix = matrix.with_scales(layout);
                scales.extend_from_slice(matrix.scales());
                let mut numbers = matrix.numbers().to_vec();
                fp8_order(&mut numbers);
                device.write(buffer.range(start..start + numbers.len()), &numbers)?;
                start += numbers.len();
            }
        }
        Ok((buffer, ScaleBuffer { at: device.upload(&scales)?, layout }))
    }

    /// A matrix of the checkpoint, or what a rank has of each of its sections.
    fn fp8_sections(&self, tensor: &TensorSpec) -> Result<Vec<Fp8Matrix<'_>>, EngineError> {
        match (self.source, tensor.split) {
            (WeightSource::Checkpoint(weights), TensorSplit::Sections(parts)) if self.share.is_part() => {
                let whole = Tensors::new(weights).fp8(&self.whole_of(weights, tensor))?;
                let columns = || 0..whole.inputs();
                let sections = self.share.sections(parts).into_iter();
                sections.map(|rows| self.fp8_cut(&whole, [rows, columns()], tensor)).collect()
            }
            _ => Ok(vec![self.fp8_matrix(tensor)?]),
        }
    }

    /// A matrix of the checkpoint.
    pub(super) fn fp8_matrix(&self, tensor: &TensorSpec) -> Result<Fp8Matrix<'_>, EngineError> {
        match self.source {
            WeightSource::Checkpoint(weights) => {
                let whole = self.whole_of(weights, tensor);
                let matrix = Tensors::new(weights).fp8(&whole)?;
                if whole.shape == tensor.shape { Ok(matrix) } else { self.fp8_part(&matrix, tensor) }
            }
            WeightSource::Random => Err(EngineError::Configuration(format!("{} is random", tensor.name))),
        }
    }

    /// A rank's part of a matrix, in whole blocks of scales.
    fn fp8_part(&self, whole: &Fp8Matrix<'_>, part: &TensorSpec) -> Result<Fp8Matrix<'static>, EngineError> {
        let ranges = [(0, whole.outputs()), (1, whole.inputs())].map(|(axis, all)| {
            let own = part.shape.get(axis).copied().unwrap_or_default();
            if own == all { 0..all } else { self.share.range(all, own) }
        });
        self.fp8_cut(whole, ranges, part)
    }

    /// Some rows and columns of the matrix of which `part` describes what the rank has.
    fn fp8_cut(
        &self,
        whole: &Fp8Matrix<'_>,
        [rows, columns]: [Range<usize>; 2],
        part: &TensorSpec,
    ) -> Result<Fp8Matrix<'static>, EngineError> {
        let is_cut =
            |start: usize, length: usize| !start.is_multiple_of(FP8_BLOCK) || !length.is_multiple_of(FP8_BLOCK);
        let layout = whole.layout();
        let rows_cut = rows.len() < whole.outputs() && layout == Fp8Scales::Blocks && is_cut(rows.start, rows.len());
        let columns_cut =
            // A scale per row is the same for all columns, so these may be cut anywhere.
            columns.len() < whole.inputs() && layout != Fp8Scales::Channels && is_cut(columns.start, columns.len());
        if rows_cut || columns_cut {
            return Err(EngineError::Configuration(format!(
                "--tp-size {}: {} of {} × {} cannot be divided, since it has one scale per block of {FP8_BLOCK} \
                 (SGLang rejects it too); use fewer GPUs",
                self.share.ranks,
                part.name,
                whole.outputs(),
                whole.inputs()
            )));
        }
        Ok(whole.cut(rows, columns))
    }

    /// Random numbers, with scales that give the values the spread of an initialised layer.
    fn random_fp8(
        &self,
        buffer: Buffer,
        tensors: &[&TensorSpec],
        layout: Fp8Scales,
    ) -> Result<(Buffer, ScaleBuffer), EngineError> {
        self.count.set(self.count.get() + 1);
        self.kernels.fill_random_fp8(buffer.slice(), self.count.get())?;
        let inputs = tensors.first().and_then(|tensor| tensor.shape.last()).copied().unwrap_or(1);
        let outputs: usize = tensors.iter().map(|tensor| tensor.shape[0]).sum();
        let scale = 1.0 / (inputs as f32).sqrt() / spread();
        let scales = vec![scale; layout.count(outputs, inputs)];
        Ok((buffer, ScaleBuffer { at: self.kernels.device().upload(&scales)?, layout }))
    }
}

/// Root mean square of all numbers of the format.
fn spread() -> f32 {
    let squares: Vec<f32> =
        (0..=u8::MAX).map(from_e4m3).filter(|number| !number.is_nan()).map(|number| number * number).collect();
    (squares.iter().sum::<f32>() / squares.len() as f32).sqrt()
}
