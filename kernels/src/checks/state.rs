//! Updates of the requests' state, compared with the same assignments on the host.

use super::{
    Numbers,
    layout::{ints, same},
    text,
};
use crate::{
    device::{Device, Element},
    launch::{Kernels, NOT_FINITE},
};

/// Puts the first tokens of some pieces into rows and updates, and sets the state of all of them.
pub fn check_state(device: &Device) -> Result<(), String> {
    let mut numbers = Numbers::new(61);
    for (pieces, slots) in [(1, 1), (3, 8), (64, 64), (130, 300)] {
        check_one(device, &mut numbers, pieces, slots)?;
    }
    Ok(())
}

fn check_one(device: &Device, numbers: &mut Numbers, pieces: usize, slots: usize) -> Result<(), String> {
    let what = format!("{pieces} pieces of {slots} slots");
    let kernels = Kernels::new(device.clone(), Element::F32);
    let upload = |values: &[i32]| device.upload(values).map_err(text);
    // Pieces of three rows; the tokens that follow some of them are chosen on the device, and one
    // of these is missing.
    let mut token: Vec<i32> = (0..3 * pieces as i32).map(|row| 1000 + row).collect();
    let mut update: Vec<i32> = Vec::new();
    for piece in 0..pieces {
        // A negative length leaves a slot as it is.
        let length = if numbers.below(5) == 0 { -1 } else { numbers.below(1000) as i32 };
        update.extend([(slots - 1 - piece) as i32, length, 7]);
    }
    let ends: Vec<usize> = (0..pieces).filter(|piece| *piece == 0 || numbers.below(3) > 0).collect();
    let place: Vec<i32> = ends.iter().flat_map(|piece| [3 * *piece as i32 + 2, 3 * *piece as i32 + 2]).collect();
    let missing = numbers.below(ends.len());
    let chosen = |at: usize| if at == missing { NOT_FINITE } else { 1 + 10 * at as i32 };
    let chosen: Vec<i32> = (0..ends.len()).map(chosen).collect();

    let (rows, updates, places, given) = (upload(&token)?, upload(&update)?, upload(&place)?, upload(&chosen)?);
    let (mut length, mut root) = (vec![-5; slots], vec![-6; slots]);
    let (lengths, roots) = (upload(&length)?, upload(&root)?);
    kernels
        .put_first(rows.slice(), updates.slice(), places.slice(), given.slice(), ends.len())
        .and_then(|()| kernels.set_state(lengths.slice(), roots.slice(), updates.slice(), pieces))
        .map_err(text)?;

    for (piece, id) in ends.iter().zip(&chosen) {
        token[3 * piece + 2] = (*id).max(0);
        update[3 * piece + 2] = (*id).max(0);
    }
    for of_piece in update.chunks_exact(3).filter(|of_piece| of_piece[1] >= 0) {
        length[of_piece[0] as usize] = of_piece[1];
        root[of_piece[0] as usize] = of_piece[2];
    }
    same(&format!("{what}, tokens"), &ints(device, &rows)?, &token)?;
    same(&format!("{what}, updates"), &ints(device, &updates)?, &update)?;
    same(&format!("{what}, lengths"), &ints(device, &lengths)?, &length)?;
    same(&format!("{what}, roots"), &ints(device, &roots)?, &root)
}
