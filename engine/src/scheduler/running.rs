//! One admitted request, from its prompt to its end.

use std::time::{Duration, Instant};

use super::ModelEnds;
use crate::{
    backend::{ProducedToken, Slot, TokenLogprobs},
    pages::{
        PageTable,
        prefix::{PageKey, PageKeys, Reuse},
    },
    request::{Completion, Event, FinishReason, OutputText, Request, RequestId, StopConditions},
    text::TextStream,
};

/// A request with a slot (or one that never got a slot because it was cancelled in the queue).
pub struct ScheduledRequest {
    id: RequestId,
    request: Request,
    place: Option<SlotAllocation>,
    end_tokens: Vec<u32>,
    stream: TextStream,
    /// Prompt and output of a retracted request, which are prefilled again.
    read_again: Option<Vec<u32>>,
    /// Number of tokens of these, or else of the prompt, that the device has processed.
    prompt_read: usize,
    /// Number of prompt tokens that were in the cache when it was first admitted.
    cached: usize,
    output: Vec<u32>,
    rounds: usize,
    proposed: u64,
    histogram: Vec<u64>,
    submitted: Instant,
    admitted: Instant,
    first_token: Option<Duration>,
    /// Number of its rounds in flight.
    in_flight: usize,
    /// Whether a first token, of the prompt or of what was prefilled again, is in flight.
    awaits_first: bool,
    finished: Option<FinishReason>,
    prompt_logprobs: Vec<TokenLogprobs>,
    retractions: usize,
    events: Vec<Event>,
}

/// Slot and pages of an admitted request.
#[derive(Debug)]
pub struct SlotAllocation {
    /// Its slot.
    pub slot: Slot,
    /// Its pages.
    pub pages: PageTable,
    /// Keys of its pages.
    pub keys: PageKeys,
    /// Number of tokens of its prompt that the pages held from the start.
    pub cached: usize,
    /// Numbers of leading pages after which its state is to be kept, ascending.
    pub keeps: Vec<usize>,
}

/// The part of a round's result that a request kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptOutput {
    /// Number of tokens that became output.
    pub tokens: usize,
    /// Number of drafts among them.
    pub drafts: usize,
}

impl ScheduledRequest {
    /// A request whose prompt is about to be prefilled.
    pub fn new(
        id: RequestId,
        request: Request,
        submitted: Instant,
        place: Option<SlotAllocation>,
        model: &ModelEnds,
    ) -> Self {
        Self {
            id,
            end_tokens: model.ends(&request),
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
            awaits_first: false,
            finished: None,
            prompt_logprobs: Vec::new(),
            retractions: 0,
            events: Vec::new(),
        }
    }

    /// Its id.
    pub fn id(&self) -> RequestId {
        self.id
    }

    /// Resets it with its output so far: prompt and output are prefilled when it
    /// [resumes](Self::resume). Its place has already been released.
    pub fn retract(&mut self) {
        self.retractions += 1;
        if !self.output.is_empty() {
            self.read_again = Some(self.sequence());
            // Log-probabilities of the prompt have already been reported.
            self.request.sampling.prompt_logprobs = None;
        }
        // All pages are given up. What the prefix cache still has is found at the next admission.
        self.prompt_read = 0;
    }

    /// Continues in another place, which already holds the first `place.cached` positions.
    pub fn resume(&mut self, place: SlotAllocation) {
        self.prompt_read = place.cached;
        self.place = Some(place);
    }

    /// The request.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Its output so far.
    pub fn output(&self) -> &[u32] {
        &self.output
    }

    /// The tokens that the device must prefill before it can produce any.
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

    /// The position at which the next piece of its prompt must end, if its state is to be kept
    /// there.
    pub fn stops_at(&self) -> Option<usize> {
        let place = self.place.as_ref()?;
        let mut positions = place.keeps.iter().map(|pages| pages * place.keys.page_size());
        positions.find(|position| *position > self.prompt_read)
    }

    /// The key of the last page that it has read, if its state is to be kept now.
    pub fn keeps_now(&self) -> Option<PageKey> {
        let place = self.place.as_ref()?;
        let ends = |pages: &usize| pages * place.keys.page_size() == self.prompt_read;
        place.keeps.iter().find(|pages| ends(pages))?;
        place.keys.within(self.prompt_read).last().copied()
    }

    /// Its pages, and the keys of those that the device has filled with its prompt.
    pub fn filled_pages(&mut self) -> Option<(&mut PageTable, &[PageKey])> {
        let read = self.prompt_read;
        self.place.as_mut().map(|place| (&mut place.pages, place.keys.within(read)))
    }

    /// Number of pages that it holds.
    pub fn held_pages(&self) -> usize {
        self.place.as_ref().map_or(0, |place| place.pages.ids().len())
    }

    /// Number of positions that are certainly in the caches: no later round runs before them.
    pub fn committed(&self) -> usize {
        (self.request.input_ids.len() + self.output.len()).saturating_sub(1)
    }

    /// Maximum length of its sequence after the work in flight, in which a round yields at most
    /// this many tokens.
    pub fn length_at_most(&self, tokens_a_round: usize) -> usize {
        let reported = self.request.input_ids.len() + self.output.len();
        reported + usize::from(self.awaits_first) + self.in_flight * tokens_a_round
    }

    /// Its pages.
    #[cfg(test)]
    pub fn pages(&self) -> Option<&PageTable> {
        self.place.as_ref().map(|place| &place.pages)
    }

