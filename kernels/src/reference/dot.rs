//! Sums in one fixed order: eight running sums over the length, then one fold of the eight.

use std::array::from_fn;

use pulp::Simd;

/// Running sums of a reduction: one 256-bit register of f32.
pub(super) const LANES: usize = 8;

/// `a · b`, for several `a` by several `b` of one length: `products[i][j] = a[i] · b[j]`.
///
/// The number of products computed together does not change a bit of any of them.
#[inline(always)]
pub(super) fn dots<S: Simd, const A: usize, const B: usize>(simd: S, a: [&[f32]; A], b: [&[f32]; B]) -> [[f32; B]; A] {
    let length = a.first().map_or(0, |a| a.len());
    let (whole, blocks) = (length - length % LANES, length / LANES);
    // The compiler does not know the lengths, and would check each access.
    let a_blocks: [&[[f32; LANES]]; A] = from_fn(|i| &a[i].as_chunks().0[..blocks]);
    let b_blocks: [&[[f32; LANES]]; B] = from_fn(|j| &b[j].as_chunks().0[..blocks]);
    let mut sums = [[[0.0; LANES]; B]; A];
    for block in 0..blocks {
        for i in 0..A {
            for j in 0..B {
                add_product(simd, &a_blocks[i][block], &b_blocks[j][block], &mut sums[i][j]);
            }
        }
    }
    if whole < length {
        // The last block is padded with zeros, so that the sums are only accessed as whole
        // registers and stay in them.
        let padded = |values: &[f32]| {
            let mut block = [0.0; LANES];
            block[..length - whole].copy_from_slice(&values[whole..length]);
            block
        };
        let (a, b) = (a.map(padded), b.map(padded));
        for i in 0..A {
            for j in 0..B {
                add_product(simd, &a[i], &b[j], &mut sums[i][j]);
            }
        }
    }
    from_fn(|i| from_fn(|j| fold(&sums[i][j])))
}

/// `a · b`.
#[inline(always)]
pub(super) fn dot<S: Simd>(simd: S, a: &[f32], b: &[f32]) -> f32 {
    let [[product]] = dots(simd, [a], [b]);
    product
}

/// Folds running sums, always as the same tree.
#[inline(always)]
pub(super) fn fold(sums: &[f32; LANES]) -> f32 {
    let [a, b, c, d, e, f, g, h] = *sums;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}

/// `sums += a · b`, fused on all processors, so that results do not depend on them.
#[inline(always)]
fn add_product<S: Simd>(simd: S, a: &[f32; LANES], b: &[f32; LANES], sums: &mut [f32; LANES]) {
    const { assert!(LANES.is_multiple_of(S::F32_LANES), "registers do not straddle the sums") };
    let (a, b, sums) = (S::as_simd_f32s(a).0, S::as_simd_f32s(b).0, S::as_mut_simd_f32s(sums).0);
    for register in 0..LANES / S::F32_LANES {
        sums[register] = simd.mul_add_f32s(a[register], b[register], sums[register]);
    }
}
