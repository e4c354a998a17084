//! Acceptance and compaction, against the plain walk and a plain copy.

mod one_round;

use self::one_round::check_one;
use super::{
    Numbers,
    layout::{Situation, Uploaded, ints, poisoned, same, tree_operand},
    sampling::random_bits,
    text,
};
use crate::{
    device::{Buffer, Device, Element},
    launch::{AcceptInputs, AcceptWalk, CachePlanes, Kernels, ListedNodes, Moves, NOT_FINITE, Played, WalkState},
};

/// Shared with the kernel: separates random draws of simulated acceptance from those of tokens.
const SIMULATION: u64 = 0xA5C3_D2E1_F0B4_9687;

/// A node whose following target token was not requested.
const NOT_REQUESTED: i32 = -1;

/// Simulations that every check of given sizes runs.
const SIMULATIONS: [RoundLength; 5] = [
    RoundLength::Off,
    RoundLength::Length(1.0),
    RoundLength::Length(2.5),
    RoundLength::Length(300.0),
    RoundLength::Played,
];

/// The trees of a batch, node by node.
pub(super) struct Trees {
    pub nodes: usize,
    token: Vec<i32>,
    pub parent: Vec<i32>,
    depth: Vec<i32>,
    /// The target's choices.
    chosen: Vec<i32>,
    /// Coarse, to produce ties.
    pub score: Vec<f32>,
}

impl Trees {
    /// Random trees, at most `steps` deep and sorted by depth as drafts are; some siblings have
    /// equal tokens, some nodes are only padding.
    fn new(numbers: &mut Numbers, batch: usize, nodes: usize, steps: usize) -> Self {
        let mut trees = Self {
            nodes,
            token: Vec::new(),
            parent: Vec::new(),
            depth: Vec::new(),
            chosen: Vec::new(),
            score: Vec::new(),
        };
        let tokens = 1 + numbers.below(6);
        for request in 0..batch {
            let begin = request * nodes;
            let filled = if numbers.below(4) == 0 { 1 + numbers.below(nodes) } else { nodes };
            let narrow = numbers.below(2) == 0;
            let mut depths: Vec<i32> = (1..filled).map(|_| 1 + numbers.below(steps.max(1)) as i32).collect();
            depths.sort_unstable();
            for node in 0..nodes {
                // The depth of a node is at most one more than that of an earlier node.
                let wanted = if node == 0 || node >= filled { 0 } else { depths[node - 1] };
                let candidates: Vec<usize> =
                    (0..node.min(filled)).filter(|at| trees.depth[begin + at] < wanted).collect();
                let deepest = candidates.iter().map(|at| trees.depth[begin + at]).max().unwrap_or(-1);
                let candidates: Vec<usize> =
                    candidates.into_iter().filter(|at| trees.depth[begin + at] == deepest).collect();
                let parent = match candidates.len() {
                    0 => -1,
                    _ if narrow => candidates[0] as i32,
                    count => candidates[numbers.below(count)] as i32,
                };
                let above = if parent < 0 { 0.0 } else { trees.score[begin + parent as usize] };
                trees.score.push(above - numbers.below(3) as f32 * 0.25);
                trees.parent.push(parent);
                trees.depth.push(if parent < 0 { 0 } else { deepest + 1 });
                trees.token.push(numbers.below(tokens) as i32);
            }
            trees.chosen.extend((0..nodes).map(|_| numbers.below(tokens) as i32));
        }
        trees
    }

    /// Makes the choices after a third of the nodes unknown, but not those after roots.
    fn forget_some(&mut self, numbers: &mut Numbers) {
        for (at, choice) in self.chosen.iter_mut().enumerate() {
            if at % self.nodes > 0 && numbers.below(3) == 0 {
                *choice = NOT_REQUESTED;
            }
        }
    }

    /// Makes the choices after nodes without a place unknown.
    fn forget_others(&mut self, places: &[i32]) {
        for (choice, _) in self.chosen.iter_mut().zip(places).filter(|(_, place)| **place < 0) {
            *choice = NOT_REQUESTED;
        }
    }

