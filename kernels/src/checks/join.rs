//! Trees joined with chains that were looked up, compared with their definition: the likeliest
//! nodes of both, and the rows that verify them.

use super::{
    Numbers,
    layout::{RowBuffers, Situation, empty_rows, ints, poisoned, push_tree, same, same_rows, tree_operand},
    text,
    tree::{OwnBuffers, verified_own},
};
use crate::{
    device::{Device, Element},
    launch::{Kernels, LookedUpChains, VerifyRows},
};

/// A node of a drafted tree.
#[derive(Clone, Copy, Debug)]
struct DraftedNode {
    token: i32,
    /// −1 for the root, and for nodes that pad the tree.
    parent: i32,
    depth: i32,
    score: f32,
}

/// What may become a node of the joined tree: a path of tokens, with its log-probability.
#[derive(Clone, Debug)]
struct JoinCandidate {
    path: Vec<i32>,
    score: f32,
    /// Orders candidates of equal depth and score.
    place: usize,
}

/// The chance of a step from the scores of two nodes.
fn step(score: f32, above: f32) -> f32 {
    // Two scores of −∞ have no difference.
    let chance = score - above;
    if chance.is_nan() { f32::NEG_INFINITY } else { chance.min(0.0) }
}

/// The path of tokens to a node, and the chances on it.
fn path(tree: &[DraftedNode], mut at: usize) -> Vec<(i32, f32)> {
    let mut path = Vec::new();
    while let Ok(parent) = usize::try_from(tree[at].parent) {
        let above = if parent == 0 { 0.0 } else { tree[parent].score };
        path.push((tree[at].token, step(tree[at].score, above)));
        at = parent;
    }
    path.reverse();
    path
}

/// The nodes of a joined tree below the root, in the form of [`push_tree`]: every path of the tree
/// and of the chain, where steps that both have count with the larger chance.
fn plain(tree: &[DraftedNode], chain: &[(i32, f32)]) -> Vec<[i32; 4]> {
    let tokens: Vec<i32> = chain.iter().map(|(token, _)| *token).collect();
    let paths: Vec<Vec<(i32, f32)>> = (1..tree.len()).map(|at| path(tree, at)).collect();
    let names: Vec<Vec<i32>> = paths.iter().map(|path| path.iter().map(|(token, _)| *token).collect()).collect();
    let mut candidates: Vec<JoinCandidate> = Vec::new();
    for (place, (path, name)) in paths.iter().zip(&names).enumerate().filter(|(_, (path, _))| !path.is_empty()) {
        let shared = |depth: usize| tokens.get(..=depth) == Some(&name[..=depth]);
        let chance = |(depth, (_, chance)): (usize, &(i32, f32))| match shared(depth) {
            true => chance.max(step(chain[depth].1, 0.0)),
            false => *chance,
        };
        let score = path.iter().enumerate().map(chance).fold(0.0, |sum: f32, chance| sum + chance);
        candidates.push(JoinCandidate { path: name.clone(), score, place });
    }
    for depth in 1..=chain.len() {
        if names.iter().any(|name| *name == tokens[..depth]) {
            continue;
        }
        let of_tree = |upto: usize| names.iter().position(|name| *name == tokens[..=upto]).map(|at| paths[at][upto].1);
        let chance = |upto: usize| of_tree(upto).unwrap_or(f32::NEG_INFINITY).max(step(chain[upto].1, 0.0));
        let score = (0..depth).map(chance).fold(0.0, |sum: f32, chance| sum + chance);
        candidates.push(JoinCandidate { path: tokens[..depth].to_vec(), score, place: tree.len() + depth });
    }
    let order = |one: &JoinCandidate| (one.path.len(), one.place);
    candidates.sort_by(|a, b| b.score.total_cmp(&a.score).then(order(a).cmp(&order(b))));
    candidates.truncate(tree.len() - 1);
    candidates.sort_by_key(order);
    let number = |path: &[i32]| match path {
        [] => 0,
        // A parent scores no less than its child and comes first in a tie, so it is chosen too: −9
        // shows that it was not.
        path => candidates.iter().position(|one| one.path == path).map_or(-9, |at| at as i32 + 1),
    };
    let node = |one: &JoinCandidate| {
        let (last, above) = one.path.split_last().expect("a path has a token");
        [*last, number(above), one.path.len() as i32, one.score.to_bits() as i32]
    };
    candidates.iter().map(node).collect()
}

