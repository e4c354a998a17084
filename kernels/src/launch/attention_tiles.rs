//! Attention over groups of rows, by size:
//!
//! - `cuda/attention_few.cu`: few (row, head) pairs; also applies the rotation.
//! - `cuda/attention_wide.cu`: many pairs, with warp-group products on Hopper.
//! - `cuda/attention_tiles.cu`: many pairs, with warp products on other architectures and for other
//!   head sizes.
//! - `cuda/attention_alone.cu`: small blocks, when there are more groups than blocks that run at
//!   once.
//!
//! Splits of attention form a cluster of blocks, which merge through distributed shared memory. On
//! architectures without clusters, the last block merges the records that the others have left in
//! device memory.

use super::{
    Attention, HEAD_DIMS, Kernels, OwnRows, Rotation, address, attention::cache_arguments, check_ints, grid, int,
    linear_wide::has_warp_groups,
};
use crate::device::{Arg, DeviceError, Element, KernelFile, Properties, Slice, Split};

pub(super) const FILE: KernelFile = KernelFile {
    name: "attention_tiles.cu",
    text: include_str!("../../cuda/attention_tiles.cu"),
    split: Split::Shared,
};
pub(super) const FEW_FILE: KernelFile =
    KernelFile { name: "attention_few.cu", text: include_str!("../../cuda/attention_few.cu"), split: Split::Shared };

pub(super) const ALONE_FILE: KernelFile =
    KernelFile { name: "attention_alone.cu", text: include_str!("../../cuda/attention_alone.cu"), split: Split::Cache };

pub(super) const WIDE_FILE: KernelFile =
    KernelFile { name: "attention_wide.cu", text: include_str!("../../cuda/attention_wide.cu"), split: Split::Shared };

/// Head sizes of `attention_wide.cu`, and the one for which it has blocks of two teams.
pub(super) const WIDE_HEAD_DIMS: [usize; 2] = [64, 128];
const TWO_TEAMS_HEAD_DIM: usize = 64;

/// Largest head size that fits the registers of `few.cuh`.
pub(super) const MOST_OF_FEW: usize = 128;
/// Largest head size with which half of the registers are left to other blocks, which pays with few
/// blocks.
const MOST_IN_HALF: usize = 64;
/// Maximum number of splits that are merged through device memory, without clusters.
const MOST_SPLITS: usize = 32;

/// Runs of rows that have one slot.
#[derive(Clone, Copy, Debug)]
pub enum Groups<'a> {
    /// Groups of this many consecutive rows.
    Even(usize),
    /// Arbitrary ranges.
    Ranges {
        /// int32 `[groups + 1]`: the first row of each group, then the number of rows.
        first: Slice<'a>,
        /// Number of groups.
        count: usize,
        /// Rows of the largest group.
        largest: usize,
    },
}

/// What rows in groups see, and which part of it their pass writes: the rest may be read before the
/// wait.
#[derive(Clone, Copy, Debug)]
pub enum Sees<'a> {
    /// Positions alone. The rows of a group are consecutive positions in ascending order, each the
    /// last that its row sees: the pass writes these, and all positions before a group's first are
    /// older.
    Positions,
    /// Positions that are all older than the pass, and own rows that the pass writes.
    Own(OwnRows<'a>),
}

/// The kernel that precedes an attention in the pass, which determines what may be read before it
/// has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// Kernels that lay out the pass: nothing may be read early.
    Layout,
    /// Attention over another layer, of the same rows: everything that describes what rows see may
    /// be read early, and the keys and values that are older than the pass.
    Layer,
}

/// Which kernels a device and a cache have.
#[derive(Clone, Copy)]
struct Variant {
    /// Whether there are warp-group kernels for heads of this size.
    wide: bool,
    /// Whether the cache is in FP8.
    fp8: bool,
}

/// A kernel and its geometry.
#[derive(Clone, Copy)]
struct TileKernel {
    file: KernelFile,
    name: &'static str,
    /// Whether it includes [`Kernels::rotate_and_write`].
    rotates: bool,
    /// (row, head) pairs of a block.
    pairs: usize,
    threads: u32,
    /// Whether it releases the next kernel only after its own wait, so that a separate rotation
    /// kernel need not.
    releases_late: bool,
    /// Bytes of dynamic shared memory.
    shared: usize,
    /// Blocks that run on a multiprocessor at the same time, which limits the useful number of
    /// splits; 0 for no splits.
    resident: usize,
}

