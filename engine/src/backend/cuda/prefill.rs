//! Prefill of prompts, and the state of a slot on the device.

use kernels::{
    device::Buffer,
    launch::{DeltaOrder, Groups, Sees},
};

use super::{
    CudaBackend,
    machine::{Pass, PromptPiece},
    played::PLACE_WORDS,
    prefill_staging::prefill_staging_of,
    weights::{DraftWeights, StepwiseWeights},
    workspace::WorkspaceShape,
};
use crate::{
    backend::{PageId, PrefillChunk, Slot, TargetStates, Yield},
    error::EngineError,
    request::SamplingParams,
};

/// Words that `open` copies for a slot in addition to its pages: length, root, temperature, top-p,
/// top-k, min-p, number of log-probabilities, and two for the seed.
const WORDS: usize = 9;

impl CudaBackend {
    /// Bytes of staging memory for one slot.
    pub(super) fn staging_bytes(table_width: usize) -> usize {
        // The seed is copied as 8 bytes: keep it aligned. The place in texts that are played comes
        // after it.
        ((table_width + WORDS).next_multiple_of(2) + 2 + PLACE_WORDS) * 4
    }

    /// Copies the state of a slot to the device, ordered after the work in flight.
    pub(super) fn write_slot(
        &mut self,
        at: usize,
        sampling: &SamplingParams,
        pages: &[PageId],
        cached: usize,
    ) -> Result<(), EngineError> {
        let width = self.machine.slots.table_width;
        if pages.len() > width {
            let (given, room) = (pages.len(), width);
            return Err(EngineError::Device(format!(
                "a sequence of {given} pages does not fit, there is room for {room}"
            )));
        }
        let stride = Self::staging_bytes(width);
        let start = at * stride / 4;
        // The copy of the slot's previous use has finished: since then its last round was
        // collected, or the first token of a prefill. For a slot that was opened and closed with
        // neither, this waits.
        if self.flights.is_empty() {
            self.device.synchronize()?;
        }
        let spare = self.machine.capacity.pages as u32;
        let mut words = vec![0_u32; stride / 4];
        // Entries without a page point to the page after the last, which exists but is never read.
        words[..width].fill(spare);
        for (to, page) in words.iter_mut().zip(pages) {
            *to = page.0;
        }
        let top_k = sampling.top_k.min(i32::MAX as usize) as u32;
        let logprobs = sampling.logprobs.map_or(-1, |count| count as i32);
        let rest = [
            cached as u32,
            0,
            sampling.temperature.to_bits(),
            sampling.top_p.to_bits(),
            top_k,
            sampling.min_p.to_bits(),
            logprobs as u32,
        ];
        words[width..width + rest.len()].copy_from_slice(&rest);
        let seed_at = (width + WORDS).next_multiple_of(2);
        words[seed_at] = sampling.seed as u32;
        words[seed_at + 1] = (sampling.seed >> 32) as u32;
        let place_at = seed_at + 2;
        let played = self.machine.played.as_ref().map(|played| played.place(sampling.played));
        words[place_at..place_at + PLACE_WORDS].copy_from_slice(&played.unwrap_or_default());
        self.slot_staging.store(start, &words);

        let slots = &self.machine.slots;
        let copy = |to: &Buffer, index: usize, word: usize, count: usize| {
            let from = (start + word) * 4;
            let to = to.range(index * 4..(index + count) * 4);
            self.device.write_async(to, &self.slot_staging, from..from + count * 4)
        };
        copy(&slots.page_table, at * width, 0, width)?;
        let values = [
            &slots.length,
            &slots.root,
            &slots.temperature,
            &slots.top_p,
            &slots.top_k,
            &slots.min_p,
            &slots.logprob_count,
        ];
        for (word, to) in values.into_iter().enumerate() {
            copy(to, at, width + word, 1)?;
        }
        if played.is_some() {
            copy(&slots.played, PLACE_WORDS * at, place_at, PLACE_WORDS)?;
        }
        Ok(copy(&slots.seed, 2 * at, seed_at, 2)?)
    }

