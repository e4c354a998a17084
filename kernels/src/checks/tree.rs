//! Draft trees, compared with the plain algorithm: beams, pool, the best of the pool, and the rows
//! of every pass.

use std::collections::BTreeSet;

use super::{
    Numbers,
    layout::{
        RowBuffers, RowValues, Situation, empty_rows, ints, poisoned, push_padding, push_tree, same, same_rows,
        same_tree, tree_operand,
    },
    text,
};
use crate::{
    device::{Buffer, Device, Element, Slice},
    launch::{Drafting, Kernels, MOST_PLACES, Outputs, OwnRows, Proposals, VerifyRows},
};

/// A proposal of the plain algorithm.
struct TreeProposal {
    token: i32,
    score: f32,
    parent: Option<usize>,
    depth: i32,
}

/// The current place among the places for outputs.
pub(super) struct Turn {
    places: usize,
    before: usize,
    place: Buffer,
}

impl Turn {
    pub fn new(device: &Device, numbers: &mut Numbers) -> Result<Self, String> {
        let places = 1 + numbers.below(3);
        let before = numbers.below(places);
        Ok(Self { places, before, place: device.upload(&[before as i32]).map_err(text)? })
    }

    pub fn operand(&self) -> Outputs<'_> {
        Outputs { at: Slice::NONE, places: self.places, place: self.place.slice() }
    }

    pub fn check(&self, device: &Device, what: &str) -> Result<(), String> {
        let next = (self.before + 1) % self.places;
        same(&format!("{what}, place for its output"), &ints(device, &self.place)?, &[next as i32])
    }
}

/// A beam of the plain algorithm.
struct TreeBeam {
    source: usize,
    proposal: usize,
    /// Rows of its path, one in each step's pass.
    path: Vec<usize>,
}

/// The plain algorithm for one request.
struct Plain {
    topk: usize,
    pool: Vec<TreeProposal>,
    beams: Vec<TreeBeam>,
}

impl Plain {
    fn sane(score: f32) -> f32 {
        if score.is_nan() { f32::NEG_INFINITY } else { score.min(0.0) + 0.0 }
    }

    fn best(pool: &[TreeProposal], count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..pool.len()).collect();
        order.sort_by(|a, b| pool[*b].score.total_cmp(&pool[*a].score));
        order.truncate(count);
        order
    }

    /// Expands the beams by their proposals.
    fn step(&mut self, step: usize, proposals: &[Vec<(i32, f32)>]) {
        let start = self.pool.len();
        let mut rows = Vec::new();
        for (row, proposals) in proposals.iter().enumerate() {
            let beam = self.beams.get(row);
            let parent = beam.map(|beam| beam.proposal);
            let before = parent.map_or(0.0, |parent| self.pool[parent].score);
            for (token, score) in proposals {
                let score = if parent.is_some() { before + Self::sane(*score) } else { Self::sane(*score) };
                self.pool.push(TreeProposal { token: *token, score, parent, depth: step as i32 + 1 });
                rows.push(row);
            }
        }
        // After the root the proposals are already sorted best first, and are the beams.
        let best = if step == 0 { (0..self.pool.len()).collect() } else { Self::best(&self.pool[start..], self.topk) };
        let beams = best.into_iter().enumerate().map(|(row, at)| {
            let source = rows[at];
            let mut path = self.beams.get(source).map_or(Vec::new(), |beam| beam.path.clone());
            path.push(step * self.topk + row);
            TreeBeam { source, proposal: start + at, path }
        });
        self.beams = beams.collect();
    }

    /// (token, parent, depth, bits of the score) of the nodes below the root.
    fn finish(&self, count: usize) -> Vec<[i32; 4]> {
        let mut kept = Self::best(&self.pool, count);
        kept.sort_unstable();
        let node = |place: usize| kept.iter().position(|kept| *kept == place).map_or(-9, |at| at as i32 + 1);
        let nodes = kept.iter().map(|place| {
            let proposal = &self.pool[*place];
            [proposal.token, proposal.parent.map_or(0, node), proposal.depth, proposal.score.to_bits() as i32]
        });
        nodes.collect()
    }
}