impl Groups<'_> {
    /// Rows of the largest group.
    pub fn largest(&self) -> usize {
        match *self {
            Self::Even(size) => size.max(1),
            Self::Ranges { largest, .. } => largest,
        }
    }

    /// The first rows (or none), and the number of groups.
    pub(super) fn parts(&self, rows: usize) -> Result<(Slice<'_>, usize), DeviceError> {
        match *self {
            Self::Even(_) => Ok((Slice::NONE, rows.div_ceil(self.largest()))),
            Self::Ranges { first, count, .. } => {
                check_ints(first, count + 1)?;
                Ok((first, count))
            }
        }
    }
}

impl Kernels {
    /// [`rotate_and_write`](Self::rotate_and_write) followed by attention as in
    /// [`attention_rows`](Self::attention_rows), on tensor cores, for rows in groups. For small
    /// groups one kernel does both, and the rotated queries are not written. The number of splits
    /// is chosen here to keep the device busy: at most that of the operands, and if splits go
    /// through memory, at most as many as the workspace holds. The rows' own lists are not read:
    /// `sees` replaces them.
    ///
    /// # Errors
    /// When a buffer is too short, the element type is float, the head size is not one of
    /// [`HEAD_DIMS`], the operands of rotation and attention are not of one layer, or the device
    /// fails.
    pub fn rotate_and_attend(
        &self,
        rotation: Rotation<'_>,
        attention: Attention<'_>,
        groups: Groups<'_>,
        sees: Sees<'_>,
        ahead: Ahead,
    ) -> Result<(), DeviceError> {
        self.check_tiles(&rotation, &attention, sees)?;
        let Attention { rows, heads, kv_heads, head_dim, max_splits, .. } = attention;
        let ((first, count), largest) = (groups.parts(rows)?, groups.largest());
        let (own, mask_words) = match sees {
            Sees::Positions => (None, 0),
            Sees::Own(own) => {
                let mask_words = Self::own_mask_words(largest, own.own_stride);
                self.check_own(own, rows, count, mask_words)?;
                (Some(own), mask_words)
            }
        };
        let pairs = largest * (heads / kv_heads);
        let Properties { multiprocessors, most_cluster, .. } = *self.device.properties();
        let fp8 = attention.fp8.is_some();
        // Warp groups read keys and values from shared memory, where no FP8 can be converted.
        let wide =
            !fp8 && WIDE_HEAD_DIMS.contains(&head_dim) && has_warp_groups(self.element, self.device.properties());
        let choice = choose(pairs, count * kv_heads, head_dim, multiprocessors, Variant { wide, fp8 });
        let parts = kv_heads * pairs.div_ceil(choice.pairs);
        let most = match most_cluster {
            1 if attention.counters.bytes() < count * parts * 4 => 1,
            1 => {
                MOST_SPLITS.min(attention.partial.bytes() / Self::attention_workspace(rows, heads, head_dim, 1).max(1))
            }
            _ => most_cluster,
        };
        let splits = self.splits(count * parts, choice.resident, max_splits.min(most))?;
        if !choice.rotates {
            self.rotate(rotation, ahead == Ahead::Layout || !choice.releases_late)?;
        }
        let options = attention.options(vec![self.element.option(), format!("-DHEAD_DIM={head_dim}")]);
        let kernel = self.device.kernel(choice.file, &options, choice.name)?;
        let own_part = |part: fn(&OwnRows<'_>) -> Arg| own.as_ref().map_or(address(Slice::NONE), part);
        let mut arguments = attention.head_arguments();
        arguments.extend([
            own_part(|own| address(own.cache_rows)),
            own_part(|own| address(own.count)),
            own_part(|own| address(own.mask)),
            int(own.map_or(0, |own| own.own_stride)),
            int(mask_words),
            address(first),
            int(largest),
            int(rows),
            int(heads),
            int(kv_heads),
            // Weights are powers of 2.
            Arg::Float(std::f32::consts::LOG2_E * attention.score_scale()),
            address(attention.partial),
            address(attention.counters),
            int(splits),
        ]);
        arguments.extend(cache_arguments(attention.fp8));
        if !attention.is_plain() {
            arguments.extend(attention.sink_arguments());
            // Rows that see positions alone have no own rows.
            let own_count = own.map_or(Slice::NONE, |_| attention.visible.own_count);
            arguments.push(address(own_count));
        }
        if choice.rotates {
            arguments.extend(self.rotation_arguments(rotation)?);
            arguments.push(Arg::Int((ahead == Ahead::Layer).into()));
        }
        // SAFETY: lengths are checked above; cache rows come from the page table and the layout
        // kernels, which stay within, as do the first rows of groups.
        unsafe {
            let geometry =
                grid([splits, parts, count], choice.threads, choice.shared).in_clusters(splits.min(most_cluster));
            self.device.launch(&kernel, geometry, &arguments)
        }
    }
}

impl Kernels {
    /// Checks the operands of [`rotate_and_attend`](Self::rotate_and_attend), but not their groups.
    fn check_tiles(
        &self,
        rotation: &Rotation<'_>,
        attention: &Attention<'_>,
        sees: Sees<'_>,
    ) -> Result<(), DeviceError> {
        let Attention { out, query, rows, heads, kv_heads, head_dim, max_splits, .. } = *attention;
        if self.element == Element::F32
            || !HEAD_DIMS.contains(&head_dim)
            || kv_heads == 0
            || !heads.is_multiple_of(kv_heads)
            || max_splits == 0
        {
            return Err(DeviceError::Shape(format!(
                "attention of {heads} heads over {kv_heads} of {head_dim} elements cannot run on tensor cores as {}",
                self.element.name()
            )));
        }
        out.check(rows * heads * head_dim * self.element.bytes())?;
        self.check_rows(query, rows, heads * head_dim)?;
        for ints in [attention.visible.slot, attention.visible.prefix] {
            check_ints(ints, rows)?;
        }
        Self::check_window(attention, sees)?;
        attention.check_sinks(self.element)?;
        let of_one_layer = (rotation.rows, rotation.heads, rotation.kv_heads, rotation.head_dim)
            == (rows, heads, kv_heads, head_dim)
            && [rotation.keys, rotation.values].map(|at| at.address())
                == [attention.keys, attention.values].map(|at| at.address())
            && rotation.fp8 == attention.fp8;
        if of_one_layer {
            return Ok(());
        }
        Err(DeviceError::Shape("rotation and attention are not of one layer".into()))
    }

