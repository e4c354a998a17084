//! Trees that the host has drafted, compared with their definition: the nodes that exist, and the
//! rows that verify them.

use super::{
    Numbers,
    layout::{RowBuffers, Situation, empty_rows, ints, poisoned, push_tree, same, same_rows, tree_operand},
    text,
    tree::{OwnBuffers, Turn, verified_own},
};
use crate::{
    device::{Device, Element},
    launch::{GivenTrees, HostTrees, Kernels, PlayedTrees, VerifyRows},
};

/// (token, parent, depth, bits of the score) of the nodes of a request, from the given tokens and
/// parents, and scores if there are any.
fn plain(root: i32, runs: bool, steps: usize, given: &[(i32, i32)], scores: Option<&[f32]>) -> Vec<[i32; 4]> {
    let mut nodes = vec![[root, -1, 0, 0]];
    for (at, (token, parent)) in given.iter().enumerate().skip(1) {
        let above = usize::try_from(*parent).ok().filter(|parent| runs && *parent < at);
        // Copies of the root have no parent, and no children.
        let above = above.filter(|parent| *parent == 0 || nodes[*parent][1] >= 0);
        let depth = above.map_or(0, |parent| nodes[parent][2] + 1);
        nodes.push(match above {
            Some(_) if depth as usize <= steps => {
                let score = scores.map_or(-depth as f32, |scores| scores[at]);
                [(*token).max(0), *parent, depth, score.to_bits() as i32]
            }
            _ => [root, -1, 0, f32::NEG_INFINITY.to_bits() as i32],
        });
    }
    nodes
}

fn check_trees(
    device: &Device,
    numbers: &mut Numbers,
    [steps, nodes, batch]: [usize; 3],
    style: usize,
) -> Result<(), String> {
    let kernels = Kernels::new(device.clone(), Element::F32);
    let what = format!("trees of the host, {nodes} nodes, depth {steps}, batch {batch}, style {style}");
    let ahead = if numbers.below(6) == 0 { 0 } else { nodes };
    let situation = Situation::new(numbers, batch, ahead);
    let uploaded = situation.upload(device)?;
    // Chains, trees, trees that end early, and numbers that are no trees.
    let given: Vec<(i32, i32)> = (0..batch * nodes)
        .map(|row| {
            let at = row % nodes;
            let end = if style == 2 { row / nodes % nodes + 1 } else { nodes };
            let parent = match style {
                0 => at as i32 - 1,
                3 => numbers.below(3 * nodes) as i32 - nodes as i32,
                _ if at >= end => -1,
                _ => numbers.below(at.max(1)) as i32,
            };
            (numbers.below(1000) as i32 - if style == 3 { 500 } else { 0 }, parent)
        })
        .collect();
    let column = |of: fn(&(i32, i32)) -> i32| device.upload(&given.iter().map(of).collect::<Vec<_>>()).map_err(text);
    let (token, parent) = (column(|one| one.0)?, column(|one| one.1)?);
    let has_scores = numbers.below(2) == 0;
    let scores: Vec<f32> = (0..batch * nodes).map(|_| -(numbers.below(1000) as f32) / 100.0).collect();
    let score = device.upload(&scores).map_err(text)?;
    let own_stride = steps + 1 + numbers.below(3);
    let node_buffer = || poisoned(device, batch * nodes);
    let buffers = [node_buffer()?, node_buffer()?, node_buffer()?, node_buffer()?];
    let rows = RowBuffers::new(device, batch * nodes, own_stride)?;
    let own = OwnBuffers::new(device, batch, nodes, own_stride)?;
    let wanted = numbers.below(4) > 0;
    let (sample_position, group_prefix) = (node_buffer()?, poisoned(device, batch)?);
    let turn = Turn::new(device, numbers)?;
    let verify = VerifyRows {
        sample_position: sample_position.slice(),
        group_prefix: Some(group_prefix.slice()),
        outputs: Some(turn.operand()),
    };
    let trees = HostTrees {
        batch,
        steps,
        batch_slot: uploaded.batch_slot.slice(),
        token: token.slice(),
        parent: parent.slice(),
        score: has_scores.then(|| score.slice()),
        own: wanted.then(|| own.operand()),
    };
    let tree = tree_operand(&buffers, nodes);
    kernels.host_trees(trees, situation.sequences(&uploaded), tree, rows.operand(), verify).map_err(text)?;

    let (mut columns, mut expected) = ([Vec::new(), Vec::new(), Vec::new(), Vec::new()], empty_rows());
    for (request, given) in given.chunks_exact(nodes).enumerate() {
        let root = situation.root[situation.batch_slot[request] as usize];
        let scores = has_scores.then(|| &scores[request * nodes..][..nodes]);
        let all = plain(root, situation.slot(request).is_some(), steps, given, scores);
        for values in &all {
            columns.iter_mut().zip(values).for_each(|(column, value)| column.push(*value));
        }
        push_tree(&mut expected, &situation, request, &all);
    }
    for (name, (buffer, expected)) in ["token", "parent", "depth", "score"].iter().zip(buffers.iter().zip(&columns)) {
        same(&format!("{what}, node {name}"), &ints(device, buffer)?, expected)?;
    }
    same_rows(&what, &rows.download(device)?, &expected)?;
    let positions: Vec<i32> = expected.position.iter().map(|position| position + 1).collect();
    same(&format!("{what}, sample position"), &ints(device, &sample_position)?, &positions)?;
    turn.check(device, &what)?;
    if wanted {
        own.check(device, &what, |request| verified_own(&situation, &columns[1], nodes, request))?;
    }
    Ok(())
}