/// A token and log-probability that a draft might propose: fine, coarse (ties), or broken.
fn proposal(numbers: &mut Numbers, style: usize) -> (i32, f32) {
    let fine = numbers.float() - 1.0;
    let score = match style {
        0 => fine * 4.0,
        1 => (fine * 2.0).round(),
        2 => [f32::NAN, f32::NEG_INFINITY, f32::INFINITY, fine, -0.0][numbers.below(5)],
        _ => f32::NEG_INFINITY,
    };
    (numbers.below(1000) as i32, score)
}

/// One round of drafting: (steps, topk, nodes), tokens of the draft, requests.
fn check_shape(
    device: &Device,
    numbers: &mut Numbers,
    (steps, topk, nodes): (usize, usize, usize),
    vocabulary: usize,
    batch: usize,
) -> Result<(), String> {
    let kernels = Kernels::new(device.clone(), Element::F32);
    let what = format!("tree ({steps},{topk},{nodes}) of {vocabulary} tokens, batch {batch}");
    let ahead = if numbers.below(6) == 0 { 0 } else { nodes.max(steps + 1) };
    let situation = Situation::new(numbers, batch, ahead);
    let uploaded = situation.upload(device)?;
    let sequences = situation.sequences(&uploaded);
    let style = numbers.below(9).saturating_sub(5);
    let width = topk.min(vocabulary);
    let places = topk + (steps - 1) * topk * topk;
    let buffer = |values: usize| poisoned(device, values);
    let (pool_token, pool_score, pool_parent) =
        (buffer(batch * places)?, buffer(batch * places)?, buffer(batch * places)?);
    let beam_place = buffer(batch * topk)?;
    let own_strides = (steps + numbers.below(3), steps + 1 + numbers.below(3));
    let draft_own = OwnBuffers::new(device, batch, topk, own_strides.0)?;
    let own = OwnBuffers::new(device, batch, nodes, own_strides.1)?;
    // Own rows are optional.
    let wanted = numbers.below(4) > 0;
    let drafting = Drafting {
        batch,
        steps,
        topk,
        vocabulary,
        scratch_base: situation.cache_rows,
        batch_slot: uploaded.batch_slot.slice(),
        pool_token: pool_token.slice(),
        pool_score: pool_score.slice(),
        pool_parent: pool_parent.slice(),
        beam_place: beam_place.slice(),
        own: wanted.then(|| draft_own.operand()),
    };
    let mut plain: Vec<Plain> = (0..batch).map(|_| Plain { topk, pool: Vec::new(), beams: Vec::new() }).collect();
    let draft_rows = RowBuffers::new(device, batch * topk, own_strides.0)?;
    let row_source = buffer(batch * topk)?;
    let node_buffer = || buffer(batch * nodes);
    let tree_buffers = [node_buffer()?, node_buffer()?, node_buffer()?, node_buffer()?];
    let tree = tree_operand(&tree_buffers, nodes);
    let rows = RowBuffers::new(device, batch * nodes, own_strides.1)?;
    let (sample_position, group_prefix) = (buffer(batch * nodes)?, buffer(batch)?);
    let turn = Turn::new(device, numbers)?;
    let verify = VerifyRows {
        sample_position: sample_position.slice(),
        group_prefix: Some(group_prefix.slice()),
        outputs: Some(turn.operand()),
    };

    for step in 0..steps {
        let beams = if step == 0 { 1 } else { topk };
        let all: Vec<(i32, f32)> = (0..batch * beams * topk).map(|_| proposal(numbers, style)).collect();
        let ids = device.upload(&all.iter().map(|(id, _)| *id).collect::<Vec<_>>()).map_err(text)?;
        let logprobs = device.upload(&all.iter().map(|(_, log)| *log).collect::<Vec<_>>()).map_err(text)?;
        let proposals = Proposals { ids: ids.slice(), logprobs: logprobs.slice() };
        for (request, plain) in plain.iter_mut().enumerate() {
            let live = if step == 0 { 1 } else { plain.beams.len() };
            let of_beam = |beam: usize| all[(request * beams + beam) * topk..][..width].to_vec();
            plain.step(step, &(0..live).map(of_beam).collect::<Vec<_>>());
        }
        let launched = if step + 1 == steps {
            let drafting = Drafting { own: wanted.then(|| own.operand()), ..drafting };
            kernels.draft_finish(drafting, proposals, sequences, tree, rows.operand(), verify)
        } else if step == 0 {
            kernels.draft_begin(drafting, proposals, sequences, draft_rows.operand(), row_source.slice())
        } else {
            kernels.draft_expand(drafting, step, proposals, sequences, draft_rows.operand(), row_source.slice())
        };
        launched.map_err(text)?;
        if step + 1 < steps {
            let what = format!("{what}, rows of draft pass {}", step + 1);
            let found = draft_rows.download(device)?;
            let sources = ints(device, &row_source)?;
            let expected = expected_draft(&situation, &plain, drafting, step, (&found, &sources), &what)?;
            same_rows(&what, &found, &expected)?;
            if wanted {
                draft_own
                    .check(device, &what, |request| drafted_own(&situation, &plain[request], drafting, request))?;
            }
        }
    }

    let (expected_tree, expected_rows) = expected_verify(&situation, &plain, nodes);
    same_tree(device, &what, &tree_buffers, &expected_tree)?;
    same_rows(&format!("{what}, verify rows"), &rows.download(device)?, &expected_rows)?;
    let lengths: Vec<i32> =
        (0..batch).map(|request| situation.slot(request).map_or(0, |slot| situation.length[slot])).collect();
    same(&format!("{what}, group prefix"), &ints(device, &group_prefix)?, &lengths)?;
    let positions: Vec<i32> = expected_rows.position.iter().map(|position| position + 1).collect();
    same(&format!("{what}, sample position"), &ints(device, &sample_position)?, &positions)?;
    turn.check(device, &what)?;
    if wanted {
        own.check(device, &what, |request| verified_own(&situation, &expected_tree[1], nodes, request))?;
    }
    Ok(())
}

