//! Sequences, trees and rows for the checks of the kernels that lay out passes.

use super::{Numbers, text};
use crate::{
    device::{Buffer, Device},
    launch::{PassRows, Sequences, TreeNodes},
};

/// Sequences on pages in random order, and a batch of some of them with padding.
pub(super) struct Situation {
    pub slots: usize,
    pub page_size: usize,
    pub table_width: usize,
    pub length: Vec<i32>,
    pub root: Vec<i32>,
    pub page_table: Vec<i32>,
    pub batch_slot: Vec<i32>,
    pub cache_rows: usize,
}

/// A situation on the device.
pub(super) struct Uploaded {
    pub length: Buffer,
    pub root: Buffer,
    pub page_table: Buffer,
    pub batch_slot: Buffer,
}

/// The rows of a pass on the device, poisoned so that values a kernel does not write are detected.
pub(super) struct RowBuffers {
    buffers: [Buffer; 7],
    own_stride: usize,
    rows: usize,
}

/// The rows of a pass, on the host.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RowValues {
    pub token: Vec<i32>,
    pub position: Vec<i32>,
    pub write: Vec<i32>,
    pub slot: Vec<i32>,
    pub prefix: Vec<i32>,
    pub own: Vec<Vec<i32>>,
}

impl Situation {
    /// `batch` requests, some of them padding, with room for `ahead` further positions each. With
    /// `ahead` 0 some have reached the end of their pages.
    pub fn new(numbers: &mut Numbers, batch: usize, ahead: usize) -> Self {
        let slots = batch + numbers.below(4) + 1;
        let page_size = [1, 2, 16, 64][numbers.below(4)];
        let longest = 70;
        let table_width = (longest + ahead).div_ceil(page_size);
        let pages = numbers.shuffled(slots * table_width);
        let mut length: Vec<i32> = (0..slots).map(|_| numbers.below(longest + 1) as i32).collect();
        let mut order = numbers.shuffled(slots - 1);
        let dummy = slots as i32 - 1;
        length[slots - 1] = 0;
        order.resize(batch.max(order.len()), dummy);
        let mut batch_slot = order[..batch].to_vec();
        // Padding may be anywhere, not only at the end.
        for slot in &mut batch_slot {
            if numbers.below(7) == 0 {
                *slot = dummy;
            }
        }
        let root = (0..slots).map(|_| numbers.below(1000) as i32).collect();
        let cache_rows = pages.len() * page_size;
        Self { slots, page_size, table_width, length, root, page_table: pages, batch_slot, cache_rows }
    }

    pub fn upload(&self, device: &Device) -> Result<Uploaded, String> {
        let upload = |values: &[i32]| device.upload(values).map_err(text);
        Ok(Uploaded {
            length: upload(&self.length)?,
            root: upload(&self.root)?,
            page_table: upload(&self.page_table)?,
            batch_slot: upload(&self.batch_slot)?,
        })
    }

    pub fn sequences<'a>(&self, uploaded: &'a Uploaded) -> Sequences<'a> {
        Sequences {
            slots: self.slots,
            length: uploaded.length.slice(),
            root: uploaded.root.slice(),
            page_table: uploaded.page_table.slice(),
            table_width: self.table_width,
            page_size: self.page_size,
        }
    }

    /// The slot of a request; `None` for padding.
    pub fn slot(&self, request: usize) -> Option<usize> {
        let slot = self.batch_slot[request] as usize;
        (slot + 1 < self.slots).then_some(slot)
    }

    pub fn dummy(&self) -> i32 {
        self.slots as i32 - 1
    }

    /// Number of positions that a slot's pages hold.
    pub fn limit(&self) -> i32 {
        (self.table_width * self.page_size) as i32
    }

    /// The cache row of a position; −1 after the pages.
    pub fn cache_row(&self, slot: usize, position: i32) -> i32 {
        if position >= self.limit() {
            return -1;
        }
        let (position, page_size) = (position as usize, self.page_size);
        self.page_table[slot * self.table_width + position / page_size] * page_size as i32
            + (position % page_size) as i32
    }
}

impl RowBuffers {
    pub fn new(device: &Device, rows: usize, own_stride: usize) -> Result<Self, String> {
        let buffer = |values: usize| poisoned(device, values);
        let buffers = [
            buffer(rows)?,
            buffer(rows)?,
            buffer(rows)?,
            buffer(rows)?,
            buffer(rows)?,
            buffer(rows)?,
            buffer(rows * own_stride)?,
        ];
        Ok(Self { buffers, own_stride, rows })
    }

