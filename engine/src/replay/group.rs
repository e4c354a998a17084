//! Texts that are on the device together, and the walks of all shapes along them.

mod positions;

use std::{
    collections::{BTreeSet, HashMap},
    ops::{ControlFlow, Range},
};

use schemas::tree::TreeShape;

use super::{ReplayReport, ReplayText, ShapeAcceptance, expected::Chances, family::ShapeFamily, kept::StateFile};
use crate::{
    backend::{
        Capacity, PageId, Pool, PrefillChunk, Replay, ReplayPlace, RequiredTree, Slot, TargetStates, expect_finite,
    },
    error::EngineError,
    pages::{PagePool, PageTable},
    text_drafts::SecondSource,
    tree::{LookedUp, joined},
};

/// As many texts as fit on the device; text i is in slot i.
pub struct TextGroup<'a> {
    backend: &'a mut dyn Replay,
    texts: &'a [ReplayText],
    pool: PagePool,
    /// The pages of each text.
    tables: Vec<PageTable>,
    /// Index of the group's first text among all texts.
    first: usize,
    families: Vec<ShapeFamily>,
    walks: Vec<Walk>,
    shapes: usize,
    chances: Chances,
    /// What rounds at each position of the outputs would look up beside the draft, text by text;
    /// `None` without a second source.
    looked_up: Option<Vec<Vec<LookedUp>>>,
}

/// A shape's walk along a text.
struct Walk {
    text: usize,
    shape: TreeShape,
    /// The position of the next round's root.
    at: usize,
    counted: ShapeAcceptance,
}

/// Number of pages for the positions of a text. The last token is in no cache but that of a draft
/// that is ahead.
pub fn pages(text: &ReplayText, capacity: Capacity) -> usize {
    let positions = text.tokens.len().saturating_sub(1) + capacity.draft_ahead;
    positions.div_ceil(capacity.page_size.max(1))
}

impl<'a> TextGroup<'a> {
    /// Opens slots for texts from index `first` on: as many as fit, at least one.
    ///
    /// # Errors
    /// When the first text does not fit, or a slot cannot be opened.
    pub fn open(
        backend: &'a mut dyn Replay,
        texts: &'a [ReplayText],
        first: usize,
        shapes: &[TreeShape],
        second_source: Option<&mut SecondSource>,
    ) -> Result<Self, EngineError> {
        let texts = &texts[first..];
        let capacity = backend.capacity();
        let speculates = shapes.iter().any(|shape| !shape.is_off());
        let (mut pool, mut tables) = (PagePool::new(&capacity), Vec::new());
        for text in texts.iter().take(capacity.slots) {
            let Some((table, _)) = pool.open(&[], pages(text, capacity)) else { break };
            let count = tables.len();
            match open(backend, Slot(count as u32), text, table.ids(), speculates) {
                Ok(()) => tables.push(table),
                Err(EngineError::OutOfMemory { .. }) if count > 0 => break,
                Err(error) => {
                    (0..count).for_each(|at| backend.close(Slot(at as u32)));
                    return Err(error);
                }
            }
        }
        let count = tables.len();
        let texts = &texts[..count];
        let walk = |(text, shape): (usize, &TreeShape)| {
            let ReplayText { prompt_tokens, sampling, .. } = &texts[text];
            let expected_drafts = (!sampling.is_greedy()).then_some(0.0);
            let counted = ShapeAcceptance {
                output_tokens: texts[text].output_tokens(),
                expected_drafts,
                ..ShapeAcceptance::default()
            };
            Walk { text, shape: *shape, at: *prompt_tokens, counted }
        };
        let walks = (0..count).flat_map(|text| shapes.iter().map(move |shape| (text, shape))).map(walk).collect();
        Ok(Self {
            families: ShapeFamily::all(shapes, backend.cost().nodes),
            walks,
            shapes: shapes.len(),
            chances: Chances::default(),
            looked_up: second_source.map(|source| looked_up(texts, first, source, shapes)),
            backend,
            texts,
            pool,
            tables,
            first,
        })
    }

    /// Prefills the texts and walks along them. `None` if it was cancelled.
    ///
    /// # Errors
    /// When the device fails.
    pub fn run(
        &mut self,
        kept: Option<&mut StateFile<'_>>,
        reported: &mut ReplayReport<'_>,
    ) -> Result<Option<Vec<Vec<ShapeAcceptance>>>, EngineError> {
        if !self.families.is_empty() && self.read(kept, reported)?.is_break() {
            return Ok(None);
        }
        loop {
            let needed = self.advance();
            let walked = self.walks.iter().map(|walk| walk.at - self.texts[walk.text].prompt_tokens).sum();
            if reported.tell(walked).is_break() {
                return Ok(None);
            }
            if needed.is_empty() {
                reported.done += walked;
                break;
            }
            for (family, places) in needed {
                self.expand(family, &places)?;
            }
        }
        let counted: Vec<ShapeAcceptance> = self.walks.drain(..).map(|walk| walk.counted).collect();
        Ok(Some(match self.shapes {
            0 => vec![Vec::new(); self.texts.len()],
            shapes => counted.chunks(shapes).map(<[ShapeAcceptance]>::to_vec).collect(),
        }))
    }

