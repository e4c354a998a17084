//! Rounds: launched for all requests that can use one, and collected in order.
//!
//! If drafts are looked up in texts, that happens here, between the end of one round and the launch of the next.

use std::time::{Duration, Instant};

use schemas::tree::TreeShape;

use super::{InFlight, Running, Scheduler, no_token};
use crate::{
    backend::{DraftTree, Round, Slot, Ticket},
    error::EngineError,
    request::{Event, RequestId},
};

/// A round in flight.
pub struct LaunchedRound {
    ticket: Ticket,
    /// The requests in it, each with the number of its drafts.
    members: Vec<(RequestId, usize)>,
    /// Whether prefills before it have not been timed yet.
    times_prefills: bool,
    /// Time of the look-ups before it, if drafts are looked up.
    looked_up: Option<Duration>,
}

impl Scheduler {
    /// Launches a round for all requests that can use one; returns whether there were any.
    pub(super) fn launch(&mut self) -> Result<bool, EngineError> {
        let begin = Instant::now();
        let mut members = Vec::new();
        let mut slots = Vec::new();
        let mut tokens = 0;
        for running in &mut self.running {
            if let Some(slot) = running.slot().filter(|_| running.wants_round()) {
                running.launched();
                tokens += running.request().input_ids.len() + running.output().len();
                if let Some(texts) = &mut self.texts {
                    texts.update(running.id().0, &running.request().input_ids, running.output());
                }
                members.push(running.id());
                slots.push(slot);
            }
        }
        if slots.is_empty() {
            return Ok(false);
        }
        let shape = self.policy.shape_at(slots.len(), tokens / slots.len());
        let trees = self.look_up(&members, shape);
        let looked_up = trees.is_some().then(|| begin.elapsed() + std::mem::take(&mut self.kept_texts));
        let (ticket, drafts) = match trees {
            Some(trees) => self.launch_drafted(shape, &slots, &trees)?,
            None => {
                let drafts = vec![shape.num_draft_tokens - 1; slots.len()];
                (self.backend.launch(Round { shape, slots: &slots })?, drafts)
            }
        };
        let times_prefills = std::mem::take(&mut self.untimed_prefill);
        let members = members.into_iter().zip(drafts).collect();
        self.in_flight.push_back(InFlight::Round(LaunchedRound { ticket, members, times_prefills, looked_up }));
        Ok(true)
    }

    /// Launches a round for looked up trees; returns the number of drafts of each. If nothing was found for any request,
    /// it is a round without speculation.
    fn launch_drafted(
        &mut self,
        shape: TreeShape,
        slots: &[Slot],
        trees: &[DraftTree],
    ) -> Result<(Ticket, Vec<usize>), EngineError> {
        let drafts: Vec<usize> = trees.iter().map(|tree| tree.nodes().len() - 1).collect();
        let ticket = match drafts.iter().all(|drafts| *drafts == 0) {
            true => self.backend.launch(Round { shape: TreeShape::OFF, slots })?,
            false => self.backend.launch_drafted(Round { shape, slots }, trees)?,
        };
        Ok((ticket, drafts))
    }

    /// The trees after the tokens of requests; `None` if drafts are not looked up.
    fn look_up(&mut self, members: &[RequestId], shape: TreeShape) -> Option<Vec<DraftTree>> {
        let texts = self.texts.as_mut()?;
        Some(members.iter().map(|id| texts.draft(id.0, shape)).collect())
    }

    /// Ends a request in the texts.
    pub(super) fn end_texts(&mut self, running: &Running) {
        if let Some(texts) = &mut self.texts {
            texts.end(running.id().0);
        }
    }

    /// Forgets all texts.
    pub(super) fn forget_texts(&mut self) {
        if let Some(texts) = &mut self.texts {
            texts.clear();
        }
    }

    pub(super) fn collect_round(
        &mut self,
        round: LaunchedRound,
        events: &mut dyn FnMut(Event),
    ) -> Result<(), EngineError> {
        let LaunchedRound { ticket, members, times_prefills, looked_up } = round;
        let mut output = self.backend.collect(ticket)?;
        if let Some(looked_up) = looked_up {
            output.timing.stall = Some(looked_up + output.timing.stall.unwrap_or_default());
        }
        if times_prefills {
            self.time_prefills()?;
        }
        let launched = members.len();
        let mut drafts = Vec::with_capacity(launched);
        for ((id, proposed), produced) in members.into_iter().zip(output.yields) {
            let Some(running) = self.running.iter_mut().find(|running| running.id() == id) else { continue };
            if let Some(texts) = self.texts.as_mut().filter(|_| running.finished().is_none()) {
                let begin = Instant::now();
                let tokens: Vec<u32> = produced.tokens.iter().map(|token| token.id).collect();
                texts.append(id.0, &tokens);
                self.kept_texts += begin.elapsed();
            }
            if let Some(kept) = running.take_round(produced.tokens, proposed) {
                drafts.push(proposed);
                self.statistics.kept(kept);
            }
            // Tokens of a request that has already ended are dropped.
            if let Some(position) = produced.not_finite {
                running.end(no_token(self.backend.as_ref(), running, position));
            }
        }
        self.statistics.round(launched, &drafts, &output.timing);
        self.sweep(events);
        Ok(())
    }
}
