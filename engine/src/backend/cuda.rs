//! The CUDA backend: everything a round needs lies on the device, and a round is one graph.
//!
//! The host writes the slots of a round (a few bytes) and launches its graph; what was produced is copied to page-locked
//! memory behind it. Two rounds may be under way, so that the host's scheduling hides behind the device's work.

mod bandwidth;
mod layout;
mod memory;
mod passes;
mod prefill;
mod products;
mod replay;
mod ring;
mod round;
#[cfg(test)]
mod tests;
mod unread;
mod weights;

use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
    time::{Duration, Instant},
};

use kernels::device::{Device, Graph, HostBuffer};
use schemas::tree::TreeShape;

use self::{
    layout::{Activations, Extent, MOST_CHOICES, RoundArrays, RowArrays},
    passes::Machine,
    replay::Trace,
    ring::{RING, RingPlace, ring},
    round::{Part, RoundMemory, RoundOptions},
};
use super::{
    Asked, Backend, Capacity, DeviceInfo, MOST_UNREAD, PageId, Pool, PrefillChunk, ProducedToken, ReplayPlace, Round,
    RoundOutput, Slot, Ticket, TokenLogprobs, Traffic, Yield,
};
use crate::{error::EngineError, request::SamplingParams};

pub use memory::{CudaOptions, Models, load};
pub use passes::AttentionKernels;
pub use weights::WeightSource;

/// Rounds that may be launched and not collected.
const ROUNDS_IN_FLIGHT: usize = 2;

/// A target, a draft and their caches on a GPU.
pub struct CudaBackend {
    machine: Machine,
    device: Device,
    device_name: String,
    options: CudaOptions,
    extent: Extent,
    work: Activations,
    arrays: RowArrays,
    round: RoundArrays,
    graphs: HashMap<GraphKey, Graph>,
    capture_sizes: Vec<usize>,
    /// What capturing has taken so far.
    capture_time: Duration,
    /// Whether the draft follows the sequences, because a shape speculates.
    follows: bool,
    /// Whether rounds run part by part, so that each is timed.
    times_parts: bool,
    slots: Vec<Option<OpenSlot>>,
    /// What `open` copies from, for each slot.
    slot_staging: HostBuffer,
    ring: Vec<RingPlace>,
    flights: VecDeque<Flight>,
    launched: u64,
}

/// What makes a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct GraphKey {
    shape: TreeShape,
    batch: usize,
    keep_unread: bool,
    describe: bool,
    /// Bits of the simulated accept length.
    simulate: Option<u32>,
    /// The part that it holds; `None` for the whole round.
    part: Option<Part>,
}

/// What the host knows of an open slot.
struct OpenSlot {
    /// Cache rows of its positions are those of these pages, in order.
    pages: Vec<u32>,
    /// Prompt tokens that are in the cache.
    read: usize,
    /// Alternatives whose log-probabilities the request wants; `None` for no log-probabilities.
    logprobs: Option<usize>,
    /// How its tokens are chosen.
    sampling: SamplingParams,
    /// Positions at its end that the draft has yet to read.
    unread: usize,
    /// What is kept for replay.
    trace: Option<Trace>,
}

/// A round under way.
struct Flight {
    ticket: u64,
    place: usize,
    batch: usize,
    most: usize,
    /// The parts in which it runs, if it does not run whole.
    parts: Option<&'static [Part]>,
    /// What each request wants to know of its tokens.
    logprobs: Vec<Option<usize>>,
}

impl CudaBackend {
    /// The graph's batch for a number of requests: the next capture size.
    fn padded(&self, requests: usize) -> usize {
        let at = self.capture_sizes.partition_point(|size| *size < requests);
        self.capture_sizes.get(at).copied().unwrap_or(requests)
    }

    /// Whether a round of a shape leaves its tokens to be read by the draft later.
    fn leaves_unread(&self, shape: TreeShape) -> bool {
        self.follows && shape.is_off()
    }

    fn simulate_bits(&self) -> Option<u32> {
        self.options.simulate_accept_length.map(f32::to_bits)
    }

    fn round_options(&self, key: GraphKey) -> RoundOptions {
        RoundOptions {
            keep_unread: key.keep_unread,
            describe: key.describe,
            simulate: key.simulate.map(f32::from_bits),
        }
    }

