//! The order of MXFP4 weights in memory, as `cuda/e2m1.cuh` and `cuda/mxfp4.cuh` read them.

use rayon::prelude::*;

use crate::reference::MXFP4_BLOCK;

/// Bytes of a block's numbers.
const BLOCK_BYTES: usize = MXFP4_BLOCK / 2;
/// Inputs of a stage, whose scales are one word of a row.
const PIECE: usize = 4 * MXFP4_BLOCK;

/// The mantissa bits of [`pair_of`].
const MANTISSAS: u32 = 0x0040_0040;

/// Largest exponent (plus 127) of a scale that the kernels expand: that of 2.
pub const MOST_MXFP4_EXPONENT: u8 = 128;

/// Bytes of the scales of a matrix of `rows` rows, in the order of the kernels.
pub fn mxfp4_scale_bytes(rows: usize, inputs: usize) -> usize {
    rows * inputs.div_ceil(PIECE) * 4
}

/// Permutes the bits of MXFP4 numbers of whole blocks into the order in which the kernels read
/// them: that of `cuda/e2m1.cuh`.
pub fn mxfp4_order(numbers: &mut [u8]) {
    // Pieces that are worth a thread each.
    numbers.par_chunks_mut(1 << 16).flat_map_iter(|piece| piece.as_chunks_mut::<BLOCK_BYTES>().0).for_each(|block| {
        let from = *block;
        for (at, word) in block.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let pair = |place: usize| pair_of(from[4 * place + at]);
            let last = pair(3);
            *word =
                (pair(0) >> 2 | pair(1) >> 6 | pair(2).rotate_left(4) | last & !MANTISSAS | (last & MANTISSAS) << 8)
                    .to_le_bytes();
        }
    });
}

/// The bits of two numbers where two bfloat16 have them: sign, lowest exponent bits, highest
/// mantissa bit.
fn pair_of(byte: u8) -> u32 {
    let bits = |code: u32| (code & 8) << 12 | (code & 7) << 6;
    bits(u32::from(byte & 15)) | bits(u32::from(byte >> 4)) << 16
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

    /// The words of a block whose numbers are 0, except some of these codes.
    fn ordered(codes: &[(usize, u8)]) -> Vec<u32> {
        let mut block = [0; BLOCK_BYTES];
        codes.iter().for_each(|(number, code)| block[number / 2] |= code << (4 * (number % 2)));
        mxfp4_order(&mut block);
        block.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
    }

    #[test]
    fn a_lane_has_its_pairs_in_one_word() {
        // Word 1: inputs 2, 3, 10, 11, 18, 19, 26, 27.
        for (number, bits) in [
            (2, 0x0000_2070),
            (3, 0x2070_0000),
            (10, 0x0000_0207),
            (11, 0x0207_0000),
            (18, 0x0008_1c00),
            (19, 0x1c00_0008),
            (26, 0x0000_c180),
            (27, 0xc180_0000),
        ] {
            assert_eq!(ordered(&[(number, 15)]), [0, bits, 0, 0], "number {number}");
        }
        // Sign and mantissa of one number.
        assert_eq!(ordered(&[(26, 8)])[1], 0x8000);
        assert_eq!(ordered(&[(26, 1)])[1], 0x4000);
    }

    #[test]
    fn no_bit_is_that_of_two_numbers() {
        let all: Vec<(usize, u8)> = (0..MXFP4_BLOCK).map(|number| (number, 15)).collect();
        assert_eq!(ordered(&all), [u32::MAX; 4]);
    }

    #[test]
    fn scales_of_a_step_are_next_to_each_other() {
        let exponents = [1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16];
        assert_eq!(mxfp4_scales(&exponents, 2), [0x0403_0201, 0x0e0d_0c0b, 0x0605, 0x100f]);
        assert_eq!(mxfp4_scale_bytes(2, 192), 16);
    }
}
