//! Verification of some nodes of the trees: `cuda/inner.cu`.

use super::{AcceptInputs, Groups, Kernels, PassRows, Sequences, address, check_ints, int, line};
use crate::device::{DeviceError, KernelFile, Slice, Split};

pub(super) const FILE: KernelFile =
    KernelFile { name: "inner.cu", text: include_str!("../../cuda/inner.cu"), split: Split::Shared };

/// Threads of the block of `list_nodes`.
const LISTING_THREADS: u32 = 1024;
/// Rows per block of `pick_rows`, one per warp.
const PICKED_ROWS: usize = 4;

/// Nodes of trees, as [`Kernels::list_nodes`] lists them: int32 each.
#[derive(Clone, Copy, Debug)]
pub struct ListedNodes<'a> {
    /// The index of each node in the list, `[batch, nodes]`; −1 for nodes that are not listed.
    pub place: Slice<'a>,
    /// The list, `[capacity]`: rows of these nodes in a pass over all nodes; −1 after the last.
    pub row: Slice<'a>,
    /// The target's tokens after them, `[capacity]`.
    pub choice: Slice<'a>,
    /// The first list index of each request, then the total: `[batch + 1]`.
    pub first: Slice<'a>,
    /// Capacity of the list.
    pub capacity: usize,
}

/// The rows of a pass whose next tokens are chosen.
#[derive(Clone, Copy, Debug)]
pub struct ChosenRows<'a> {
    /// The rows.
    pub rows: PassRows<'a>,
    /// The positions of the tokens after them, int32 `[rows]`.
    pub sample_position: Slice<'a>,
}

/// Rows that are picked from a pass.
#[derive(Clone, Copy, Debug)]
pub struct Picked<'a> {
    /// The picked rows, int32 `[count]`; −1 for padding.
    pub row: Slice<'a>,
    /// Number of rows.
    pub count: usize,
    /// The token after each row of the pass if it is known, else −1, int32: rows with a known token
    /// are not picked. `None`: all are.
    pub known: Option<Slice<'a>>,
}

impl ListedNodes<'_> {
    pub(super) fn check(self, ways: AcceptInputs<'_>) -> Result<(), DeviceError> {
        check_ints(self.place, ways.batch * ways.tree.nodes)?;
        check_ints(self.first, ways.batch + 1)?;
        [self.row, self.choice].into_iter().try_for_each(|values| check_ints(values, self.capacity))
    }
}

impl<'a> ListedNodes<'a> {
    /// The list as groups of rows of a pass, at most `nodes` each.
    pub fn groups(self, batch: usize, nodes: usize) -> Groups<'a> {
        Groups::Ranges { first: self.first, count: batch, largest: nodes }
    }
}

impl ChosenRows<'_> {
    fn check(self, rows: usize) -> Result<(), DeviceError> {
        self.rows.check(rows, 1)?;
        check_ints(self.sample_position, rows)
    }
}

impl Kernels {
    /// Lists the nodes of all trees, or without `leaves` only those that have children; the
    /// likeliest of them if there are more than the capacity. The path to a listed node is listed
    /// too. Slots of the batch are trusted to exist.
    ///
    /// # Errors
    /// When a buffer is too short, the shape is too large, or the device fails.
    pub fn list_nodes(
        &self,
        ways: AcceptInputs<'_>,
        listed: ListedNodes<'_>,
        leaves: bool,
        sequences: Sequences<'_>,
    ) -> Result<(), DeviceError> {
        let AcceptInputs { batch, tree, batch_slot, .. } = ways;
        ways.check(sequences)?;
        check_ints(tree.score, batch * tree.nodes)?;
        listed.check(ways)?;
        let kernel = self.device.kernel(FILE, &[], "list_nodes")?;
        let mut arguments = [listed.place, listed.row, listed.first].map(address).to_vec();
        arguments.push(int(listed.capacity));
        arguments.extend([tree.parent, tree.score, batch_slot].map(address));
        arguments.extend([batch, tree.nodes, sequences.dummy(), usize::from(leaves)].map(int));
        // SAFETY: lengths are checked above; slots of the batch are the caller's promise.
        unsafe { self.device.launch(&kernel, line(1, LISTING_THREADS), &arguments) }
    }

    /// Lays out a pass over rows that are picked from another one of `rows` rows.
    ///
    /// # Errors
    /// When a buffer is too short, the two passes have different capacities for a row's own list,
    /// or the device fails.
    pub fn pick_rows(
        &self,
        to: ChosenRows<'_>,
        from: ChosenRows<'_>,
        rows: usize,
        picked: Picked<'_>,
        sequences: Sequences<'_>,
    ) -> Result<(), DeviceError> {
        let Picked { row, count, known } = picked;
        let own_stride = from.rows.own_stride;
        if count == 0 || to.rows.own_stride != own_stride {
            return Err(DeviceError::Shape(format!(
                "{count} rows with room for {} own cache rows cannot be picked from rows with room for {own_stride}",
                to.rows.own_stride
            )));
        }
        from.check(rows)?;
        to.check(count)?;
        check_ints(row, count)?;
        known.map_or(Ok(()), |known| check_ints(known, rows))?;
        let kernel = self.device.kernel(FILE, &[], "pick_rows")?;
        let mut arguments = [row, known.unwrap_or(Slice::NONE)].map(address).to_vec();
        arguments.extend([count, sequences.dummy(), own_stride].map(int));
        for ChosenRows { rows, sample_position } in [from, to] {
            arguments.extend(rows.causal());
            arguments.extend([rows.own, sample_position].map(address));
        }
        // SAFETY: lengths are checked above; that rows are within the pass, and their lists as long
        // as stated, is guaranteed by the kernels that have written them.
        unsafe { self.device.launch(&kernel, line(count.div_ceil(PICKED_ROWS), PICKED_ROWS as u32 * 32), &arguments) }
    }
}