/// The own rows of groups, as written by the kernels.
pub(super) struct OwnBuffers {
    cache_rows: Buffer,
    count: Buffer,
    mask: Buffer,
    /// Rows per group.
    group: usize,
    own_stride: usize,
}

/// The own rows of one group: cache rows, and the indices of those that each row sees.
pub(super) type SeenRows = (Vec<i32>, Vec<Vec<usize>>);

impl OwnBuffers {
    pub fn new(device: &Device, batch: usize, group: usize, own_stride: usize) -> Result<Self, String> {
        let rows = batch * group;
        Ok(Self {
            cache_rows: poisoned(device, rows * own_stride)?,
            count: poisoned(device, batch)?,
            mask: poisoned(device, rows * Kernels::own_mask_words(group, own_stride))?,
            group,
            own_stride,
        })
    }

    pub fn operand(&self) -> OwnRows<'_> {
        OwnRows {
            cache_rows: self.cache_rows.slice(),
            count: self.count.slice(),
            mask: self.mask.slice(),
            own_stride: self.own_stride,
        }
    }

    /// Mask words after the last cache row of a group may have any value.
    pub fn check(&self, device: &Device, what: &str, expected: impl Fn(usize) -> SeenRows) -> Result<(), String> {
        let (cache_rows, count) = (ints(device, &self.cache_rows)?, ints(device, &self.count)?);
        let mask: Vec<u32> = device.download(self.mask.slice()).map_err(text)?;
        let mask_words = Kernels::own_mask_words(self.group, self.own_stride);
        for (request, count) in count.iter().enumerate() {
            let (expected_rows, seen) = expected(request);
            let first = request * self.group;
            same(&format!("{what}, count of own rows"), &[*count], &[expected_rows.len() as i32])?;
            let found = &cache_rows[first * self.own_stride..][..expected_rows.len()];
            same(&format!("{what}, own rows of request {request}"), found, &expected_rows)?;
            for (row, seen) in seen.iter().enumerate() {
                let words = &mask[(first + row) * mask_words..][..expected_rows.len().div_ceil(32)];
                let found: Vec<usize> =
                    (0..words.len() * 32).filter(|bit| words[bit / 32] >> (bit % 32) & 1 == 1).collect();
                same(&format!("{what}, mask of row {row} of request {request}"), &found, seen)?;
            }
        }
        Ok(())
    }
}

