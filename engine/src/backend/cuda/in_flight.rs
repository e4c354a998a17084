//! Rounds in flight: launching their graphs and reading their results.

use kernels::device::HostBuffer;

use super::{
    CudaBackend, GraphKey,
    limits::{MOST_CHOICES, STAGING_SLOTS},
    part::RoundPart,
    staging::place_of,
    supported,
    workspace::WorkspaceShape,
};
use crate::{
    backend::{
        Decode, Drafted, MAX_PENDING_DRAFT, ProducedToken, Round, RoundOutput, Slot, Ticket, TokenLogprobs, Yield,
    },
    error::EngineError,
    played::expect_played,
};

/// A round in flight.
pub struct InFlightRound {
    ticket: u64,
    place: usize,
    batch: usize,
    most: usize,
    /// Whether the host has sent drafts.
    is_given: bool,
    /// Its parts, if it runs in parts.
    parts: Option<&'static [RoundPart]>,
    /// Number of alternatives for which each request wants log-probabilities; `None` for no
    /// log-probabilities.
    logprobs: Vec<Option<usize>>,
}

impl InFlightRound {
    /// The number of rounds launched before it.
    pub fn ticket(&self) -> u64 {
        self.ticket
    }
}

impl CudaBackend {
    /// Starts a round.
    pub(super) fn launch_round(&mut self, round: Round<'_>, drafted: Drafted<'_>) -> Result<Ticket, EngineError> {
        self.check_round(round, drafted)?;
        let eager = self.runs_eagerly();
        // Graphs have fixed batch sizes; kernels that are launched one by one need no padding.
        let batch = if eager { round.slots.len() } else { self.padded(round.slots.len()) };
        let leaves = self.leaves_pending(round.shape);
        let wanted = |slot: &Slot| self.slots.find(*slot)?.logprobs;
        let logprobs: Vec<Option<usize>> = round.slots.iter().map(wanted).collect();
        let key = GraphKey {
            shape: round.shape,
            batch,
            keep_pending: leaves,
            describe: logprobs.iter().any(Option::is_some),
            simulation: self.simulation_key(),
            part: None,
        };
        let adjusted = self.adjusted(round.slots);
        // With requests that the host adjusts, the round is split for the host's work instead.
        let parts = (self.times_parts && adjusted.is_empty()).then(|| RoundPart::for_shape(round.shape, leaves));
        let of_parts =
            |parts: &[RoundPart]| parts.iter().map(|part| GraphKey { part: Some(*part), ..key }).collect::<Vec<_>>();
        let (keys, later) = match parts {
            Some(parts) => (of_parts(parts), Vec::new()),
            None if adjusted.is_empty() => (vec![key], Vec::new()),
            None => RoundPart::around_host(round.shape, leaves).map(of_parts).into(),
        };
        self.grow(WorkspaceShape::of_round(self.machine.nodes(), round.shape, batch))?;
        for key in keys.iter().chain(&later).filter(|_| !eager) {
            if !self.graphs.contains_key(key) {
                // A batch that no capture size covers, or a part. Its first run must not disturb
                // the rounds in flight.
                self.device.synchronize()?;
                self.capture(*key)?;
            }
        }
        let place = place_of(self.launched);
        // Before the event is recorded: waiting for the host's drafts is not part of the round's
        // time.
        let is_given = self.send_drafts(place, drafted, round.shape, batch)?;
        self.device.record(&self.staging[place].begin)?;
        // Without speculation the draft's passes wait until they are needed or there is no more
        // room.
        let full = |slot: &Slot| self.pending_draft_tokens(*slot) >= MAX_PENDING_DRAFT;
        if !round.shape.is_off() || round.slots.iter().any(full) {
            self.read_pending(place, round.slots)?;
        }
        // After `read_pending`, which uses the same array for the requests that it serves.
        self.send_slots(place, round.slots, batch)?;
        self.counted.begin_round(self.machine.target_tallies().chain(self.machine.draft_tallies()));
        self.run_parts(place, &keys)?;
        if !adjusted.is_empty() {
            self.choose_adjusted(round.shape, round.slots, &adjusted)?;
            self.run_parts(place, &later)?;
        }
        self.counted.end_round(self.machine.target_tallies(), self.machine.draft_tallies());
        if key.describe {
            self.device.read_async(&self.staging[place].described, 0, self.round.described.slice())?;
        }
        self.device.record(&self.staging[place].end)?;
        if leaves {
            self.count_pending(round.slots);
        }
        let ticket = self.launched;
        self.launched += 1;
        let most = round.shape.longest_path();
        self.flights.push_back(InFlightRound { ticket, place, batch, most, is_given, parts, logprobs });
        Ok(Ticket(ticket))
    }

