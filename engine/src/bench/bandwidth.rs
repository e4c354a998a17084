//! How fast this machine reads memory.

use std::time::Instant;

use rayon::prelude::*;

use crate::memory;

/// Bytes to read: far more than the caches of common processors hold.
const BYTES: u64 = 512 << 20;
/// Bytes that one task reads.
const PIECE: usize = 1 << 20;
/// Passes; the best one counts.
const PASSES: usize = 4;

/// Bytes a second that all threads together read from memory, measured now: takes about a second, and memory that is
/// free.
pub fn read_bandwidth() -> f64 {
    let bytes = memory::available().map_or(BYTES, |available| BYTES.min(available / 4)).max(PIECE as u64);
    // Not zeros: those would all be one page of the kernel's until they are written.
    let words: Vec<u64> = vec![1; bytes as usize / size_of::<u64>()];
    let seconds = |_| {
        let start = Instant::now();
        let sum: u64 = words.par_chunks(PIECE / size_of::<u64>()).map(sum).sum();
        std::hint::black_box(sum);
        start.elapsed().as_secs_f64()
    };
    bytes as f64 / (0..PASSES).map(seconds).fold(f64::INFINITY, f64::min)
}

/// In lanes, so that no addition waits for the one before it.
fn sum(words: &[u64]) -> u64 {
    let mut lanes = [0_u64; 16];
    for words in words.chunks_exact(lanes.len()) {
        for (lane, word) in lanes.iter_mut().zip(words) {
            *lane = lane.wrapping_add(*word);
        }
    }
    lanes.iter().fold(0, |sum, lane| sum.wrapping_add(*lane))
}
