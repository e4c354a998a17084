//! What drafts would accept at every position, for a simulation in which a policy decides where
//! rounds start.

use std::{cell::RefCell, collections::HashMap, path::Path, rc::Rc};

use engine::{
    PlayedAcceptance, PlayedTree,
    replay::trace::{Nodes, PositionTrace, ROOT},
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

    /// Traces of the same texts and draft, one for each limit.
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
        // Texts without a position have no round.
        let keep = |mut trace: PositionTrace| {
            trace.texts.retain(|text| !text.positions.is_empty());
            trace
        };
        let traces = traces.into_iter().map(keep).collect();
        Ok(Self { source: KnownAcceptance::Traced(traces), algorithm, accepted: RefCell::default() })
    }

    /// Accept lengths of chains of 1, 2, … drafts, measured elsewhere: tokens per round, bonus
    /// token included. Each position is independent of the others. The drafts of a chain must be a
    /// prefix of those of a longer one, as those of causal drafts are.
    ///
    /// # Errors
    /// Without a length, or when lengths fall, or a draft would be accepted more often than the one
    /// before it.
    pub fn golden(lengths: &[f64]) -> Result<Self, TunerError> {
        let before = std::iter::once(1.0).chain(lengths.iter().copied());
        // A longer chain adds the probability that its last draft is accepted.
        let survival: Vec<f64> = lengths.iter().zip(before).map(|(length, before)| length - before).collect();
        // With room for rounding: differences of decimal numbers are not exact.
        let falling = survival.windows(2).all(|pair| pair[1] <= pair[0] + 1e-9);
        let within = survival.iter().all(|chance| (0.0..=1.0).contains(chance));
        if survival.is_empty() || !within || !falling {
            return Err(TunerError::Configuration(format!(
                "accept lengths {lengths:?}: expected those of chains of 1, 2, … drafts, bonus token included, each \
                 larger than the one before by no more than that was, from 1 to 2 for one draft"
            )));
        }
        Ok(Self { source: KnownAcceptance::Survival(survival), algorithm: None, accepted: RefCell::default() })
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
                // The end of the output cuts the last round short.
                let kept = (usize::from(text[at]) + 1).min(text.len() - at);
                at += kept;
                tokens += kept;
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
                let kept = (usize::from(text[at]) + 1).min(text.len() - at);
                if ((prompt + at) as f64) > from && (prompt + at) as f64 <= to {
                    tokens += kept;
                    rounds += 1;
                }
                at += kept;
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
}
