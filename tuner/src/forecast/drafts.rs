//! What drafts would accept at every position, for a simulation in which a policy decides where
//! rounds start.

use std::{cell::RefCell, collections::HashMap, path::Path, rc::Rc};

use engine::{
    PlayedAcceptance, PlayedTree,
    replay::trace::{Nodes, PositionTrace, ROOT, TextTrace},
};
use schemas::tree::TreeShape;

use super::policy::likeliest::likeliest_by_score;
use crate::{TunerError, files::traces};

/// A source of acceptance.
#[derive(Debug)]
pub struct Drafts {
    source: KnownAcceptance,
    /// The draft's algorithm, if it is known.
    algorithm: Option<String>,
    /// How the given acceptance was read, if not as it is.
    note: Option<String>,
    /// Accepted drafts by shape, text and position.
    accepted: RefCell<HashMap<TreeShape, Accepted>>,
}

/// `[text][position]`.
type Accepted = Rc<Vec<Vec<u16>>>;

#[derive(Debug)]
enum KnownAcceptance {
    Traced(Vec<PositionTrace>),
    /// Entry d: the probability that at least d + 1 drafts of a chain are accepted.
    Survival(Vec<f64>),
}

/// Rounds of requests, and rounds of a batch, from which the accept length of a budget is taken.
const LEAST_SHARED: usize = 4_000;
const LEAST_ROUNDS: usize = 40;

/// A place in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextPosition {
    /// The text, modulo their number.
    pub text: usize,
    /// The position in its output, modulo their number.
    pub position: usize,
}

impl Drafts {
    /// The traces of a file.
    ///
    /// # Errors
    /// When it cannot be read, and as [`traced`](Self::traced), with its name.
    pub fn read(path: &Path) -> Result<Self, TunerError> {
        let malformed = |reason: String| TunerError::Malformed { path: path.to_owned(), reason };
        Self::traced(traces::read(path)?).map_err(|error| malformed(error.to_string()))
    }

    /// Traces of the same texts and draft, one for each limit. The last positions of texts are left
    /// out, one fewer than the deepest limit has steps.
    ///
    /// # Errors
    /// Without positions, or when the traces belong to different texts or drafts.
    pub fn traced(traces: Vec<PositionTrace>) -> Result<Self, TunerError> {
        let wrong = |reason: &str| Err(TunerError::Configuration(format!("traces: {reason}")));
        let lengths = |trace: &PositionTrace| {
            trace.texts.iter().map(|text| (text.prompt_tokens, text.positions.len())).collect::<Vec<_>>()
        };
        let Some(first) = traces.first() else { return wrong("there is none") };
        if lengths(first).iter().all(|(_, positions)| *positions == 0) {
            return wrong("no text has a position; outputs need at least two tokens");
        }
        if traces.iter().any(|trace| lengths(trace) != lengths(first)) {
            return wrong("they are of different texts");
        }
        if traces.iter().any(|trace| trace.source != first.source) {
            return wrong("they are of different drafts");
        }
        let algorithm = Some(first.source.clone());
        let traces = whole(traces);
        Ok(Self { source: KnownAcceptance::Traced(traces), algorithm, note: None, accepted: RefCell::default() })
    }