    /// Launches what a round does, at once.
    fn run_eagerly(&self, key: GraphKey) -> Result<(), EngineError> {
        let memory = RoundMemory { work: &self.work, arrays: &self.arrays, round: &self.round };
        Ok(self.machine.round(key.parts(), memory, key.shape, key.batch, self.round_options(key))?)
    }

    /// Launches a round or a part of it.
    fn run(&self, key: GraphKey) -> Result<(), EngineError> {
        match self.graphs.get(&key).filter(|_| !self.options.disable_cuda_graph) {
            Some(graph) => Ok(self.device.run(graph)?),
            None => self.run_eagerly(key),
        }
    }

    /// Records a round or a part of it. Its first run is eager: kernels are loaded, and products planned and timed, outside of the
    /// recording.
    fn capture(&mut self, key: GraphKey) -> Result<(), EngineError> {
        if self.graphs.contains_key(&key) {
            return Ok(());
        }
        let padding = vec![self.machine.capacity.slots as i32; key.batch];
        self.device.write(self.round.slot.slice(), &padding)?;
        // Whole even for a part, which works on what those before it leave.
        self.machine.products.searching(|| self.run_eagerly(GraphKey { part: None, ..key }))?;
        let memory = RoundMemory { work: &self.work, arrays: &self.arrays, round: &self.round };
        let options = self.round_options(key);
        let graph = self.device.capture(|| self.machine.round(key.parts(), memory, key.shape, key.batch, options))?;
        self.graphs.insert(key, graph);
        Ok(())
    }

    /// Takes larger buffers if what is asked for does not fit. Graphs hold the addresses of the old ones.
    fn grow(&mut self, extent: Extent) -> Result<(), EngineError> {
        if self.extent.holds(extent) {
            return Ok(());
        }
        let extent = self.extent.and(extent);
        self.device.synchronize()?;
        self.graphs.clear();
        memory::check_work(&self.machine, &self.device, self.extent, extent)?;
        // The old buffers go first: both together may not fit.
        let empty = Extent::of_prefill(1);
        self.work = Activations::new(&self.device, &memory::sizes(&self.machine), empty)?;
        self.work = Activations::new(&self.device, &memory::sizes(&self.machine), extent)?;
        self.arrays = RowArrays::new(&self.device, extent)?;
        self.round = RoundArrays::new(&self.device, extent)?;
        self.ring = ring(&self.device, extent)?;
        let scratch = extent.scratch * extent.batch;
        if scratch > self.machine.scratch_rows {
            memory::grow_scratch(&mut self.machine, scratch)?;
        }
        self.extent = extent;
        Ok(())
    }

    /// What was written of a token: its log-probability, and the best alternatives.
    fn described(&self, host: &HostBuffer, row: usize, best: usize) -> TokenLogprobs {
        let all = self.round.described_rows;
        let first = row * MOST_CHOICES;
        let ids = host.values::<i32>(all + first, best);
        let logprobs = host.values::<f32>(all * (1 + MOST_CHOICES) + first, best);
        TokenLogprobs {
            logprob: host.values::<f32>(row, 1)[0],
            top: ids.iter().zip(logprobs).map(|(id, logprob)| (*id as u32, *logprob)).collect(),
        }
    }

    fn place(&self) -> usize {
        (self.launched % RING as u64) as usize
    }
}

impl GraphKey {
    /// The parts of a round that it holds.
    fn parts(&self) -> &[Part] {
        self.part.as_ref().map_or(&Part::ALL, std::slice::from_ref)
    }
}

impl Backend for CudaBackend {
    fn capacity(&self) -> Capacity {
        self.machine.capacity
    }

    fn device(&self) -> DeviceInfo {
        let properties = self.device.properties();
        DeviceInfo {
            device: self.device_name.clone(),
            name: properties.name.clone(),
            driver: properties.driver.clone(),
            units: properties.multiprocessors,
        }
    }

    fn traffic(&self) -> Traffic {
        let head = self.machine.head.as_ref().map(|head| &head.facts);
        Traffic::new(&self.machine.target.facts, head, self.options.element.bytes())
    }

    fn measure_bandwidth(&self) -> Result<f64, EngineError> {
        bandwidth::copy_bandwidth(&self.device)
    }

    fn capture_time(&self) -> Option<Duration> {
        Some(self.capture_time)
    }

