//! One admitted request, from its prompt to its end.

use std::time::{Duration, Instant};

use super::{
    ModelEnds,
    pages::PageTable,
    prefix::{PageKey, PageKeys, Reuse},
};
use crate::{
    backend::{ProducedToken, Slot, TokenLogprobs},
    request::{Completion, Event, FinishReason, OutputText, Request, RequestId, StopConditions},
    text::TextStream,
};

/// A request that has a slot (or never got one, when it was cancelled in the queue).
pub struct Running {
    id: RequestId,
    request: Request,
    place: Option<Place>,
    end_tokens: Vec<u32>,
    stream: TextStream,
    /// What is read again, prompt and output, of a request that was put back into the queue.
    read_again: Option<Vec<u32>>,
    /// Tokens of it, or else of the prompt, that the device has read.
    prompt_read: usize,
    /// Tokens of the prompt that were in the cache when it was admitted first.
    cached: usize,
    output: Vec<u32>,
    rounds: usize,
    proposed: u64,
    histogram: Vec<u64>,
    submitted: Instant,
    admitted: Instant,
    first_token: Option<Duration>,
    /// Rounds that are launched and not collected.
    in_flight: usize,
    finished: Option<FinishReason>,
    prompt_logprobs: Vec<TokenLogprobs>,
    events: Vec<Event>,
}

/// Where an admitted request lives.
#[derive(Debug)]
pub struct Place {
    /// Its slot.
    pub slot: Slot,
    /// Its pages.
    pub pages: PageTable,
    /// What its pages hold.
    pub keys: PageKeys,
    /// Tokens of its prompt that the pages held from the start.
    pub cached: usize,
}

/// What a request kept of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Tokens that became output.
    pub tokens: usize,
    /// Drafts among them.
    pub drafts: usize,
}

