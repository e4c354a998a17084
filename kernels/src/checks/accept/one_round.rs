//! The acceptance of one round: what the kernel leaves, against what a plain walk does.

use super::{
    super::{
        Numbers,
        layout::{RowBuffers, RowValues, empty_rows, ints, poisoned, push_padding, same, same_rows},
        text,
    },
    AcceptFixture, NOT_REQUESTED, RoundLength,
};
use crate::{
    device::{Buffer, Device, Element},
    launch::{AcceptOutputs, Kernels, ListedNodes, Moves, NOT_FINITE, Outputs, SlotTexts, VerifiedNodes},
};

/// How a round is run.
struct RoundSetup {
    /// Rows of a request.
    most: usize,
    /// For each node its place in the list of the nodes over which the target ran, or -1; `None` if
    /// it ran over all.
    places: Option<Vec<i32>>,
    /// Whether it ran over no others. Otherwise rows of the batch come before those of the list.
    only_listed: bool,
    /// Width of a slot's text, if texts are kept.
    text_width: Option<usize>,
    /// Which of how many outputs is written, and the integers of each.
    turn: (usize, usize),
    ints_of_turn: usize,
}

/// Buffers of everything that acceptance writes.
struct Buffers {
    node: Buffer,
    output: Buffer,
    from: Buffer,
    to: Buffer,
    rows: RowBuffers,
    row_source: Buffer,
    last_row: Buffer,
    group_prefix: Buffer,
    group_rows: Buffer,
    texts: Buffer,
}

/// What acceptance leaves.
struct ExpectedRound {
    counts: Vec<i32>,
    nodes: Vec<i32>,
    tokens: Vec<i32>,
    sources: Vec<i32>,
    lasts: Vec<i32>,
    prefixes: Vec<i32>,
    moves: [Vec<i32>; 2],
    rows: RowValues,
    length: Vec<i32>,
    root: Vec<i32>,
    texts: Vec<i32>,
}

/// One round's acceptance; returns the mean of the counts of the requests that are not padding,
/// unless paths may end early at nodes over which the target has not run.
pub(super) fn check_one(
    device: &Device,
    numbers: &mut Numbers,
    shape: (usize, usize, usize),
    simulation: RoundLength,
) -> Result<Option<f64>, String> {
    let (batch, nodes, steps) = shape;
    let what = format!("acceptance of {nodes} nodes, {steps} steps, batch {batch}, simulation {simulation:?}");
    let kernels = Kernels::new(device.clone(), Element::F32);
    let ahead = if numbers.below(6) == 0 { 0 } else { nodes.max(steps + 1) };
    let mut fixture = AcceptFixture::new(device, numbers, shape, simulation, ahead)?;
    // If the target has run over listed nodes, some tokens are unknown: any in two passes, else
    // those after the others. Roots are listed.
    let (is_listed, only_listed) = (numbers.below(2) == 0, numbers.below(2) == 0);
    let place = |at: usize| if !at.is_multiple_of(nodes) && numbers.below(2) == 0 { -1 } else { at as i32 };
    let places: Vec<i32> = (0..batch * nodes).map(place).collect();
    match (is_listed, only_listed) {
        (true, true) => fixture.trees.forget_others(&places),
        (true, false) => fixture.trees.forget_some(numbers),
        (false, _) => {}
    }
    if numbers.below(3) == 0 {
        fixture.trees.break_some(numbers);
    }
    let setting = RoundSetup::new(numbers, &fixture, is_listed.then_some(places), only_listed);
    let buffers = Buffers::new(device, &fixture, &setting)?;
    let (before, texts) = (ints(device, &buffers.output)?, ints(device, &buffers.texts)?);
    run(&kernels, &fixture, &setting, &buffers)?;
    let expected = ExpectedRound::new(&fixture, &setting, texts);
    expected.check(device, &what, &fixture, &setting, &buffers, before)?;
    let is_real = |request: &usize| fixture.situation.slot(*request).is_some();
    let real: Vec<f64> = (0..batch).filter(is_real).map(|at| f64::from(expected.counts[at])).collect();
    Ok((!is_listed).then(|| real.iter().sum::<f64>() / real.len().max(1) as f64))
}

