//! Blocks and the trees that grow from their rankings, compared with the plain definitions: what a
//! row sees, position by position, and a pool in which every node has children.

use super::{
    Numbers,
    layout::{
        RowBuffers, RowValues, Situation, empty_rows, ints, poisoned, push_padding, push_tree, same, same_rows,
        same_tree, tree_operand,
    },
    text,
    tree::{OwnBuffers, Turn, verified_own},
};
use crate::{
    device::{Device, Element},
    launch::{
        BlockGrowth, BlockLayout, BlockView, FirstLevel, Kernels, LevelRows, Logits, Proposals, RankedLevels,
        VerifyRows, ViewPages, most_parents,
    },
};

/// Token of the rows of a block after its first.
const MASK: i32 = 7;

/// The cache rows that a row of a block sees, in order: positions, then rows of the block.
fn seen(situation: &Situation, request: usize, start: i32, view: BlockView, rows: usize, row: usize) -> Vec<i32> {
    let Some(slot) = situation.slot(request) else { return Vec::new() };
    let position = start + row as i32;
    let near = |other: i32| view.window.is_none_or(|window| (position - other) < window as i32);
    let scratch = situation.cache_rows + request * rows;
    let older = (0..start).filter(|at| near(*at)).map(|at| situation.cache_row(slot, at).max(0));
    let last = if view.causal { row + 1 } else { rows };
    let block = (0..last).filter(|other| near(start + *other as i32)).map(|other| (scratch + other) as i32);
    older.chain(block).collect()
}

/// The rows of a batch of blocks as a kernel laid them out.
struct LaidOutBlocks<'a> {
    situation: &'a Situation,
    view: BlockView,
    /// Of each block.
    rows: usize,
    /// The view's own pages, `width` for each block.
    pages: Vec<i32>,
    width: usize,
}

impl LaidOutBlocks<'_> {
    /// The cache rows that a row found sees, through the view's own pages and then own rows.
    fn cache_rows(&self, found: &RowValues, row: usize) -> Vec<i32> {
        let (situation, request, page_size) = (self.situation, row / self.rows, self.situation.page_size);
        let position = |at: usize| match self.view.window {
            Some(_) => self.pages[request * self.width + at / page_size] * page_size as i32 + (at % page_size) as i32,
            None => situation.cache_row(situation.batch_slot[request] as usize, at as i32).max(0),
        };
        let own = &found.own[row];
        // With a window, the older own rows come before the positions.
        let older = own.iter().take_while(|at| (**at as usize) < situation.cache_rows).count();
        let positions = (0..found.prefix[row] as usize).map(position);
        own[..older].iter().copied().chain(positions).chain(own[older..].iter().copied()).collect()
    }

    /// The rows that a batch should have; what they see is taken from those found.
    fn expected(
        &self,
        found: &RowValues,
        batch: usize,
        start: impl Fn(usize) -> i32,
        root: impl Fn(usize) -> i32,
    ) -> RowValues {
        let (situation, rows) = (self.situation, self.rows);
        let mut expected = empty_rows();
        for at in 0..batch * rows {
            let (request, row) = (at / rows, at % rows);
            let token = if row == 0 { root(request) } else { MASK };
            // With a window each block has pages of its own.
            let slot = |slot: i32| if self.view.window.is_some() { request as i32 } else { slot };
            if situation.slot(request).is_none() {
                push_padding(&mut expected, situation, token);
                expected.position[at] = row as i32;
                expected.slot[at] = slot(situation.dummy());
                continue;
            }
            expected.token.push(token);
            expected.position.push(start(request) + row as i32);
            expected.write.push((situation.cache_rows + at) as i32);
            expected.slot.push(slot(situation.batch_slot[request]));
            expected.prefix.push(found.prefix[at]);
            expected.own.push(found.own[at].clone());
        }
        expected
    }

    /// The own rows of a block, and for each of its rows their indices.
    fn own(&self, found: &RowValues, request: usize, start: i32) -> (Vec<i32>, Vec<Vec<usize>>) {
        let situation = self.situation;
        let of_rows = &found.own[request * self.rows..(request + 1) * self.rows];
        let mut union: Vec<i32> = of_rows.iter().flatten().copied().collect();
        // Older rows in the order of their positions, which is that of the first row that sees
        // them.
        let position = |row: &i32| {
            let slot = situation.slot(request).unwrap_or_default();
            (0..start).position(|at| situation.cache_row(slot, at).max(0) == *row)
        };
        union.sort_unstable_by_key(|row| (position(row).is_none(), position(row), *row));
        union.dedup();
        let place = |row: &i32| union.iter().position(|other| other == row).unwrap_or(usize::MAX);
        let seen = of_rows.iter().map(|own| own.iter().map(place).collect()).collect();
        (union, seen)
    }
}