/// A tree whose nodes have distinct tokens below each parent: `real` of them, the others pad.
fn tree(numbers: &mut Numbers, steps: usize, nodes: usize, coarse: bool) -> Vec<DraftedNode> {
    let real = if numbers.below(4) == 0 { numbers.below(nodes) + 1 } else { nodes };
    let padding = DraftedNode { token: 7, parent: -1, depth: 0, score: f32::NEG_INFINITY };
    let mut tree = vec![DraftedNode { score: 0.0, ..padding }];
    while tree.len() < real {
        let parent = numbers.below(tree.len());
        let DraftedNode { depth, score, .. } = tree[parent];
        if depth as usize == steps {
            continue;
        }
        // The number of earlier siblings makes the token distinct, and one that a chain may have.
        let token = tree.iter().filter(|node| node.parent == parent as i32).count() as i32;
        let chance = numbers.float() * 2.0 - 2.0;
        // Whole numbers give ties, whose order must be the definition's.
        let chance = if coarse { chance.round() } else { chance };
        let score = if numbers.below(40) == 0 { f32::NEG_INFINITY } else { score + chance };
        tree.push(DraftedNode { token, parent: parent as i32, depth: depth + 1, score });
    }
    tree.resize(nodes, padding);
    tree
}

fn check_chains(device: &Device, numbers: &mut Numbers, [steps, nodes, batch]: [usize; 3]) -> Result<(), String> {
    let kernels = Kernels::new(device.clone(), Element::F32);
    let what = format!("trees of {nodes} nodes and depth {steps} with chains, batch {batch}");
    let situation = Situation::new(numbers, batch, nodes);
    let uploaded = situation.upload(device)?;
    let coarse = numbers.below(2) == 0;
    let trees: Vec<Vec<DraftedNode>> = (0..batch).map(|_| tree(numbers, steps, nodes, coarse)).collect();
    let chains: Vec<Vec<(i32, f32)>> = (0..batch)
        .map(|_| {
            let length = numbers.below(steps + 1);
            let chance =
                |numbers: &mut Numbers| if coarse { -(numbers.below(3) as f32) } else { numbers.float() - 1.0 };
            (0..length).map(|_| (numbers.below(3) as i32, chance(numbers))).collect()
        })
        .collect();

    let column = |of: fn(&DraftedNode) -> i32| {
        let values: Vec<i32> = trees.iter().flatten().map(of).collect();
        device.upload(&values).map_err(text)
    };
    let buffers = [
        column(|node| node.token)?,
        column(|node| node.parent)?,
        column(|node| node.depth)?,
        column(|node| node.score.to_bits() as i32)?,
    ];
    let padded = |of: fn(&(i32, f32)) -> i32| {
        let row = |chain: &Vec<(i32, f32)>| (0..steps).map(|at| chain.get(at).map_or(-5, of)).collect::<Vec<_>>();
        device.upload(&chains.iter().flat_map(row).collect::<Vec<_>>()).map_err(text)
    };
    let (token, chance) = (padded(|one| one.0)?, padded(|one| one.1.to_bits() as i32)?);
    let length = device.upload(&chains.iter().map(|chain| chain.len() as i32).collect::<Vec<_>>()).map_err(text)?;
    let own_stride = steps + 1 + numbers.below(3);
    let rows = RowBuffers::new(device, batch * nodes, own_stride)?;
    let own = OwnBuffers::new(device, batch, nodes, own_stride)?;
    let (sample_position, group_prefix) = (poisoned(device, batch * nodes)?, poisoned(device, batch)?);
    let verify = VerifyRows {
        sample_position: sample_position.slice(),
        group_prefix: Some(group_prefix.slice()),
        outputs: None,
    };
    let operands = LookedUpChains {
        batch,
        steps,
        batch_slot: uploaded.batch_slot.slice(),
        length: length.slice(),
        token: token.slice(),
        chance: chance.slice(),
        own: Some(own.operand()),
    };
    let sequences = situation.sequences(&uploaded);
    kernels.join_chains(operands, sequences, tree_operand(&buffers, nodes), rows.operand(), verify).map_err(text)?;

    let (mut columns, mut expected) = ([Vec::new(), Vec::new(), Vec::new(), Vec::new()], empty_rows());
    for (request, (tree, chain)) in trees.iter().zip(&chains).enumerate() {
        let root = situation.root[situation.batch_slot[request] as usize];
        // A request that pads the batch has no chain.
        let chain = if situation.slot(request).is_some() { &chain[..] } else { &[] };
        let mut all = vec![[root, -1, 0, 0]];
        all.extend(plain(tree, chain));
        all.resize(nodes, [root, -1, 0, f32::NEG_INFINITY.to_bits() as i32]);
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
    own.check(device, &what, |request| verified_own(&situation, &columns[1], nodes, request))
}

/// Chains of all lengths, that follow the tree for some steps, with and without equal chances.
pub fn check_join_chains(device: &Device) -> Result<(), String> {
    let mut numbers = Numbers::new(57);
    for [steps, nodes, batch] in
        [[1, 2, 40], [3, 4, 9], [3, 8, 9], [5, 6, 17], [2, 30, 5], [11, 12, 5], [17, 64, 4], [127, 128, 2], [6, 128, 3]]
    {
        for _ in 0..3 {
            check_chains(device, &mut numbers, [steps, nodes, batch])?;
        }
    }
    Ok(())
}
