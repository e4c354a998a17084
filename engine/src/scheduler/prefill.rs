//! Prefill of prompts, and their first tokens.
//!
//! A backend that runs ahead of the host gets the next round before the host knows the first tokens
//! of a prefill, so that it has work while the host waits for them and hands them out. A request
//! whose first token ends it is then part of that round, which yields nothing for it. Where the
//! backend has waited for the first tokens anyway, they are handed out from within its prefill, and
//! a request that has ended is not part of the round.

use std::collections::HashSet;

use super::{InFlight, ScheduledRequest, Scheduler, Statistics, no_token};
use crate::{
    backend::{Capacity, PrefillChunk, Slot, Yield},
    error::EngineError,
    request::{Event, FinishReason, RequestId},
};

/// A [`PrefillChunk`] of a running request.
struct RequestChunk {
    /// Index of the request.
    member: usize,
    slot: Slot,
    /// Copied, since the request may take its first token while the backend still reads them.
    tokens: Vec<u32>,
    start: usize,
    next: Option<u32>,
}

/// A prefill whose first tokens may not all be known.
pub struct LaunchedPrefill {
    /// The request of each piece.
    members: Vec<RequestId>,
    /// Requests whose first token is known, or has no position if there is one.
    known: Vec<(RequestId, Option<usize>)>,
}

impl RequestChunk {
    fn chunk(&self) -> PrefillChunk<'_> {
        PrefillChunk { slot: self.slot, tokens: &self.tokens, start: self.start, next: self.next }
    }
}

impl LaunchedPrefill {
    /// Hands out what follows the prompt that ends in the piece at this index.
    fn take(
        &mut self,
        at: usize,
        Yield { tokens, not_finite }: Yield,
        (running, statistics): (&mut [ScheduledRequest], &mut Statistics),
        events: &mut dyn FnMut(Event),
    ) {
        let id = self.members[at];
        self.known.push((id, not_finite));
        let Some(one) = running.iter_mut().find(|running| running.id() == id) else { return };
        if !one.wants_nothing() {
            statistics.generated_tokens += tokens.len() as u64;
            tokens.into_iter().for_each(|token| one.take_first(token));
            one.take_events().into_iter().for_each(&mut *events);
        }
    }
}

impl Scheduler {
    /// Prefills the next pieces of prompts.
    pub(super) fn prefill(&mut self, events: &mut dyn FnMut(Event)) -> Result<(), EngineError> {
        let mut pieces = self.next_pieces();
        self.cover_pieces(&mut pieces)?;
        if pieces.is_empty() {
            return Ok(());
        }
        let chunks: Vec<PrefillChunk<'_>> = pieces.iter().map(RequestChunk::chunk).collect();
        let members = pieces.iter().map(|piece| self.running[piece.member].id()).collect();
        let mut launched = LaunchedPrefill { members, known: Vec::new() };
        let (running, statistics) = (&mut self.running, &mut self.statistics);
        let mut take = |at, first| launched.take(at, first, (running, statistics), events);
        let is_in_flight = self.backend.prefill(&chunks, &mut take)?;
        self.untimed_prefill = true;
        // Some backends hand out first tokens during the call; only the other requests wait for
        // one.
        let known: HashSet<RequestId> = launched.known.iter().map(|(id, _)| *id).collect();
        for piece in &pieces {
            let running = &mut self.running[piece.member];
            // First of all, since the state to keep and the filled pages depend on this count.
            running.read_prompt(piece.tokens.len());
            if piece.next.is_none() && !known.contains(&running.id()) {
                running.await_first();
            }
            // Copied now, since the next piece continues from this state: the copy is ordered after
            // the pass that computes it.
            if let (Some(kept), Some(key)) = (&mut self.snapshots, running.keeps_now())
                && let Some(place) = kept.place(&key)
            {
                self.backend.keep(piece.slot, place)?;
            }
            // Others may use these pages before the pass has ended: whatever reads them is launched
            // after it.
            let read = piece.start + piece.tokens.len();
            if let Some((table, keys)) = running.filled_pages() {
                self.pages.share(table, keys);
                if piece.next.is_none() {
                    self.pages.end_prompt(table, read);
                }
                self.pages.leave_windows(table, keys, read);
            }
        }
        if is_in_flight {
            self.in_flight.push_back(InFlight::Prefill(launched));
            return Ok(());
        }
        self.end_prefill(launched, events);
        Ok(())
    }