/// The rows of blocks, for views with and without windows and causality.
pub fn check_block_rows(device: &Device) -> Result<(), String> {
    let mut numbers = Numbers::new(37);
    for case in 0..60 {
        let rows = [1, 2, 7, 16, 128][numbers.below(5)];
        let longest = [3, 20, 90][numbers.below(3)];
        let window = (case % 3 > 0).then(|| 1 + numbers.below(longest));
        let view = BlockView { causal: numbers.below(2) == 0, window };
        let batch = 1 + numbers.below(5);
        check_view(device, &mut numbers, view, rows, batch)?;
    }
    Ok(())
}

fn check_view(
    device: &Device,
    numbers: &mut Numbers,
    view: BlockView,
    rows: usize,
    batch: usize,
) -> Result<(), String> {
    let kernels = Kernels::new(device.clone(), Element::F32);
    let what = format!("block of {rows} rows, {view:?}, batch {batch}");
    let situation = Situation::new(numbers, batch, 1);
    let uploaded = situation.upload(device)?;
    let sequences = situation.sequences(&uploaded);
    let own_stride = view.own_stride(rows, situation.page_size) + numbers.below(3);
    let found_rows = RowBuffers::new(device, batch * rows, own_stride)?;
    let own = OwnBuffers::new(device, batch, rows, own_stride)?;
    let width = view.pages(situation.table_width, situation.page_size);
    let pages = poisoned(device, batch * width)?;
    let steps = 1 + numbers.below(rows);
    let skipped = numbers.below(rows - steps + 1);
    let (token, base, proposing) =
        (poisoned(device, batch)?, poisoned(device, batch)?, poisoned(device, batch * steps)?);
    // Places other than the slots' ends.
    let given = numbers.below(3) == 0;
    let of_slot = |request: usize| situation.batch_slot[request] as usize;
    let start = |at: usize| situation.slot(at).map_or(0, |slot| situation.length[slot] / if given { 2 } else { 1 });
    let root = |at: usize| if given { at as i32 + 5 } else { situation.root[of_slot(at)] };
    let starts = device.upload(&(0..batch).map(start).collect::<Vec<_>>()).map_err(text)?;
    let roots = device.upload(&(0..batch).map(root).collect::<Vec<_>>()).map_err(text)?;
    let layout = BlockLayout {
        batch,
        rows,
        view,
        mask: MASK as u32,
        scratch_base: situation.cache_rows,
        batch_slot: uploaded.batch_slot.slice(),
        places: given.then(|| [starts.slice(), roots.slice()]),
        pages: view.window.map(|_| ViewPages { at: pages.slice(), width }),
        own: Some(own.operand()),
        first: Some(FirstLevel {
            token: token.slice(),
            base: base.slice(),
            proposing: proposing.slice(),
            skipped,
            steps,
        }),
    };
    kernels.block_begin(layout, sequences, found_rows.operand()).map_err(text)?;

    let found = found_rows.download(device)?;
    let block = LaidOutBlocks { situation: &situation, view, rows, pages: ints(device, &pages)?, width };
    for at in 0..batch * rows {
        let sees = seen(&situation, at / rows, start(at / rows), view, rows, at % rows);
        same(&format!("{what}, what row {at} sees"), &block.cache_rows(&found, at), &sees)?;
    }
    same_rows(&what, &found, &block.expected(&found, batch, start, root))?;
    own.check(device, &what, |request| block.own(&found, request, start(request)))?;
    same(&format!("{what}, roots"), &ints(device, &token)?, &(0..batch).map(root).collect::<Vec<_>>())?;
    same(&what, &ints(device, &base)?, &(0..batch).map(|at| (at * steps) as i32).collect::<Vec<_>>())?;
    let rows_that_propose =
        (0..batch).flat_map(|at| (0..steps).map(move |step| (at * rows + skipped + step) as i32)).collect::<Vec<_>>();
    same(&format!("{what}, proposing"), &ints(device, &proposing)?, &rows_that_propose)
}