    /// Removes the token after a few nodes, including roots.
    fn break_some(&mut self, numbers: &mut Numbers) {
        for choice in self.chosen.iter_mut().filter(|choice| **choice != NOT_REQUESTED) {
            if numbers.below(12) == 0 {
                *choice = NOT_FINITE;
            }
        }
    }

    /// The accepted path, from the root.
    fn walk(&self, request: usize) -> Vec<usize> {
        let at = |node: usize| request * self.nodes + node;
        let mut way = vec![0];
        loop {
            let node = way[way.len() - 1];
            let choice = self.chosen[at(node)];
            let accepted = (node + 1..self.nodes)
                .find(|child| self.parent[at(*child)] == node as i32 && self.token[at(*child)] == choice);
            match accepted {
                Some(child) => way.push(child),
                None => return way,
            }
        }
    }

    /// The path to the first node at which `count` tokens are produced, or to `end` if that is one
    /// (0 for none), or the first `count` nodes.
    fn simulated_way(&self, request: usize, (count, end): (usize, usize), most: usize) -> Vec<usize> {
        let count = count.clamp(1, most.min(self.nodes));
        let depths = &self.depth[request * self.nodes..][..self.nodes];
        let end = end.min(self.nodes - 1);
        let given = (end > 0 && depths[end] as usize + 1 == count).then_some(end);
        let Some(node) = given.or_else(|| depths.iter().position(|at| *at as usize + 1 == count)) else {
            return (0..count).collect();
        };
        let mut node = node as i32;
        let mut way = Vec::new();
        while node >= 0 {
            way.push(node as usize);
            node = self.parent[request * self.nodes + node as usize];
        }
        way.reverse();
        way
    }
}

/// How many tokens rounds produce.
#[derive(Clone, Copy, Debug)]
pub(super) enum RoundLength {
    /// As many as the target accepts.
    Off,
    /// This many on average.
    Length(f32),
    /// As many as the trace of a text accepts, where a slot has one.
    Played,
}

/// Texts that are played.
struct PlayedTexts {
    accepted: Vec<i32>,
    /// For each slot, as the kernel reads it.
    places: Vec<[i32; 4]>,
    buffers: [Buffer; 2],
}

impl PlayedTexts {
    /// Three texts of different lengths; a quarter of the slots has none.
    fn new(device: &Device, numbers: &mut Numbers, slots: usize) -> Result<Self, String> {
        let lengths = [1, 7, 40];
        // Accepted drafts, and the node where the path ends, or 0.
        let mut entry = |_| (numbers.below(12) | (numbers.below(2) * numbers.below(200)) << 16) as i32;
        let accepted: Vec<i32> = (0..lengths.iter().sum()).map(&mut entry).collect();
        let place = |numbers: &mut Numbers| {
            let text = numbers.below(4);
            let Some(length) = lengths.get(text).copied() else { return [0; 4] };
            let begin: usize = lengths[..text].iter().sum();
            [begin as i32, length as i32, numbers.below(length) as i32, 0]
        };
        let places: Vec<[i32; 4]> = (0..slots).map(|_| place(numbers)).collect();
        let upload = |values: &[i32]| device.upload(values).map_err(text);
        let buffers = [upload(&accepted)?, upload(places.as_flattened())?];
        Ok(Self { accepted, places, buffers })
    }

    /// Tokens of a round of a slot's sequence of this length, and the node where its path ends;
    /// `None` if it has no text.
    fn count(&self, slot: usize, length: i32) -> Option<(usize, usize)> {
        let [begin, positions, origin, _] = self.places[slot];
        (positions > 0).then(|| {
            let entry = self.accepted[(begin + (origin + length) % positions) as usize] as usize;
            (1 + (entry & 0xFFFF), entry >> 16)
        })
    }
}

/// A batch of trees on a device, with an accepted path each.
pub(super) struct AcceptFixture {
    batch: usize,
    most: usize,
    simulate: Option<f32>,
    texts: Option<PlayedTexts>,
    pub situation: Situation,
    pub uploaded: Uploaded,
    pub trees: Trees,
    tree_buffers: [Buffer; 4],
    seeds: Vec<u64>,
    seed: Buffer,
}