    fn simulate_accept_length(&mut self, length: Option<f32>) {
        self.options.simulate_accept_length = length;
    }

    fn time_parts(&mut self, on: bool) {
        self.times_parts = on;
        if !on {
            // Their memory is not taken from the rounds that count.
            self.graphs.retain(|key, _| key.part.is_none());
        }
    }

    fn prepare(&mut self, shapes: &[TreeShape], capture_sizes: &[usize]) -> Result<(), EngineError> {
        let slots = self.machine.capacity.slots;
        let mut sizes: Vec<usize> = capture_sizes.iter().copied().filter(|size| (1..=slots).contains(size)).collect();
        // Batches past the last capture size run in graphs of their own size, made when they first come up.
        sizes.sort_unstable();
        sizes.dedup();
        let largest = slots;
        shapes.iter().try_for_each(|shape| memory::check_shape(&self.machine, *shape))?;
        self.grow(Extent::of_rounds(shapes, largest))?;
        self.capture_sizes = sizes;
        self.follows = shapes.iter().any(|shape| !shape.is_off());
        // Those of parts are few, and made when they first come up.
        if self.options.disable_cuda_graph || self.times_parts {
            return Ok(());
        }
        let begin = Instant::now();
        let simulate = self.simulate_bits();
        // The largest first, so that what it needs of the library's memory is there for the others.
        for batch in self.capture_sizes.clone().into_iter().rev() {
            for shape in shapes {
                self.capture(GraphKey {
                    shape: *shape,
                    batch,
                    keep_unread: self.leaves_unread(*shape),
                    simulate,
                    describe: false,
                    part: None,
                })?;
            }
        }
        self.device.synchronize()?;
        self.capture_time += begin.elapsed();
        Ok(())
    }

    fn open(
        &mut self,
        slot: Slot,
        sampling: &SamplingParams,
        pages: &[PageId],
        cached: usize,
    ) -> Result<(), EngineError> {
        let at = slot.0 as usize;
        match self.slots.get(at) {
            None => {
                return Err(EngineError::Device(format!("slot {at} does not exist, there are {}", self.slots.len())));
            }
            Some(Some(_)) => return Err(EngineError::Device(format!("slot {at} is in use"))),
            Some(None) => {}
        }
        if let Some(page) = pages.iter().find(|page| page.0 as usize >= self.machine.capacity.pages) {
            let count = self.machine.capacity.pages;
            return Err(EngineError::Device(format!("page {} does not exist, there are {count}", page.0)));
        }
        if cached > pages.len() * self.machine.capacity.page_size {
            let pages = pages.len();
            return Err(EngineError::Device(format!("{cached} positions cannot be filled on {pages} pages")));
        }
        self.write_slot(at, sampling, pages, cached)?;
        let pages = pages.iter().map(|page| page.0).collect();
        let logprobs = sampling.logprobs.map(|count| count.min(MOST_CHOICES));
        self.slots[at] =
            Some(OpenSlot { pages, read: cached, logprobs, sampling: sampling.clone(), unread: 0, trace: None });
        Ok(())
    }