/// A proposal of the plain algorithm.
#[derive(Clone, Copy)]
struct BlockProposal {
    token: i32,
    score: f32,
    parent: Option<usize>,
    depth: usize,
}

/// The best of a pool, ascending by place; ties go to the lower place.
fn best(pool: &[BlockProposal], count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..pool.len()).collect();
    order.sort_by(|a, b| pool[*b].score.total_cmp(&pool[*a].score));
    order.truncate(count);
    order.sort_unstable();
    order
}

/// The best tokens after a node, from a number of its own: fine, coarse (ties), or broken.
fn ranking(seed: u64, topk: usize, width: usize, style: usize) -> Vec<(i32, f32)> {
    let mut numbers = Numbers::new(seed);
    let one = |numbers: &mut Numbers| {
        let fine = numbers.float() - 1.0;
        let score = match style {
            0 => fine * 4.0,
            1 => (fine * 2.0).round(),
            _ => [f32::NAN, f32::NEG_INFINITY, f32::INFINITY, fine, -0.0][numbers.below(5)],
        };
        (numbers.below(1000) as i32, score)
    };
    let mut all: Vec<(i32, f32)> = (0..topk).map(|_| one(&mut numbers)).collect();
    all[width..].iter_mut().for_each(|unused| *unused = (-1, f32::NAN));
    all
}

fn sane(score: f32) -> f32 {
    if score.is_nan() { f32::NEG_INFINITY } else { score.min(0.0) + 0.0 }
}

/// Trees from one ranking per depth, and from one per node.
pub fn check_block_trees(device: &Device) -> Result<(), String> {
    let mut numbers = Numbers::new(38);
    for ((steps, topk, nodes), width, batch) in [
        ((7, 1, 8), 1, 1),
        ((7, 4, 16), 4, 3),
        ((3, 2, 15), 2, 2),
        ((15, 8, 128), 8, 2),
        ((2, 64, 128), 64, 1),
        ((6, 4, 40), 1, 2),
        ((5, 4, 60), 2, 2),
    ] {
        for by_node in [false, true] {
            check_tree(device, &mut numbers, [steps, topk, nodes], width, batch, by_node)?;
        }
    }
    for _ in 0..40 {
        let (steps, topk) = (1 + numbers.below(8), 1 + numbers.below(8));
        let all = (1..=steps).fold(1_usize, |all, depth| all + topk.pow(depth as u32)).min(128);
        let nodes = if topk == 1 { steps + 1 } else { 2 + numbers.below(all - 1) };
        let width = if numbers.below(4) == 0 { 1 + numbers.below(topk) } else { topk };
        let batch = 1 + numbers.below(6);
        let by_node = numbers.below(2) == 0;
        check_tree(device, &mut numbers, [steps, topk, nodes], width, batch, by_node)?;
    }
    Ok(())
}

