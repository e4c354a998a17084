//! Sums and gathers over the ranks of a group: `cuda/ranks.cu`.

use super::{Added, Kernels, RmsNorm, Rows, address, elementwise::NO_ROWS, int, line};
use crate::device::{Arg, DeviceError, Element, KernelFile, Mail, Slice, Split};

pub(super) const FILE: KernelFile =
    KernelFile { name: "ranks.cu", text: include_str!("../../cuda/ranks.cu"), split: Split::Shared };

/// Threads of a block.
const THREADS: usize = 256;
/// Consecutive elements per thread.
const UNIT: usize = 4;
/// Maximum number of rows that are summed and normed in one kernel: more keep the device busy in
/// two.
const MOST_NORMED_ROWS: usize = 32;
/// Maximum number of elements of such a row: two units for each of 1,024 threads.
const MOST_NORMED_WIDTH: usize = 8192;

/// Logits that are split over ranks by token: see [`Kernels::gather_ranks`].
#[derive(Clone, Copy, Debug)]
pub struct Gathered<'a> {
    /// Float `[rows, vocabulary]`: logits of all tokens.
    pub out: Slice<'a>,
    /// Float `[rows, part]`: logits of this rank's tokens.
    pub own: Slice<'a>,
    /// Tokens per rank: from `rank · part` on, or the last ones.
    pub part: usize,
    /// Number of all tokens.
    pub vocabulary: usize,
    /// Number of rows.
    pub rows: usize,
}

impl Kernels {
    /// The sum of partial results over the ranks of a group, in rank order, rounded once per rank
    /// and once at the end: `out` has the same bits on each rank. All ranks call it in the same
    /// order with the same sizes.
    ///
    /// # Errors
    /// When a buffer is too short, rows are not in whole accesses, or the device fails.
    pub fn sum_ranks(
        &self,
        mail: &Mail,
        out: Rows<'_>,
        add: Added<'_>,
        rows: usize,
        width: usize,
    ) -> Result<(), DeviceError> {
        self.check_rows(out, rows, width)?;
        let (add, parts, count) = self.own_part(add, rows, width)?;
        let lines = if self.element == Element::F32 { 2 } else { 1 };
        let together = mail.capacity() / lines / (width / UNIT);
        if together == 0 {
            return Err(DeviceError::Shape(format!("rows of {width} elements are too long for a mailbox")));
        }
        let kernel = self.kernel(FILE, "sum_ranks")?;
        let bytes = self.element.bytes();
        for first in (0..rows).step_by(together) {
            let count_here = together.min(rows - first);
            let from = |rows: Rows<'_>| Arg::Address(rows.at.address() + (first * rows.stride * bytes) as u64);
            let own = [
                from(out),
                int(out.stride),
                if count == 0 { from(add) } else { address(Slice::NONE) },
                int(add.stride),
                Arg::Address(if count == 0 { 0 } else { parts.address() + (first * width * 4) as u64 }),
                int(count),
                Arg::Long((rows * width) as u64),
                int(width),
                int(count_here),
            ];
            let blocks = (count_here * width / UNIT).div_ceil(THREADS);
            // SAFETY: lengths are checked above, rows from `first` on are within them; mailboxes
            // hold `capacity` lines of each rank.
            unsafe { self.device.launch(&kernel, line(blocks, THREADS as u32), &[&own[..], &group(mail)].concat())? };
        }
        Ok(())
    }

    /// Whether [`sum_ranks_norm`](Self::sum_ranks_norm) supports this many rows of a width, and is
    /// faster than two kernels.
    pub fn suits_sum_and_norm(&self, mail: &Mail, rows: usize, width: usize) -> bool {
        let lines = if self.element == Element::F32 { 2 } else { 1 };
        let fits = rows * width / UNIT * lines <= mail.capacity();
        fits && rows <= MOST_NORMED_ROWS && width <= MOST_NORMED_WIDTH && width.is_multiple_of(self.vector())
    }

