//! The order of MXFP4 weights in memory, as `cuda/mxfp4.cuh` reads them.

use rayon::prelude::*;

use crate::reference::MXFP4_BLOCK;

/// Bytes of a block's numbers.
const BLOCK_BYTES: usize = MXFP4_BLOCK / 2;
/// Inputs of a stage, whose scales are one word of a row.
const PIECE: usize = 4 * MXFP4_BLOCK;

/// Largest exponent (plus 127) of a scale that the kernels expand: that of 2.
pub const MOST_MXFP4_EXPONENT: u8 = 128;

/// Bytes of the scales of a matrix of `rows` rows, in the order of the kernels.
pub fn mxfp4_scale_bytes(rows: usize, inputs: usize) -> usize {
    rows * inputs.div_ceil(PIECE) * 4
}

/// Permutes MXFP4 numbers of whole blocks into the order in which the kernels read them.
pub fn mxfp4_order(numbers: &mut [u8]) {
    // Pieces that are worth a thread each.
    numbers.par_chunks_mut(1 << 16).flat_map_iter(|piece| piece.as_chunks_mut::<BLOCK_BYTES>().0).for_each(|block| {
        let from = *block;
        for (at, word) in block.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let pair = |place: usize| u32::from(from[4 * place + at]);
            let both = |place: usize| ((pair(place) & 15) | (pair(place) >> 4 << 16)) << (4 * place);
            *word = (both(0) | both(1) | both(2) | both(3)).to_le_bytes();
        }
    });
}

/// The exponents of a matrix, `[rows, inputs / 32]`, as words `[inputs / 128, rows]` of four each;
/// 0 for inputs after the last.
pub fn mxfp4_scales(exponents: &[u8], rows: usize) -> Vec<u32> {
    let columns = exponents.len() / rows.max(1);
    let word = |row: usize, step: usize| {
        let of = exponents[row * columns..][..columns].iter().skip(4 * step).take(4).enumerate();
        of.fold(0, |word, (at, exponent)| word | u32::from(*exponent) << (8 * at))
    };
    (0..columns.div_ceil(4)).flat_map(|step| (0..rows).map(move |row| word(row, step))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_has_its_pairs_in_one_word() {
        // Number n of a block has code n % 16.
        let mut block: Vec<u8> = (0..16_u8).map(|at| (2 * at % 16) | ((2 * at + 1) % 16) << 4).collect();
        mxfp4_order(&mut block);
        let words: Vec<u32> = block.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
        // Word 1: inputs 2, 10, 18, 26, then 3, 11, 19, 27.
        assert_eq!(words[1], 0xb3b3_a2a2);
        assert_eq!(words[3], 0xf7f7_e6e6);
    }

    #[test]
    fn scales_of_a_step_are_next_to_each_other() {
        let exponents = [1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16];
        assert_eq!(mxfp4_scales(&exponents, 2), [0x0403_0201, 0x0e0d_0c0b, 0x0605, 0x100f]);
        assert_eq!(mxfp4_scale_bytes(2, 192), 16);
    }
}
