//! Prefill of prompts, and the state of a slot on the device.

use kernels::{
    device::Buffer,
    launch::{Groups, NOT_FINITE, Sees},
};

use super::{
    CudaBackend,
    machine::{Pass, PromptPiece},
    workspace::WorkspaceShape,
};
use crate::{
    backend::{PageId, PrefillChunk, ProducedToken, Slot, TargetStates, TokenLogprobs, Yield, first_token},
    error::EngineError,
    request::SamplingParams,
};

/// Words that `open` copies for a slot in addition to its pages: length, root, temperature, top-p, top-k, min-p, number
/// of log-probabilities, and two for the seed.
const WORDS: usize = 9;

impl CudaBackend {
    /// Bytes of staging memory for one slot.
    pub(super) fn staging_bytes(table_width: usize) -> usize {
        // The seed is copied as 8 bytes: keep it aligned.
        (table_width + WORDS).next_multiple_of(2) * 4 + 8
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
        // The copy of the slot's previous use has finished: since then its last round was collected, or a prompt
        // prefilled. For a slot that was opened and closed with neither, this waits.
        if self.flights.is_empty() {
            self.device.synchronize()?;
        }
        let spare = self.machine.capacity.pages as u32;
        let words = self.slot_staging.values_mut::<u32>(start, stride / 4);
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
        Ok(copy(&slots.seed, 2 * at, seed_at, 2)?)
    }