/// Trees of texts that are played, for requests with and without a text, and padding.
pub fn check_play_trees(device: &Device) -> Result<(), String> {
    let mut numbers = Numbers::new(40);
    let kernels = Kernels::new(device.clone(), Element::F32);
    for [nodes, batch, positions] in [[2, 40, 3], [7, 3, 50], [128, 2, 9]] {
        let what = format!("played trees of {nodes} nodes, batch {batch}");
        let situation = Situation::new(&mut numbers, batch, nodes);
        let uploaded = situation.upload(device)?;
        let mut any = |count: usize| -> Vec<i32> { (0..count).map(|_| numbers.below(1000) as i32).collect() };
        let drafted = [any(batch * nodes), any(batch * nodes), any(batch * nodes), any(batch * nodes)];
        let (parents, scores) = (any(positions * nodes), any(positions * nodes));
        // Each slot has a text within the positions, or none.
        let places: Vec<[i32; 4]> = (0..situation.slots)
            .map(|_| {
                let begin = numbers.below(positions);
                let count = numbers.below(positions - begin + 1);
                [begin as i32, count as i32, if count == 0 { 0 } else { numbers.below(count) as i32 }, 0]
            })
            .collect();
        let upload = |values: &[i32]| device.upload(values).map_err(text);
        let trees = [upload(&drafted[0])?, upload(&drafted[1])?, upload(&drafted[2])?, upload(&drafted[3])?];
        let (parent, score, places_at) = (upload(&parents)?, upload(&scores)?, upload(places.as_flattened())?);
        let to = [poisoned(device, batch * nodes)?, poisoned(device, batch * nodes)?, poisoned(device, batch * nodes)?];
        let [token, given_parent, given_score] = to.each_ref().map(crate::device::Buffer::slice);
        let played = PlayedTrees { parent: parent.slice(), score: score.slice(), places: places_at.slice() };
        let given = GivenTrees { token, parent: given_parent, score: given_score };
        let sequences = situation.sequences(&uploaded);
        let of_batch = (batch, uploaded.batch_slot.slice());
        kernels.play_trees(given, played, of_batch, tree_operand(&trees, nodes), sequences).map_err(text)?;

        let mut expected = [drafted[0].clone(), drafted[1].clone(), drafted[3].clone()];
        for request in 0..batch {
            let Some(slot) = situation.slot(request) else { continue };
            let [begin, count, origin, _] = places[slot];
            if count > 0 {
                let from = (begin + (origin + situation.length[slot]) % count) as usize * nodes;
                expected[1][request * nodes..][..nodes].copy_from_slice(&parents[from..from + nodes]);
                expected[2][request * nodes..][..nodes].copy_from_slice(&scores[from..from + nodes]);
            }
        }
        for (name, (buffer, expected)) in ["token", "parent", "score"].iter().zip(to.iter().zip(&expected)) {
            same(&format!("{what}, {name}"), &ints(device, buffer)?, expected)?;
        }
    }
    Ok(())
}

/// Trees of all sizes, with fewer nodes than there is room for, and numbers that are no trees.
pub fn check_host_trees(device: &Device) -> Result<(), String> {
    let mut numbers = Numbers::new(39);
    for [steps, nodes, batch] in
        [[1, 2, 40], [3, 4, 3], [24, 25, 2], [11, 12, 5], [17, 64, 2], [127, 128, 1], [4, 128, 3]]
    {
        for style in 0..4 {
            check_trees(device, &mut numbers, [steps, nodes, batch], style)?;
        }
    }
    Ok(())
}
