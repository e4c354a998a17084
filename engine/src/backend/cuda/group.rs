//! One model over several devices of a host: a group of ranks behind one
//! [`Backend`](crate::backend::Backend).
//!
//! Each rank has its own host thread, which owns a [`CudaBackend`] with its part of the weights.
//! All ranks get the same commands, and rank 0's answer is used; the tokens of all ranks are
//! compared. If a rank fails or dies, an alarm releases the kernels and hosts that wait for it, and
//! the group refuses every later command with the reason.
//!
//! Outputs of attention and feed-forward blocks are summed over ranks before they are added to the
//! residual stream, and logits are gathered, so each rank computes trees, acceptance and sampling
//! with identical bits.

mod owned_drafts;
mod thread;

use std::{
    ops::Range,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use kernels::device::{Alarm, Collective, Device, GroupId, Mail};
use schemas::tree::TreeShape;

use self::{owned_drafts::OwnedDrafts, thread::RankThread};
use super::{CudaBackend, CudaOptions, Models, WeightSource, load, machine::Ranks, meeting::Meeting};
use crate::{
    backend::{
        Backend, Capacity, Decode, Describe, DeviceInfo, Drafted, Exchange, ExpertReads, GpuState, Measure, PageId,
        Pool, Prefill, PrefillChunk, ProbabilityQuery, Replay, ReplayPlace, RequiredTree, Round, RoundOutput, Slot,
        Slots, Snapshot, StateRow, TargetStates, Ticket, TokenLogprobs, WindowChange, Yield,
    },
    checkpoint::Weights,
    error::EngineError,
    options::EngineOptions,
    played::Simulated,
    request::SamplingParams,
    spec::{DraftSpec, ModelCost, TargetSpec},
};

/// Interval for checking that ranks are alive while their answers are missing.
const LOOK: Duration = Duration::from_millis(100);
/// Time to wait for the other ranks after one has failed: if the cause is shared, such as too
/// little memory, all of them fail.
const GRACE: Duration = Duration::from_secs(1);
/// Maximum time without any answer: far longer than any command takes.
const PATIENCE: Duration = Duration::from_secs(900);
/// Maximum time until ranks answer after the alarm.
const MOST: Duration = Duration::from_secs(10);

/// Models that several ranks load in parts; without weights, random ones.
pub struct SharedModels {
    /// The target.
    pub target: (TargetSpec, Option<Weights>),
    /// The draft, with its own weights if it is not stored with the target's.
    pub draft: Option<(DraftSpec, Option<Weights>)>,
}

/// One model on several devices.
pub struct RankGroup {
    ranks: Vec<RankThread>,
    alarm: Alarm,
    facts: Facts,
    /// The reason for which the group has ended.
    ended: Mutex<Option<String>>,
}

/// Constant properties.
#[derive(Clone)]
struct Facts {
    capacity: Capacity,
    device: DeviceInfo,
    cost: ModelCost,
    state_row: Option<StateRow>,
    looks_up: bool,
}

/// A message of a rank while it works on a command.
enum RankMessage<N, R> {
    /// What rank 0 tells before it is done.
    News(N),
    /// The rank, and its result.
    Done(usize, Result<R, EngineError>),
}

/// A [`PrefillChunk`] that can be sent to other threads.
#[derive(Clone)]
struct OwnedPrefillChunk {
    slot: Slot,
    tokens: Vec<u32>,
    start: usize,
    next: Option<u32>,
}

/// A [`ReplayPlace`] that can be sent to other threads.
#[derive(Clone)]
struct OwnedReplayPlace {
    slot: Slot,
    position: usize,
    root: u32,
    text: Vec<u32>,
    wanted: RequiredTree,
}

impl RankGroup {
    /// Loads models onto devices (given with their names), one rank per device.
    ///
    /// # Errors
    /// When the devices cannot reach each other, the models cannot be split over this many ranks,
    /// or a rank fails to load its part.
    pub fn load(
        devices: Vec<(Device, String)>,
        models: SharedModels,
        options: CudaOptions,
    ) -> Result<Self, EngineError> {
        let (mail, link) = Mail::open(&devices.iter().map(|(device, _)| device.clone()).collect::<Vec<_>>())?;
        let alarm = mail[0].alarm().clone();
        let meetings = Meeting::for_ranks(devices.len(), &alarm);
        let names: Vec<String> = devices.iter().map(|(_, name)| name.clone()).collect();
        let ranks = names.iter().enumerate().map(|(rank, name)| RankThread::start(rank, name));
        let ranks = ranks.collect::<Result<Vec<_>, _>>()?;
        let models = Arc::new(models);
        let places = devices.into_iter().zip(mail).zip(meetings);
        let mut jobs: Vec<_> = places
            .map(|(((device, name), mail), meeting)| {
                let (models, options) = (models.clone(), options.clone());
                move || {
                    let library = library(&device, &mail, &meeting, &options)?;
                    // The library is not used before it has been timed against the own kernels.
                    let ranks = Ranks { mail, meeting, library, library_from: usize::MAX };
                    load::load(device, name, models.borrowed(), options, Some(ranks))
                }
            })
            .collect();
        let watch = RankWatch { ranks: &ranks, alarm: &alarm };
        let facts = watch.run(
            |rank, answers| {
                let job = jobs.remove(0);
                Box::new(move |backend| {
                    let loaded = job().map(|loaded| {
                        let facts = Facts {
                            capacity: loaded.capacity(),
                            device: loaded.device(),
                            cost: loaded.cost(),
                            state_row: loaded.state_row(),
                            looks_up: loaded.looks_up(),
                        };
                        *backend = Some(loaded);
                        facts
                    });
                    let _ = answers.send(RankMessage::Done(rank, loaded));
                })
            },
            &mut |()| {},
            // Loading may be slow, for example from network storage.
            Duration::MAX,
        );
        let mut facts = facts.map_err(Failure::into_error)?.swap_remove(0);
        facts.device = DeviceInfo {
            device: names.join("+"),
            name: format!("{} × {} ({link})", names.len(), facts.device.name),
            ..facts.device
        };
        Ok(Self { ranks, alarm, facts, ended: Mutex::default() })
    }

    /// Runs `work` on all ranks and returns their answers.
    fn all<R: Send + 'static>(
        &self,
        work: impl Fn(&mut CudaBackend) -> Result<R, EngineError> + Clone + Send + 'static,
    ) -> Result<Vec<R>, EngineError> {
        self.all_watched(move |backend, _| work(backend), &mut |()| {})
    }

    /// Like [`all`](Self::all); `reported` receives what rank 0 tells while it works.
    fn all_watched<N: Send + 'static, R: Send + 'static>(
        &self,
        work: impl Fn(&mut CudaBackend, &mut dyn FnMut(N)) -> Result<R, EngineError> + Clone + Send + 'static,
        reported: &mut dyn FnMut(N),
    ) -> Result<Vec<R>, EngineError> {
        if let Some(reason) = &*self.ended.lock().unwrap_or_else(PoisonError::into_inner) {
            return Err(EngineError::Device(reason.clone()));
        }
        let watch = RankWatch { ranks: &self.ranks, alarm: &self.alarm };
        let answers = watch.run(
            |rank, answers| {
                let work = work.clone();
                Box::new(move |backend| {
                    // A rank that loaded nothing answers by dropping its sender.
                    let Some(backend) = backend else { return };
                    let mut tell = |news| {
                        if rank == 0 {
                            let _ = answers.send(RankMessage::News(news));
                        }
                    };
                    let done = work(backend, &mut tell);
                    let _ = answers.send(RankMessage::Done(rank, done));
                })
            },
            reported,
            PATIENCE,
        );
        answers.map_err(|failure| match failure {
            Failure::OfAll(error) => error,
            Failure::OfRank(reason) => self.end(reason),
        })
    }

    /// Runs `work` on all ranks and returns rank 0's answer.
    fn first<R: Send + 'static>(
        &self,
        work: impl Fn(&mut CudaBackend) -> Result<R, EngineError> + Clone + Send + 'static,
    ) -> Result<R, EngineError> {
        Ok(self.all(work)?.swap_remove(0))
    }

    /// Like [`first`](Self::first), for work that chooses tokens: if ranks have chosen different
    /// ones, the group ends.
    fn tokens<R: Send + 'static>(
        &self,
        work: impl Fn(&mut CudaBackend) -> Result<R, EngineError> + Clone + Send + 'static,
        of: impl Fn(&R) -> Vec<(Vec<u32>, Option<usize>)>,
    ) -> Result<R, EngineError> {
        self.equal(self.all(work)?, of)
    }

    /// Runs `work`, which hands out first tokens, on all ranks, and hands on those of rank 0. If
    /// ranks have chosen different ones, the group ends.
    fn first_tokens<R: Send + 'static>(
        &self,
        first: &mut dyn FnMut(usize, Yield),
        work: impl Fn(&mut CudaBackend, &mut dyn FnMut(usize, Yield)) -> Result<R, EngineError> + Clone + Send + 'static,
    ) -> Result<R, EngineError> {
        let work = move |backend: &mut CudaBackend, tell: &mut dyn FnMut((usize, Yield))| {
            let mut all = Vec::new();
            let done = work(backend, &mut |at, token| {
                all.push(token.clone());
                tell((at, token));
            })?;
            Ok((all, done))
        };
        let answers = self.all_watched(work, &mut |(at, token)| first(at, token))?;
        self.equal(answers, |(all, _)| tokens_of(all)).map(|(_, done)| done)
    }

    /// Rank 0's answer; if ranks have chosen different tokens, the group ends.
    fn equal<R>(
        &self,
        mut answers: Vec<R>,
        of: impl Fn(&R) -> Vec<(Vec<u32>, Option<usize>)>,
    ) -> Result<R, EngineError> {
        let expected = of(&answers[0]);
        match answers.iter().position(|answer| of(answer) != expected) {
            None => Ok(answers.swap_remove(0)),
            Some(rank) => {
                let name = &self.ranks[rank].name;
                Err(self
                    .end(format!("rank {rank} ({name}) chose different tokens than rank 0: this is a bug in spectune")))
            }
        }
    }

    fn end(&self, reason: String) -> EngineError {
        // Rank threads may wait for each other on their devices; the alarm ends these waits.
        self.alarm.ring();
        let reason = format!("{reason}; the engine has stopped: restart it");
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.clone());
        EngineError::Device(reason)
    }
}