impl AcceptFixture {
    /// Requests with room for this many further positions.
    pub fn new(
        device: &Device,
        numbers: &mut Numbers,
        (batch, nodes, steps): (usize, usize, usize),
        simulation: RoundLength,
        ahead: usize,
    ) -> Result<Self, String> {
        let situation = Situation::new(numbers, batch, ahead);
        let uploaded = situation.upload(device)?;
        let trees = Trees::new(numbers, batch, nodes, steps);
        let seeds: Vec<u64> = (0..situation.slots).map(|_| numbers.bits()).collect();
        let upload = |values: &[i32]| device.upload(values).map_err(text);
        let score = device.upload(&trees.score).map_err(text)?;
        let tree_buffers = [upload(&trees.token)?, upload(&trees.parent)?, upload(&trees.depth)?, score];
        let seed = device.upload(&seeds).map_err(text)?;
        let simulate = if let RoundLength::Length(length) = simulation { Some(length) } else { None };
        let plays = matches!(simulation, RoundLength::Played);
        let texts = plays.then(|| PlayedTexts::new(device, numbers, situation.slots)).transpose()?;
        Ok(Self { batch, most: steps + 1, simulate, texts, situation, uploaded, trees, tree_buffers, seeds, seed })
    }

    /// The kernels' inputs, with these choices.
    pub fn ways<'a>(&'a self, chosen: &'a Buffer) -> AcceptInputs<'a> {
        AcceptInputs {
            batch: self.batch,
            most: self.most,
            batch_slot: self.uploaded.batch_slot.slice(),
            chosen: chosen.slice(),
            tree: tree_operand(&self.tree_buffers, self.trees.nodes),
            simulate: self.simulate,
            seed: self.seed.slice(),
            played: self.texts.as_ref().map(|texts| {
                let [accepted, places] = texts.buffers.each_ref().map(Buffer::slice);
                Played { accepted, places }
            }),
        }
    }

    /// The path of a request; the root for padding.
    fn way(&self, request: usize) -> Vec<usize> {
        let Some(slot) = self.situation.slot(request) else { return vec![0] };
        if let Some(count) = self.texts.as_ref().and_then(|texts| texts.count(slot, self.situation.length[slot])) {
            return self.trees.simulated_way(request, count, self.most);
        }
        let Some(simulate) = self.simulate else { return self.trees.walk(request) };
        let draw = random_bits(self.seeds[slot] ^ SIMULATION, self.situation.length[slot] as usize);
        let wanted =
            simulate as usize + usize::from(draw as f64 / ((1_u64 << 53) as f64) < f64::from(simulate.fract()));
        self.trees.simulated_way(request, (wanted, 0), self.most)
    }
}

/// A random batch, nodes and steps, and in half of the cases simulated acceptance.
fn any_case(numbers: &mut Numbers) -> ((usize, usize, usize), RoundLength) {
    let shape = (1 + numbers.below(40), 2 + numbers.below(127), 1 + numbers.below(10));
    let simulation = match numbers.below(4) {
        0 => RoundLength::Length(1.0 + (numbers.float() + 1.0) * 3.0),
        1 => RoundLength::Played,
        _ => RoundLength::Off,
    };
    (shape, simulation)
}

/// Random trees up to the largest, siblings with equal tokens, padding, rounds without speculation,
/// simulated lengths, played texts.
pub fn check_accept(device: &Device) -> Result<(), String> {
    let mut numbers = Numbers::new(40);
    for shape in [(1, 1, 0), (40, 1, 0), (3, 128, 10), (2, 128, 127), (1, 4, 3), (5, 4, 5), (40, 32, 5)] {
        for simulation in SIMULATIONS {
            check_one(device, &mut numbers, shape, simulation)?;
        }
    }
    for _ in 0..60 {
        let (shape, simulation) = any_case(&mut numbers);
        check_one(device, &mut numbers, shape, simulation)?;
    }
    // Almost all of these trees are deep enough for every draw, so the mean must be near the
    // requested one.
    let rounds: Result<Vec<Option<f64>>, String> =
        (0..60).map(|_| check_one(device, &mut numbers, (40, 64, 1), RoundLength::Length(1.3))).collect();
    let rounds: Vec<f64> = rounds?.into_iter().flatten().collect();
    let mean = rounds.iter().sum::<f64>() / rounds.len() as f64;
    // 1000 draws: the standard error is 0.015; some trees have no draft at all, which only lowers
    // the mean.
    if (mean - 1.3).abs() > 0.08 { Err(format!("simulated acceptance of 1.3 has a mean of {mean}")) } else { Ok(()) }
}