impl Running {
    /// A request that is about to read its prompt.
    pub fn new(id: RequestId, request: Request, submitted: Instant, place: Option<Place>, model: &ModelEnds) -> Self {
        Self {
            id,
            end_tokens: model.ends(&request.stop),
            stream: text_stream(&request.stop, model),
            request,
            read_again: None,
            prompt_read: place.as_ref().map_or(0, |place| place.cached),
            cached: place.as_ref().map_or(0, |place| place.cached),
            place,
            output: Vec::new(),
            rounds: 0,
            proposed: 0,
            histogram: Vec::new(),
            submitted,
            admitted: Instant::now(),
            first_token: None,
            in_flight: 0,
            finished: None,
            prompt_logprobs: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Its number.
    pub fn id(&self) -> RequestId {
        self.id
    }

    /// Starts again with its output so far: prompt and output are prefilled when it [resumes](Self::resume). Its place has
    /// been given back.
    pub fn retract(&mut self) {
        if !self.output.is_empty() {
            self.read_again = Some(self.sequence());
            // Log-probabilities of the prompt have been reported already.
            self.request.sampling.prompt_logprobs = None;
        }
        self.prompt_read = 0;
    }

    /// Goes on in another place, which holds the first `place.cached` positions.
    pub fn resume(&mut self, place: Place) {
        self.prompt_read = place.cached;
        self.place = Some(place);
    }

    /// The request.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// What it has produced.
    pub fn output(&self) -> &[u32] {
        &self.output
    }

    /// What the device has to read before it can produce anything.
    pub fn to_read(&self) -> &[u32] {
        self.read_again.as_deref().unwrap_or(&self.request.input_ids)
    }

    /// Its slot.
    pub fn slot(&self) -> Option<Slot> {
        self.place.as_ref().map(|place| place.slot)
    }

    /// Why it ended, if it has.
    pub fn finished(&self) -> Option<&FinishReason> {
        self.finished.as_ref()
    }

    /// Its pages, and the keys of those that the device has filled with its prompt.
    pub fn filled_pages(&mut self) -> Option<(&mut PageTable, &[PageKey])> {
        let read = self.prompt_read;
        self.place.as_mut().map(|place| (&mut place.pages, place.keys.within(read)))
    }

    /// Its pages.
    #[cfg(test)]
    pub fn pages(&self) -> Option<&PageTable> {
        self.place.as_ref().map(|place| &place.pages)
    }

    /// Whether it is going to fill the page of this number with what `key` names.
    pub fn will_fill(&self, page: usize, key: &PageKey) -> bool {
        let Some((_, read, rest)) = self.unread_prompt() else { return false };
        let keys = self.place.as_ref().map(|place| (place.keys.within(read), place.keys.within(read + rest.len())));
        keys.is_some_and(|(filled, all)| page >= filled.len() && all.get(page) == Some(key))
    }

    /// Slot and pages, to be given back, with the keys of the pages that may be used again: not of those whose last
    /// `unread` positions the draft has not read. Not while a launched round holds the slot.
    pub fn leave_place(&mut self, reuse: Reuse, unread: usize) -> Option<Place> {
        let mut place = self.place.take()?;
        // The last token is in no cache yet; rows after it may belong to tokens that were cut off.
        let mut filled = self.prompt_read;
        let sequence = self.sequence();
        let produced = sequence.len() - self.to_read().len();
        if reuse == Reuse::All && produced > 0 {
            filled += (produced - 1).saturating_sub(unread);
            place.keys.extend(&sequence);
        }
        place.keys.truncate(filled);
        Some(place)
    }

    /// Prompt and output.
    fn sequence(&self) -> Vec<u32> {
        [self.request.input_ids.as_slice(), &self.output].concat()
    }

    /// Whether a further round can yield something: there is a token to continue from, and the rounds in flight, of
    /// which each yields at least one token, do not end it.
    pub fn wants_round(&self) -> bool {
        let ends = self.request.stop.max_new_tokens.unwrap_or(usize::MAX);
        let has_read = self.prompt_read >= self.to_read().len() && !self.output.is_empty();
        self.finished.is_none() && has_read && self.output.len() + self.in_flight < ends
    }

    /// It takes part in a round.
    pub fn launched(&mut self) {
        self.in_flight += 1;
    }

    /// Whether it has ended and no launched round holds its slot.
    pub fn is_done(&self) -> bool {
        self.finished.is_some() && self.in_flight == 0
    }

    /// Slot, position and tokens of what is left of the prompt.
    pub fn unread_prompt(&self) -> Option<(Slot, usize, &[u32])> {
        let rest = &self.to_read()[self.prompt_read..];
        if rest.is_empty() || self.finished.is_some() { None } else { Some((self.slot()?, self.prompt_read, rest)) }
    }

    /// The device has read some more of the prompt.
    pub fn read_prompt(&mut self, count: usize) {
        self.prompt_read += count;
    }

    /// Takes the log-probabilities of the prompt.
    pub fn take_prompt_logprobs(&mut self, logprobs: Vec<TokenLogprobs>) {
        if self.read_again.is_none() {
            self.prompt_logprobs = logprobs;
        }
    }

    /// Whether only the prompt was to be read.
    pub fn wants_nothing(&self) -> bool {
        self.request.stop.max_new_tokens == Some(0)
    }

    /// Takes the token that follows the prompt.
    pub fn take_first(&mut self, token: ProducedToken) {
        self.append(vec![token]);
        self.complete();
    }

    /// Takes the tokens of a round in which `proposed` drafts were verified: accepted drafts, then the bonus token.
    /// `None` if it had ended before.
    pub fn take_round(&mut self, tokens: Vec<ProducedToken>, proposed: usize) -> Option<Kept> {
        self.in_flight -= 1;
        if self.finished.is_some() {
            return None;
        }
        let drafts = tokens.len().saturating_sub(1);
        let kept = self.append(tokens);
        let kept = Kept { tokens: kept, drafts: kept.min(drafts) };
        self.rounds += 1;
        self.proposed += proposed as u64;
        if self.histogram.len() <= kept.drafts {
            self.histogram.resize(kept.drafts + 1, 0);
        }
        self.histogram[kept.drafts] += 1;
        // Not before the round is counted: the last round is one too.
        self.complete();
        Some(kept)
    }

    /// Adds tokens up to the one that ends the request, and returns how many.
    fn append(&mut self, mut tokens: Vec<ProducedToken>) -> usize {
        self.first_token.get_or_insert_with(|| self.submitted.elapsed());
        let mut text = String::new();
        let mut kept = 0;
        for token in &tokens {
            kept += 1;
            self.output.push(token.id);
            if self.end_tokens.contains(&token.id) {
                if self.request.stop.keep_stop {
                    text.push_str(&self.stream.push(token.id).text);
                }
                self.finished = Some(FinishReason::StopToken(token.id));
                break;
            }
            let grown = self.stream.push(token.id);
            text.push_str(&grown.text);
            if let Some(stop) = grown.stopped {
                self.finished = Some(FinishReason::StopString(stop));
                break;
            }
            if self.request.stop.max_new_tokens.is_some_and(|most| self.output.len() >= most) {
                self.finished = Some(FinishReason::Length);
                break;
            }
        }
        tokens.truncate(kept);
        if self.finished.as_ref().is_some_and(|reason| !matches!(reason, FinishReason::StopString(_))) {
            text.push_str(&self.stream.finish());
        }
        self.events.push(Event::Tokens { request: self.id, tokens, text });
        kept
    }

    /// Ends it immediately.
    pub fn end(&mut self, reason: FinishReason) {
        if self.finished.is_none() {
            self.finished = Some(reason);
            self.stream.finish();
            self.complete();
        }
    }

    /// What happened since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    fn complete(&mut self) {
        let Some(finish_reason) = self.finished.clone() else { return };
        let completion = Completion {
            output_ids: self.output.clone(),
            text: self.stream.whole().to_owned(),
            prompt_tokens: self.request.input_ids.len(),
            cached_tokens: self.cached,
            rounds: self.rounds,
            proposed_drafts: self.proposed,
            accept_histogram: self.histogram.clone(),
            prompt_logprobs: std::mem::take(&mut self.prompt_logprobs),
            finish_reason,
            queued: self.admitted - self.submitted,
            time_to_first_token: self.first_token.unwrap_or_default(),
            elapsed: self.submitted.elapsed(),
        };
        self.events.push(Event::Finished { request: self.id, completion: Box::new(completion) });
    }
}

fn text_stream(stop: &StopConditions, model: &ModelEnds) -> TextStream {
    let text = model.text.clone().filter(|_| stop.text != OutputText::Off);
    TextStream::new(text, stop.stop.clone()).with(stop.text == OutputText::WithSpecialTokens, stop.keep_stop)
}