/// The parts of a group that running a command needs.
struct RankWatch<'a> {
    ranks: &'a [RankThread],
    alarm: &'a Alarm,
}

/// Why a rank did not answer.
enum Failure {
    /// All ranks refused the command and can continue.
    OfAll(EngineError),
    /// A rank has failed or died.
    OfRank(String),
}

impl Failure {
    fn into_error(self) -> EngineError {
        match self {
            Self::OfAll(error) => error,
            Self::OfRank(reason) => EngineError::Device(reason),
        }
    }
}

type Answers<R> = Vec<Option<Result<R, EngineError>>>;

impl RankWatch<'_> {
    /// Sends each rank its job and waits for all answers, except from ranks that cannot answer, and
    /// for at most `patience` without any message.
    fn run<N: Send + 'static, R: Send + 'static>(
        &self,
        mut job: impl FnMut(usize, mpsc::Sender<RankMessage<N, R>>) -> thread::RankJob,
        reported: &mut dyn FnMut(N),
        patience: Duration,
    ) -> Result<Vec<R>, Failure> {
        let (sender, receiver) = mpsc::channel();
        for (rank, thread) in self.ranks.iter().enumerate() {
            thread.send(job(rank, sender.clone()));
        }
        // Only the jobs hold senders now, so the channel closes when all ranks have answered or
        // died.
        drop(sender);
        let mut answers: Answers<R> = self.ranks.iter().map(|_| None).collect();
        // The rank that failed first, the time of the failure, and the time of the last message.
        let (mut first, mut failed, mut heard) = (None, None::<Instant>, Instant::now());
        while answers.iter().any(Option::is_none) {
            // All messages of a rank that has ended by now are already in the channel.
            let ended: Vec<bool> = self.ranks.iter().map(RankThread::has_ended).collect();
            // A thread that dies sends nothing, so its state is checked from time to time.
            let dead = match receiver.recv_timeout(LOOK) {
                Ok(RankMessage::News(news)) => {
                    reported(news);
                    heard = Instant::now();
                    continue;
                }
                Ok(RankMessage::Done(rank, answer)) => {
                    if answer.is_err() && failed.is_none() {
                        (first, failed) = (Some(rank), Some(Instant::now()));
                    }
                    answers[rank] = Some(answer);
                    heard = Instant::now();
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => {
                    (0..ended.len()).find(|rank| answers[*rank].is_none() && ended[*rank])
                }
                Err(RecvTimeoutError::Disconnected) => answers.iter().position(Option::is_none),
            };
            if let Some(rank) = dead {
                // The others may wait forever for the rank that died.
                self.alarm.ring();
                answers[rank] = Some(Err(EngineError::Device("it has died".into())));
                (first, failed) = (first.or(Some(rank)), failed.or(Some(Instant::now())));
            }
            if heard.elapsed() > patience {
                failed = failed.or(Some(Instant::now()));
            }
            let since = failed.map_or(Duration::ZERO, |failed| failed.elapsed());
            // If all ranks refuse by themselves within this time, the group can go on.
            if since > GRACE {
                self.alarm.ring();
            }
            if since > GRACE + MOST {
                break;
            }
        }
        self.judged(answers, first)
    }

    fn judged<R>(&self, answers: Answers<R>, first: Option<usize>) -> Result<Vec<R>, Failure> {
        let of = |rank: usize| format!("rank {rank} of {} ({})", self.ranks.len(), self.ranks[rank].name);
        // A rank whose wait timed out reports the wait only; the one that it waited for is the
        // cause.
        if let Some((rank, other)) = self.alarm.waited(self.ranks.len()) {
            return Err(Failure::OfRank(format!("{} timed out waiting for {}", of(rank), of(other))));
        }
        let Some(first) = first else {
            return match answers.iter().position(Option::is_none) {
                Some(rank) => Err(Failure::OfRank(format!("{} does not respond", of(rank)))),
                None => Ok(answers.into_iter().flatten().filter_map(Result::ok).collect()),
            };
        };
        // Ranks are in step only if all refused on their own; the alarm may have cut off their
        // work.
        let all = answers.iter().all(|answer| matches!(answer, Some(Err(_)))) && !self.alarm.rung();
        let error = answers.into_iter().nth(first).flatten().and_then(Result::err);
        let error = error.unwrap_or_else(|| EngineError::Device("it gave no reason".into()));
        Err(if all { Failure::OfAll(error) } else { Failure::OfRank(format!("{}: {error}", of(first))) })
    }
}