/// Scratch rows on the beams' paths, in ascending order.
fn drafted_own(situation: &Situation, plain: &Plain, drafting: Drafting<'_>, request: usize) -> SeenRows {
    let beams = if situation.slot(request).is_some() { &plain.beams[..] } else { &[] };
    let on_way: BTreeSet<usize> = beams.iter().flat_map(|beam| &beam.path).copied().collect();
    let scratch = drafting.scratch_base + request * drafting.scratch_rows();
    let place = |number: &usize| on_way.range(..number).count();
    let seen = (0..drafting.topk)
        .map(|beam| beams.get(beam).map_or(Vec::new(), |beam| beam.path.iter().map(place).collect()))
        .collect();
    (on_way.iter().map(|number| (scratch + number) as i32).collect(), seen)
}

/// The nodes' cache rows in order.
pub(super) fn verified_own(situation: &Situation, parents: &[i32], nodes: usize, request: usize) -> SeenRows {
    let Some(slot) = situation.slot(request) else { return (Vec::new(), vec![Vec::new(); nodes]) };
    let row = |node: i32| situation.cache_row(slot, situation.length[slot] + node).max(0);
    let way = |node: i32| {
        let parent = |at: &i32| Some(parents[request * nodes + *at as usize]).filter(|at| *at >= 0);
        let mut way: Vec<usize> = std::iter::successors(Some(node), parent).map(|at| at as usize).collect();
        way.reverse();
        way
    };
    ((0..nodes as i32).map(row).collect(), (0..nodes as i32).map(way).collect())
}

/// The rows of the draft pass after `step`; if a beam does not run, its token and source may be any
/// valid ones.
fn expected_draft(
    situation: &Situation,
    plain: &[Plain],
    drafting: Drafting<'_>,
    step: usize,
    (found, sources): (&RowValues, &[i32]),
    what: &str,
) -> Result<RowValues, String> {
    let topk = drafting.topk;
    let mut rows = empty_rows();
    for (request, plain) in plain.iter().enumerate() {
        let scratch = drafting.scratch_base + request * drafting.scratch_rows();
        for beam in 0..topk {
            let row = request * topk + beam;
            let before = if step == 0 { request } else { request * topk };
            match (plain.beams.get(beam), situation.slot(request)) {
                (Some(beam), Some(slot)) => {
                    let own: Vec<i32> = beam.path.iter().map(|number| (scratch + number) as i32).collect();
                    rows.token.push(plain.pool[beam.proposal].token);
                    rows.position.push(situation.length[slot] + step as i32);
                    rows.write.push(own[own.len() - 1]);
                    rows.slot.push(slot as i32);
                    rows.prefix.push(situation.length[slot]);
                    rows.own.push(own);
                    if sources[row] as usize != before + beam.source {
                        let expected = before + beam.source;
                        return Err(format!("{what}: source {} of row {row}, expected {expected}", sources[row]));
                    }
                }
                _ => {
                    let range = before..before + if step == 0 { 1 } else { topk };
                    if !(0..1000).contains(&found.token[row]) || !range.contains(&(sources[row] as usize)) {
                        return Err(format!("{what}: padding row {row}: {} {}", found.token[row], sources[row]));
                    }
                    push_padding(&mut rows, situation, found.token[row]);
                }
            }
        }
    }
    Ok(rows)
}

fn expected_verify(situation: &Situation, plain: &[Plain], nodes: usize) -> ([Vec<i32>; 4], RowValues) {
    let mut tree = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
    let mut rows = empty_rows();
    for (request, plain) in plain.iter().enumerate() {
        let root = situation.root[situation.batch_slot[request] as usize];
        let mut own = vec![[root, -1, 0, 0]];
        own.extend(plain.finish(nodes - 1));
        own.resize(nodes, [root, -1, 0, f32::NEG_INFINITY.to_bits() as i32]);
        for values in &own {
            tree.iter_mut().zip(values).for_each(|(column, value)| column.push(*value));
        }
        push_tree(&mut rows, situation, request, &own);
    }
    (tree, rows)
}

