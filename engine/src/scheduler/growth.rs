//! Memory as it is used: pages are taken as sequences grow, and when they run out, the youngest
//! requests are retracted.
//!
//! A request is admitted if the cache can be expected to hold it and the running ones
//! ([`NewTokenRatio`]). The oldest request is never retracted for others and fits alone, since it
//! was refused otherwise: so it always runs to its end, and every request becomes the oldest in
//! time.

use std::time::Instant;

use super::{ModelEnds, ScheduledRequest, Scheduler, Waiting, admission::Limits};
use crate::{
    error::EngineError,
    new_token_ratio::{NewTokenRatio, Output},
    request::{Event, Request},
};

/// A growing sequence gets room for up to this many further tokens as well, as far as it is
/// expected to need it and there are free pages, so that its page table is not written every round.
const GROWTH: usize = 128;

/// What the queue's first request needs, in pages.
pub struct PageNeeds {
    /// To start: its tokens so far, and the first round.
    pub start: usize,
    /// In the end, as far as it is expected.
    pub expected: usize,
}

impl Scheduler {
    /// Pages that a queued request needs.
    pub(super) fn needs(&self, next: &Waiting) -> PageNeeds {
        let limits = self.limits();
        let generated = next.retracted.as_ref().map_or(0, |running| running.output().len());
        let length = next.request.input_ids.len() + generated;
        let new = output(&next.request, generated, &self.model).at_start();
        let pages =
            |tokens: usize| (length + tokens + limits.slack()).min(next.positions).div_ceil(limits.capacity.page_size);
        PageNeeds { start: pages(1), expected: pages(new) }
    }

    /// Number of further pages that running requests are expected to take.
    pub(super) fn promised(&self) -> usize {
        let limits = self.limits();
        let running = self.running.iter().filter(|running| running.finished().is_none());
        let pages = running.map(|running| {
            let expected = expected(running, &limits, &self.model, self.ratio).div_ceil(limits.capacity.page_size);
            expected.saturating_sub(running.held_pages())
        });
        pages.sum()
    }

    /// Gives the requests of the next round the pages that they may fill, and retracts the youngest
    /// ones as long as pages are missing.
    ///
    /// # Errors
    /// When the device fails.
    pub(super) fn make_room(&mut self, events: &mut dyn FnMut(Event)) -> Result<(), EngineError> {
        if self.running.is_empty() {
            self.ratio.reset();
            return Ok(());
        }
        let mut retracted = 0;
        while !self.grow()? {
            if !self.in_flight.is_empty() {
                // Requests may have ended there, and none can be retracted before that.
                while !self.in_flight.is_empty() {
                    self.collect(events)?;
                }
                continue;
            }
            let Some(youngest) = self.running.pop().filter(|_| !self.running.is_empty()) else {
                return Err(EngineError::Device("the only running request has too few pages".into()));
            };
            self.put_back(youngest);
            retracted += 1;
        }
        if retracted == 0 {
            self.ratio.decay();
            return Ok(());
        }
        self.statistics.retracted += retracted;
        self.statistics.retracted_for_pages += retracted;
        let remaining = self.running.iter().map(|one| output(one.request(), one.output().len(), &self.model));
        self.ratio.retracted(remaining);
        Ok(())
    }

    /// Gives each request of the next round, the oldest first, the pages for all that it may fill
    /// by its end. Returns whether there were enough.
    fn grow(&mut self) -> Result<bool, EngineError> {
        let limits = self.limits();
        let page_size = limits.capacity.page_size;
        for running in self.running.iter_mut().filter(|running| running.wants_round()) {
            let most = limits.positions(running.request());
            let expected = expected(running, &limits, &self.model, self.ratio);
            let needed = running.length_at_most(limits.tokens_a_round) + limits.tree;
            let pages = |positions: usize| positions.min(most).div_ceil(page_size);
            let committed = running.committed();
            let Some(slot) = running.slot() else { continue };
            let Some((table, keys)) = running.filled_pages() else { continue };
            let held = table.ids().len();
            let missing = pages(needed).saturating_sub(held);
            if missing > 0 {
                // What it needs now may evict kept pages; what it may need later takes free ones
                // only.
                let wished = pages((needed + GROWTH).min(expected)).saturating_sub(held).min(self.pages.free());
                if !self.pages.extend(table, missing.max(wished)) {
                    return Ok(false);
                }
                self.backend.extend(slot, &table.ids()[held..])?;
            }
            if !self.pages.cover(table, keys, committed..needed) {
                return Ok(false);
            }
        }
        self.change_windows()?;
        Ok(true)
    }

    /// Puts running requests back into the queue, before all others. They keep their output; prompt
    /// and output are prefilled again when they continue, with the weights of that time.
    ///
    /// # Errors
    /// When the device fails.
    pub fn retract(&mut self, events: &mut dyn FnMut(Event)) -> Result<(), EngineError> {
        self.settle(events)?;
        self.statistics.retracted += self.running.len() as u64;
        // The youngest first, so that the oldest is at the front of the queue in the end.
        while let Some(running) = self.running.pop() {
            self.put_back(running);
        }
        self.count();
        Ok(())
    }

    /// Puts a request that no work in flight includes back into the queue, before all others.
    fn put_back(&mut self, mut running: ScheduledRequest) {
        self.release(&mut running);
        running.retract();
        let request = running.request().clone();
        self.waiting.push_front(Waiting {
            id: running.id(),
            positions: self.limits().positions(&request),
            keys: self.keys(&request, running.to_read()),
            submitted: Instant::now(),
            request,
            retracted: Some(Box::new(running)),
        });
    }
}

/// Number of positions that a running request is expected to fill in the end.
fn expected(running: &ScheduledRequest, limits: &Limits, model: &ModelEnds, ratio: NewTokenRatio) -> usize {
    let (request, generated) = (running.request(), running.output().len());
    let length = request.input_ids.len() + generated;
    let expected = length + ratio.expected(output(request, generated, model)) + limits.slack();
    expected.min(limits.positions(request))
}

/// A request's output. Its length is certain if nothing but its limit ends it.
fn output(request: &Request, generated: usize, model: &ModelEnds) -> Output {
    let ends = model.ends(request);
    let is_free = ends.is_empty() && request.stop.stop.is_empty() && request.sampling.adjustments.grammar.is_none();
    Output { generated, most: request.stop.max_new_tokens.unwrap_or_default(), is_certain: is_free }
}