impl SharedModels {
    /// References for loading.
    pub fn borrowed(&self) -> Models<'_> {
        fn source(weights: Option<&Weights>) -> WeightSource<'_> {
            weights.map_or(WeightSource::Random, WeightSource::Checkpoint)
        }
        let (target, weights) = &self.target;
        let draft = self.draft.as_ref();
        Models {
            target: (target.clone(), source(weights.as_ref())),
            draft: draft.map(|(spec, own)| (spec.clone(), source(own.as_ref().or(weights.as_ref())))),
        }
    }
}

impl OwnedPrefillChunk {
    fn all(chunks: &[PrefillChunk<'_>]) -> Arc<Vec<Self>> {
        let piece = |chunk: &PrefillChunk<'_>| Self {
            slot: chunk.slot,
            tokens: chunk.tokens.to_vec(),
            start: chunk.start,
            next: chunk.next,
        };
        Arc::new(chunks.iter().map(piece).collect())
    }

    fn chunk(&self) -> PrefillChunk<'_> {
        PrefillChunk { slot: self.slot, tokens: &self.tokens, start: self.start, next: self.next }
    }
}

impl OwnedReplayPlace {
    fn replayed(&self) -> ReplayPlace<'_> {
        let Self { slot, position, root, text, wanted } = self;
        ReplayPlace { slot: *slot, position: *position, root: *root, text, wanted: *wanted }
    }
}

