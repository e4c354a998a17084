//! The draft's pending rows, compared with a list of tokens by position.

use super::{
    Numbers,
    layout::{RowBuffers, Situation, empty_rows, ints, poisoned, push_padding, same, same_rows},
    text,
};
use crate::{
    device::{Device, Element},
    launch::{Kernels, PendingRows, PendingTokens},
};

/// Keeps tokens round by round and reads them together.
pub fn check_pending(device: &Device) -> Result<(), String> {
    let mut numbers = Numbers::new(47);
    for (batch, depth) in [(1, 1), (2, 5), (9, 32), (70, 3)] {
        check_one(device, &mut numbers, batch, depth)?;
    }
    Ok(())
}

fn check_one(device: &Device, numbers: &mut Numbers, batch: usize, depth: usize) -> Result<(), String> {
    let what = format!("pending tokens of {batch} requests, {depth} places each");
    let kernels = Kernels::new(device.clone(), Element::F32);
    let mut situation = Situation::new(numbers, batch, depth);
    let mut counts = vec![0; situation.slots];
    let ring = poisoned(device, situation.slots * depth)?;
    let pending = PendingTokens { tokens: ring.slice(), depth };
    let upload = |values: &[i32]| device.upload(values).map_err(text);
    // Rounds of changing batches, each of which leaves a token per request; the token is a function
    // of slot and position.
    let token = |slot: usize, position: i32| slot as i32 * 1000 + position;
    for _ in 0..2 * depth {
        let members: Vec<usize> =
            (0..situation.slots - 1).filter(|slot| counts[*slot] < depth && numbers.below(3) > 0).collect();
        let mut rows = [Vec::new(), Vec::new(), Vec::new()];
        let mut places = Vec::new();
        for slot in &members {
            let position = situation.length[*slot];
            rows[0].push(token(*slot, position));
            rows[1].push(position);
            rows[2].push(*slot as i32);
            places.push((slot * depth + position as usize % depth) as i32);
            situation.length[*slot] += 1;
            counts[*slot] += 1;
        }
        // Padding writes to the ring of the dummy slot, which is never read.
        rows[0].push(7);
        rows[1].push(0);
        rows[2].push(situation.dummy());
        places.push(situation.dummy() * depth as i32);
        let [tokens, positions, slots] = [upload(&rows[0])?, upload(&rows[1])?, upload(&rows[2])?];
        let layout = RowBuffers::new(device, places.len(), 1)?;
        let (count, place) = (places.len(), poisoned(device, places.len())?);
        let mut operand = layout.operand();
        (operand.token, operand.position, operand.slot) = (tokens.slice(), positions.slice(), slots.slice());
        kernels.keep_pending(pending, situation.slots, operand, place.slice(), count).map_err(text)?;
        same(&format!("{what}, places"), &ints(device, &place)?, &places)?;
    }

    let late: Vec<usize> = (0..situation.slots - 1).filter(|slot| counts[*slot] > 0).collect();
    let uploaded = situation.upload(device)?;
    let column = |of: &dyn Fn(usize) -> usize| late.iter().map(|slot| of(*slot) as i32).collect::<Vec<_>>();
    let (batch_slot, given) = (upload(&column(&|slot| slot))?, upload(&column(&|slot| counts[slot]))?);
    let most = late.iter().map(|slot| counts[*slot]).max().unwrap_or_default();
    let layout = RowBuffers::new(device, late.len() * most, 1)?;
    let (row_source, last_row) = (poisoned(device, late.len() * most)?, poisoned(device, late.len())?);
    let reading = PendingRows {
        batch: late.len(),
        most,
        batch_slot: batch_slot.slice(),
        pending: given.slice(),
        rows: layout.operand(),
        row_source: row_source.slice(),
        last_row: last_row.slice(),
    };
    kernels.pending_rows(reading, pending, situation.sequences(&uploaded)).map_err(text)?;
    let (mut expected, mut sources, mut lasts) = (empty_rows(), Vec::new(), Vec::new());
    for (at, slot) in late.iter().enumerate() {
        let start = situation.length[*slot] - counts[*slot] as i32;
        for i in 0..most {
            let position = start + i.min(counts[*slot] - 1) as i32;
            sources.push((slot * depth + position as usize % depth) as i32);
            if i >= counts[*slot] {
                push_padding(&mut expected, &situation, token(*slot, position));
                continue;
            }
            expected.token.push(token(*slot, position));
            expected.position.push(position);
            expected.write.push(situation.cache_row(*slot, position));
            expected.slot.push(*slot as i32);
            expected.prefix.push(position + 1);
            expected.own.push(Vec::new());
        }
        lasts.push((at * most + counts[*slot] - 1) as i32);
    }
    same_rows(&what, &layout.download(device)?, &expected)?;
    same(&format!("{what}, sources"), &ints(device, &row_source)?, &sources)?;
    same(&format!("{what}, last rows"), &ints(device, &last_row)?, &lasts)
}
