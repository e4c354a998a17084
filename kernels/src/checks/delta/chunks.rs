//! Prompts and trees in chunks, against the recurrence.

use std::ops::Range;

use super::{Numbers, SIZES, SLOTS, World, compare, text, tolerance, tree, values};
use crate::{
    device::{Device, Element, Slice},
    launch::{
        DELTA_CHUNK, DeltaChunks, DeltaOrder, DeltaPass, DeltaSteps, Groups, delta_chunk_bytes, has_delta_chunks,
    },
    reference::{DeltaSizes, delta_history, delta_rule},
};

/// The error of states, whose products split numbers into two of 2 bytes.
const STATES: f32 = 3e-4;
const LAYER: usize = 1;

/// Rows of a sequence in a pass.
#[derive(Clone, Debug)]
struct Piece {
    slot: usize,
    /// The position of the first row.
    start: usize,
    /// Rows of the [`World`].
    rows: Range<usize>,
}

/// Pieces of prompts that begin and end anywhere, together; the bits of one that is divided at
/// multiples of a chunk; and trees and chains whose states stay as they are.
pub fn check_delta_chunks(device: &Device, element: Element) -> Result<(), String> {
    let mut numbers = Numbers::new(74);
    for sizes in SIZES {
        if has_delta_chunks(element, &sizes, device.properties()) {
            check_pieces(device, element, sizes, &mut numbers)?;
            for nodes in [1, 9, 16, 19, 33, DELTA_CHUNK] {
                check_trees(device, element, sizes, (nodes, true), &mut numbers)?;
            }
            for nodes in [4, 17] {
                check_trees(device, element, sizes, (nodes, false), &mut numbers)?;
            }
        }
    }
    Ok(())
}

fn check_pieces(device: &Device, element: Element, sizes: DeltaSizes, numbers: &mut Numbers) -> Result<(), String> {
    let lengths = [(2, 128, 150), (0, 40, 90), (SLOTS - 1, 64, 3), (1, 63, 2)];
    let mut pieces: Vec<Piece> = Vec::new();
    for (slot, start, length) in lengths {
        let from = pieces.last().map_or(0, |piece| piece.rows.end);
        pieces.push(Piece { slot, start, rows: from..from + length });
    }
    let world = World::new(device, element, sizes, pieces[pieces.len() - 1].rows.end, numbers)?;
    let found = run(&world, &pieces)?;
    let (mut matrices, mut histories) = (world.matrices.clone(), world.histories.clone());
    let width = sizes.value_width();
    for Piece { slot, rows, .. } in &pieces {
        let found = &found[rows.start * width..rows.end * width];
        if *slot == SLOTS - 1 {
            compare("delta_chunks of padding", found, &vec![0.0; found.len()], 0.0)?;
            continue;
        }
        let parents: Vec<Option<usize>> = (0..rows.len()).map(|row| row.checked_sub(1)).collect();
        let read = world.read(LAYER, *slot, rows.clone(), &parents);
        let expected = delta_rule(&sizes, &read, &parents, &mut matrices[world.matrix(LAYER, *slot)], true);
        compare("delta_chunks of a piece", found, &expected, tolerance(element))?;
        let all: Vec<usize> = (0..rows.len()).collect();
        delta_history(&sizes, &world.mixed(LAYER, rows.clone()), &all, &mut histories[world.history(LAYER, *slot)]);
    }
    let after = world.found_matrices()?;
    compare("states after chunks", &after, &matrices, STATES)?;
    compare("histories after chunks", &world.found_histories()?, &histories, 0.0)?;

    // Row by row the sums are those of the sequence, not of the piece.
    world.reset()?;
    let Piece { slot, start, rows } = &pieces[0];
    for part in [0..DELTA_CHUNK, DELTA_CHUNK..2 * DELTA_CHUNK, 2 * DELTA_CHUNK..rows.len()] {
        let own =
            Piece { slot: *slot, start: start + part.start, rows: rows.start + part.start..rows.start + part.end };
        let expected = &found[own.rows.start * width..own.rows.end * width];
        compare("a piece divided between chunks", &run(&world, &[own])?, expected, 0.0)?;
    }
    let own = world.matrix(LAYER, *slot);
    compare("the state after a divided piece", &world.found_matrices()?[own.clone()], &after[own], 0.0)
}