    pub fn operand(&self) -> PassRows<'_> {
        let [token, position, write, slot, prefix, own_count, own] = self.buffers.each_ref().map(Buffer::slice);
        PassRows { token, position, write, slot, prefix, own_count, own, own_stride: self.own_stride }
    }

    pub fn download(&self, device: &Device) -> Result<RowValues, String> {
        let [token, position, write, slot, prefix, own_count, own] =
            self.buffers.each_ref().map(|buffer| ints(device, buffer));
        let (own_count, own) = (own_count?, own?);
        let own = (0..self.rows)
            .map(|row| {
                let count = own_count[row];
                if count < 0 || count as usize > self.own_stride {
                    return Err(format!("row {row} sees {count} own rows"));
                }
                Ok(own[row * self.own_stride..][..count as usize].to_vec())
            })
            .collect::<Result<_, _>>()?;
        Ok(RowValues { token: token?, position: position?, write: write?, slot: slot?, prefix: prefix?, own })
    }
}

/// A buffer filled with a value that no kernel writes.
pub(super) fn poisoned(device: &Device, values: usize) -> Result<Buffer, String> {
    let buffer = device.allocate(values * 4).map_err(text)?;
    device.fill(buffer.slice(), 0xA5).map_err(text)?;
    Ok(buffer)
}

pub(super) fn ints(device: &Device, buffer: &Buffer) -> Result<Vec<i32>, String> {
    device.download(buffer.slice()).map_err(text)
}

pub(super) fn same<N: PartialEq + std::fmt::Debug>(what: &str, found: &[N], expected: &[N]) -> Result<(), String> {
    match found.iter().zip(expected).position(|(found, expected)| found != expected) {
        None if found.len() == expected.len() => Ok(()),
        None => Err(format!("{what}: {} values, expected {}", found.len(), expected.len())),
        Some(at) => Err(format!("{what}: value {at} is {:?}, expected {:?}", found[at], expected[at])),
    }
}

pub(super) fn same_rows(what: &str, found: &RowValues, expected: &RowValues) -> Result<(), String> {
    same(&format!("{what}, slot"), &found.slot, &expected.slot)?;
    same(&format!("{what}, token"), &found.token, &expected.token)?;
    same(&format!("{what}, position"), &found.position, &expected.position)?;
    same(&format!("{what}, write"), &found.write, &expected.write)?;
    same(&format!("{what}, prefix"), &found.prefix, &expected.prefix)?;
    same(&format!("{what}, own rows"), &found.own, &expected.own)
}

pub(super) fn tree_operand(buffers: &[Buffer; 4], nodes: usize) -> TreeNodes<'_> {
    let [token, parent, depth, score] = buffers.each_ref().map(Buffer::slice);
    TreeNodes { nodes, token, parent, depth, score }
}

/// Compares the columns of trees: tokens, parents, depths, bits of scores.
pub(super) fn same_tree(
    device: &Device,
    what: &str,
    found: &[Buffer; 4],
    expected: &[Vec<i32>; 4],
) -> Result<(), String> {
    let columns = ["token", "parent", "depth", "score"].iter().zip(found.iter().zip(expected));
    columns.into_iter().try_for_each(|(name, (found, expected))| {
        same(&format!("{what}, node {name}"), &ints(device, found)?, expected)
    })
}

pub(super) fn empty_rows() -> RowValues {
    let none = Vec::new;
    RowValues { token: none(), position: none(), write: none(), slot: none(), prefix: none(), own: Vec::new() }
}

pub(super) fn push_padding(rows: &mut RowValues, situation: &Situation, token: i32) {
    rows.token.push(token);
    rows.position.push(0);
    rows.write.push(-1);
    rows.slot.push(situation.dummy());
    rows.prefix.push(0);
    rows.own.push(Vec::new());
}

/// Adds the rows that verify a tree of a request: `nodes` are (token, parent, depth, bits of the
/// score), parents before their children.
pub(super) fn push_tree(rows: &mut RowValues, situation: &Situation, request: usize, nodes: &[[i32; 4]]) {
    for (node, [token, _, depth, _]) in nodes.iter().enumerate() {
        let Some(slot) = situation.slot(request) else {
            push_padding(rows, situation, *token);
            // A padding request keeps its depths: only the rotary table lookup reads its positions.
            let last = rows.position.len() - 1;
            rows.position[last] = *depth;
            continue;
        };
        let length = situation.length[slot];
        let parent = |at: &usize| usize::try_from(nodes[*at][1]).ok();
        let mut path: Vec<i32> = std::iter::successors(Some(node), parent)
            .map(|at| situation.cache_row(slot, length + at as i32).max(0))
            .collect();
        path.reverse();
        rows.token.push(*token);
        rows.position.push(length + depth);
        rows.write.push(situation.cache_row(slot, length + node as i32));
        rows.slot.push(slot as i32);
        rows.prefix.push(length);
        rows.own.push(path);
    }
}
