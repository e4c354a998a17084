//! Rounds: launched for all requests that can use one, and collected in order.
//!
//! If drafts are looked up in texts, that happens here, between the end of one round and the launch
//! of the next.

use std::time::{Duration, Instant};

use schemas::tree::TreeShape;

use super::{InFlight, ScheduledRequest, Scheduler, no_token, statistics::RanRound};
use crate::{
    backend::{DraftTree, Drafted, Round, Slot, Ticket},
    error::EngineError,
    options::mean_context,
    request::{Event, RequestId},
    text_drafts::TextDrafts,
};

/// A round in flight.
pub struct LaunchedRound {
    ticket: Ticket,
    ran: RanRound,
    /// The requests in it, each with the number of its drafts; `None` if the backend has looked
    /// them up, as many as the texts have.
    members: Vec<(RequestId, Option<usize>)>,
    /// Whether prefills before it have not been timed yet.
    times_prefills: bool,
    /// Time of the look-ups before it, if drafts are looked up.
    looked_up: Option<Duration>,
}

/// The shape of the next round.
#[derive(Clone, Copy)]
pub(super) struct NextShape {
    /// What the policy says for all requests that can use a round.
    whole: TreeShape,
    /// What runs.
    pub(super) runs: TreeShape,
}

impl Scheduler {
    /// Launches a round for the requests that can use one, of those with the same limit of drafts;
    /// returns whether there were any.
    pub(super) fn launch(&mut self) -> Result<bool, EngineError> {
        let begin = Instant::now();
        let Some(shape) = self.next_shape() else { return Ok(false) };
        self.last_shape = shape.runs;
        let looks_up = self.looks_up() && !shape.runs.is_off();
        let mut members = Vec::new();
        let mut slots = Vec::new();
        let mut tokens = 0;
        let mut chains = Vec::new();
        let (drafts_itself, by_host) = (self.texts.is_none(), !self.backend.looks_up());
        for running in &mut self.running {
            let most_drafts = running.request().sampling.most_drafts;
            // The device runs one shape per batch, so requests with other limits wait for a round
            // of their shape. Trees of the host fill any part of a shape, so all requests run
            // together.
            let takes_part = !drafts_itself || self.policy.within(shape.whole, most_drafts) == shape.runs;
            if let Some(slot) = running.slot().filter(|_| takes_part && running.wants_round()) {
                running.launched();
                tokens += running.request().input_ids.len() + running.output().len();
                if let Some(texts) = self.texts.as_mut().filter(|_| by_host && looks_up) {
                    texts.update(running.id().0, &running.request().input_ids, running.output());
                }
                if let Some(source) = self.second_source.as_mut().filter(|_| looks_up) {
                    let (prompt, output) = (&running.request().input_ids, running.output());
                    chains.push(source.look_up(running.id().0, prompt, output, shape.runs));
                }
                members.push((running.id(), most_drafts));
                slots.push(slot);
            }
        }
        let shape = shape.runs;
        let trees = if looks_up { self.look_up(&members, shape) } else { None };
        // The device has waited as well while texts took in the tokens of the last round.
        let kept = std::mem::take(&mut self.kept_texts);
        let looked_up = looks_up.then(|| begin.elapsed() + kept);
        let (ticket, drafts, shape) = match trees {
            Some(trees) => self.launch_trees(shape, &slots, &trees)?,
            None => {
                let drafts = vec![Some(shape.drafts()).filter(|_| drafts_itself || shape.is_off()); slots.len()];
                let round = Round { shape, slots: &slots };
                // Chains extend the trees of a draft, which a round without speculation does not
                // grow.
                let joins = self.second_source.is_some() && looks_up;
                let drafted = if joins { Drafted::Joined(&chains) } else { Drafted::Here };
                (self.backend.launch_drafted(round, drafted)?, drafts, shape)
            }
        };
        let times_prefills = std::mem::take(&mut self.untimed_prefill);
        if self.looks_up() && !looks_up {
            self.keep_texts(&members);
        }
        // What the backend looks up by itself is added when it is known.
        let rows = slots.len() + drafts.iter().flatten().sum::<usize>();
        let members = members.into_iter().map(|(id, _)| id).zip(drafts).collect();
        let ran = RanRound { shape, batch: slots.len(), rows, tokens };
        self.in_flight.push_back(InFlight::Round(LaunchedRound { ticket, ran, members, times_prefills, looked_up }));
        Ok(true)
    }

    /// Launches a round for looked up trees; returns the number of drafts of each, and what runs.
    /// If nothing was found for any request, it is a round without speculation.
    fn launch_trees(
        &mut self,
        shape: TreeShape,
        slots: &[Slot],
        trees: &[DraftTree],
    ) -> Result<(Ticket, Vec<Option<usize>>, TreeShape), EngineError> {
        // Acceptance is counted against what was found, not against the shape.
        let drafts: Vec<Option<usize>> = trees.iter().map(|tree| Some(tree.nodes().len() - 1)).collect();
        if drafts.iter().all(|drafts| *drafts == Some(0)) {
            let shape = TreeShape::OFF;
            return Ok((self.backend.launch(Round { shape, slots })?, drafts, shape));
        }
        Ok((self.backend.launch_drafted(Round { shape, slots }, Drafted::ByHost(trees))?, drafts, shape))
    }