    /// Accept lengths of chains of 1, 2, … drafts, measured elsewhere: tokens per round, bonus
    /// token included. Each position is independent of the others. The drafts of a chain must be a
    /// prefix of those of a longer one, as those of causal drafts are. Where a draft would be
    /// accepted more often than the one before it, by no more than rounded or separately measured
    /// lengths may say so, both get their mean.
    ///
    /// # Errors
    /// Without a length, or when lengths fall, or a draft would clearly be accepted more often than
    /// the one before it.
    pub fn golden(lengths: &[f64]) -> Result<Self, TunerError> {
        let before = std::iter::once(1.0).chain(lengths.iter().copied());
        // A longer chain adds the probability that its last draft is accepted.
        let survival: Vec<f64> = lengths.iter().zip(before).map(|(length, before)| length - before).collect();
        // Differences of decimal numbers are not exact.
        let falling = survival.windows(2).all(|pair| pair[1] <= pair[0] + rounding(lengths) + 1e-9);
        let within = survival.iter().all(|chance| (-1e-9..=1.0 + 1e-9).contains(chance));
        if survival.is_empty() || !within || !falling {
            return Err(TunerError::Configuration(format!(
                "accept lengths {lengths:?}: expected those of chains of 1, 2, … drafts, bonus token included, each \
                 larger than the one before by no more than that was, from 1 to 2 for one draft"
            )));
        }
        let pooled = pooled(&survival);
        let moved = pooled.iter().zip(&survival).any(|(pooled, given)| (pooled - given).abs() > 1e-9);
        let read_as = || {
            let sums = pooled.iter().scan(1.0, |sum: &mut f64, chance| {
                *sum += chance;
                Some(format!("{sum:.3}"))
            });
            format!(
                "accept lengths are read as {}: as given, a draft would be accepted more often than the one before it, \
                 as rounding and separate measurements make it seem",
                sums.collect::<Vec<_>>().join(", ")
            )
        };
        let note = moved.then(read_as);
        Ok(Self { source: KnownAcceptance::Survival(pooled), algorithm: None, note, accepted: RefCell::default() })
    }

    /// How the given acceptance was read, if not as it is.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// The same accept lengths, of a draft of this algorithm.
    #[must_use]
    pub fn with_algorithm(self, algorithm: Option<String>) -> Self {
        Self { algorithm, ..self }
    }

    /// The draft's algorithm; `None` if it is not said whose accept lengths these are.
    pub fn algorithm(&self) -> Option<&str> {
        self.algorithm.as_deref()
    }

    /// The limits of the traces; empty without traces.
    pub fn limits(&self) -> Vec<TreeShape> {
        let KnownAcceptance::Traced(traces) = &self.source else { return Vec::new() };
        traces.iter().map(|trace| trace.limit).collect()
    }

    /// The largest trees of each depth in the traces, each once; empty without traces.
    pub fn largest(&self) -> Vec<TreeShape> {
        let KnownAcceptance::Traced(traces) = &self.source else { return Vec::new() };
        let mut all: Vec<TreeShape> = Vec::new();
        for shape in traces.iter().flat_map(|trace| trace.largest.iter().copied()) {
            if !all.contains(&shape) {
                all.push(shape);
            }
        }
        all
    }

    /// Number of texts; 1 without texts.
    pub fn texts(&self) -> usize {
        match &self.source {
            KnownAcceptance::Traced(traces) => traces.first().map_or(1, |trace| trace.texts.len()),
            KnownAcceptance::Survival(_) => 1,
        }
    }

    /// Tokens of the prompt of a text; 0 without texts.
    pub fn prompt_tokens(&self, text: usize) -> usize {
        let KnownAcceptance::Traced(traces) = &self.source else { return 0 };
        let texts = traces.first().map(|trace| trace.texts.as_slice()).unwrap_or_default();
        texts.get(text % texts.len().max(1)).map_or(0, |text| text.prompt_tokens)
    }

    /// Whether the acceptance of a shape is known.
    pub fn knows(&self, shape: TreeShape) -> bool {
        match &self.source {
            KnownAcceptance::Traced(traces) => traces.iter().any(|trace| trace.contains(shape.drafted())),
            // A budget goes by scores.
            KnownAcceptance::Survival(_) if shape.row_budget.is_some() => false,
            KnownAcceptance::Survival(survival) => shape.topk == 1 && shape.num_steps <= survival.len(),
        }
    }