/// The arrays of a [`WalkState`] with this many nodes, poisoned.
fn stand_buffers(device: &Device, nodes: usize) -> Result<[Buffer; 4], String> {
    let buffer = || poisoned(device, nodes);
    Ok([buffer()?, buffer()?, buffer()?, buffer()?])
}

/// One walk, step by step; the host answers at its current node as the target would. A third of the
/// choices requested in advance are unknown, and where no walk needs an answer the host gives an
/// arbitrary one.
fn check_walk(
    device: &Device,
    numbers: &mut Numbers,
    shape: (usize, usize, usize),
    simulation: RoundLength,
    asks_ahead: bool,
) -> Result<(), String> {
    let (batch, nodes, steps) = shape;
    let how = if asks_ahead { ", asked ahead" } else { "" };
    let what = format!("walk over {nodes} nodes, {steps} steps, batch {batch}, simulation {simulation:?}{how}");
    let kernels = Kernels::new(device.clone(), Element::F32);
    let most = steps + 1;
    let mut fixture = AcceptFixture::new(device, numbers, shape, simulation, nodes.max(most))?;
    if numbers.below(3) == 0 {
        fixture.trees.break_some(numbers);
    }
    let fixture = fixture;
    let AcceptFixture { situation, uploaded, trees, .. } = &fixture;
    let all = batch * nodes;
    let [slots, positions] = [0, 1].map(|_| (0..all).map(|_| numbers.below(1000) as i32).collect::<Vec<i32>>());
    let upload = |values: &[i32]| device.upload(values).map_err(text);
    let (row_slot, row_sample) = (upload(&slots)?, upload(&positions)?);
    let chosen = poisoned(device, all)?;
    let stand = stand_buffers(device, batch)?;
    // The list has some nodes of requests that are not padding, in any order.
    let is_requested: Vec<bool> =
        (0..all).map(|at| asks_ahead && situation.slot(at / nodes).is_some() && numbers.below(3) > 0).collect();
    let (mut places, mut choices) = (vec![-1; all], vec![0; all]);
    for (at, node) in (0..all).rev().filter(|at| is_requested[*at]).enumerate() {
        places[node] = at as i32;
        choices[at] = trees.chosen[node];
    }
    let (place, choice, needed) = (upload(&places)?, upload(&choices)?, device.zeros(8).map_err(text)?);
    let first = poisoned(device, batch + 1)?;
    let inner = ListedNodes {
        place: place.slice(),
        row: place.slice(),
        choice: choice.slice(),
        first: first.slice(),
        capacity: all,
    };
    let walk = AcceptWalk {
        row_slot: row_slot.slice(),
        row_sample_position: row_sample.slice(),
        stand: WalkState::from(&stand),
        ahead: asks_ahead.then_some(inner),
        needed: needed.slice(),
    };
    let ways: Vec<Vec<usize>> = (0..batch).map(|request| fixture.way(request)).collect();
    let mut known: Vec<i32> =
        (0..all).map(|at| if is_requested[at] { trees.chosen[at] } else { NOT_REQUESTED }).collect();
    for step in 0..=most {
        kernels.advance_accept(fixture.ways(&chosen), walk, step, situation.sequences(uploaded)).map_err(text)?;
        same(&format!("{what}, choices at step {step}"), &ints(device, &chosen)?, &known)?;
        let stands = |(request, way): (usize, &Vec<usize>)| {
            let mut rows = way.iter().map(|node| request * nodes + node);
            rows.clone().find(|row| known[*row] == NOT_REQUESTED).or_else(|| rows.next_back()).unwrap_or_default()
        };
        let rows: Vec<usize> = ways.iter().enumerate().map(stands).collect();
        let of = |values: &[i32]| rows.iter().map(|row| values[*row]).collect::<Vec<i32>>();
        let expected: Vec<i32> = rows.iter().map(|row| *row as i32).collect();
        let [row, slot, sample, _] = &stand;
        for (name, found, expected) in
            [("row", row, expected), ("slot", slot, of(&slots)), ("position", sample, of(&positions))]
        {
            same(&format!("{what}, {name} at step {step}"), &ints(device, found)?, &expected)?;
        }
        let awaits = |row: &usize| situation.slot(row / nodes).is_some() && known[*row] == NOT_REQUESTED;
        let is_awaited = rows.iter().any(awaits);
        let mut expected = [0, 0];
        expected[step % 2] = i32::from(is_awaited);
        same(&format!("{what}, needed at step {step}"), &ints(device, &needed)?, &expected)?;
        // Rows that are not needed may yield any token; it is still stored after the root of
        // padding, about which nothing is known.
        let answers: Vec<i32> =
            if is_awaited { of(&trees.chosen) } else { rows.iter().map(|row| *row as i32 % 7).collect() };
        for (row, answer) in rows.iter().zip(&answers) {
            if known[*row] == NOT_REQUESTED {
                known[*row] = *answer;
            }
        }
        device.write(WalkState::from(&stand).choice, &answers).map_err(text)?;
    }
    let is_on_way = |at: usize| ways[at / nodes].contains(&(at % nodes));
    let is_right = |at: usize| situation.slot(at / nodes).is_none() || known[at] == trees.chosen[at];
    match (0..all).find(|at| is_on_way(*at) && !is_right(*at)) {
        Some(at) => Err(format!("{what}: choice {at} is {}, expected {}", known[at], trees.chosen[at])),
        None => Ok(()),
    }
}