    /// Gives the pages of pieces, and those that the first round after them may fill, their window
    /// pages. Pieces for which there are too few wait for the next step.
    fn cover_pieces(&mut self, pieces: &mut Vec<RequestChunk>) -> Result<(), EngineError> {
        let slack = self.limits().slack();
        let covered = pieces.iter().take_while(|piece| {
            let positions = piece.start..piece.start + piece.tokens.len() + slack;
            let filled = self.running[piece.member].filled_pages();
            filled.is_none_or(|(table, keys)| self.pages.cover(table, keys, positions))
        });
        let covered = covered.count();
        // Rounds release pages as windows move on. Without any, the same pages would be missing in
        // every further step.
        if covered == 0 && !pieces.is_empty() && !self.running.iter().any(ScheduledRequest::wants_round) {
            return Err(EngineError::Device("there are too few window pages for one piece of a prompt".into()));
        }
        pieces.truncate(covered);
        self.change_windows()
    }

    /// Waits for the first tokens of a prefill.
    pub(super) fn collect_prefill(
        &mut self,
        mut launched: LaunchedPrefill,
        events: &mut dyn FnMut(Event),
    ) -> Result<(), EngineError> {
        let (running, statistics) = (&mut self.running, &mut self.statistics);
        self.backend.collect_prefill(&mut |at, first| launched.take(at, first, (running, statistics), events))?;
        self.end_prefill(launched, events);
        Ok(())
    }

    /// Ends the requests that end with their prompt or their first token.
    fn end_prefill(&mut self, launched: LaunchedPrefill, events: &mut dyn FnMut(Event)) {
        for (id, not_finite) in launched.known {
            let Some(running) = self.running.iter_mut().find(|running| running.id() == id) else { continue };
            if let Some(slot) = running.slot() {
                running.take_prompt_logprobs(self.backend.prompt_logprobs(slot));
            }
            if running.wants_nothing() {
                running.end(FinishReason::Length);
            } else if let Some(position) = not_finite {
                running.end(no_token(self.backend.as_ref(), running, position));
            } else {
                // The first token may also be the last one.
                running.complete();
            }
        }
        self.sweep(events);
    }

    /// Counts the time of prefills that have ended.
    pub(super) fn time_prefills(&mut self) -> Result<(), EngineError> {
        self.statistics.prefill_time += self.backend.prefill_time()?;
        // The end of a prefill in flight is not known yet, so its time is requested again.
        self.untimed_prefill &= !self.in_flight.is_empty();
        Ok(())
    }

    /// The pieces of prompts that the next step prefills, within its budget.
    fn next_pieces(&self) -> Vec<RequestChunk> {
        let Capacity { prefill_chunk, state_chunk, .. } = self.backend.capacity();
        let largest = prefill_chunk.max(1);
        let mut budget = self.options.prefill_budget;
        let mut pieces = Vec::new();
        for (member, running) in self.running.iter().enumerate() {
            let Some((slot, start, rest)) = running.unread_prompt() else { continue };
            let stop = running.stops_at().map_or(usize::MAX, |stop| stop - start);
            // A piece ends where a state is to be kept, because a pass leaves only the state after
            // its last row.
            let mut count = rest.len().min(largest).min(budget).min(stop);
            if count < rest.len() {
                let whole = ((start + count) / state_chunk * state_chunk).saturating_sub(start);
                // Of pieces that are smaller than a chunk, one must not wait for more room.
                count = if whole == 0 && pieces.is_empty() { count } else { whole };
            }
            if count == 0 {
                break;
            }
            budget -= count;
            pieces.push(RequestChunk {
                member,
                slot,
                tokens: rest[..count].to_vec(),
                start,
                next: rest.get(count).copied(),
            });
        }
        pieces
    }
}