impl RoundSetup {
    fn new(numbers: &mut Numbers, fixture: &AcceptFixture, places: Option<Vec<i32>>, only_listed: bool) -> Self {
        let turns = 1 + numbers.below(3);
        let place = numbers.below(turns);
        let ints_of_turn = fixture.batch * (1 + fixture.most) + numbers.below(3);
        let (keeps_text, spare) = (numbers.below(2) == 0, numbers.below(2));
        let text_width = keeps_text.then(|| fixture.situation.limit() as usize + spare);
        Self { most: fixture.most, places, only_listed, text_width, turn: (place, turns), ints_of_turn }
    }
}

impl Buffers {
    fn new(device: &Device, fixture: &AcceptFixture, setting: &RoundSetup) -> Result<Self, String> {
        let (batch, all) = (fixture.batch, fixture.batch * setting.most);
        let buffer = |values: usize| poisoned(device, values);
        Ok(Self {
            node: buffer(all)?,
            output: buffer(setting.turn.1 * setting.ints_of_turn)?,
            from: buffer(all)?,
            to: buffer(all)?,
            rows: RowBuffers::new(device, all, 1)?,
            row_source: buffer(all)?,
            last_row: buffer(batch)?,
            group_prefix: buffer(batch)?,
            group_rows: buffer(batch)?,
            texts: buffer(fixture.situation.slots * setting.text_width.unwrap_or(1))?,
        })
    }
}

fn run(kernels: &Kernels, fixture: &AcceptFixture, setting: &RoundSetup, buffers: &Buffers) -> Result<(), String> {
    let device = kernels.device();
    let upload = |values: &[i32]| device.upload(values).map_err(text);
    let choices = upload(&fixture.trees.chosen)?;
    // Tokens after listed nodes are in the order of the list.
    let chosen = match setting.places.is_some() && setting.only_listed {
        true => poisoned(device, fixture.trees.chosen.len())?,
        false => upload(&fixture.trees.chosen)?,
    };
    let place = upload(&[setting.turn.0 as i32])?;
    let places = setting.places.as_deref().map(upload).transpose()?;
    let first = poisoned(device, fixture.batch + 1)?;
    let listed = places.as_ref().map(|places| ListedNodes {
        place: places.slice(),
        row: places.slice(),
        choice: choices.slice(),
        first: first.slice(),
        capacity: fixture.trees.chosen.len(),
    });
    let acceptance = AcceptOutputs {
        node: buffers.node.slice(),
        outputs: Outputs { at: buffers.output.slice(), places: setting.turn.1, place: place.slice() },
        moves: Moves { from: buffers.from.slice(), to: buffers.to.slice() },
        rows: buffers.rows.operand(),
        row_source: buffers.row_source.slice(),
        last_row: buffers.last_row.slice(),
        group_prefix: Some(buffers.group_prefix.slice()),
        group_rows: Some(buffers.group_rows.slice()),
        texts: setting.text_width.map(|width| SlotTexts { at: buffers.texts.slice(), width }),
        verified: match listed {
            None => VerifiedNodes::All,
            Some(listed) if setting.only_listed => VerifiedNodes::ListedOnly(listed),
            Some(listed) => VerifiedNodes::ListedFirst(listed),
        },
    };
    kernels.accept(fixture.ways(&chosen), acceptance, fixture.situation.sequences(&fixture.uploaded)).map_err(text)
}

impl ExpectedRound {
    /// From the texts before the round.
    fn new(fixture: &AcceptFixture, setting: &RoundSetup, texts: Vec<i32>) -> Self {
        let none = Vec::new;
        let mut expected = Self {
            counts: none(),
            nodes: none(),
            tokens: none(),
            sources: none(),
            lasts: none(),
            prefixes: none(),
            moves: [none(), none()],
            rows: empty_rows(),
            length: fixture.situation.length.clone(),
            root: fixture.situation.root.clone(),
            texts,
        };
        (0..fixture.batch).for_each(|request| expected.add_request(fixture, setting, request));
        expected
    }

