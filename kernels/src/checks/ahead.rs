//! Rows that move to the next position, compared with the same move on the host.

use super::{
    Numbers,
    layout::{RowBuffers, Situation, ints, poisoned, same},
    text,
};
use crate::{
    device::{Device, Element},
    launch::Kernels,
};

/// Moves rows of sequences, with and without their writes; some are padding and some are at the end
/// of their pages.
pub fn check_next_positions(device: &Device) -> Result<(), String> {
    let mut numbers = Numbers::new(53);
    for (batch, ahead) in [(1, 0), (7, 0), (64, 3), (70, 0), (129, 1)] {
        for writes in [false, true] {
            check_one(device, &mut numbers, batch, ahead, writes)?;
        }
    }
    Ok(())
}

fn check_one(device: &Device, numbers: &mut Numbers, batch: usize, ahead: usize, writes: bool) -> Result<(), String> {
    let what = format!("{batch} rows at the next position, writes {writes}");
    let kernels = Kernels::new(device.clone(), Element::F32);
    let situation = Situation::new(numbers, batch, ahead);
    let uploaded = situation.upload(device)?;
    let (mut before, mut after) = ([const { Vec::new() }; 4], [const { Vec::new() }; 3]);
    for request in 0..batch {
        let slot = situation.slot(request);
        let number = slot.map_or(situation.dummy(), |slot| slot as i32);
        let row = match slot {
            None => [0, 0, -1],
            // A position of the sequence's pages, sometimes the last.
            Some(slot) => {
                let position = situation.length[slot].min(situation.limit() - 1);
                [position, position + numbers.below(2) as i32, 1000 + request as i32]
            }
        };
        let moved = match slot {
            None => row,
            Some(slot) => {
                let write = if writes { situation.cache_row(slot, row[0] + 1) } else { row[2] };
                [row[0] + 1, (row[1] + 1).min(situation.limit()), write]
            }
        };
        row.iter().chain([&number]).zip(&mut before).for_each(|(value, column)| column.push(*value));
        moved.iter().zip(&mut after).for_each(|(value, column)| column.push(*value));
    }
    let upload = |values: &Vec<i32>| device.upload(values).map_err(text);
    let [position, prefix, write, slot] = before.each_ref().map(upload);
    let (position, prefix, write, slot) = (position?, prefix?, write?, slot?);
    let layout = RowBuffers::new(device, batch, 1)?;
    let mut rows = layout.operand();
    (rows.position, rows.prefix, rows.write, rows.slot) =
        (position.slice(), prefix.slice(), write.slice(), slot.slice());
    let token = poisoned(device, batch)?;
    rows.token = token.slice();
    kernels.next_positions(rows, situation.sequences(&uploaded), writes, batch).map_err(text)?;
    for (name, found, expected) in [("position", &position, 0), ("prefix", &prefix, 1), ("write", &write, 2)] {
        same(&format!("{what}, {name}"), &ints(device, found)?, &after[expected])?;
    }
    same(&format!("{what}, slot"), &ints(device, &slot)?, &before[3])
}
