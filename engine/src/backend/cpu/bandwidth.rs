//! Measures the memory bandwidth of the host.

use std::time::Instant;

use rayon::prelude::*;

use crate::memory;

/// Number of bytes to read: far more than the caches of common processors hold.
const BYTES: u64 = 512 << 20;
/// Bytes read by one task.
const PIECE: usize = 1 << 20;
/// Bytes copied at a time, to a buffer that stays in the L1 cache.
const COPY: usize = 16 << 10;
/// Number of passes; the fastest counts.
const PASSES: usize = 4;

/// Memory read bandwidth of all threads together in bytes per second, measured now. Takes about a
/// second, and needs free memory.
pub fn read_bandwidth() -> f64 {
    let bytes = memory::available().map_or(BYTES, |available| BYTES.min(available / 4)).max(PIECE as u64);
    // Not zeros: the kernel maps these to a single page until they are written.
    let memory = vec![1_u8; bytes as usize];
    let seconds = |_| {
        let start = Instant::now();
        memory.par_chunks(PIECE).for_each(read);
        start.elapsed().as_secs_f64()
    };
    bytes as f64 / (0..PASSES).map(seconds).fold(f64::INFINITY, f64::min)
}

/// Reads with the C library's copy, which is equally fast in a debug build.
fn read(piece: &[u8]) {
    let mut near = [0; COPY];
    for part in piece.chunks_exact(COPY) {
        near.copy_from_slice(part);
        std::hint::black_box(&mut near);
    }
}