/// The device's collective library, if it is useful. If it is missing, our own kernels compute all
/// sums.
fn library(
    device: &Device,
    mail: &Mail,
    meeting: &Meeting,
    options: &CudaOptions,
) -> Result<Option<Collective>, EngineError> {
    // The library's order of sums depends on the number of rows.
    if options.batch_invariant || device.properties().emulated {
        return Ok(None);
    }
    let id = if meeting.leads() { Some(GroupId::new()) } else { None };
    match meeting.agree(id)? {
        Some(Ok(id)) => {
            let library = Collective::join(device, &id, mail.rank(), mail.ranks())?;
            mail.alarm().also_ends(&library);
            Ok(Some(library))
        }
        Some(Err(error)) => {
            if meeting.leads() {
                tracing::warn!("{error}; sums of long prompts use spectune's own kernels");
            }
            Ok(None)
        }
        None => Ok(None),
    }
}

/// The parts of yields that must be equal on all ranks.
fn tokens_of<'a>(yields: impl IntoIterator<Item = &'a Yield>) -> Vec<(Vec<u32>, Option<usize>)> {
    let tokens = |one: &Yield| one.tokens.iter().map(|token| token.id).collect();
    yields.into_iter().map(|one| (tokens(one), one.not_finite)).collect()
}

impl Describe for RankGroup {
    fn capacity(&self) -> Capacity {
        self.facts.capacity
    }

    fn device(&self) -> DeviceInfo {
        self.facts.device.clone()
    }