    /// Processes pieces of prompts, or pieces of texts whose target states are returned or given, as many rows at once
    /// as there is room for. `first` as in [`Backend::prefill`](crate::backend::Backend::prefill).
    pub(super) fn run_prefill(
        &mut self,
        chunks: &[PrefillChunk<'_>],
        mut kept: Option<TargetStates<'_>>,
        first: &mut dyn FnMut(usize, Yield),
    ) -> Result<(), EngineError> {
        for chunk in chunks {
            self.check_chunk(chunk)?;
        }
        let most = self.machine.capacity.prefill_chunk.max(1);
        self.grow(WorkspaceShape::of_prefill(
            chunks.iter().map(|chunk| chunk.tokens.len()).max().unwrap_or(1).min(most),
        ))?;
        let room = self.extent.rows;
        let mut begin = 0;
        while begin < chunks.len() {
            let mut rows = 0;
            let count = chunks[begin..].iter().take_while(|chunk| {
                rows += chunk.tokens.len();
                rows <= room
            });
            let count = count.count().max(1);
            let group = &chunks[begin..begin + count];
            if group.iter().map(|chunk| chunk.tokens.len()).sum::<usize>() > room {
                self.grow(WorkspaceShape::of_prefill(group[0].tokens.len()))?;
            }
            self.prefill_group(group, kept.as_mut(), &mut |at, token| first(begin + at, token))?;
            begin += count;
        }
        Ok(())
    }

    fn check_chunk(&self, chunk: &PrefillChunk<'_>) -> Result<(), EngineError> {
        let Some(Some(slot)) = self.slots.get(chunk.slot.0 as usize) else {
            return Err(EngineError::Device(format!("slot {} is not open", chunk.slot.0)));
        };
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

    /// One pass of the target over pieces, then one of the draft. Each of its rows reads the token after its own.
    fn prefill_group(
        &mut self,
        chunks: &[PrefillChunk<'_>],
        kept: Option<&mut TargetStates<'_>>,
        told: &mut dyn FnMut(usize, Yield),
    ) -> Result<(), EngineError> {
        let page_size = self.machine.capacity.page_size;
        let mut columns = Columns { first: vec![0], ..Columns::default() };
        let mut lasts = Vec::new();
        for chunk in chunks {
            let Some(Some(slot)) = self.slots.get(chunk.slot.0 as usize) else { continue };
            for (position, token) in (chunk.start..).zip(chunk.tokens) {
                let write = slot.pages[position / page_size] as usize * page_size + position % page_size;
                columns.push(*token, position, write, chunk.slot);
            }
            lasts.push(columns.token.len() as i32 - 1);
            columns.first.push(columns.token.len() as i32);
        }
        let arrays = &self.arrays;
        for (to, values) in [
            (&arrays.token, &columns.token),
            (&arrays.position, &columns.position),
            (&arrays.write, &columns.write),
            (&arrays.slot, &columns.slot),
            (&arrays.prefix, &columns.prefix),
            (&arrays.own_count, &columns.zeros),
            (&arrays.group_first, &columns.first),
        ] {
            self.device.write(to.slice(), values)?;
        }
        match kept {
            Some(TargetStates::In(from)) => self.take_in(chunks, &lasts, from)?,
            kept => {
                self.machine.target_pass(self.prompt_pass(&pieces(chunks)))?;
                if let Some(TargetStates::Out(to)) = kept {
                    self.give_out(chunks, &lasts, to)?;
                }
            }
        }
        self.keep_target(chunks, &lasts)?;
        let first = self.first_tokens(chunks, &lasts)?;
        // Reading a token has waited for the device anyway, so it is told before the device gets more work.
        for (at, token) in first.iter().enumerate() {
            token.iter().for_each(|token| told(at, token.clone()));
        }
        self.keep_prompt_logprobs(chunks, &lasts)?;
        self.prefill_draft(chunks, &columns, &lasts, &first)?;

        let mut updates = Vec::new();
        for (chunk, first) in chunks.iter().zip(&first) {
            let length = chunk.start + chunk.tokens.len();
            updates.extend([chunk.slot.0 as i32, length as i32, first_token(first) as i32]);
            if let Some(Some(slot)) = self.slots.get_mut(chunk.slot.0 as usize) {
                slot.read = length;
            }
        }
        let slots = &self.machine.slots;
        // Any integer buffer works that is rewritten before it is read.
        let update = self.arrays.own.slice();
        let update = if update.bytes() >= updates.len() * 4 { update } else { self.round.node_token.slice() };
        self.device.write(update, &updates)?;
        Ok(self.machine.kernels.set_state(slots.length.slice(), slots.root.slice(), update, chunks.len())?)
    }

    /// The pass over pieces whose rows are in `self.arrays`.
    fn prompt_pass<'a>(&'a self, prompts: &'a [PromptPiece]) -> Pass<'a> {
        let (arrays, work) = (&self.arrays, &self.work);
        let rows = prompts.iter().map(|piece| piece.rows).sum();
        let largest = prompts.iter().map(|piece| piece.rows).max().unwrap_or(1);
        let groups = Groups::Ranges { first: arrays.group_first.slice(), count: prompts.len(), largest };
        Pass { prompts, ..Pass::new(rows, groups, Sees::Positions, arrays, work) }
    }

    /// Runs the draft, if it follows the sequences, over pieces that the target has processed. Each row reads the token
    /// after its own.
    fn prefill_draft(
        &mut self,
        chunks: &[PrefillChunk<'_>],
        columns: &Columns,
        lasts: &[i32],
        first: &[Option<Yield>],
    ) -> Result<(), EngineError> {
        let traced = |chunk: &PrefillChunk<'_>| {
            let slot = self.slots.get(chunk.slot.0 as usize).and_then(Option::as_ref);
            slot.is_some_and(|slot| slot.trace.is_some())
        };
        // Replay keeps the states after all rows.
        let keeps_all = chunks.iter().any(traced);
        let reads = self.follows || keeps_all;
        let Some(draft) = self.machine.draft.as_ref().filter(|_| reads) else { return Ok(()) };
        let mut shifted = columns.token.clone();
        shifted.rotate_left(1);
        for ((chunk, last), first) in chunks.iter().zip(lasts).zip(first) {
            shifted[*last as usize] = chunk.next.unwrap_or_else(|| first_token(first)) as i32;
        }
        let (rows, arrays) = (columns.token.len(), &self.arrays);
        // `first_tokens` has overwritten the row arrays.
        for (to, values) in [(&arrays.token, &shifted), (&arrays.slot, &columns.slot)] {
            self.device.write(to.slice(), values)?;
        }
        let from = self.machine.feature_rows(draft, &self.work);
        self.machine.features(draft, &self.work, from, None, rows)?;
        self.device.write(arrays.source.slice(), lasts)?;
        let pieces = pieces(chunks);
        let pass = self.prompt_pass(&pieces);
        let lasts_at = self.machine.read(draft, pass, arrays.source.slice(), chunks.len(), keeps_all)?;
        self.keep_draft(chunks, lasts)?;
        let slots: Vec<i32> = chunks.iter().map(|chunk| chunk.slot.0 as i32).collect();
        self.device.write(arrays.slot.slice(), &slots)?;
        Ok(self.machine.keep_state(draft, &self.work, Some(arrays.slot.slice()), lasts_at, chunks.len())?)
    }

    /// The tokens that follow the prompts that end in these pieces.
    fn first_tokens(&mut self, chunks: &[PrefillChunk<'_>], lasts: &[i32]) -> Result<Vec<Option<Yield>>, EngineError> {
        let mut first = vec![None; chunks.len()];
        let ends: Vec<usize> = (0..chunks.len()).filter(|at| chunks[*at].next.is_none()).collect();
        if ends.is_empty() {
            return Ok(first);
        }
        let slots: Vec<Slot> = ends.iter().map(|at| chunks[*at].slot).collect();
        let positions: Vec<usize> = ends.iter().map(|at| chunks[*at].start + chunks[*at].tokens.len()).collect();
        let (arrays, work, count) = (&self.arrays, &self.work, ends.len());
        for (to, values) in [
            (&arrays.source, ends.iter().map(|at| lasts[*at]).collect::<Vec<i32>>()),
            (&arrays.slot, slots.iter().map(|slot| slot.0 as i32).collect()),
            (&arrays.sample_position, positions.iter().map(|position| *position as i32).collect()),
        ] {
            self.device.write(to.slice(), &values)?;
        }
        let hidden = self.machine.target.spec.hidden;
        let (out, from) = (self.machine.rows(&work.added, hidden), self.machine.rows(&work.normed, hidden));
        self.machine.kernels.gather_rows(out, None, from, Some(arrays.source.slice()), count, hidden)?;
        let chosen = self.round.chosen.range(0..count * 4);
        self.machine.choose(work, out, count, chosen, arrays.sampled(), None)?;
        let mut ids = vec![0_i32; count];
        self.device.read(chosen, &mut ids)?;
        self.choose_first_adjusted(&slots, &positions, &mut ids)?;
        let logprobs = self.describe_first(&slots, &ids)?;
        for (((at, position), id), logprobs) in ends.into_iter().zip(positions).zip(ids).zip(logprobs) {
            let token = (id != NOT_FINITE).then_some(ProducedToken { id: id as u32, logprobs });
            first[at] = Some(Yield::of_prompt(token, position));
        }
        Ok(first)
    }

    /// Log-probabilities of the first tokens after prompts, for the slots that request them. The final states are in
    /// the first rows of `work.added`.
    fn describe_first(&self, slots: &[Slot], ids: &[i32]) -> Result<Vec<Option<TokenLogprobs>>, EngineError> {
        let wanted = |slot: &Slot| self.slots.get(slot.0 as usize)?.as_ref()?.logprobs;
        let wanted: Vec<Option<usize>> = slots.iter().map(wanted).collect();
        if wanted.iter().all(Option::is_none) {
            return Ok(vec![None; slots.len()]);
        }
        let (arrays, work, rows) = (&self.arrays, &self.work, slots.len());
        let chosen = self.round.chosen.range(0..rows * 4);
        self.device.write(chosen, ids)?;
        // A separate pass over the vocabulary head, since few requests need it.
        let host = self.device.host_buffer(self.round.described.bytes())?;
        self.machine.meet()?;
        let states = self.machine.rows(&work.added, self.machine.target.spec.hidden);
        let pass = Pass::new(rows, Groups::Even(1), Sees::Positions, arrays, work);
        self.machine.describe(pass, states, chosen, &self.round)?;
        self.device.read_async(&host, 0, self.round.described.slice())?;
        self.device.synchronize()?;
        let described = |(row, best): (usize, &Option<usize>)| best.map(|best| self.described(&host, row, best));
        let all = wanted.iter().enumerate().map(described).collect();
        drop(host);
        self.machine.meet()?;
        Ok(all)
    }
}

/// The slots, positions and sizes of pieces.
fn pieces(chunks: &[PrefillChunk<'_>]) -> Vec<PromptPiece> {
    let piece = |chunk: &PrefillChunk<'_>| PromptPiece {
        slot: chunk.slot.0 as usize,
        start: chunk.start,
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