    fn prefill(&mut self, chunks: &[PrefillChunk<'_>]) -> Result<Vec<Option<ProducedToken>>, EngineError> {
        self.run_prefill(chunks)
    }

    fn launch(&mut self, round: Round<'_>) -> Result<Ticket, EngineError> {
        if self.flights.len() >= RING {
            return Err(EngineError::Device("too many rounds are under way".into()));
        }
        if let Some(slot) = round.slots.iter().find(|slot| !matches!(self.slots.get(slot.0 as usize), Some(Some(_)))) {
            return Err(EngineError::Device(format!("slot {} is not open", slot.0)));
        }
        memory::check_shape(&self.machine, round.shape)?;
        let eager = self.options.disable_cuda_graph;
        let batch = if eager { round.slots.len() } else { self.padded(round.slots.len()) };
        let leaves = self.leaves_unread(round.shape);
        let wanted = |slot: &Slot| self.slots.get(slot.0 as usize)?.as_ref()?.logprobs;
        let logprobs: Vec<Option<usize>> = round.slots.iter().map(wanted).collect();
        let key = GraphKey {
            shape: round.shape,
            batch,
            keep_unread: leaves,
            describe: logprobs.iter().any(Option::is_some),
            simulate: self.simulate_bits(),
            part: None,
        };
        let parts = self.times_parts.then(|| Part::of(round.shape, leaves));
        let keys: Vec<GraphKey> = match parts {
            None => vec![key],
            Some(parts) => parts.iter().map(|part| GraphKey { part: Some(*part), ..key }).collect(),
        };
        self.grow(Extent::of_round(round.shape, batch))?;
        for key in keys.iter().filter(|_| !eager) {
            if !self.graphs.contains_key(key) {
                // A batch that no capture size covers, or a part. Its first run must not disturb the rounds under way.
                self.device.synchronize()?;
                self.capture(*key)?;
            }
        }
        let index = self.place();
        let place = &mut self.ring[index];
        let slots = place.slots.values_mut::<i32>(0, batch);
        slots.fill(self.machine.capacity.slots as i32);
        for (to, slot) in slots.iter_mut().zip(round.slots) {
            *to = slot.0 as i32;
        }
        self.device.record(&self.ring[index].begin)?;
        let full = |slot: &Slot| self.unread(*slot) >= MOST_UNREAD;
        if !round.shape.is_off() || round.slots.iter().any(full) {
            self.read_unread(index, round.slots)?;
        }
        let place = &self.ring[index];
        self.device.write_async(self.round.slot.slice(), &place.slots, 0..batch * 4)?;
        for (at, key) in keys.iter().enumerate() {
            if let Some(before) = at.checked_sub(1).and_then(|before| place.between.get(before)) {
                self.device.record(before)?;
            }
            self.run(*key)?;
        }
        let most = round.shape.num_steps + 1;
        let bytes = batch * (most + 1) * 4;
        self.device.read_async(&place.output, 0, self.round.output.range(0..bytes))?;
        if key.describe {
            self.device.read_async(&place.described, 0, self.round.described.slice())?;
        }
        self.device.record(&place.end)?;
        if leaves {
            for slot in round.slots {
                if let Some(Some(open)) = self.slots.get_mut(slot.0 as usize) {
                    open.unread += 1;
                }
            }
        }
        let ticket = self.launched;
        self.launched += 1;
        self.flights.push_back(Flight { ticket, place: index, batch, most, parts, logprobs });
        Ok(Ticket(ticket))
    }

    fn collect(&mut self, ticket: Ticket) -> Result<RoundOutput, EngineError> {
        let Some(flight) = self.flights.pop_front().filter(|flight| flight.ticket == ticket.0) else {
            return Err(EngineError::Device(format!("round {} was not launched, or is not next", ticket.0)));
        };
        let place = &self.ring[flight.place];
        place.end.wait()?;
        let requests = flight.logprobs.len();
        let counts = place.output.values::<i32>(0, requests);
        let tokens = place.output.values::<i32>(flight.batch, requests * flight.most);
        let yields = counts.iter().zip(tokens.chunks_exact(flight.most)).enumerate().map(|(at, (count, tokens))| {
            let count = usize::try_from(*count).unwrap_or_default().min(flight.most);
            let token = |(row, id): (usize, &i32)| ProducedToken {
                id: *id as u32,
                logprobs: flight.logprobs[at]
                    .map(|best| self.described(&place.described, at * flight.most + row, best)),
            };
            Yield { tokens: tokens[..count].iter().enumerate().map(token).collect() }
        });
        let yields = yields.collect();
        Ok(RoundOutput { yields, timing: place.timing(flight.parts.unwrap_or_default())? })
    }

    fn unread(&self, slot: Slot) -> usize {
        self.slots.get(slot.0 as usize).and_then(Option::as_ref).map_or(0, |open| open.unread)
    }

    fn trace(&mut self, slot: Slot, positions: Range<usize>, target: bool) -> Result<(), EngineError> {
        self.start_trace(slot, positions, target)
    }

    fn pools(&mut self, places: &[ReplayPlace<'_>], shape: TreeShape) -> Result<Vec<Pool>, EngineError> {
        self.run_pools(places, shape)
    }

    fn probabilities(&mut self, asked: &[Asked]) -> Result<Vec<Vec<f64>>, EngineError> {
        self.run_probabilities(asked)
    }

    fn close(&mut self, slot: Slot) {
        if let Some(place) = self.slots.get_mut(slot.0 as usize) {
            *place = None;
        }
    }
}