    /// Checks that a window leaves out none of a row's own rows: masks do not say which of them are
    /// last.
    fn check_window(attention: &Attention<'_>, sees: Sees<'_>) -> Result<(), DeviceError> {
        let (Some(window), Sees::Own(own)) = (attention.window, sees) else { return Ok(()) };
        if own.own_stride > window {
            return Err(DeviceError::Shape(format!(
                "attention within a window of {window} positions over up to {} own rows cannot run on tensor cores",
                own.own_stride
            )));
        }
        check_ints(attention.visible.own_count, attention.rows)
    }

    /// Number of splits for each of this many pieces of work, at most `most`: as many as run at
    /// once, since more would make a second wave, and each has to be merged.
    fn splits(&self, pieces: usize, resident: usize, most: usize) -> Result<usize, DeviceError> {
        let Properties { multiprocessors, most_cluster, .. } = *self.device.properties();
        if most_cluster == 1 {
            return Ok((multiprocessors * resident / pieces.max(1)).clamp(1, most.max(1)));
        }
        // Splits are a cluster, whose sizes are powers of 2.
        for splits in (1..=most.max(1).ilog2()).rev().map(|power| 1 << power) {
            if self.clusters_at_once(splits)? * resident >= pieces {
                return Ok(splits);
            }
        }
        Ok(1)
    }
}

/// The kernel for `together` groups of this many pairs: the widest that the pairs fill, or a
/// narrower one if the blocks would leave multiprocessors idle; keys are then read several times,
/// from the L2 cache.
fn choose(pairs: usize, together: usize, head_dim: usize, multiprocessors: usize, variant: Variant) -> TileKernel {
    let Variant { wide, fp8 } = variant;
    // Each warp's sums of 8 pairs, and with splits a record per pair.
    let few = |file, name, rotates, pairs, warps: u32, resident| TileKernel {
        file,
        name,
        rotates,
        pairs,
        threads: warps * 32,
        releases_late: rotates,
        shared: (warps as usize * 8 + if resident > 0 { pairs } else { 0 }) * (head_dim + 4) * 4,
        resident,
    };
    // As in attention_tiles.cu: tiles of 32 keys and values, and the queries.
    let (stages, key_bytes) = match (fp8, head_dim <= 128) {
        (false, small) => (if small { 3 } else { 2 }, head_dim * 2 + 16),
        (true, small) => (if small { 5 } else { 4 }, head_dim + 16),
    };
    let tiles = |name, pairs: usize, warps: u32, resident| TileKernel {
        file: FILE,
        name,
        rotates: false,
        pairs,
        threads: warps * 32,
        releases_late: true,
        shared: stages * 2 * 32 * key_bytes + pairs * (head_dim * 2 + 16),
        resident: if head_dim <= 128 { resident } else { 1 },
    };
    // Tiles of 64 keys and values, and the queries.
    let by_group = TileKernel {
        file: WIDE_FILE,
        name: "attention_wide",
        rotates: false,
        pairs: 64,
        threads: 128,
        releases_late: true,
        shared: (3 * 2 * 64 + 64) * head_dim * 2,
        resident: 2,
    };
    // Four such tiles.
    let by_two = TileKernel {
        name: "attention_wide_by_two",
        threads: 256,
        shared: (4 * 2 * 64 + 64) * head_dim * 2,
        ..by_group
    };
    let fits_resident = |width: usize, resident| together * pairs.div_ceil(width) <= resident * multiprocessors;
    let fits = |width| fits_resident(width, 1);
    match head_dim <= MOST_OF_FEW {
        true if pairs <= 8 && fits(8) => few(FEW_FILE, "rotate_and_attend_8", true, 8, 8, 1),
        true if pairs <= 16 && fits(16) => {
            // In clusters of 8, at most as many blocks as multiprocessors: one request. With small
            // heads that selects the variant that runs next to other blocks, with large heads the
            // other one.
            let few_blocks = 16 * together <= multiprocessors;
            let shares = few_blocks == (head_dim <= MOST_IN_HALF);
            few(FEW_FILE, if shares { "rotate_and_attend_16_beside" } else { "rotate_and_attend_16" }, true, 16, 8, 1)
        }
        // A block of two teams leaves no room for blocks of the preceding rotation, which costs
        // time with a single request: in clusters of 8, at most as many blocks as multiprocessors.
        _ if wide
            && pairs > 16
            && head_dim == TWO_TEAMS_HEAD_DIM
            && 8 * together * pairs.div_ceil(64) > multiprocessors =>
        {
            by_two
        }
        // More groups than multiprocessors: as many blocks as run at once, with warp groups if
        // available, which have more bytes in flight.
        _ if wide && (pairs > 16 || fits_resident(by_group.pairs, by_group.resident)) => by_group,
        // Or smaller blocks: independent ones, with more L1 cache for data in flight, or with
        // separate tiles.
        true if pairs <= 8 => few(ALONE_FILE, "attention_alone_8", false, 8, 3, 0),
        true if pairs <= 16 => tiles("attention_tiles_16", 16, 2, 4),
        true if fits(16) => few(FEW_FILE, "attention_few_16", false, 16, 8, 1),
        _ if pairs <= 32 || fits(32) => tiles("attention_tiles_32", 32, 4, 3),
        _ if pairs <= 64 || fits(64) => tiles("attention_tiles_64", 64, 4, 3),
        _ => tiles("attention_tiles_128", 128, 8, 2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_blocks_of_small_heads_and_many_of_large_ones_stand_next_to_others() {
        // Pairs of a group, requests with 8 key/value heads, and head size, on an H200.
        for (pairs, requests, head_dim, expected) in [
            (16, 1, 64, "rotate_and_attend_16_beside"),
            (16, 2, 64, "rotate_and_attend_16"),
            (16, 1, 96, "rotate_and_attend_16"),
            (16, 1, 128, "rotate_and_attend_16"),
            (16, 2, 128, "rotate_and_attend_16_beside"),
            (8, 1, 64, "rotate_and_attend_8"),
            (16, 17, 64, "attention_wide"),
            (17, 1, 64, "attention_wide"),
            (128, 1, 64, "attention_wide"),
            (240, 1, 64, "attention_wide_by_two"),
            (128, 8, 64, "attention_wide_by_two"),
            (128, 8, 128, "attention_wide"),
        ] {
            let name = choose(pairs, requests * 8, head_dim, 132, Variant { wide: true, fp8: false }).name;
            assert_eq!(name, expected, "{pairs} pairs of {requests} requests, heads of {head_dim}");
        }
    }
}