    /// [`sum_ranks`](Self::sum_ranks) and [`rms_norm`](Self::rms_norm) of the sum in one kernel:
    /// `add` of the norm is this rank's part. Sums of squares have a separate order.
    ///
    /// # Errors
    /// When a buffer is too short, rows do not [suit](Self::suits_sum_and_norm), `add` is `None`,
    /// or the device fails.
    pub fn sum_ranks_norm(&self, mail: &Mail, norm: RmsNorm<'_>) -> Result<(), DeviceError> {
        let RmsNorm { out, stream, add, weight, keep, source, rows, width, epsilon } = norm;
        let (Some(add), None, true) = (add, source, self.suits_sum_and_norm(mail, rows, width)) else {
            return Err(DeviceError::Shape(format!(
                "{rows} rows of {width} elements are not summed and normed at once"
            )));
        };
        for rows_of in [Some(out), Some(stream), keep].into_iter().flatten() {
            self.check_rows(rows_of, rows, width)?;
        }
        weight.check(width * self.element.bytes())?;
        let (add, parts, count) = self.own_part(add, rows, width)?;
        let keep = keep.unwrap_or(NO_ROWS);
        let own = [
            address(out.at),
            int(out.stride),
            address(stream.at),
            int(stream.stride),
            address(weight),
            address(keep.at),
            int(keep.stride),
            Arg::Float(epsilon),
            address(add.at),
            int(add.stride),
            address(parts),
            int(count),
            Arg::Long((rows * width) as u64),
            int(width),
        ];
        let kernel = self.kernel(FILE, "sum_ranks_norm")?;
        let threads = (width / UNIT).next_multiple_of(32).min(MOST_NORMED_WIDTH / UNIT / 2) as u32;
        // SAFETY: lengths are checked above; mailboxes hold `capacity` lines of each rank.
        unsafe { self.device.launch(&kernel, line(rows, threads), &[&own[..], &group(mail)].concat()) }
    }

    /// This rank's part of a sum: rows, or parts and their number.
    fn own_part<'a>(
        &self,
        add: Added<'a>,
        rows: usize,
        width: usize,
    ) -> Result<(Rows<'a>, Slice<'a>, usize), DeviceError> {
        match add {
            Added::Rows(add) => {
                self.check_rows(add, rows, width)?;
                Ok((add, Slice::NONE, 0))
            }
            Added::Parts(parts) => {
                parts.at.check(parts.count * rows * width * 4)?;
                Ok((NO_ROWS, parts.at, parts.count))
            }
        }
    }

    /// Gathers whole rows of logits, of which each rank has some tokens. All ranks call it in the
    /// same order with the same sizes.
    ///
    /// # Errors
    /// When a buffer is too short, parts do not cover the vocabulary, or the device fails.
    pub fn gather_ranks(&self, mail: &Mail, logits: Gathered<'_>) -> Result<(), DeviceError> {
        let Gathered { out, own, part, vocabulary, rows } = logits;
        out.check(rows * vocabulary * 4)?;
        own.check(rows * part * 4)?;
        if !part.is_multiple_of(2) || part > vocabulary || part * mail.ranks() < vocabulary {
            let ranks = mail.ranks();
            return Err(DeviceError::Shape(format!("{ranks} ranks with {part} of {vocabulary} tokens each")));
        }
        let kernel = self.kernel(FILE, "gather_ranks")?;
        let units = rows * part / 2;
        // A mailbox holds this many lines of each rank at a time.
        for first in (0..units).step_by(mail.capacity()) {
            let count = mail.capacity().min(units - first);
            let own = [address(out), address(own), int(part), int(vocabulary), int(rows), Arg::Long(first as u64)];
            let geometry = line(count.div_ceil(THREADS), THREADS as u32);
            // SAFETY: lengths are checked above; the kernel stays within rows, tokens and the lines
            // of a mailbox.
            unsafe { self.device.launch(&kernel, geometry, &[&own[..], &group(mail)].concat())? };
        }
        Ok(())
    }
}

/// A group as kernel arguments.
fn group(mail: &Mail) -> [Arg; 7] {
    [
        address(mail.addresses()),
        address(mail.state()),
        address(mail.alarm().words()),
        int(mail.rank()),
        int(mail.ranks()),
        int(mail.capacity()),
        int(mail.patience()),
    ]
}
