//! Sums in one fixed order: eight running sums over the length, then one fold of the eight.

/// Running sums a reduction keeps: one 256-bit register of f32.
pub(super) const LANES: usize = 8;

/// Adds `a · b` to the running sums; the tail shorter than [`LANES`] goes to the first ones.
///
/// Fused multiply-add on every machine, so that results do not depend on the processor.
#[inline(always)]
pub(super) fn accumulate(sums: &mut [f32; LANES], a: &[f32], b: &[f32]) {
    let (a_blocks, a_tail) = a.as_chunks::<LANES>();
    let (b_blocks, b_tail) = b.as_chunks::<LANES>();
    for (a, b) in a_blocks.iter().zip(b_blocks) {
        for lane in 0..LANES {
            sums[lane] = a[lane].mul_add(b[lane], sums[lane]);
        }
    }
    for (lane, (a, b)) in a_tail.iter().zip(b_tail).enumerate() {
        sums[lane] = a.mul_add(*b, sums[lane]);
    }
}

/// Folds the running sums, always as the same tree.
#[inline(always)]
pub(super) fn fold(sums: &[f32; LANES]) -> f32 {
    let [a, b, c, d, e, f, g, h] = *sums;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}

/// `a · b`.
#[inline(always)]
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0; LANES];
    accumulate(&mut sums, a, b);
    fold(&sums)
}

/// `a · b` for several `b` of the same length, each in the order of [`dot`].
#[inline(always)]
pub(super) fn dots<const COUNT: usize>(a: &[f32], b: [&[f32]; COUNT]) -> [f32; COUNT] {
    let mut sums = [[0.0; LANES]; COUNT];
    let whole = a.len() - a.len() % LANES;
    let mut at = 0;
    while at < whole {
        let a = lanes(a, at);
        for (sums, b) in sums.iter_mut().zip(b) {
            let b = lanes(b, at);
            for lane in 0..LANES {
                sums[lane] = a[lane].mul_add(b[lane], sums[lane]);
            }
        }
        at += LANES;
    }
    for (sums, b) in sums.iter_mut().zip(b) {
        accumulate(sums, &a[whole..], &b[whole..]);
    }
    sums.map(|sums| fold(&sums))
}

/// The [`LANES`] values from `at` on.
#[inline(always)]
pub(super) fn lanes(values: &[f32], at: usize) -> &[f32; LANES] {
    values[at..at + LANES].first_chunk().expect("a slice of LANES values has a chunk of LANES")
}