fn check_tree(
    device: &Device,
    numbers: &mut Numbers,
    [steps, topk, nodes]: [usize; 3],
    width: usize,
    batch: usize,
    by_node: bool,
) -> Result<(), String> {
    let kernels = Kernels::new(device.clone(), Element::F32);
    let what = format!("tree ({steps},{topk},{nodes}) of a block, {width} tokens, batch {batch}, by node: {by_node}");
    let ahead = if numbers.below(6) == 0 { 0 } else { nodes };
    let situation = Situation::new(numbers, batch, ahead);
    let uploaded = situation.upload(device)?;
    let sequences = situation.sequences(&uploaded);
    let (style, seed) = (numbers.below(3), numbers.bits());
    // A ranking of a depth, or of a token at a depth.
    let of = |request: usize, depth: usize, token: i32| {
        let own = if by_node { token as u64 + 1 } else { 0 };
        ranking(seed ^ ((request * 200 + depth) as u64) << 20 ^ own, topk, width, style)
    };
    let root = |request: usize| situation.root[situation.batch_slot[request] as usize];
    let pools: Vec<Vec<BlockProposal>> = (0..batch)
        .map(|request| {
            let children = |depth: usize, token: i32| of(request, depth, token).into_iter().take(width).collect();
            pool([steps, nodes], root(request), children)
        })
        .collect();

    let own_stride = steps + 1 + numbers.below(3);
    let node_buffer = || poisoned(device, batch * nodes);
    let buffers = [node_buffer()?, node_buffer()?, node_buffer()?, node_buffer()?];
    let tree = tree_operand(&buffers, nodes);
    let rows = RowBuffers::new(device, batch * nodes, own_stride)?;
    let own = OwnBuffers::new(device, batch, nodes, own_stride)?;
    let (sample_position, group_prefix) = (node_buffer()?, poisoned(device, batch)?);
    let turn = Turn::new(device, numbers)?;
    let verify = VerifyRows {
        sample_position: sample_position.slice(),
        group_prefix: Some(group_prefix.slice()),
        outputs: Some(turn.operand()),
    };
    let widest = (0..steps).map(|depth| most_parents(depth, topk, nodes)).max().unwrap_or(1);
    let level =
        [poisoned(device, batch * widest)?, poisoned(device, batch * widest)?, poisoned(device, batch * widest)?];
    let level_rows =
        |rankings| LevelRows { rankings, token: level[0].slice(), source: level[1].slice(), base: level[2].slice() };
    let grow = |levels: RankedLevels<'_>, rankings: Vec<(i32, f32)>| {
        let ids = device.upload(&rankings.iter().map(|(id, _)| *id).collect::<Vec<_>>())?;
        let logprobs = device.upload(&rankings.iter().map(|(_, log)| *log).collect::<Vec<_>>())?;
        let growth = BlockGrowth {
            batch,
            steps,
            topk,
            vocabulary: width,
            batch_slot: uploaded.batch_slot.slice(),
            proposals: Proposals { ids: ids.slice(), logprobs: logprobs.slice() },
            levels,
            own: Some(own.operand()),
        };
        kernels.block_grow(growth, sequences, tree, rows.operand(), verify)?;
        device.synchronize()
    };
    if by_node {
        let mut tokens: Vec<i32> = (0..batch).map(root).collect();
        for depth in 0..steps {
            let rankings = most_parents(depth, topk, nodes);
            let all = (0..batch * rankings).flat_map(|row| of(row / rankings, depth, tokens[row])).collect();
            let next = (depth + 1 < steps).then(|| most_parents(depth + 1, topk, nodes));
            let levels = RankedLevels::One { level: depth, rankings, next: next.map(level_rows) };
            grow(levels, all).map_err(text)?;
            let Some(next) = next else { break };
            let [found, sources, bases] = level.each_ref().map(|buffer| ints(device, buffer));
            let (found, sources, bases) = (found?, sources?, bases?);
            check_level(&what, &pools, [depth + 1, next, rankings, nodes, steps], [&found, &sources, &bases])?;
            tokens = found[..batch * next].to_vec();
        }
    } else {
        let all = (0..batch * steps).flat_map(|row| of(row / steps, row % steps, 0)).collect();
        grow(RankedLevels::All, all).map_err(text)?;
    }

    let (expected_tree, expected) = expected_tree(&situation, &pools, nodes, root);
    same_tree(device, &what, &buffers, &expected_tree)?;
    same_rows(&what, &rows.download(device)?, &expected)?;
    turn.check(device, &what)?;
    own.check(device, &what, |request| verified_own(&situation, &expected_tree[1], nodes, request))
}

/// All nodes that the tokens after nodes give, level by level.
fn pool([steps, nodes]: [usize; 2], root: i32, children: impl Fn(usize, i32) -> Vec<(i32, f32)>) -> Vec<BlockProposal> {
    let mut pool: Vec<BlockProposal> = Vec::new();
    let mut parents: Vec<Option<usize>> = vec![None];
    for depth in 0..steps {
        let begin = pool.len();
        for parent in &parents {
            let (token, above) = parent.map_or((root, 0.0), |at| (pool[at].token, pool[at].score));
            pool.extend(children(depth, token).into_iter().map(|(token, score)| BlockProposal {
                token,
                score: above + sane(score),
                parent: *parent,
                depth: depth + 1,
            }));
        }
        // Every node that could be in the tree has children.
        let kept = best(&pool, nodes - 1);
        parents = kept.into_iter().filter(|at| *at >= begin).map(Some).collect();
    }
    pool
}

