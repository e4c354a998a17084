//! The tokens that follow prompts. The device chooses them, and the draft and the next round read
//! them there; so both are launched before the host knows these tokens, and the host waits only for
//! their copy. The device does not become idle.
//!
//! There are exceptions. If a request has adjusted logits, the host chooses its token, so the draft
//! waits for the host. If launching the next round takes long or waits for the device, the tokens
//! are handed out before it.

use std::time::Duration;

use kernels::launch::{Groups, NOT_FINITE, Sees};

use super::{CudaBackend, in_flight::InFlightRound, machine::Pass};
use crate::{
    backend::{PrefillChunk, ProducedToken, Slot, Yield},
    error::EngineError,
};

/// First tokens on their way to the host, those of one pass over pieces of prompts.
pub struct PendingFirst {
    /// Index of the pass's staging memory.
    place: usize,
    tokens: Vec<PendingToken>,
}

struct PendingToken {
    /// Index of the piece that ends its prompt.
    piece: usize,
    position: usize,
    /// Number of alternatives for which log-probabilities are requested; `None` for no
    /// log-probabilities.
    logprobs: Option<usize>,
}

impl CudaBackend {
    /// Chooses the tokens that follow the prompts that end in these pieces, and starts copying them
    /// to the host. They stay in the first words of `round.chosen`. `base` is the index of the
    /// first piece in the call, `lasts` are the last rows of the pieces in the target's pass.
    /// Overwrites `arrays.source`, `slot` and `sample_position`.
    pub(super) fn choose_first(
        &mut self,
        place: usize,
        base: usize,
        chunks: &[PrefillChunk<'_>],
        lasts: &[i32],
    ) -> Result<(), EngineError> {
        let ends: Vec<usize> = (0..chunks.len()).filter(|at| chunks[*at].next.is_none()).collect();
        let slots: Vec<Slot> = ends.iter().map(|at| chunks[*at].slot).collect();
        let positions: Vec<usize> = ends.iter().map(|at| chunks[*at].start + chunks[*at].tokens.len()).collect();
        let logprobs: Vec<Option<usize>> = slots.iter().map(|slot| self.wanted_logprobs(*slot)).collect();
        if !ends.is_empty() {
            let (arrays, count) = (&self.arrays, ends.len());
            let staging = &mut self.prefills[place];
            for (to, values) in [
                (&arrays.source, ends.iter().map(|at| lasts[*at]).collect::<Vec<i32>>()),
                (&arrays.slot, slots.iter().map(|slot| slot.0 as i32).collect()),
                (&arrays.sample_position, positions.iter().map(|position| *position as i32).collect()),
            ] {
                staging.send(&self.device, to.slice(), &values)?;
            }
            let (hidden, work) = (self.machine.target.spec.hidden, &self.work);
            let (out, from) = (self.machine.rows(&work.added, hidden), self.machine.rows(&work.normed, hidden));
            self.machine.kernels.gather_rows(out, None, from, Some(arrays.source.slice()), count, hidden)?;
            let chosen = self.round.chosen.range(0..count * 4);
            self.machine.choose(work, out, count, chosen, arrays.sampled(), None)?;
            if !self.adjusted(&slots).is_empty() {
                // Waits for the device: grammars and penalties are applied on the host.
                let mut ids = vec![0; count];
                self.device.read(chosen, &mut ids)?;
                self.choose_first_adjusted(&slots, &positions, &mut ids)?;
                self.device.write(self.round.chosen.range(0..count * 4), &ids)?;
            }
            if logprobs.iter().any(Option::is_some) {
                self.describe_first(place, count)?;
            }
            // Copied now, since the next round or prefill writes to `round.chosen`.
            self.device.read_async(&self.prefills[place].chosen, 0, self.round.chosen.range(0..count * 4))?;
        }
        // Also without tokens: whoever collects the pass waits for this mark.
        self.device.record(&self.prefills[place].known)?;
        let tokens = ends.into_iter().zip(positions).zip(logprobs);
        let tokens = tokens.map(|((at, position), logprobs)| PendingToken { piece: base + at, position, logprobs });
        self.pending_first.push_back(PendingFirst { place, tokens: tokens.collect() });
        Ok(())
    }

    fn wanted_logprobs(&self, slot: Slot) -> Option<usize> {
        self.slots.find(slot)?.logprobs
    }

    /// Starts copying the log-probabilities of the chosen tokens, whose final states are in the
    /// first rows of `work.added`. A separate pass over the vocabulary head, since few requests
    /// need it.
    fn describe_first(&self, place: usize, rows: usize) -> Result<(), EngineError> {
        let (arrays, work) = (&self.arrays, &self.work);
        let states = self.machine.rows(&work.added, self.machine.target.spec.hidden);
        let pass = Pass::new(rows, Groups::Even(1), Sees::Positions, arrays, work);
        self.machine.describe(pass, states, self.round.chosen.range(0..rows * 4), &self.round)?;
        Ok(self.device.read_async(&self.prefills[place].described, 0, self.round.described.slice())?)
    }

    /// Waits until the target has processed the pieces of the last prefill, and hands out first
    /// tokens that have not been.
    pub(super) fn hand_out_first(&mut self, first: &mut dyn FnMut(usize, Yield)) -> Result<(), EngineError> {
        while let Some(PendingFirst { place, tokens }) = self.pending_first.pop_front() {
            let staging = &self.prefills[place];
            staging.known.wait()?;
            let ids = staging.chosen.load::<i32>(0, tokens.len());
            for (row, (PendingToken { piece, position, logprobs }, id)) in tokens.into_iter().zip(ids).enumerate() {
                let logprobs = logprobs.map(|best| self.described(&staging.described, row, best));
                let token = (id != NOT_FINITE).then_some(ProducedToken { id: id as u32, logprobs });
                first(piece, Yield::from_prompt(token, position));
            }
        }
        Ok(())
    }

    /// Whether launching a round takes longer than handing out tokens, so that these should not
    /// wait for it: it waits for the device where the host chooses tokens, and launches every
    /// kernel where there are no graphs.
    pub(super) fn launches_slowly(&self) -> bool {
        let adjusts = self.slots.all_open().any(|slot| slot.adjuster.is_some());
        adjusts || self.options.disable_cuda_graph
    }

    /// The device's time for prefills that have ended, since the last call. Waits for those that no
    /// round follows, unless their first tokens are still to be handed out.
    pub(super) fn time_prefills(&mut self) -> Result<Duration, EngineError> {
        let oldest = self.flights.front().map(InFlightRound::ticket);
        // Rounds run in order, so prefills before the last collected round have ended. Asking for
        // their times does not make the host wait.
        let collected = oldest.unwrap_or(self.launched);
        let all = oldest.is_none() && self.pending_first.is_empty();
        for place in 0..self.prefills.len() {
            if self.prefills[place].untimed.is_some_and(|launched| all || launched < collected) {
                self.time_prefill(place)?;
            }
        }
        Ok(std::mem::take(&mut self.prefilled))
    }

    /// Waits for the work in a place, and counts its time.
    pub(super) fn time_prefill(&mut self, place: usize) -> Result<(), EngineError> {
        let staging = &mut self.prefills[place];
        staging.end.wait()?;
        if staging.untimed.take().is_some() {
            self.prefilled += staging.end.since(&staging.begin)?;
        }
        Ok(())
    }
}