    fn looks_up(&self) -> bool {
        self.facts.looks_up
    }

    /// The cost of each rank's own part.
    fn cost(&self) -> ModelCost {
        self.facts.cost
    }
}

impl Slots for RankGroup {
    fn open(
        &mut self,
        slot: Slot,
        sampling: &SamplingParams,
        pages: &[PageId],
        cached: usize,
    ) -> Result<(), EngineError> {
        let (sampling, pages) = (sampling.clone(), pages.to_vec());
        self.first(move |backend| backend.open(slot, &sampling, &pages, cached))
    }

    fn extend(&mut self, slot: Slot, pages: &[PageId]) -> Result<(), EngineError> {
        let pages = pages.to_vec();
        self.first(move |backend| backend.extend(slot, &pages))
    }

    fn change_windows(&mut self, changes: &[WindowChange]) -> Result<(), EngineError> {
        let changes = changes.to_vec();
        self.first(move |backend| backend.change_windows(&changes))
    }

    fn keep(&mut self, slot: Slot, to: Snapshot) -> Result<(), EngineError> {
        self.first(move |backend| backend.keep(slot, to))
    }

    fn resume(&mut self, slot: Slot, from: Snapshot) -> Result<(), EngineError> {
        self.first(move |backend| backend.resume(slot, from))
    }

    fn adjust(&mut self, slot: Slot, prompt: &[u32], output: &[u32], ends: &[u32]) -> Result<(), EngineError> {
        let given = Arc::new([prompt, output, ends].map(<[u32]>::to_vec));
        self.first(move |backend| backend.adjust(slot, &given[0], &given[1], &given[2]))
    }

    fn remember(&mut self, slot: Slot, prompt: &[u32], output: &[u32]) -> Result<(), EngineError> {
        let given = Arc::new([prompt, output].map(<[u32]>::to_vec));
        self.first(move |backend| backend.remember(slot, &given[0], &given[1]))
    }

    fn prompt_logprobs(&mut self, slot: Slot) -> Vec<TokenLogprobs> {
        self.first(move |backend| Ok(backend.prompt_logprobs(slot))).unwrap_or_default()
    }

    fn grammar_failure(&self, slot: Slot) -> Option<String> {
        self.first(move |backend| Ok(backend.grammar_failure(slot))).ok().flatten()
    }

    fn close(&mut self, slot: Slot) {
        let work = move |backend: &mut CudaBackend| {
            backend.close(slot);
            Ok(())
        };
        let _ = self.all(work);
    }
}

impl Prefill for RankGroup {
    fn prefill(
        &mut self,
        chunks: &[PrefillChunk<'_>],
        first: &mut dyn FnMut(usize, Yield),
    ) -> Result<bool, EngineError> {
        let pieces = OwnedPrefillChunk::all(chunks);
        self.first_tokens(first, move |backend, first| {
            let chunks: Vec<_> = pieces.iter().map(OwnedPrefillChunk::chunk).collect();
            backend.prefill(&chunks, first)
        })
    }

    fn collect_prefill(&mut self, first: &mut dyn FnMut(usize, Yield)) -> Result<(), EngineError> {
        self.first_tokens(first, |backend, first| backend.collect_prefill(first))
    }

    fn prefill_time(&mut self) -> Result<Duration, EngineError> {
        self.first(CudaBackend::prefill_time)
    }
}

impl Decode for RankGroup {
    fn prepare(
        &mut self,
        shapes: &[TreeShape],
        capture_sizes: &[usize],
        captured: &mut dyn FnMut(usize, usize),
    ) -> Result<(), EngineError> {
        let (shapes, sizes) = (shapes.to_vec(), capture_sizes.to_vec());
        let work = move |backend: &mut CudaBackend, tell: &mut dyn FnMut((usize, usize))| {
            backend.prepare(&shapes, &sizes, &mut |done, all| tell((done, all)))
        };
        self.all_watched(work, &mut |(done, all)| captured(done, all)).map(|_| ())
    }

    fn launch_drafted(&mut self, round: Round<'_>, drafted: Drafted<'_>) -> Result<Ticket, EngineError> {
        let (shape, slots, drafted) = (round.shape, round.slots.to_vec(), Arc::new(OwnedDrafts::from(drafted)));
        self.first(move |backend| backend.launch_drafted(Round { shape, slots: &slots }, drafted.drafted()))
    }