/// Trees of as many nodes, some of which do not exist and hold NaN, or chains.
fn check_trees(
    device: &Device,
    element: Element,
    sizes: DeltaSizes,
    (nodes, is_tree): (usize, bool),
    numbers: &mut Numbers,
) -> Result<(), String> {
    let (slots, width) = ([1_usize, SLOTS - 1, 0], sizes.value_width());
    let mut world = World::new(device, element, sizes, slots.len() * nodes, numbers)?;
    let chain = || (0..nodes as i32).map(|node| node - 1).collect();
    let trees: Vec<Vec<i32>> = slots.iter().map(|_| if is_tree { tree(numbers, nodes) } else { chain() }).collect();
    let absent = |row: &usize| !row.is_multiple_of(nodes) && trees[row / nodes][row % nodes] < 0;
    world.spoil(LAYER, (0..slots.len() * nodes).filter(absent))?;
    let upload = |values: Vec<i32>| device.upload(&values).map_err(text);
    let parent = upload(trees.concat())?;
    let row_slot = upload(slots.iter().flat_map(|slot| vec![*slot as i32; nodes]).collect())?;
    let bytes = delta_chunk_bytes(element, &sizes, slots.len() * nodes, slots.len());
    let [matrices, factors] = bytes.map(|bytes| device.allocate(bytes).map_err(text));
    let [matrices, factors] = [matrices?, factors?];
    let out = device.allocate(slots.len() * nodes * width * element.bytes()).map_err(text)?;
    // Chunks have no steps.
    let steps = DeltaSteps { at: Slice::NONE, stride: 0, parent: parent.slice(), nodes, levels: 0 };
    let pass = DeltaPass {
        sizes,
        layer: LAYER,
        inputs: world.inputs(LAYER),
        groups: Groups::Even(nodes),
        row_slot: row_slot.slice(),
        order: if is_tree { DeltaOrder::Tree(steps) } else { DeltaOrder::Chain { writes: false } },
    };
    let chunks = DeltaChunks { matrices: matrices.slice(), factors: factors.slice(), position: Slice::NONE };
    world.kernels.delta_chunks(out.slice(), pass, chunks, world.weights(), world.states()).map_err(text)?;
    let found = values(device, out.slice(), element)?;
    for (request, slot) in slots.into_iter().enumerate() {
        let own = request * nodes..(request + 1) * nodes;
        let found = &found[own.start * width..own.end * width];
        if slot == SLOTS - 1 {
            compare("delta_chunks of a padding tree", found, &vec![0.0; found.len()], 0.0)?;
            continue;
        }
        let parents: Vec<Option<usize>> = trees[request].iter().map(|parent| usize::try_from(*parent).ok()).collect();
        let read = world.read(LAYER, slot, own, &parents);
        let mut matrix = world.matrices[world.matrix(LAYER, slot)].to_vec();
        let mut expected = delta_rule(&sizes, &read, &parents, &mut matrix, false);
        let missing = (1..nodes).filter(|node| parents[*node].is_none());
        missing.for_each(|node| expected[node * width..(node + 1) * width].fill(0.0));
        compare(&format!("delta_chunks of a tree of {nodes}"), found, &expected, tolerance(element))?;
    }
    compare("states after trees in chunks", &world.found_matrices()?, &world.matrices, 0.0)
}

/// The outputs of the rows of pieces that follow each other.
fn run(world: &World, pieces: &[Piece]) -> Result<Vec<f32>, String> {
    let World { element, kernels, sizes, .. } = world;
    let device = kernels.device();
    let (begin, end) = (pieces[0].rows.start, pieces[pieces.len() - 1].rows.end);
    let upload = |values: Vec<i32>| device.upload(&values).map_err(text);
    let first = pieces.iter().map(|piece| piece.rows.start - begin).chain([end - begin]);
    let first = upload(first.map(|row| row as i32).collect())?;
    let slots = pieces.iter().flat_map(|piece| vec![piece.slot as i32; piece.rows.len()]);
    let row_slot = upload(slots.collect())?;
    let positions = pieces.iter().flat_map(|piece| (piece.start..).zip(piece.rows.clone()));
    let position = upload(positions.map(|(position, _)| position as i32).collect())?;
    let bytes = delta_chunk_bytes(*element, sizes, end - begin, pieces.len());
    let [matrices, factors] = bytes.map(|bytes| device.allocate(bytes).map_err(text));
    let [matrices, factors] = [matrices?, factors?];
    let out = device.allocate((end - begin) * sizes.value_width() * element.bytes()).map_err(text)?;
    let chunks = DeltaChunks { matrices: matrices.slice(), factors: factors.slice(), position: position.slice() };
    let pass = DeltaPass {
        sizes: *sizes,
        layer: LAYER,
        inputs: world.inputs_from(LAYER, begin..end),
        groups: Groups::Ranges {
            first: first.slice(),
            count: pieces.len(),
            largest: pieces.iter().map(|piece| piece.rows.len()).max().unwrap_or_default(),
        },
        row_slot: row_slot.slice(),
        order: DeltaOrder::Chain { writes: true },
    };
    kernels.delta_chunks(out.slice(), pass, chunks, world.weights(), world.states()).map_err(text)?;
    kernels.delta_continue(pass, world.states()).map_err(text)?;
    values(device, out.slice(), *element)
}