    /// Tokens per round of a shape, bonus token included, at a batch size: the accept length, or
    /// with a budget that of requests which follow the texts together and share its rows.
    ///
    /// # Errors
    /// When the shape is unknown.
    pub fn accept_length_at(&self, shape: TreeShape, batch: usize) -> Result<f64, TunerError> {
        if shape.row_budget.is_none() {
            return self.accept_length(shape);
        }
        let limit = shape.drafted();
        let texts = self.positions(limit).unwrap_or_default();
        if texts.is_empty() || batch == 0 {
            return Err(unknown(shape));
        }
        // Starts are spread over all texts and positions by steps of two golden ratios.
        let part = |at: usize, ratio: f64, of: usize| ((at as f64 * ratio).fract() * of as f64) as usize % of;
        let start = |at: usize| {
            let text = part(at, 0.618_033_988_749_895, texts.len());
            (text, part(at, 0.414_213_562_373_095, texts[text].len()))
        };
        let mut places: Vec<(usize, usize)> = (0..batch).map(start).collect();
        let rounds = LEAST_SHARED.div_ceil(batch).max(LEAST_ROUNDS);
        let mut tokens = 0;
        for _ in 0..rounds {
            let nodes: Vec<&Nodes> = places.iter().map(|(text, at)| &texts[*text][*at]).collect();
            let kept = likeliest_by_score(&nodes, limit, shape.verified_rows(batch) - batch);
            for ((place, nodes), kept) in places.iter_mut().zip(nodes).zip(kept) {
                let produced = 1 + nodes.accepted(&kept);
                tokens += produced;
                place.1 = (place.1 + produced) % texts[place.0].len();
            }
        }
        Ok(tokens as f64 / (rounds * batch) as f64)
    }

    /// Drafts that a round of a shape accepts at a place; `chance` is a random number of 0 to 1 for
    /// sources without texts, the same for all shapes.
    ///
    /// # Errors
    /// When the shape is unknown.
    pub fn accepted(&self, shape: TreeShape, place: TextPosition, chance: f64) -> Result<usize, TunerError> {
        if shape.is_off() {
            return Ok(0);
        }
        if shape.row_budget.is_some() {
            return Err(TunerError::Configuration(format!(
                "what {shape} accepts depends on the other requests: a budget has no acceptance of its own"
            )));
        }
        if !self.knows(shape) {
            return Err(unknown(shape));
        }
        if let KnownAcceptance::Survival(survival) = &self.source {
            // One random number for all depths, so that a longer chain accepts no less.
            return Ok(survival[..shape.num_steps].iter().take_while(|survival| chance < **survival).count());
        }
        let table = self.table(shape);
        let text = &table[place.text % table.len()];
        Ok(usize::from(text[place.position % text.len()]))
    }

    /// What the engine plays so that rounds of these shapes accept what this says at each place;
    /// `None` if none speculates.
    ///
    /// # Errors
    /// When a shape is unknown, or there are no texts.
    pub fn played(&self, shapes: &[TreeShape]) -> Result<Option<PlayedAcceptance>, TunerError> {
        let mut shapes: Vec<TreeShape> = shapes.iter().copied().filter(|shape| !shape.is_off()).collect();
        shapes.sort_unstable();
        shapes.dedup();
        if shapes.is_empty() {
            return Ok(None);
        }
        if let KnownAcceptance::Survival(_) = self.source {
            return Err(TunerError::Configuration("acceptance can be played from a trace only".into()));
        }
        let trees = |shape: TreeShape| {
            let texts = self.positions(shape.drafted()).ok_or_else(|| unknown(shape))?;
            let tree = |nodes: &Nodes| played_tree(nodes, shape.drafted());
            Ok((shape, texts.into_iter().map(|text| text.iter().map(tree).collect()).collect()))
        };
        let trees = shapes.into_iter().map(trees).collect::<Result<_, TunerError>>()?;
        Ok(Some(PlayedAcceptance::with_trees(trees)?))
    }

    /// The nodes at a place, of the first trace that contains this tree; `None` if there is none.
    pub fn nodes(&self, limit: TreeShape, place: TextPosition) -> Option<&Nodes> {
        let KnownAcceptance::Traced(traces) = &self.source else { return None };
        let trace = traces.iter().find(|trace| trace.contains(limit))?;
        let text = &trace.texts[place.text % trace.texts.len()];
        Some(&text.positions[place.position % text.positions.len()])
    }