    fn collect(&mut self, ticket: Ticket) -> Result<RoundOutput, EngineError> {
        let number = ticket.0;
        // Ranks compute the same tokens independently, and a difference would corrupt all later
        // rounds.
        self.tokens(move |backend| backend.collect(Ticket(number)), |output| tokens_of(&output.yields))
    }

    fn pending_draft_tokens(&self, slot: Slot) -> usize {
        self.first(move |backend| Ok(backend.pending_draft_tokens(slot))).unwrap_or_default()
    }
}

impl Replay for RankGroup {
    fn trace(&mut self, slot: Slot, positions: Range<usize>, target: bool) -> Result<(), EngineError> {
        self.first(move |backend| backend.trace(slot, positions.clone(), target))
    }

    fn state_row(&self) -> Option<StateRow> {
        self.facts.state_row.clone()
    }

    fn prefill_traced(&mut self, chunks: &[PrefillChunk<'_>], states: TargetStates<'_>) -> Result<(), EngineError> {
        let pieces = OwnedPrefillChunk::all(chunks);
        match states {
            TargetStates::In(bytes) => {
                let bytes = Arc::new(bytes.to_vec());
                self.first(move |backend| {
                    let chunks: Vec<_> = pieces.iter().map(OwnedPrefillChunk::chunk).collect();
                    backend.prefill_traced(&chunks, TargetStates::In(&bytes))
                })
            }
            // All ranks produce the same states.
            TargetStates::Out(to) => {
                to.extend(self.first(move |backend| {
                    let mut bytes = Vec::new();
                    let chunks: Vec<_> = pieces.iter().map(OwnedPrefillChunk::chunk).collect();
                    backend.prefill_traced(&chunks, TargetStates::Out(&mut bytes)).map(|()| bytes)
                })?);
                Ok(())
            }
        }
    }

    fn pools(&mut self, places: &[ReplayPlace<'_>], shapes: &[TreeShape]) -> Result<Vec<Pool>, EngineError> {
        let own = |place: &ReplayPlace<'_>| OwnedReplayPlace {
            slot: place.slot,
            position: place.position,
            root: place.root,
            text: place.text.to_vec(),
            wanted: place.wanted,
        };
        let places: Arc<Vec<OwnedReplayPlace>> = Arc::new(places.iter().map(own).collect());
        let shapes = shapes.to_vec();
        self.first(move |backend| {
            let places: Vec<ReplayPlace<'_>> = places.iter().map(OwnedReplayPlace::replayed).collect();
            backend.pools(&places, &shapes)
        })
    }

    fn probabilities(&mut self, requested: &[ProbabilityQuery]) -> Result<Vec<Vec<f64>>, EngineError> {
        let requested = Arc::new(requested.to_vec());
        self.first(move |backend| backend.probabilities(&requested))
    }
}

impl Measure for RankGroup {
    /// Rank 0's state.
    fn gpu_state(&self) -> Option<GpuState> {
        self.first(|backend| Ok(backend.gpu_state())).ok().flatten()
    }

    fn measure_bandwidth(&self) -> Result<f64, EngineError> {
        let all = self.all(|backend| backend.measure_bandwidth())?;
        // Ranks read their parts at the same time, so the slowest one decides.
        Ok(all.into_iter().fold(f64::INFINITY, f64::min))
    }

    fn product_rate(&self) -> Option<f64> {
        self.first(|backend| Ok(backend.product_rate())).ok().flatten()
    }

    fn capture_time(&self) -> Option<Duration> {
        self.first(|backend| Ok(backend.capture_time())).ok().flatten()
    }

    fn simulate_acceptance(&mut self, simulated: Option<Simulated>) -> Result<(), EngineError> {
        self.all(move |backend| backend.simulate_acceptance(simulated.clone())).map(|_| ())
    }

    fn time_parts(&mut self, on: bool) {
        let work = move |backend: &mut CudaBackend| {
            backend.time_parts(on);
            Ok(())
        };
        let _ = self.all(work);
    }

    /// Rank 0's count: all ranks choose the same experts.
    fn count_experts(&mut self, on: bool) -> Option<ExpertReads> {
        let reads = self.all(move |backend| Ok(backend.count_experts(on))).ok()?;
        reads.into_iter().next().flatten()
    }
}

impl Backend for RankGroup {
    fn exchange(&mut self, options: &EngineOptions, which: Exchange) -> Result<bool, EngineError> {
        let options = options.clone();
        self.first(move |backend| backend.exchange(&options, which))
    }

    fn kill_rank(&mut self, rank: usize) {
        self.ranks.iter().skip(rank).take(1).for_each(RankThread::kill);
    }
}
