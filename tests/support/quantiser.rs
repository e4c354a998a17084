//! Quantises matrices to FP8 as published checkpoints have them, apart from the engine's own code.

use half::bf16;
use kernels::reference::{FP8_BLOCK, Fp8Matrix, Fp8Scales, to_e4m3};

/// How scales are stored.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(dead_code, reason = "not every test that includes this file uses every layout")]
pub enum Scales {
    Blocks,
    /// Blocks with scales in bfloat16.
    ShortBlocks,
    Channels,
    Tensor,
}

/// Bytes of a tensor in float32.
pub fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// A matrix quantised with scales of a layout, implemented independently: the largest value under
/// each scale becomes 448.
pub fn quantised(values: &[f32], [outputs, inputs]: [usize; 2], scales: Scales) -> Fp8Matrix<'static> {
    let shares = |row: usize, column: usize| match scales {
        Scales::Blocks | Scales::ShortBlocks => row / FP8_BLOCK * inputs.div_ceil(FP8_BLOCK) + column / FP8_BLOCK,
        Scales::Channels => row,
        Scales::Tensor => 0,
    };
    let mut largest = vec![0.0_f32; shares(outputs - 1, inputs - 1) + 1];
    for (at, value) in values.iter().enumerate() {
        let place = &mut largest[shares(at / inputs, at % inputs)];
        *place = place.max(value.abs());
    }
    let short = |scale: f32| if scales == Scales::ShortBlocks { bf16::from_f32(scale).to_f32() } else { scale };
    let scale: Vec<f32> = largest.iter().map(|largest| short((largest / 448.0).max(1e-12))).collect();
    let numbers: Vec<u8> =
        values.iter().enumerate().map(|(at, value)| to_e4m3(value / scale[shares(at / inputs, at % inputs)])).collect();
    match scales {
        Scales::Blocks | Scales::ShortBlocks => Fp8Matrix::new([outputs, inputs], numbers, Fp8Scales::Blocks, scale),
        Scales::Channels => Fp8Matrix::new([outputs, inputs], numbers, Fp8Scales::Channels, scale),
        Scales::Tensor => Fp8Matrix::new([outputs, inputs], numbers, Fp8Scales::Channels, vec![scale[0]; outputs]),
    }
}