    fn check_round(&self, round: Round<'_>, drafted: Drafted<'_>) -> Result<(), EngineError> {
        if self.flights.len() >= STAGING_SLOTS {
            return Err(EngineError::Device("too many rounds are in flight".into()));
        }
        round.slots.iter().try_for_each(|slot| self.slots.get(*slot).map(|_| ()))?;
        let shape = round.shape;
        self.check_drafted(drafted, round)?;
        expect_played(self.simulated.as_ref(), &[shape])?;
        supported::check_shape(&self.machine, shape)
    }

    /// Copies the slots of a round to the device if they changed.
    fn send_slots(&mut self, place: usize, members: &[Slot], batch: usize) -> Result<(), EngineError> {
        let eager = self.runs_eagerly();
        let mut slots = vec![self.machine.capacity.slots as i32; batch];
        for (to, slot) in slots.iter_mut().zip(members) {
            *to = slot.0 as i32;
        }
        // Between two graphs the launch of the copy takes longer than the transfer. Kernels that
        // are launched one by one always need the copy: some read before the previous kernel has
        // ended, but none before a copy has.
        if eager || !self.sent.starts_with(&slots) {
            self.staging[place].slots.store(0, &slots);
            self.device.write_async(self.round.slot.slice(), &self.staging[place].slots, 0..batch * 4)?;
            self.sent = slots;
        }
        Ok(())
    }

    /// Runs the graphs of a round, which writes its output to its place in the ring.
    fn run_parts(&self, place: usize, keys: &[GraphKey]) -> Result<(), EngineError> {
        let place = &self.staging[place];
        for (at, key) in keys.iter().enumerate() {
            if let Some(before) = at.checked_sub(1).and_then(|before| place.between.get(before)) {
                self.device.record(before)?;
            }
            self.run(*key)?;
        }
        Ok(())
    }

    /// Waits for the oldest round and reads its output.
    pub(super) fn collect_round(&mut self, ticket: Ticket) -> Result<RoundOutput, EngineError> {
        // Output places form a ring, so rounds are collected in the order of their launches.
        let Some(flight) = self.flights.pop_front().filter(|flight| flight.ticket == ticket.0) else {
            return Err(EngineError::Device(format!("round {} was not launched, or is not next", ticket.0)));
        };
        let place = &self.staging[flight.place];
        place.end.wait()?;
        let requests = flight.logprobs.len();
        let first = flight.place * self.round.outputs().ints();
        let counts = self.round.output.load::<i32>(first, requests);
        let tokens = self.round.output.load::<i32>(first + flight.batch, requests * flight.most);
        let yields = counts.iter().zip(tokens.chunks_exact(flight.most)).enumerate().map(|(at, (count, tokens))| {
            // Never beyond the row, whatever the device wrote.
            let tokens = &tokens[..usize::try_from(*count).unwrap_or_default().min(flight.most)];
            // The position of a missing token, negated.
            let none = tokens.iter().position(|id| *id < 0);
            let token = |(row, id): (usize, &i32)| ProducedToken {
                id: *id as u32,
                logprobs: flight.logprobs[at]
                    .map(|best| self.described(&place.described, at * flight.most + row, best)),
            };
            Yield {
                tokens: tokens[..none.unwrap_or(tokens.len())].iter().enumerate().map(token).collect(),
                not_finite: none.map(|row| tokens[row].unsigned_abs() as usize),
            }
        });
        let yields = yields.collect();
        Ok(RoundOutput { yields, timing: place.timing(flight.parts.unwrap_or_default(), flight.is_given)? })
    }

    /// A token's log-probability and the best alternatives, as the device wrote them.
    pub(super) fn described(&self, host: &HostBuffer, row: usize, best: usize) -> TokenLogprobs {
        let all = self.round.described_rows;
        let first = row * MOST_CHOICES;
        let ids = host.load::<i32>(all + first, best);
        let logprobs = host.load::<f32>(all * (1 + MOST_CHOICES) + first, best);
        TokenLogprobs {
            logprob: host.load::<f32>(row, 1)[0],
            top: ids.into_iter().zip(logprobs).map(|(id, logprob)| (id as u32, logprob)).collect(),
        }
    }
}