    /// Adds pages to a slot, ordered after the work in flight.
    pub(super) fn add_pages(&mut self, slot: Slot, pages: &[PageId]) -> Result<(), EngineError> {
        let (at, width) = (slot.0 as usize, self.machine.slots.table_width);
        self.slots.check_pages(pages)?;
        let open = self.slots.get_mut(slot)?;
        let (from, to) = (open.pages.len(), open.pages.len() + pages.len());
        if to > width {
            return Err(EngineError::Device(format!(
                "a sequence of {to} pages does not fit, there is room for {width}"
            )));
        }
        // The words are written once for each time that the slot is opened. An earlier copy that is
        // still reading them may take the old or the new ones: the copy below comes after it, and
        // no round before that reads these entries.
        let start = at * Self::staging_bytes(width) / 4;
        let words: Vec<u32> = pages.iter().map(|page| page.0).collect();
        self.slot_staging.store(start + from, &words);
        open.pages.extend(words);
        let table = self.machine.slots.page_table.range((at * width + from) * 4..(at * width + to) * 4);
        let staged = (start + from) * 4..(start + to) * 4;
        Ok(self.device.write_async(table, &self.slot_staging, staged)?)
    }

    /// Launches the processing of pieces of prompts, or of texts whose target states are returned
    /// or given, as many rows at once as there is room for. `first` as in
    /// [`Prefill::prefill`](crate::backend::Prefill::prefill).
    pub(super) fn run_prefill(
        &mut self,
        chunks: &[PrefillChunk<'_>],
        mut kept: Option<TargetStates<'_>>,
        first: &mut dyn FnMut(usize, Yield),
    ) -> Result<(), EngineError> {
        for chunk in chunks {
            self.check_chunk(chunk)?;
        }
        if !self.pending_first.is_empty() {
            return Err(EngineError::Device("the first tokens of the last prefill have not been collected".into()));
        }
        let most = self.machine.capacity.prefill_chunk.max(1);
        self.make_prefill_room(chunks.iter().map(|chunk| chunk.tokens.len()).max().unwrap_or(1).min(most), first)?;
        let room = self.extent.rows;
        let mut begin = 0;
        while begin < chunks.len() {
            let mut rows = 0;
            let count = chunks[begin..].iter().take_while(|chunk| {
                rows += chunk.tokens.len();
                rows <= room
            });
            // A piece that is longer than the room runs alone, and the room grows for it.
            let count = count.count().max(1);
            let group = &chunks[begin..begin + count];
            if group.iter().map(|chunk| chunk.tokens.len()).sum::<usize>() > room {
                self.make_prefill_room(group[0].tokens.len(), first)?;
            }
            let place = self.next_prefill;
            if self.pending_first.len() == self.prefills.len() {
                self.hand_out_first(first)?;
            }
            // The device may still read the place for its last pass: this waits.
            self.time_prefill(place)?;
            self.prefills[place].clear();
            self.prefill_group(place, begin, group, kept.as_mut(), first)?;
            self.next_prefill = (place + 1) % self.prefills.len();
            begin += count;
        }
        if self.launches_slowly() { self.hand_out_first(first) } else { Ok(()) }
    }

    /// Grows the buffers of a pass and its staging memory to this many rows.
    fn make_prefill_room(&mut self, rows: usize, first: &mut dyn FnMut(usize, Yield)) -> Result<(), EngineError> {
        self.grow(WorkspaceShape::of_prefill(rows))?;
        let slots = self.machine.capacity.slots;
        if self.prefills.iter().all(|staging| staging.holds(self.extent, slots)) {
            return Ok(());
        }
        self.hand_out_first(first)?;
        (0..self.prefills.len()).try_for_each(|place| self.time_prefill(place))?;
        // Allocating page-locked memory waits for the devices of all ranks.
        self.device.synchronize()?;
        self.machine.meet()?;
        self.prefills = prefill_staging_of(&self.device, self.extent, slots)?;
        Ok(self.machine.meet()?)
    }

    fn check_chunk(&self, chunk: &PrefillChunk<'_>) -> Result<(), EngineError> {
        let slot = self.slots.get(chunk.slot)?;
        if chunk.tokens.is_empty() || chunk.start != slot.read {
            let (start, length) = (chunk.start, slot.read);
            return Err(EngineError::Device(format!("a piece from {start} does not continue a sequence of {length}")));
        }
        let vocabulary = self.machine.capacity.vocab_size;
        if let Some(token) = chunk.tokens.iter().chain(&chunk.next).find(|token| **token as usize >= vocabulary) {
            return Err(EngineError::Device(format!("token {token} is outside the {vocabulary} of the vocabulary")));
        }
        let room = slot.pages.len() * self.machine.capacity.page_size;
        if chunk.start + chunk.tokens.len() > room {
            let end = chunk.start + chunk.tokens.len();
            return Err(EngineError::Device(format!("{end} positions do not fit on {room} cache rows")));
        }
        Ok(())
    }

    /// Launches one pass of the target over pieces, then one of the draft. Each of its rows reads
    /// the token after its own. `base` is the index of the first piece.
    fn prefill_group(
        &mut self,
        place: usize,
        base: usize,
        chunks: &[PrefillChunk<'_>],
        kept: Option<&mut TargetStates<'_>>,
        first: &mut dyn FnMut(usize, Yield),
    ) -> Result<(), EngineError> {
        let columns = self.columns(chunks);
        let (arrays, staging) = (&self.arrays, &mut self.prefills[place]);
        self.device.record(&staging.begin)?;
        for (to, values) in [
            (&arrays.token, &columns.token),
            (&arrays.position, &columns.position),
            (&arrays.write, &columns.write),
            (&arrays.slot, &columns.slot),
            (&arrays.prefix, &columns.prefix),
            (&arrays.own_count, &columns.zeros),
            (&arrays.group_first, &columns.first),
        ] {
            staging.send(&self.device, to.slice(), values)?;
        }
        let lasts = &columns.lasts;
        match kept {
            // The pass of the target is skipped: its states were computed earlier and kept.
            Some(TargetStates::In(from)) => self.take_in(chunks, lasts, from)?,
            kept => {
                self.machine.target_pass(self.prompt_pass(&pieces(chunks, 0)))?;
                if let Some(TargetStates::Out(to)) = kept {
                    self.give_out(chunks, lasts, to)?;
                }
            }
        }
        self.keep_target(chunks, lasts)?;
        self.choose_first(place, base, chunks, lasts)?;
        if self.wants_prompt_logprobs(chunks) {
            // They wait for the device, and take long.
            self.hand_out_first(first)?;
            self.keep_prompt_logprobs(chunks, lasts)?;
        }
        // Before `send_first` replaces the tokens by those after them.
        self.read_starts(place, chunks, &columns)?;
        self.send_first(place, chunks, lasts)?;
        self.prefill_draft(place, chunks, &columns)?;
        let slots = &self.machine.slots;
        let update = slots.update.slice();
        self.machine.kernels.set_state(slots.length.slice(), slots.root.slice(), update, chunks.len())?;
        for chunk in chunks {
            if let Some(slot) = self.slots.find_mut(chunk.slot) {
                // Later pieces are checked against this before the device has read these.
                slot.read = chunk.start + chunk.tokens.len();
            }
        }
        let staging = &mut self.prefills[place];
        // The rounds launched so far; the pass has ended for certain when a later one is collected.
        staging.untimed = Some(self.launched);
        Ok(self.device.record(&staging.end)?)
    }

    /// The rows of pieces, one piece after another.
    fn columns(&self, chunks: &[PrefillChunk<'_>]) -> Columns {
        let page_size = self.machine.capacity.page_size;
        let mut columns = Columns { first: vec![0], ..Columns::default() };
        for chunk in chunks {
            let Some(slot) = self.slots.find(chunk.slot) else { continue };
            for (position, token) in (chunk.start..).zip(chunk.tokens) {
                let write = slot.pages[position / page_size] as usize * page_size + position % page_size;
                columns.push(*token, position, write, chunk.slot);
            }
            columns.lasts.push(columns.token.len() as i32 - 1);
            columns.first.push(columns.token.len() as i32);
        }
        columns
    }

    fn wants_prompt_logprobs(&self, chunks: &[PrefillChunk<'_>]) -> bool {
        chunks.iter().any(|chunk| {
            let slot = self.slots.find(chunk.slot);
            slot.is_some_and(|slot| slot.sampling.prompt_logprobs.is_some())
        })
    }

    /// Prepares `slots.update` with the new lengths and the first tokens, and the draft's input
    /// with the tokens after its rows. The device has chosen the first tokens.
    fn send_first(&mut self, place: usize, chunks: &[PrefillChunk<'_>], lasts: &[i32]) -> Result<(), EngineError> {
        let (arrays, slots) = (&self.arrays, &self.machine.slots);
        let staging = &mut self.prefills[place];
        // A draft reads each state of the target together with the token after it.
        let after = chunks.iter().flat_map(|chunk| chunk.tokens[1..].iter().copied().chain([chunk.next.unwrap_or(0)]));
        let after: Vec<i32> = after.map(|token| token as i32).collect();
        staging.send(&self.device, arrays.token.slice(), &after)?;
        let update = chunks.iter().flat_map(|chunk| {
            let length = chunk.start + chunk.tokens.len();
            // The third word is the root. `put_first` overwrites it where a prompt ends here.
            [chunk.slot.0 as i32, length as i32, 0]
        });
        staging.send(&self.device, slots.update.slice(), &update.collect::<Vec<_>>())?;
        let ends = chunks.iter().zip(lasts).enumerate().filter(|(_, (chunk, _))| chunk.next.is_none());
        let places: Vec<i32> = ends.flat_map(|(at, (_, last))| [*last, 3 * at as i32 + 2]).collect();
        let count = places.len() / 2;
        if count == 0 {
            return Ok(());
        }
        staging.send(&self.device, slots.first_place.slice(), &places)?;
        let (token, update, to) = (arrays.token.slice(), slots.update.slice(), slots.first_place.slice());
        Ok(self.machine.kernels.put_first(token, update, to, self.round.chosen.slice(), count)?)
    }

    /// The pass over pieces whose rows are in `self.arrays`.
    fn prompt_pass<'a>(&'a self, prompts: &'a [PromptPiece]) -> Pass<'a> {
        let (arrays, work) = (&self.arrays, &self.work);
        let rows = prompts.iter().map(|piece| piece.rows).sum();
        let largest = prompts.iter().map(|piece| piece.rows).max().unwrap_or(1);
        let groups = Groups::Ranges { first: arrays.group_first.slice(), count: prompts.len(), largest };
        let order = DeltaOrder::Chain { writes: true };
        Pass { prompts, order, ..Pass::new(rows, groups, Sees::Positions, arrays, work) }
    }

    /// Runs the draft, if it follows the sequences, over pieces that the target has processed.
    /// `arrays.token` holds the tokens after their rows.
    fn prefill_draft(
        &mut self,
        place: usize,
        chunks: &[PrefillChunk<'_>],
        columns: &Columns,
    ) -> Result<(), EngineError> {
        // Replay keeps the states after all rows.
        let keeps_all = chunks.iter().any(|chunk| self.trace_of(chunk.slot).is_some());
        let reads = self.follows || keeps_all;
        let Some(draft) = self.machine.draft.as_ref().filter(|_| reads) else { return Ok(()) };
        let (rows, arrays) = (columns.token.len(), &self.arrays);
        // Choosing the first tokens has overwritten the slots and sources.
        let staging = &mut self.prefills[place];
        staging.send(&self.device, arrays.slot.slice(), &columns.slot)?;
        staging.send(&self.device, arrays.source.slice(), &columns.lasts)?;
        let from = self.machine.feature_rows(draft, &self.work);
        let draft = match draft {
            DraftWeights::Recurrent(draft) => draft,
            DraftWeights::Block(draft) => {
                return Ok(self.machine.keep_context(draft, &self.work, from, None, arrays, rows)?);
            }
            DraftWeights::Model(model) => {
                self.machine.place_rows(StepwiseWeights::Model(model), arrays, rows, true)?;
                self.machine.model_pass(model, self.prompt_pass(&pieces(chunks, 1)), 0)?;
                return self.keep_last(place, chunks, &columns.lasts, true);
            }
        };
        self.machine.features(draft, &self.work, from, None, rows)?;
        let pieces = pieces(chunks, 0);
        let pass = self.prompt_pass(&pieces);
        let read = self.machine.read(draft, pass, arrays.source.slice(), chunks.len(), keeps_all)?;
        let keeps_rows = read.is_some();
        self.keep_last(place, chunks, &columns.lasts, keeps_rows)
    }

    /// Stores the draft's states after the last rows of pieces as those of their slots. They are in
    /// `work.states[0]`: rows `arrays.source` of all, or alone.
    fn keep_last(
        &mut self,
        place: usize,
        chunks: &[PrefillChunk<'_>],
        lasts: &[i32],
        keeps_rows: bool,
    ) -> Result<(), EngineError> {
        // While the rows of all positions are there: the copies below keep only the last ones.
        self.keep_draft(chunks, lasts)?;
        let Some(draft) = self.machine.draft.as_ref().and_then(DraftWeights::stepwise) else { return Ok(()) };
        let arrays = &self.arrays;
        let slots: Vec<i32> = chunks.iter().map(|chunk| chunk.slot.0 as i32).collect();
        self.prefills[place].send(&self.device, arrays.slot.slice(), &slots)?;
        let lasts_at = keeps_rows.then(|| arrays.source.slice());
        Ok(self.machine.keep_state(draft, &self.work, Some(arrays.slot.slice()), lasts_at, chunks.len())?)
    }

    /// Runs a whole model over the first tokens of sequences, and over those after reused prefixes:
    /// no row of a piece reads them, since each reads the token after its own. Leaves the arrays as
    /// they were, except for tokens and slots.
    fn read_starts(&mut self, place: usize, chunks: &[PrefillChunk<'_>], columns: &Columns) -> Result<(), EngineError> {
        let traced = chunks.iter().any(|chunk| self.trace_of(chunk.slot).is_some());
        let reads = self.follows || traced;
        let Some(DraftWeights::Model(model)) = self.machine.draft.as_ref().filter(|_| reads) else { return Ok(()) };
        let opens = |chunk: &PrefillChunk<'_>| {
            let open = self.slots.find(chunk.slot);
            open.is_some_and(|open| open.opened_at == chunk.start)
        };
        let starts = chunks.iter().zip(&columns.lasts).filter(|(chunk, _)| opens(chunk));
        let rows: Vec<usize> = starts.map(|(chunk, last)| *last as usize + 1 - chunk.tokens.len()).collect();
        if rows.is_empty() {
            return Ok(());
        }
        let arrays = &self.arrays;
        let some = |column: &[i32]| rows.iter().map(|row| column[*row]).collect::<Vec<i32>>();
        let placed =
            [(&arrays.position, &columns.position), (&arrays.write, &columns.write), (&arrays.prefix, &columns.prefix)];
        let staging = &mut self.prefills[place];
        for (to, column) in placed.into_iter().chain([(&arrays.token, &columns.token), (&arrays.slot, &columns.slot)]) {
            staging.send(&self.device, to.slice(), &some(column))?;
        }
        let pass = Pass::new(rows.len(), Groups::Even(1), Sees::Positions, arrays, &self.work);
        self.machine.model_pass(model, pass, 0)?;
        for (to, column) in placed {
            staging.send(&self.device, to.slice(), &column[..rows.len()])?;
        }
        Ok(())
    }
}

/// The slots, positions and sizes of pieces, for a model that is this many positions ahead.
fn pieces(chunks: &[PrefillChunk<'_>], ahead: usize) -> Vec<PromptPiece> {
    let piece = |chunk: &PrefillChunk<'_>| PromptPiece {
        slot: chunk.slot.0 as usize,
        start: chunk.start + ahead,
        rows: chunk.tokens.len(),
    };
    chunks.iter().map(piece).collect()
}

/// Row arrays of prompts, in which every row is causal.
#[derive(Default)]
struct Columns {
    token: Vec<i32>,
    position: Vec<i32>,
    write: Vec<i32>,
    slot: Vec<i32>,
    prefix: Vec<i32>,
    zeros: Vec<i32>,
    /// The first row of each piece, and the number of rows.
    first: Vec<i32>,
    /// The last row of each piece.
    lasts: Vec<i32>,
}

impl Columns {
    fn push(&mut self, token: u32, position: usize, write: usize, slot: Slot) {
        self.token.push(token as i32);
        self.position.push(position as i32);
        self.write.push(write as i32);
        self.slot.push(slot.0 as i32);
        self.prefix.push(position as i32 + 1);
        self.zeros.push(0);
    }
}
