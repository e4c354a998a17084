//! Measures this machine's memory bandwidth.

use std::time::Instant;

use rayon::prelude::*;

use crate::memory;

/// Bytes to read: far more than the caches of common processors hold.
const BYTES: u64 = 512 << 20;
/// Bytes that one task reads.
const PIECE: usize = 1 << 20;
/// Bytes that are copied at a time, to a place that stays in the first cache.
const COPY: usize = 16 << 10;
/// Passes; the best one counts.
const PASSES: usize = 4;

/// Bytes a second that all threads together read from memory, measured now: takes about a second, and memory that is
/// free.
pub fn read_bandwidth() -> f64 {
    let bytes = memory::available().map_or(BYTES, |available| BYTES.min(available / 4)).max(PIECE as u64);
    // Not zeros: those would all be one page of the kernel's until they are written.
    let memory = vec![1_u8; bytes as usize];
    let seconds = |_| {
        let start = Instant::now();
        memory.par_chunks(PIECE).for_each(read);
        start.elapsed().as_secs_f64()
    };
    bytes as f64 / (0..PASSES).map(seconds).fold(f64::INFINITY, f64::min)
}

/// By the C library's copy, which is as fast in a debug build as in any other.
fn read(piece: &[u8]) {
    let mut near = [0; COPY];
    for part in piece.chunks_exact(COPY) {
        near.copy_from_slice(part);
        std::hint::black_box(&mut near);
    }
}
