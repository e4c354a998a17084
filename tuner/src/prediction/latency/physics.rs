//! The work of a round on a machine, and its time given the machine's speeds.
//!
//! A pass through linear layers takes the longer of reading their weights and of its arithmetic.
//! Added to this are the cache rows that attention reads, attention's arithmetic for each row, and
//! fixed costs. A round is one pass of the target over all rows of the tree, or two over part of it
//! ([`engine::backend::VerifyPlan`]), and, under speculation, `num_steps` passes of the draft:
//! `num_steps − 1` that propose further tokens (the first proposal comes from the previous
//! extension), and the extension over the accepted tokens.

use engine::spec::PassCost;
use schemas::tree::NodeSource;
use serde::{Deserialize, Serialize};

use super::{LatencyMachine, Point};

/// Candidate tile sizes of tensor cores: with many rows, the arithmetic of a pass grows in steps of
/// this many rows.
pub(super) const TILES: [usize; 5] = [1, 16, 32, 64, 128];

/// Upper bound of the overlap: larger values make no difference.
const MOST_OVERLAP: f64 = 100.0;

/// Parameters that are fitted continuously.
pub(super) const FITTED: usize = 11;

/// Speeds and fixed costs of a machine. All positive.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhysicsParameters {
    /// Fixed cost of a round in µs, and again of a second pass of the target.
    pub round_us: f64,
    /// Fixed cost of a draft pass in µs.
    pub draft_pass_us: f64,
    /// Cost of each verified row in addition to its arithmetic (norms, sampling, acceptance), in
    /// µs.
    pub row_us: f64,
    /// Speed of reading weights in passes of few rows, in GB/s.
    pub few_rows_gb_per_s: f64,
    /// Speed of reading weights in passes of many rows, in GB/s.
    pub many_rows_gb_per_s: f64,
    /// Arithmetic speed of linear layers in passes of few rows, in TFLOP/s.
    pub few_rows_tflop_per_s: f64,
    /// Arithmetic speed of linear layers in passes of many rows, in TFLOP/s.
    pub many_rows_tflop_per_s: f64,
    /// Speed of reading the cache once for each request, in GB/s.
    pub cache_gb_per_s: f64,
    /// Attention's arithmetic speed, as bytes of cache summed over the rows that read them, in
    /// GB/s.
    pub attention_gb_per_s: f64,
    /// Efficiency of the draft's linear layers relative to the target's, at most 1: they are small
    /// and use less of the machine.
    pub draft_efficiency: f64,
    /// How well reading weights and arithmetic overlap if both take equally long. The two times are
    /// combined by a p-norm with p = 1 + overlap: 0 adds them, and a large value takes the longer
    /// one.
    pub overlap: f64,
    /// Tile size: rows that are computed together in passes of many rows.
    pub tile_rows: usize,
}

/// One pass.
struct PassTime {
    rows: usize,
    cost: PassCost,
    /// Bytes per token of the context that it reads.
    cache_row: f64,
    efficiency: f64,
}

impl PhysicsParameters {
    /// Start values: a machine as fast as its memory, with typical figures for the rest.
    pub(super) fn start(machine: &LatencyMachine, tile_rows: usize) -> Self {
        let gigabytes = machine.bandwidth / 1e9;
        Self {
            round_us: 100.0,
            draft_pass_us: 30.0,
            row_us: 0.5,
            few_rows_gb_per_s: 0.85 * gigabytes,
            many_rows_gb_per_s: 0.75 * gigabytes,
            // Memory-bound up to some tens or hundreds of rows.
            few_rows_tflop_per_s: 0.05 * gigabytes,
            many_rows_tflop_per_s: 0.15 * gigabytes,
            cache_gb_per_s: 0.6 * gigabytes,
            attention_gb_per_s: 10.0 * gigabytes,
            draft_efficiency: 0.7,
            overlap: 4.0,
            tile_rows,
        }
    }

    /// The fitted parameters, all positive, in the order in which they are fitted.
    pub(super) fn values(&self) -> [f64; FITTED] {
        [
            self.round_us,
            self.draft_pass_us,
            self.row_us,
            self.few_rows_gb_per_s,
            self.many_rows_gb_per_s,
            self.few_rows_tflop_per_s,
            self.many_rows_tflop_per_s,
            self.cache_gb_per_s,
            self.attention_gb_per_s,
            self.draft_efficiency,
            self.overlap,
        ]
    }

    /// The inverse of [`values`](Self::values), within bounds.
    pub(super) fn from_values(values: [f64; FITTED], tile_rows: usize) -> Self {
        let [
            round_us,
            draft_pass_us,
            row_us,
            few_rows_gb_per_s,
            many_rows_gb_per_s,
            few_rows_tflop_per_s,
            many_rows_tflop_per_s,
            cache_gb_per_s,
            attention_gb_per_s,
            draft_efficiency,
            overlap,
        ] = values;
        Self {
            round_us,
            draft_pass_us,
            row_us,
            few_rows_gb_per_s,
            many_rows_gb_per_s,
            few_rows_tflop_per_s,
            many_rows_tflop_per_s,
            cache_gb_per_s,
            attention_gb_per_s,
            draft_efficiency: draft_efficiency.min(1.0),
            overlap,
            tile_rows,
        }
    }
}