/// Shapes from the smallest to the largest, with random ties, broken scores, vocabularies smaller
/// than topk, padding.
pub fn check_draft_trees(device: &Device) -> Result<(), String> {
    let mut numbers = Numbers::new(30);
    for ((steps, topk, nodes), vocabulary, batch) in [
        ((3, 1, 4), 32_000, 1),
        ((5, 8, 32), 32_000, 2),
        ((8, 10, 60), 32_000, 2),
        ((1, 4, 5), 2, 3),
        ((4, 5, 40), 2, 3),
        ((3, 4, 30), 1, 3),
        ((2, 32, 128), 32_000, 2),
        ((10, 32, 128), 32_000, 1),
        ((3, 64, 128), 32_000, 1),
        ((127, 1, 128), 32_000, 2),
        ((1, 1, 2), 32_000, 40),
    ] {
        check_shape(device, &mut numbers, (steps, topk, nodes), vocabulary, batch)?;
    }
    for _ in 0..60 {
        let steps = 1 + numbers.below(10);
        let topk = 1 + numbers.below(if steps > 6 { 10 } else { 32 });
        let places = topk + (steps - 1) * topk * topk;
        let largest = (1 + places).min(128);
        let nodes = if topk == 1 { steps + 1 } else { 2 + numbers.below(largest - 1) };
        let vocabulary = if numbers.below(4) == 0 { 1 + numbers.below(topk) } else { 32_000 };
        let batch = 1 + if places > 600 { numbers.below(2) } else { numbers.below(40) };
        if places <= MOST_PLACES {
            check_shape(device, &mut numbers, (steps, topk, nodes), vocabulary, batch)?;
        }
    }
    Ok(())
}

/// Rows of rounds without speculation, at every batch size.
pub fn check_decode_rows(device: &Device) -> Result<(), String> {
    let kernels = Kernels::new(device.clone(), Element::F32);
    let mut numbers = Numbers::new(31);
    for batch in [1, 2, 17, 64, 65, 130] {
        let what = format!("decode rows, batch {batch}");
        let situation = Situation::new(&mut numbers, batch, usize::from(batch != 65));
        let uploaded = situation.upload(device)?;
        let buffer = |values: usize| poisoned(device, values);
        let tree_buffers = [buffer(batch)?, buffer(batch)?, buffer(batch)?, buffer(0)?];
        let rows = RowBuffers::new(device, batch, 1)?;
        let sample_position = buffer(batch)?;
        let turn = Turn::new(device, &mut numbers)?;
        let verify =
            VerifyRows { sample_position: sample_position.slice(), group_prefix: None, outputs: Some(turn.operand()) };
        let (tree, sequences) = (tree_operand(&tree_buffers, 1), situation.sequences(&uploaded));
        kernels
            .decode_begin(batch, uploaded.batch_slot.slice(), sequences, tree, rows.operand(), verify)
            .map_err(text)?;
        let mut expected = empty_rows();
        for request in 0..batch {
            let token = situation.root[situation.batch_slot[request] as usize];
            let Some(slot) = situation.slot(request) else {
                push_padding(&mut expected, &situation, token);
                continue;
            };
            let length = situation.length[slot];
            expected.token.push(token);
            expected.position.push(length);
            expected.write.push(situation.cache_row(slot, length));
            expected.slot.push(slot as i32);
            expected.prefix.push((length + 1).min(situation.limit()));
            expected.own.push(Vec::new());
        }
        same_rows(&what, &rows.download(device)?, &expected)?;
        same(&what, &ints(device, &tree_buffers[0])?, &expected.token)?;
        same(&what, &ints(device, &tree_buffers[1])?, &vec![-1; batch])?;
        same(&what, &ints(device, &tree_buffers[2])?, &vec![0; batch])?;
        let positions: Vec<i32> = expected.position.iter().map(|position| position + 1).collect();
        same(&what, &ints(device, &sample_position)?, &positions)?;
        turn.check(device, &what)?;
    }
    Ok(())
}