    /// The positions of each text, of the first trace that contains this tree; `None` if there is
    /// none.
    pub fn positions(&self, limit: TreeShape) -> Option<Vec<&[Nodes]>> {
        let KnownAcceptance::Traced(traces) = &self.source else { return None };
        let trace = traces.iter().find(|trace| trace.contains(limit))?;
        Some(trace.texts.iter().map(|text| text.positions.as_slice()).collect())
    }

    /// The positions of every second text, for calibration; all if there is one text. Empty without
    /// such a trace.
    pub fn every_second(&self, limit: TreeShape) -> Vec<&Nodes> {
        self.positions(limit).into_iter().flatten().step_by(2).flatten().collect()
    }

    /// Tokens per round of a shape, bonus token included: of rounds one after the other along the
    /// texts.
    ///
    /// # Errors
    /// When the shape is unknown.
    pub fn accept_length(&self, shape: TreeShape) -> Result<f64, TunerError> {
        if let (KnownAcceptance::Survival(survival), true) = (&self.source, self.knows(shape)) {
            return Ok(1.0 + survival[..shape.num_steps].iter().sum::<f64>());
        }
        // Only for its error: the shape may be unknown.
        self.accepted(shape, TextPosition { text: 0, position: 0 }, 0.0)?;
        if shape.is_off() {
            return Ok(1.0);
        }
        let (mut rounds, mut tokens) = (0_usize, 0_usize);
        for text in self.table(shape).iter() {
            let mut at = 0;
            while at < text.len() {
                // The last round goes beyond the places of the text.
                let produced = usize::from(text[at]) + 1;
                at += produced;
                tokens += produced;
                rounds += 1;
            }
        }
        Ok(tokens as f64 / rounds.max(1) as f64)
    }

    /// Tokens per round of a shape, bonus token included, over the rounds along the texts that
    /// start with more than `from` and at most `to` tokens in the cache, and the number of these
    /// rounds. `None` if there is none, or there are no texts.
    ///
    /// # Errors
    /// When the shape is unknown.
    pub fn accept_length_within(
        &self,
        shape: TreeShape,
        from: f64,
        to: f64,
    ) -> Result<Option<(f64, usize)>, TunerError> {
        self.accepted(shape, TextPosition { text: 0, position: 0 }, 0.0)?;
        let KnownAcceptance::Traced(traces) = &self.source else { return Ok(None) };
        if shape.is_off() {
            return Ok(None);
        }
        let prompts = traces.first().into_iter().flat_map(|trace| &trace.texts).map(|text| text.prompt_tokens);
        let (mut rounds, mut tokens) = (0_usize, 0_usize);
        for (text, prompt) in self.table(shape).iter().zip(prompts) {
            let mut at = 0;
            while at < text.len() {
                let produced = usize::from(text[at]) + 1;
                if ((prompt + at) as f64) > from && (prompt + at) as f64 <= to {
                    tokens += produced;
                    rounds += 1;
                }
                at += produced;
            }
        }
        Ok((rounds > 0).then(|| (tokens as f64 / rounds as f64, rounds)))
    }

    /// The accepted drafts of a shape that is traced; computed on first use.
    fn table(&self, shape: TreeShape) -> Accepted {
        let mut tables = self.accepted.borrow_mut();
        let make = || {
            let KnownAcceptance::Traced(traces) = &self.source else { return Rc::default() };
            let trace = traces.iter().find(|trace| trace.contains(shape));
            let texts = trace.map(|trace| trace.texts.as_slice()).unwrap_or_default();
            let accepted = |nodes: &Nodes| nodes.accepted(&nodes.kept(shape)) as u16;
            Rc::new(texts.iter().map(|text| text.positions.iter().map(accepted).collect()).collect())
        };
        Rc::clone(tables.entry(shape).or_insert_with(make))
    }
}

/// How much more often than the one before it a draft may seem to be accepted, in accept lengths of
/// that many decimals: two units of the last one, since three rounded lengths tell it. Lengths of
/// separate measurements scatter by about 0.01 each.
fn rounding(lengths: &[f64]) -> f64 {
    let decimals = |length: &f64| length.to_string().split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let most = lengths.iter().map(decimals).max().unwrap_or_default().clamp(1, 2);
    2.0 * 0.1_f64.powi(most as i32)
}