    /// What the next round runs; `None` if no request can use one. Requests that limit their drafts
    /// cannot be in the same round as the others, since a round has one shape: the shapes take
    /// turns. Trees that are looked up can be smaller than their round's shape, so such requests
    /// take part in every round.
    pub(super) fn next_shape(&self) -> Option<NextShape> {
        let ready: Vec<&ScheduledRequest> = self.running.iter().filter(|running| running.wants_round()).collect();
        let length = |running: &&ScheduledRequest| running.request().input_ids.len() + running.output().len();
        let lengths: Vec<usize> = ready.iter().map(length).collect();
        // Without requests for a round there is no mean context, and no round.
        let whole = self.policy.shape_at(ready.len(), mean_context(&lengths)?);
        let wanted = ready.iter().map(|running| self.policy.within(whole, running.request().sampling.most_drafts));
        let mut shapes: Vec<TreeShape> = if self.texts.is_some() { vec![whole] } else { wanted.collect() };
        shapes.sort_unstable();
        // The next larger one than ran last, then the smallest again: each shape has its turn.
        let runs = *shapes.iter().find(|shape| **shape > self.last_shape).or(shapes.first())?;
        Some(NextShape { whole, runs })
    }

    /// Brings the texts of requests up to date while a round without speculation runs, so that a
    /// later look-up does not have to read all that they have produced until then.
    fn keep_texts(&mut self, members: &[(RequestId, Option<usize>)]) {
        for running in self.running.iter().filter(|running| members.iter().any(|(id, _)| *id == running.id())) {
            let (id, prompt, output) = (running.id().0, &running.request().input_ids, running.output());
            if let Some(texts) = self.texts.as_mut().filter(|_| !self.backend.looks_up()) {
                texts.update(id, prompt, output);
            }
            if let Some(source) = &mut self.second_source {
                source.look_up(id, prompt, output, TreeShape::OFF);
            }
        }
    }

    /// The trees after the tokens of requests, each with at most its number of drafts; `None` if
    /// drafts are not looked up.
    fn look_up(&mut self, members: &[(RequestId, Option<usize>)], shape: TreeShape) -> Option<Vec<DraftTree>> {
        let texts = self.texts.as_mut()?;
        Some(members.iter().map(|(id, most)| texts.draft(id.0, within(shape, *most))).collect())
    }

    /// Ends a request in the texts.
    pub(super) fn end_texts(&mut self, running: &ScheduledRequest) {
        if let Some(texts) = &mut self.texts {
            texts.end(running.id().0);
        }
        if let Some(source) = &mut self.second_source {
            source.end(running.id().0, running.output());
        }
    }

    /// Forgets all texts.
    pub fn forget_texts(&mut self) {
        if let Some(texts) = &mut self.texts {
            texts.clear();
        }
        if let Some(source) = &mut self.second_source {
            source.clear();
        }
    }

    pub(super) fn collect_round(
        &mut self,
        round: LaunchedRound,
        events: &mut dyn FnMut(Event),
    ) -> Result<(), EngineError> {
        let LaunchedRound { ticket, mut ran, members, times_prefills, looked_up } = round;
        let mut output = self.backend.collect(ticket)?;
        if let Some(looked_up) = looked_up {
            // Nothing was in flight during look-ups, so the device had no work in that time.
            output.timing.stall = Some(looked_up + output.timing.stall.unwrap_or_default());
        }
        if times_prefills {
            self.time_prefills()?;
        }
        let mut drafts = Vec::with_capacity(members.len());
        for ((id, proposed), produced) in members.into_iter().zip(output.yields) {
            let Some(running) = self.running.iter_mut().find(|running| running.id() == id) else { continue };
            let proposed = proposed.unwrap_or_else(|| {
                let found = found(self.texts.as_mut(), running, ran.shape);
                ran.rows += found;
                found
            });
            // A request that ended in an earlier round has left the texts.
            let keeps = running.finished().is_none() && self.policy.speculates();
            if let Some(texts) = self.texts.as_mut().filter(|_| keeps) {
                let begin = Instant::now();
                let tokens: Vec<u32> = produced.tokens.iter().map(|token| token.id).collect();
                texts.append(id.0, &tokens);
                if !self.backend.looks_up() {
                    self.kept_texts += begin.elapsed();
                }
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
        self.statistics.round(ran, &drafts, &output.timing);
        self.sweep(events);
        Ok(())
    }
}

/// The shape within which a request is drafted that has at most this many drafts.
fn within(shape: TreeShape, most: Option<usize>) -> TreeShape {
    match most {
        Some(0) => TreeShape::OFF,
        Some(most) if most < shape.drafts() => {
            TreeShape { num_steps: shape.num_steps.min(most), num_draft_tokens: most + 1, ..shape }
        }
        _ => shape,
    }
}

/// Number of drafts that the backend has looked up for a round of this shape after the tokens of a
/// request: the texts find the same.
fn found(texts: Option<&mut TextDrafts>, running: &ScheduledRequest, shape: TreeShape) -> usize {
    let Some(texts) = texts.filter(|_| running.finished().is_none()) else { return 0 };
    texts.update(running.id().0, &running.request().input_ids, running.output());
    texts.draft(running.id().0, within(shape, running.request().sampling.most_drafts)).nodes().len() - 1
}