/// Walks step by step over the same trees, with padding, and with some nodes computed in advance:
/// compares their current nodes, the choices that they store, and whether more are needed.
pub fn check_advance_accept(device: &Device) -> Result<(), String> {
    let mut numbers = Numbers::new(42);
    for shape in [(3, 128, 10), (2, 128, 127), (1, 4, 3), (40, 32, 5)] {
        for simulation in SIMULATIONS {
            for asks_ahead in [false, true] {
                check_walk(device, &mut numbers, shape, simulation, asks_ahead)?;
            }
        }
    }
    for _ in 0..20 {
        let (shape, simulation) = any_case(&mut numbers);
        let asks_ahead = numbers.below(2) == 0;
        check_walk(device, &mut numbers, shape, simulation, asks_ahead)?;
    }
    Ok(())
}

/// Rows of all widths in whole accesses; rows that do not move stay unchanged.
pub fn check_compact_cache(device: &Device, element: Element) -> Result<(), String> {
    let kernels = Kernels::new(device.clone(), element);
    let mut numbers = Numbers::new(41);
    for (batch, most, planes, width) in
        [(1, 1, 2, 64), (3, 6, 4, 64), (4, 11, 2, 1024), (2, 40, 2, 1536), (17, 4, 6, 8)]
    {
        let what = format!("compaction of {most} rows of {width}, batch {batch}, {planes} planes");
        let situation = Situation::new(&mut numbers, batch, 2 * most);
        let rows = situation.cache_rows;
        let before = numbers.floats(planes * rows * width, element);
        let caches = device.upload(&element.encode(&before)).map_err(text)?;
        let (mut from, mut to) = (vec![-1; batch * most], vec![-1; batch * most]);
        let mut expected = before;
        for request in 0..batch {
            let Some(slot) = situation.slot(request) else { continue };
            let start = situation.length[slot];
            let mut node = 0;
            for at in 0..1 + numbers.below(most) {
                let (source, target) =
                    (situation.cache_row(slot, start + node), situation.cache_row(slot, start + at as i32));
                (from[request * most + at], to[request * most + at]) = (source, target);
                for plane in expected.chunks_mut(rows * width) {
                    let source = source as usize * width;
                    plane.copy_within(source..source + width, target as usize * width);
                }
                node += 1 + i32::from(node < most as i32 && numbers.below(2) == 0);
            }
        }
        let (from, to) = (device.upload(&from).map_err(text)?, device.upload(&to).map_err(text)?);
        let planes = CachePlanes { at: caches.slice(), planes, rows, row_bytes: width * element.bytes() };
        kernels.compact_cache(planes, Moves { from: from.slice(), to: to.slice() }, batch, most).map_err(text)?;
        same(&what, &super::values(device, caches.slice(), element)?, &expected)?;
    }
    Ok(())
}