/// The closest numbers that do not rise: neighbours that do have their mean.
fn pooled(chances: &[f64]) -> Vec<f64> {
    // Each with the number of chances that it stands for.
    let mut pools: Vec<(f64, usize)> = Vec::with_capacity(chances.len());
    for chance in chances {
        let mut own = (chance.clamp(0.0, 1.0), 1);
        while let Some((before, count)) = pools.pop_if(|(before, _)| *before < own.0) {
            let all = own.1 + count;
            own = ((own.0 * own.1 as f64 + before * count as f64) / all as f64, all);
        }
        pools.push(own);
    }
    pools.into_iter().flat_map(|(chance, count)| std::iter::repeat_n(chance, count)).collect()
}

/// The positions of traces at which all that the deepest tree may accept is known: near the end of
/// a text, drafts are not rejected but have no text to be compared with. Requests that go on after
/// the end start the text again, so those positions would count as if they accepted little. If no
/// text has such a position, all positions stay.
fn whole(traces: Vec<PositionTrace>) -> Vec<PositionTrace> {
    let deepest = traces.iter().map(|trace| trace.limit.num_steps).max().unwrap_or_default();
    let kept = |text: &TextTrace| text.positions.len().saturating_sub(deepest.saturating_sub(1));
    let any = traces.iter().flat_map(|trace| &trace.texts).any(|text| kept(text) > 0);
    let keep = |mut trace: PositionTrace| {
        for text in trace.texts.iter_mut().filter(|_| any) {
            text.positions.truncate(kept(text));
        }
        // Texts without a position have no round.
        trace.texts.retain(|text| !text.positions.is_empty());
        trace
    };
    traces.into_iter().map(keep).collect()
}

/// A shape's tree at a position.
fn played_tree(nodes: &Nodes, shape: TreeShape) -> PlayedTree {
    let kept = nodes.kept(shape);
    // Node 0 is the root.
    let node_of = |at: usize| kept.binary_search(&at).map_or(0, |place| place + 1);
    let parent = |at: usize| if nodes.parent[at] == ROOT { 0 } else { node_of(usize::from(nodes.parent[at])) };
    let drafts = kept.iter().map(|at| (parent(*at), nodes.score[*at])).collect();
    let end = nodes.accepted(&kept).checked_sub(1).map_or(0, |last| node_of(usize::from(nodes.on_text[last])));
    PlayedTree { drafts, end }
}

fn unknown(shape: TreeShape) -> TunerError {
    TunerError::Configuration(format!("the acceptance of the tree shape {shape} is unknown: trace it, or leave it out"))
}

#[cfg(test)]
mod tests {
    use engine::replay::trace::FORMAT;
    use rand::{RngExt, SeedableRng, rngs::StdRng};

    use super::*;