/// The columns of the best trees of pools (tokens, parents, depths, bits of scores), and the rows
/// that verify them.
fn expected_tree(
    situation: &Situation,
    pools: &[Vec<BlockProposal>],
    nodes: usize,
    root: impl Fn(usize) -> i32,
) -> ([Vec<i32>; 4], RowValues) {
    let (mut tree, mut rows) = ([Vec::new(), Vec::new(), Vec::new(), Vec::new()], empty_rows());
    for (request, pool) in pools.iter().enumerate() {
        let kept = best(pool, nodes - 1);
        let node = |place: usize| kept.iter().position(|kept| *kept == place).map_or(-9, |at| at as i32 + 1);
        let mut all = vec![[root(request), -1, 0, 0]];
        all.extend(kept.iter().map(|at| {
            let BlockProposal { token, score, parent, depth } = pool[*at];
            [token, parent.map_or(0, node), depth as i32, score.to_bits() as i32]
        }));
        all.resize(nodes, [root(request), -1, 0, f32::NEG_INFINITY.to_bits() as i32]);
        for values in &all {
            tree.iter_mut().zip(values).for_each(|(column, value)| column.push(*value));
        }
        push_tree(&mut rows, situation, request, &all);
    }
    (tree, rows)
}

/// The nodes of the next level: tokens, the rows of their parents, and base rows; padding has valid
/// values.
fn check_level(
    what: &str,
    pools: &[Vec<BlockProposal>],
    [depth, rankings, before, nodes, steps]: [usize; 5],
    [tokens, sources, bases]: [&[i32]; 3],
) -> Result<(), String> {
    for (request, pool) in pools.iter().enumerate() {
        let so_far: Vec<BlockProposal> = pool.iter().filter(|one| one.depth <= depth).copied().collect();
        let kept = best(&so_far, nodes - 1);
        let of_depth = |depth: usize, kept: &[usize]| {
            kept.iter().copied().filter(|at| pool[*at].depth == depth).collect::<Vec<usize>>()
        };
        let until: Vec<BlockProposal> = pool.iter().filter(|one| one.depth < depth).copied().collect();
        let parents = of_depth(depth - 1, &best(&until, nodes - 1));
        let mut expected: Vec<[i32; 2]> = Vec::new();
        for at in of_depth(depth, &kept) {
            let parent = pool[at].parent.and_then(|parent| parents.iter().position(|at| *at == parent));
            expected.push([pool[at].token, (request * before + parent.unwrap_or(0)) as i32]);
        }
        if expected.len() > rankings {
            return Err(format!("{what}: {} nodes of depth {depth}, but room for {rankings}", expected.len()));
        }
        expected.resize(rankings, [0, (request * before) as i32]);
        let own = request * rankings..(request + 1) * rankings;
        let found: Vec<[i32; 2]> = own.clone().map(|at| [tokens[at], sources[at]]).collect();
        same(&format!("{what}, nodes of depth {depth}"), &found, &expected)?;
        same(&format!("{what}, base rows"), &bases[own], &vec![(request * steps + depth) as i32; rankings])?;
    }
    Ok(())
}

/// Rows of logits plus rows of a base.
pub fn check_add_base(device: &Device) -> Result<(), String> {
    let kernels = Kernels::new(device.clone(), Element::F32);
    let mut numbers = Numbers::new(39);
    for (rows, vocabulary) in [(1, 1), (3, 1023), (7, 1024), (5, 3001)] {
        let stride = vocabulary + numbers.below(3);
        let logits = numbers.floats(rows * stride, Element::F32);
        let base = numbers.floats(4 * vocabulary, Element::F32);
        let source: Vec<i32> = (0..rows).map(|_| numbers.below(4) as i32).collect();
        let on_device = device.upload(&logits).map_err(text)?;
        let (base_on, source_on) = (device.upload(&base).map_err(text)?, device.upload(&source).map_err(text)?);
        let operand = Logits { at: on_device.slice(), stride, rows, vocabulary };
        kernels.add_base(operand, base_on.slice(), source_on.slice()).map_err(text)?;
        let expected: Vec<f32> = (logits.iter().enumerate())
            .map(|(at, value)| match at % stride {
                column if column < vocabulary => value + base[source[at / stride] as usize * vocabulary + column],
                _ => *value,
            })
            .collect();
        let found: Vec<f32> = device.download(on_device.slice()).map_err(text)?;
        same(&format!("{rows} rows of {vocabulary} plus a base"), &found, &expected)?;
    }
    Ok(())
}