/// The time of a round in ms.
pub fn round_ms(machine: &LatencyMachine, parameters: &PhysicsParameters, point: &Point) -> f64 {
    let cost = &machine.cost;
    let pass_ms = |pass: PassTime| pass_ms(machine, parameters, point, &pass);
    let target = |rows: usize| {
        let cache_row = cost.target_row_read(point.context);
        let pass = PassTime { rows, cost: cost.target, cache_row, efficiency: 1.0 };
        (parameters.round_us + parameters.row_us * rows as f64) / 1e3 + pass_ms(pass)
    };
    // Two passes where inner nodes are verified before the leaves.
    let (first, second) = point.target_passes(cost);
    let mut ms = target(first) + second.map_or(0.0, target);
    if !point.shape.is_off() {
        let pass = |rows: usize, cost: PassCost, cache_row| PassTime {
            rows,
            cost,
            cache_row,
            efficiency: parameters.draft_efficiency,
        };
        let draft = |rows, more| pass(rows, cost.draft + more, cost.draft_row_read(point.context));
        let accepted = point.batch.saturating_mul(point.shape.longest_path());
        let (passes, rows) = cost.nodes.passes(point.shape);
        let rows = point.batch.saturating_mul(rows);
        ms += passes as f64 * pass_ms(draft(rows, PassCost::default()));
        ms += match cost.nodes {
            NodeSource::Beams => {
                pass_ms(draft(accepted, cost.draft_extension)) + (passes + 1) as f64 * parameters.draft_pass_us / 1e3
            }
            // The host drafts, and there is no draft that follows the text.
            NodeSource::Text(_) => 0.0,
            // Neither step reads the context: accepted tokens only write it, and corrections are
            // over rows alone.
            NodeSource::Block(_) => {
                let levels = point.shape.num_steps as f64;
                let corrected = point.batch.saturating_mul(point.shape.topk);
                pass_ms(pass(accepted, cost.draft_extension, 0.0))
                    + levels * pass_ms(pass(corrected, cost.draft_level, 0.0))
                    + 2.0 * parameters.draft_pass_us / 1e3
            }
        };
    }
    ms
}

/// Share of the linear layers of the target's first pass in the time of a round, from 0 to 1.
pub(super) fn linear_share(machine: &LatencyMachine, parameters: &PhysicsParameters, point: &Point) -> f64 {
    let (rows, _) = point.target_passes(&machine.cost);
    linear_ms(machine, parameters, rows, &machine.cost.target) / round_ms(machine, parameters, point)
}

/// The time of a pass in ms.
fn pass_ms(machine: &LatencyMachine, parameters: &PhysicsParameters, point: &Point, pass: &PassTime) -> f64 {
    let linear = linear_ms(machine, parameters, pass.rows, &pass.cost) / pass.efficiency;
    let megabytes = point.context * pass.cache_row / 1e6;
    let cache = point.batch as f64 * megabytes / parameters.cache_gb_per_s;
    linear + cache + pass.rows as f64 * megabytes / parameters.attention_gb_per_s
}

/// The time of a pass's linear layers in ms. 1 GB/s is 1 MB/ms, 1 TFLOP/s is 1 GFLOP/ms.
fn linear_ms(machine: &LatencyMachine, parameters: &PhysicsParameters, rows: usize, cost: &PassCost) -> f64 {
    let megabytes = cost.bytes(rows) / 1e6;
    let (gb_per_s, tflop_per_s, rows) = if rows <= machine.few_rows {
        (parameters.few_rows_gb_per_s, parameters.few_rows_tflop_per_s, rows)
    } else {
        // Kernels for many rows compute whole tiles, so the last one costs as much as a full one.
        let rows = rows.checked_next_multiple_of(parameters.tile_rows).unwrap_or(rows);
        (parameters.many_rows_gb_per_s, parameters.many_rows_tflop_per_s, rows)
    };
    together(megabytes / gb_per_s, cost.flops(rows) / 1e9 / tflop_per_s, parameters.overlap)
}

/// The longer of two times, or more if they are similar and do not overlap fully.
fn together(one: f64, other: f64, overlap: f64) -> f64 {
    let (longer, shorter) = (one.max(other), one.min(other));
    if longer <= 0.0 {
        return 0.0;
    }
    let exponent = 1.0 + overlap.min(MOST_OVERLAP);
    longer * (1.0 + (shorter / longer).powf(exponent)).powf(exponent.recip())
}