    #[test]
    fn golden_lengths_are_survivals_of_positions() {
        let drafts = Drafts::golden(&[1.8, 2.3, 2.6]).expect("they fall");
        let place = TextPosition { text: 0, position: 0 };
        let accepted = |steps, chance| drafts.accepted(TreeShape::chain(steps), place, chance).expect("it is known");
        assert_eq!([0.1, 0.4, 0.7, 0.9].map(|chance| accepted(3, chance)), [3, 2, 1, 0]);
        assert_eq!((accepted(1, 0.1), accepted(0, 0.1)), (1, 0));
        assert!((drafts.accept_length(TreeShape::chain(2)).expect("known") - 2.3).abs() < 1e-9);
        let unknown = drafts.accepted(TreeShape::chain(4), place, 0.0).expect_err("too long").to_string();
        assert!(unknown.contains("4,1,5"), "{unknown}");
        for wrong in [&[][..], &[2.5], &[1.2, 1.9], &[1.5, 1.4]] {
            assert!(Drafts::golden(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn rounded_lengths_are_read_with_a_note() {
        let read = |lengths: &[f64]| {
            let drafts = Drafts::golden(lengths).unwrap_or_else(|error| panic!("{lengths:?}: {error}"));
            let length = |steps| drafts.accept_length(TreeShape::chain(steps)).expect("known");
            ((1..=lengths.len()).map(length).collect::<Vec<_>>(), drafts.note().map(ToOwned::to_owned))
        };
        for lengths in [&[1.79, 2.43, 3.08][..], &[1.98, 2.95, 3.93], &[1.8, 2.4, 3.01]] {
            let (found, note) = read(lengths);
            assert!(found.iter().zip(lengths).all(|(found, given)| (found - given).abs() < 0.11), "{found:?}");
            let gains: Vec<f64> = [1.0].iter().chain(&found).zip(&found).map(|(before, one)| one - before).collect();
            assert!(gains.windows(2).all(|pair| pair[1] <= pair[0] + 1e-9), "{gains:?}");
            assert!(note.is_some_and(|note| note.starts_with("accept lengths are read as ")));
        }
        assert_eq!(read(&[1.8, 2.3, 2.6]).1, None);
        // With three decimals a gain of 0.021 more than before is no rounding.
        assert!(Drafts::golden(&[1.7, 2.3, 2.921]).is_err() && Drafts::golden(&[1.7, 2.3, 2.915]).is_ok());
    }

    /// Texts of a draft whose drafts are accepted with one chance, whatever their depth: at the end
    /// of a text, as many as the text is long.
    fn random_texts(texts: usize, positions: usize, steps: usize) -> Drafts {
        let mut random = StdRng::seed_from_u64(3);
        let mut text = || {
            let nodes = |at: usize| {
                let accepted = (0..steps).take_while(|_| random.random::<f64>() < 0.8).count();
                Nodes {
                    score: (0..steps).map(|step| -0.1 * (step + 1) as f32).collect(),
                    parent: std::iter::once(ROOT).chain(0..steps as u16 - 1).collect(),
                    rank: vec![0; steps],
                    depth: (1..=steps as u16).collect(),
                    chance: vec![None; steps],
                    on_text: (0..accepted.min(positions - at) as u16).collect(),
                    ..Nodes::default()
                }
            };
            let positions = (0..positions).map(nodes).collect::<Vec<_>>();
            TextTrace { prompt_tokens: 10, output_tokens: positions.len() + 1, sampled: false, positions }
        };
        let texts = (0..texts).map(|_| text()).collect();
        let largest = (1..=steps).map(TreeShape::chain).collect();
        let limit = TreeShape::chain(steps);
        let trace = PositionTrace { format: FORMAT, source: "EAGLE3".into(), limit, largest, texts };
        Drafts::traced(vec![trace]).expect("a trace")
    }

    /// Tables and places agree, and neither depends on how long the texts of a trace are.
    #[test]
    fn the_ends_of_short_texts_reject_nothing() {
        for (texts, positions) in [(2000, 15), (400, 63), (20, 1023)] {
            let drafts = random_texts(texts, positions, 7);
            for steps in [1, 3, 7] {
                // 1 + 0.8 + 0.8² + …
                let expected = (1.0 - 0.8_f64.powi(steps as i32 + 1)) / 0.2;
                let shape = TreeShape::chain(steps);
                let table = drafts.accept_length(shape).expect("known");
                let within = drafts.accept_length_within(shape, 0.0, 1e9).expect("known").expect("rounds").0;
                assert!((table / expected - 1.0).abs() < 0.02 && table == within, "{positions} {steps}: {table}");
                let accepted = |position| {
                    let place = TextPosition { text: position % texts, position };
                    drafts.accepted(shape, place, 0.0).expect("known")
                };
                let places = 1.0 + (0..20_000).map(|at| accepted(at) as f64).sum::<f64>() / 20_000.0;
                assert!((places / expected - 1.0).abs() < 0.02, "{positions} {steps}: {places}");
            }
        }
        // Shorter than the draft is deep: what there is stays.
        assert!(random_texts(5, 3, 7).accept_length(TreeShape::chain(7)).is_ok());
    }
}