    /// Closes the slots, and takes back all window pages.
    ///
    /// # Errors
    /// When the device fails.
    pub fn close(mut self) -> Result<(), EngineError> {
        (0..self.texts.len()).for_each(|at| self.backend.close(Slot(at as u32)));
        self.tables.drain(..).for_each(|table| self.pool.close(table, &[]));
        self.change_windows()
    }

    /// Gives window pages to the pages of chunks and to those that these see.
    fn cover(&mut self, chunks: &[PrefillChunk<'_>]) -> Result<(), EngineError> {
        for chunk in chunks {
            let positions = chunk.start..chunk.start + chunk.tokens.len();
            if !self.pool.cover(&mut self.tables[chunk.slot.0 as usize], &[], positions) {
                return Err(EngineError::Device("there are too few window pages for one piece of a text".into()));
            }
        }
        self.change_windows()
    }

    fn change_windows(&mut self) -> Result<(), EngineError> {
        let changes = self.pool.take_window_changes();
        if changes.is_empty() { Ok(()) } else { self.backend.change_windows(&changes) }
    }

    /// Leaves the window pages that later chunks do not see.
    fn leave_windows(&mut self, chunks: &[PrefillChunk<'_>]) {
        for chunk in chunks {
            let end = chunk.start + chunk.tokens.len();
            self.pool.leave_windows(&mut self.tables[chunk.slot.0 as usize], &[], end);
        }
    }

    /// Prefills the texts, except for the last token of each.
    fn read(
        &mut self,
        mut kept: Option<&mut StateFile<'_>>,
        reported: &mut ReplayReport<'_>,
    ) -> Result<ControlFlow<()>, EngineError> {
        let mut known = 0;
        if let Some(kept) = kept.as_deref_mut() {
            known = kept.known().saturating_sub(self.first).min(self.texts.len());
            if self.read_known(kept, known, reported)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        let mut kept = kept.filter(|kept| kept.writes());
        let most = kept.as_deref().map_or_else(|| self.backend.capacity().prefill_chunk.max(1), StateFile::together);
        let mut read = vec![0; self.texts.len()];
        let mut states = Vec::new();
        loop {
            let mut room = most;
            let mut chunks = Vec::new();
            for ((at, text), read) in self.texts.iter().enumerate().zip(&mut read).skip(known) {
                let start = *read;
                // No round starts after the last token, so the target does not process it.
                let end = (start + room).min(text.tokens.len() - 1);
                if start == end {
                    continue;
                }
                room -= end - start;
                *read = end;
                chunks.push(chunk(at, text, start..end));
            }
            if chunks.is_empty() {
                return Ok(ControlFlow::Continue(()));
            }
            self.cover(&chunks)?;
            match &mut kept {
                None => expect_finite(&self.backend.prefill_collecting(&chunks)?)?,
                Some(kept) => {
                    states.clear();
                    self.backend.prefill_traced(&chunks, TargetStates::Out(&mut states))?;
                    // States of all pieces follow one another; each text takes its part and leaves
                    // the rest.
                    chunks.iter().fold(states.as_slice(), |states, chunk| {
                        let positions = chunk.start..chunk.start + chunk.tokens.len();
                        kept.add(self.first + chunk.slot.0 as usize, &positions, states)
                    });
                }
            }
            self.leave_windows(&chunks);
            if reported.tell(0).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
    }

    /// Like [`read`](Self::read), for the first `known` texts and without the target: in the passes
    /// in which the target ran.
    fn read_known(
        &mut self,
        kept: &mut StateFile<'_>,
        known: usize,
        reported: &mut ReplayReport<'_>,
    ) -> Result<ControlFlow<()>, EngineError> {
        let mut read = vec![0; known];
        let mut states = Vec::new();
        loop {
            states.clear();
            let mut room = kept.together();
            let mut chunks = Vec::new();
            for ((at, text), read) in self.texts.iter().enumerate().zip(&mut read) {
                let Some(piece) = kept.piece(self.first + at, *read).cloned() else { continue };
                if piece.positions.len() > room {
                    break;
                }
                kept.read(self.first + at, &piece, &mut states)?;
                room -= piece.positions.len();
                *read += 1;
                chunks.push(chunk(at, text, piece.positions));
            }
            if chunks.is_empty() {
                return Ok(ControlFlow::Continue(()));
            }
            self.backend.prefill_traced(&chunks, TargetStates::In(&states))?;
            if reported.tell(0).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
    }

    /// Advances every walk as far as possible, and returns for each family the (text, position)
    /// pairs that are still unknown.
    fn advance(&mut self) -> HashMap<usize, BTreeSet<(usize, usize)>> {
        let mut needed: HashMap<usize, BTreeSet<(usize, usize)>> = HashMap::new();
        for walk in &mut self.walks {
            let last = self.texts[walk.text].tokens.len() - 1;
            while walk.at < last {
                let left = last - walk.at;
                if walk.shape.is_off() {
                    walk.at += walk.counted.count(walk.shape, 0, left);
                    continue;
                }
                let Some(at) = self.families.iter().position(|family| family.shapes().contains(&walk.shape)) else {
                    break;
                };
                let Some(outcome) = self.families[at].outcome((walk.text, walk.at), walk.shape) else {
                    needed.entry(at).or_default().insert((walk.text, walk.at));
                    break;
                };
                if let Some(expected) = &mut walk.counted.expected_drafts {
                    *expected += outcome.expected;
                }
                walk.at += walk.counted.count(walk.shape, outcome.accepted, left);
            }
        }
        needed
    }

    /// Computes the outcomes of all shapes of a family at these places.
    fn expand(&mut self, family: usize, places: &BTreeSet<(usize, usize)>) -> Result<(), EngineError> {
        let family = &mut self.families[family];
        let (texts, looked_up) = (self.texts, self.looked_up.as_deref());
        let wanted = |text: &ReplayText| match (looked_up, text.sampling.is_greedy()) {
            // What is looked up can take the place of any node of the draft's tree.
            (Some(_), _) => RequiredTree::Whole,
            (None, true) => RequiredTree::Accepted,
            (None, false) => RequiredTree::Offered,
        };
        let joined = |place: &ReplayPlace<'_>, pool: &Pool, shape: TreeShape| {
            let text = place.slot.0 as usize;
            let at = place.position - texts[text].prompt_tokens;
            looked_up.and_then(|all| all.get(text)?.get(at)).map(|chain| joined(pool, shape, chain))
        };
        let requested: Vec<ReplayPlace<'_>> = (places.iter())
            .map(|(text, position)| place(*text, &self.texts[*text], *position, wanted(&self.texts[*text])))
            .collect();
        let pools = self.backend.pools(&requested, family.shapes())?;
        let sampled = |place: &ReplayPlace<'_>| !texts[place.slot.0 as usize].sampling.is_greedy();
        self.chances.ask(self.backend, &requested, &pools, |place, pool| match sampled(place) {
            true => family.offers(place, pool, &joined),
            false => Vec::new(),
        })?;
        for ((place, requested), pool) in places.iter().zip(&requested).zip(&pools) {
            family.learn(*place, requested, pool, &self.chances, &joined);
        }
        Ok(())
    }
}

/// A position of the text in a slot, as the root of a round.
fn place(at: usize, text: &ReplayText, position: usize, wanted: RequiredTree) -> ReplayPlace<'_> {
    let (root, after) = (text.tokens[position], &text.tokens[position + 1..]);
    ReplayPlace { slot: Slot(at as u32), position, root, text: after, wanted }
}

/// What rounds look up at each position of the texts' outputs but the last, for shapes of any
/// depth. The first text has the number `first` among all texts.
fn looked_up(
    texts: &[ReplayText],
    first: usize,
    source: &mut SecondSource,
    shapes: &[TreeShape],
) -> Vec<Vec<LookedUp>> {
    let deepest = TreeShape::chain(shapes.iter().map(|shape| shape.num_steps).max().unwrap_or_default());
    let mut of_text = |(request, text): (usize, &ReplayText)| {
        let (prompt, output) = text.tokens.split_at(text.prompt_tokens);
        let look_up = |known: usize| source.look_up(request as u64, prompt, &output[..known], deepest);
        let chains = (1..output.len()).map(look_up).collect();
        source.end(request as u64, output);
        chains
    };
    (first..).zip(texts).map(&mut of_text).collect()
}

/// A chunk of the text in a slot; the text continues after it.
fn chunk(at: usize, text: &ReplayText, positions: Range<usize>) -> PrefillChunk<'_> {
    let next = text.tokens.get(positions.end).copied();
    PrefillChunk { slot: Slot(at as u32), start: positions.start, tokens: &text.tokens[positions], next }
}

fn open(
    backend: &mut dyn Replay,
    slot: Slot,
    text: &ReplayText,
    pages: &[PageId],
    trace: bool,
) -> Result<(), EngineError> {
    backend.open(slot, &text.sampling, pages, 0)?;
    // The first round starts after the prompt, and needs the state after its last token.
    let positions = text.prompt_tokens - 1..text.tokens.len() - 1;
    if trace && let Err(error) = backend.trace(slot, positions, !text.sampling.is_greedy()) {
        backend.close(slot);
        return Err(error);
    }
    Ok(())
}