    fn add_request(&mut self, fixture: &AcceptFixture, setting: &RoundSetup, request: usize) {
        let (situation, nodes) = (&fixture.situation, fixture.trees.nodes);
        let choice = |node: usize| fixture.trees.chosen[request * nodes + node];
        let mut way = fixture.way(request);
        let known = way.iter().take_while(|node| choice(**node) != NOT_REQUESTED).count();
        way.truncate(known.max(1));
        (0..setting.most).for_each(|at| self.add_row(fixture, setting, request, &way, at));
        let slot = situation.slot(request);
        let start = slot.map_or(0, |slot| situation.length[slot]);
        self.counts.push(way.len() as i32);
        self.lasts.push((request * setting.most + way.len() - 1) as i32);
        self.prefixes.push(start);
        let Some(slot) = slot else { return };
        let token_of = |node: &usize| choice(*node).max(0);
        if let Some(width) = setting.text_width {
            let produced = std::iter::once(situation.root[slot]).chain(way.iter().map(token_of));
            let text = self.texts[slot * width..][..width].iter_mut().skip(start as usize);
            text.zip(produced).for_each(|(to, token)| *to = token);
        }
        self.length[slot] = (start + way.len() as i32).min(situation.limit());
        self.root[slot] = token_of(&way[way.len() - 1]);
    }

    /// The row at an index of a request, which is padding after the accepted path.
    fn add_row(&mut self, fixture: &AcceptFixture, setting: &RoundSetup, request: usize, way: &[usize], at: usize) {
        let (situation, nodes) = (&fixture.situation, fixture.trees.nodes);
        let node = way[at.min(way.len() - 1)];
        let choice = fixture.trees.chosen[request * nodes + node];
        let slot = situation.slot(request);
        let start = slot.map_or(0, |slot| situation.length[slot]);
        let position = start + at as i32;
        self.nodes.push(node as i32);
        self.tokens.push(if choice == NOT_FINITE { -(position + 1) } else { choice });
        self.sources.push(match setting.places.as_ref().map(|places| places[request * nodes + node]) {
            None => (request * nodes + node) as i32,
            Some(-1) => request as i32,
            Some(place) if setting.only_listed => place,
            Some(place) => fixture.batch as i32 + place,
        });
        let Some(slot) = slot.filter(|_| at < way.len() && position < situation.limit()) else {
            self.moves.iter_mut().for_each(|rows| rows.push(-1));
            push_padding(&mut self.rows, situation, choice.max(0));
            return;
        };
        let (from, to) = (situation.cache_row(slot, start + node as i32), situation.cache_row(slot, position));
        self.moves[0].push(from);
        self.moves[1].push(if from < 0 { -1 } else { to });
        self.rows.token.push(choice.max(0));
        self.rows.position.push(position);
        self.rows.write.push(to);
        self.rows.slot.push(slot as i32);
        self.rows.prefix.push(position + 1);
        self.rows.own.push(Vec::new());
    }

    /// Compares it with what the kernel left; `outputs` are those before the round.
    fn check(
        &self,
        device: &Device,
        what: &str,
        fixture: &AcceptFixture,
        setting: &RoundSetup,
        buffers: &Buffers,
        mut outputs: Vec<i32>,
    ) -> Result<(), String> {
        let own = &mut outputs[setting.turn.0 * setting.ints_of_turn..];
        let (counts, tokens) = own.split_at_mut(fixture.batch);
        counts.copy_from_slice(&self.counts);
        tokens[..self.tokens.len()].copy_from_slice(&self.tokens);
        for (name, found, expected) in [
            ("output", &buffers.output, &outputs),
            ("nodes", &buffers.node, &self.nodes),
            ("source", &buffers.row_source, &self.sources),
            ("last row", &buffers.last_row, &self.lasts),
            ("group prefix", &buffers.group_prefix, &self.prefixes),
            ("group rows", &buffers.group_rows, &self.counts),
            ("moves from", &buffers.from, &self.moves[0]),
            ("moves to", &buffers.to, &self.moves[1]),
            ("length", &fixture.uploaded.length, &self.length),
            ("root", &fixture.uploaded.root, &self.root),
            ("text", &buffers.texts, &self.texts),
        ] {
            same(&format!("{what}, {name}"), &ints(device, found)?, expected)?;
        }
        same_rows(&format!("{what}, extension rows"), &buffers.rows.download(device)?, &self.rows)
    }
}