    /// Whether it is going to fill the page at this index with the contents of `key`.
    pub fn will_fill(&self, page: usize, key: &PageKey) -> bool {
        let Some((_, read, rest)) = self.unread_prompt() else { return false };
        let keys = self.place.as_ref().map(|place| (place.keys.within(read), place.keys.within(read + rest.len())));
        keys.is_some_and(|(filled, all)| page >= filled.len() && all.get(page) == Some(key))
    }

    /// Takes slot and pages for release, with the keys of the pages that may be reused: not of
    /// those with the last `unread` positions, which the draft has not processed. Not while a round
    /// in flight includes the slot.
    pub fn leave_place(&mut self, reuse: Reuse, unread: usize) -> Option<SlotAllocation> {
        let mut place = self.place.take()?;
        // The last token is not in any cache yet; rows after it may belong to tokens that were cut
        // off.
        let mut filled = self.prompt_read;
        let sequence = self.sequence();
        // Output that was prefilled again after a retraction already counts as read.
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

    /// Whether a further round can yield a token: there is a token to continue from, and the rounds
    /// in flight, each of which yields at least one token, do not exhaust the output.
    pub fn wants_round(&self) -> bool {
        let ends = self.request.stop.max_new_tokens.unwrap_or(usize::MAX);
        let has_read = self.prompt_read >= self.to_read().len() && (self.awaits_first || !self.output.is_empty());
        let least = self.output.len() + usize::from(self.awaits_first) + self.in_flight;
        self.finished.is_none() && has_read && least < ends
    }

    /// Counts a launched round.
    pub fn launched(&mut self) {
        self.in_flight += 1;
    }

    /// Whether it has ended and no round in flight includes its slot.
    pub fn is_done(&self) -> bool {
        self.finished.is_some() && self.in_flight == 0
    }

    /// Slot, position and tokens of the rest of the prompt.
    pub fn unread_prompt(&self) -> Option<(Slot, usize, &[u32])> {
        let rest = &self.to_read()[self.prompt_read..];
        if rest.is_empty() || self.finished.is_some() { None } else { Some((self.slot()?, self.prompt_read, rest)) }
    }

    /// Counts prompt tokens that the device has processed.
    pub fn read_prompt(&mut self, count: usize) {
        self.prompt_read += count;
    }

    /// The device has processed the prompt, but the host does not know yet what follows.
    pub fn await_first(&mut self) {
        self.awaits_first = true;
    }

    /// Stores the log-probabilities of the prompt.
    pub fn take_prompt_logprobs(&mut self, logprobs: Vec<TokenLogprobs>) {
        if self.read_again.is_none() {
            self.prompt_logprobs = logprobs;
        }
    }

    /// Whether only the prompt was to be prefilled.
    pub fn wants_nothing(&self) -> bool {
        self.request.stop.max_new_tokens == Some(0)
    }

    /// Adds the token that follows the prompt. If it ends the request, [`complete`](Self::complete)
    /// reports the end.
    pub fn take_first(&mut self, token: ProducedToken) {
        self.awaits_first = false;
        self.append(vec![token]);
    }

    /// Adds the tokens of a round in which `proposed` drafts were verified: accepted drafts, then
    /// the bonus token. `None` if the request had already ended.
    pub fn take_round(&mut self, tokens: Vec<ProducedToken>, proposed: usize) -> Option<KeptOutput> {
        // Also for a request that has ended: its slot is free only after the last round with it.
        self.in_flight -= 1;
        if self.finished.is_some() {
            return None;
        }
        let drafts = tokens.len().saturating_sub(1);
        let kept = self.append(tokens);
        let kept = KeptOutput { tokens: kept, drafts: kept.min(drafts) };
        self.rounds += 1;
        self.proposed += proposed as u64;
        if self.histogram.len() <= kept.drafts {
            self.histogram.resize(kept.drafts + 1, 0);
        }
        self.histogram[kept.drafts] += 1;
        // Only after the round is counted, since the last round counts too.
        self.complete();
        Some(kept)
    }

    /// Adds tokens up to the one that ends the request, and returns their number.
    fn append(&mut self, mut tokens: Vec<ProducedToken>) -> usize {
        self.first_token.get_or_insert_with(|| self.submitted.elapsed());
        let mut text = String::new();
        let mut kept = 0;
        for token in &tokens {
            kept += 1;
            self.output.push(token.id);
            // Before the token is decoded: the text of an end token is output only on request.
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
        // What a round accepted after the end of the request is dropped.
        tokens.truncate(kept);
        // Text is held back while it may be the beginning of a stop string; any other end releases
        // it.
        if self.finished.as_ref().is_some_and(|reason| !matches!(reason, FinishReason::StopString(_))) {
            text.push_str(&self.stream.finish());
        }
        self.events.push(Event::Tokens { request: self.id, tokens, text });
        kept
    }

    /// Ends it immediately.
    pub fn end(&mut self, reason: FinishReason) {
        self.awaits_first = false;
        if self.finished.is_none() {
            self.finished = Some(reason);
            // The completion reports the whole text, including what was held back for a stop
            // string.
            self.stream.finish();
            self.complete();
        }
    }

    /// Events since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Reports the end of a request that has ended. Once only.
    pub fn complete(&mut self) {
        let Some(finish_reason) = self.finished.clone() else { return };
        let completion = Completion {
            output_ids: self.output.clone(),
            text: self.stream.whole().to_owned(),
            prompt_tokens: self.request.input_ids.len(),
            cached_tokens: self.cached,
            retractions: self.retractions,
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
    TextStream::new(text, stop.stop.clone())
        .with(stop.text == OutputText::WithSpecialTokens, stop.keep_stop)
        .searched_after(stop.unsearched_tokens)
}
