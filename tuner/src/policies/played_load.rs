//! Runs a load on the engine with acceptance that is played from traces, under a policy: what
//! [`forecast`](crate::forecast) simulates, measured. Requests, their texts and their places in
//! them are those of the simulation; prompts are random.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use engine::{
    Engine, Event, PlayedAcceptance, Request, RequestId, SamplingParams, ShapePolicy, Simulated, StopConditions,
    backend::GpuState, options::padded,
};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::{
    TunerError,
    forecast::{
        Arrivals, Memory, Setup, SimulatedRequest,
        drafts::Drafts,
        figures::{self, Figures},
        plan::SimulatedRow,
        rounds_behind,
    },
    prediction::latency::filling::Filling,
};

/// A load to run.
#[derive(Clone, Copy, Debug)]
pub struct PlayedLoad<'a> {
    /// The requests.
    pub jobs: &'a [SimulatedRequest],
    /// When they are sent.
    pub arrivals: &'a Arrivals,
    /// Ends the load when this many requests have ended, and aborts the others; `None` for all.
    pub until: Option<usize>,
    /// Seed of the prompts' tokens.
    pub seed: u64,
}

/// The engine's policy of a table.
///
/// # Errors
/// When the table has no row.
pub fn policy(rows: &[SimulatedRow]) -> Result<ShapePolicy, TunerError> {
    let row = |row: &SimulatedRow| (row.batch, row.context.map_or(usize::MAX, |context| context as usize), row.shape);
    ShapePolicy::by_context(rows.iter().map(row).collect())
        .ok_or_else(|| TunerError::Configuration("a policy needs at least one row".into()))
}

/// What a simulation has to know of an engine.
pub fn setup(engine: &Engine) -> Setup {
    let (options, capacity) = (engine.options(), engine.capacity());
    Setup {
        capture_sizes: options.graph_sizes(),
        max_running_requests: engine.max_running_requests(),
        // Loads that do not fit are refused.
        memory: None,
        prefill_budget: options.chunked_prefill_size,
        prefill_chunk: capacity.prefill_chunk,
        rounds_behind: rounds_behind(capacity.rounds_in_flight),
        mixed_prefill: false,
    }
}

/// Makes an idle engine play what the drafts of a policy's shapes accept, and run that policy.
/// `prepare` sets the policy.
///
/// # Errors
/// When the acceptance of a shape is unknown, or the device fails.
pub fn prepare(
    engine: &mut Engine,
    drafts: &Drafts,
    policy: &ShapePolicy,
) -> Result<Option<Arc<PlayedAcceptance>>, TunerError> {
    let shapes: Vec<_> = policy.shapes().collect();
    let played = drafts.played(&shapes)?.map(Arc::new);
    engine.simulate_acceptance(played.clone().map(Simulated::Played))?;
    Ok(played)
}

/// New tokens of each request that warms up.
const WARM_UP_TOKENS: usize = 4;

/// Runs the first requests of a load for a few tokens, one alone and then as many as fill two steps
/// of prefill, so that what is done once for a new size (kernels that are loaded, plans of the
/// library) is not part of the load.
///
/// # Errors
/// As [`run`].
pub fn warm_up(
    engine: &mut Engine,
    load: &PlayedLoad<'_>,
    played: Option<&PlayedAcceptance>,
) -> Result<(), TunerError> {
    let budget = 2 * engine.options().chunked_prefill_size;
    let mut tokens = 0;
    let fits = |job: &&SimulatedRequest| {
        tokens += job.prompt_tokens;
        tokens <= budget
    };
    let together = load.jobs.iter().take(engine.max_running_requests()).take_while(fits).count().max(1);
    let short =
        |job: &SimulatedRequest| SimulatedRequest { output_tokens: job.output_tokens.min(WARM_UP_TOKENS), ..*job };
    let jobs: Vec<SimulatedRequest> = load.jobs[..together.min(load.jobs.len())].iter().map(short).collect();
    for jobs in [&jobs[..1.min(jobs.len())], &jobs] {
        let arrivals = Arrivals::Open { at_ms: vec![0.0; jobs.len()] };
        run(engine, &PlayedLoad { jobs, arrivals: &arrivals, until: None, ..*load }, played)?;
    }
    Ok(())
}

/// Runs a load on an idle engine whose policy and acceptance are [prepared](prepare).
///
/// # Errors
/// When a request does not fit, the KV cache does not hold all requests that may run, or the device
/// fails.
pub fn run(
    engine: &mut Engine,
    load: &PlayedLoad<'_>,
    played: Option<&PlayedAcceptance>,
) -> Result<Figures, TunerError> {
    check(engine, load)?;
    let mut numbers = StdRng::seed_from_u64(load.seed);
    let requests = load.jobs.iter().map(|job| request(engine, job, played, &mut numbers)).collect();
    let mut run = PlayedRun::new(load, requests, engine);
    while run.ended.len() < run.until {
        run.send(engine)?;
        if engine.is_idle() {
            run.wait();
            continue;
        }
        run.step(engine)?;
    }
    run.finish(engine)
}

/// A request with the acceptance of its text.
fn request(
    engine: &Engine,
    job: &SimulatedRequest,
    played: Option<&PlayedAcceptance>,
    numbers: &mut StdRng,
) -> Request {
    let vocabulary = engine.capacity().vocab_size as u32;
    Request {
        input_ids: (0..job.prompt_tokens).map(|_| numbers.random_range(0..vocabulary)).collect(),
        sampling: SamplingParams {
            most_drafts: job.most_drafts,
            played: played.map(|played| played.at(job.text, job.start, job.prompt_tokens)),
            ..SamplingParams::default()
        },
        stop: StopConditions { max_new_tokens: Some(job.output_tokens), ignore_eos: true, ..StopConditions::default() },
    }
}

fn check(engine: &Engine, load: &PlayedLoad<'_>) -> Result<(), TunerError> {
    let wrong = |reason: String| Err(TunerError::Configuration(reason));
    let capacity = engine.capacity();
    let slack = Memory::slack(engine.options().policy.shapes());
    let mut pages: Vec<usize> = Vec::with_capacity(load.jobs.len());
    for job in load.jobs {
        let tokens = job.prompt_tokens + job.output_tokens;
        if tokens > capacity.context_length {
            return wrong(format!(
                "a request of {} prompt and {} output tokens exceeds the context length {}: raise --context-length or lower \
                 --max-len",
                job.prompt_tokens, job.output_tokens, capacity.context_length
            ));
        }
        pages.push((tokens + slack).div_ceil(capacity.page_size));
    }
    pages.sort_unstable_by(|a, b| b.cmp(a));
    let together: usize = pages.iter().take(engine.max_running_requests()).sum();
    if together > capacity.pages {
        return wrong(format!(
            "the requests that may run together need {together} pages of {} tokens, but the KV cache has {}: lower \
             --max-running-requests or the lengths, or raise --mem-fraction-static",
            capacity.page_size, capacity.pages
        ));
    }
    Ok(())
}

/// A load that runs.
struct PlayedRun<'a> {
    load: &'a PlayedLoad<'a>,
    requests: std::vec::IntoIter<Request>,
    until: usize,
    begin: Instant,
    sent: usize,
    running: HashMap<RequestId, usize>,
    ended: Vec<Duration>,
    output_tokens: u64,
    request_rounds: u64,
    prefill: Duration,
    retracted: u64,
    gpu: Option<GpuState>,
    /// End of the last step that collected a round, if no prefill has run since.
    last_round: Option<Instant>,
    rounds: Vec<figures::RoundGroup>,
}

impl<'a> PlayedRun<'a> {
    fn new(load: &'a PlayedLoad<'a>, requests: Vec<Request>, engine: &Engine) -> Self {
        let before = engine.statistics();
        Self {
            until: load.until.unwrap_or(requests.len()).min(requests.len()),
            load,
            requests: requests.into_iter(),
            begin: Instant::now(),
            sent: 0,
            running: HashMap::new(),
            ended: Vec::new(),
            output_tokens: 0,
            request_rounds: 0,
            prefill: before.prefill_time,
            retracted: before.retracted,
            gpu: engine.gpu_state(),
            last_round: None,
            rounds: Vec::new(),
        }
    }

    /// Sends the requests that are due.
    fn send(&mut self, engine: &mut Engine) -> Result<(), TunerError> {
        let elapsed_ms = self.begin.elapsed().as_secs_f64() * 1e3;
        let is_due = |sent: usize, running: usize| match self.load.arrivals {
            Arrivals::Closed { batch_size } => running < *batch_size,
            Arrivals::Open { at_ms } => at_ms.get(sent).is_some_and(|at| *at <= elapsed_ms),
        };
        while is_due(self.sent, self.running.len()) {
            let Some(request) = self.requests.next() else { break };
            self.running.insert(engine.submit(request)?, self.sent);
            self.sent += 1;
        }
        Ok(())
    }

    /// Waits for the next arrival.
    fn wait(&mut self) {
        self.last_round = None;
        if let Arrivals::Open { at_ms } = self.load.arrivals
            && let Some(at) = at_ms.get(self.sent)
        {
            let due = Duration::from_secs_f64(at / 1e3);
            std::thread::sleep(due.saturating_sub(self.begin.elapsed()));
        }
    }

    fn step(&mut self, engine: &mut Engine) -> Result<(), TunerError> {
        let prefill = engine.statistics().prefill_time;
        let mut ended = Vec::new();
        engine.step(&mut |event| {
            if let Event::Finished { request, completion } = event {
                ended.push((request, completion.output_ids.len(), completion.rounds));
            }
        })?;
        let now = Instant::now();
        for (request, tokens, rounds) in ended {
            if self.running.remove(&request).is_none() {
                continue;
            }
            // Requests that end in the last step, after enough have ended, have their tokens too.
            self.output_tokens += tokens as u64;
            self.request_rounds += rounds as u64;
            if self.ended.len() < self.until {
                self.ended.push(now - self.begin);
            }
        }
        let after = engine.statistics();
        let prefilled = after.prefill_time > prefill;
        // Several rounds are collected in one step only when the last ones are drained.
        let alone = after.ran.len() == 1 && !prefilled;
        for ran in &after.ran {
            let ms = self.last_round.filter(|_| alone).map(|last| (now - last).as_secs_f64() * 1e3);
            let filling = Filling {
                places: padded(&engine.options().graph_sizes(), ran.batch),
                requests: ran.batch as f64,
                context: ran.tokens as f64 / ran.batch.max(1) as f64,
            };
            figures::add(&mut self.rounds, ran.shape, filling, 1, ms);
            self.last_round = Some(now);
        }
        if prefilled {
            self.last_round = None;
        }
        Ok(())
    }

    /// Aborts what still runs, and returns the figures.
    fn finish(mut self, engine: &mut Engine) -> Result<Figures, TunerError> {
        let elapsed = self.ended.last().copied().unwrap_or_default();
        let (prefill, retracted) = (engine.statistics().prefill_time, engine.statistics().retracted);
        let energy_j = engine.gpu_state().zip(self.gpu.take()).and_then(|(now, before)| now.energy_since(&before));
        let aborted: Vec<RequestId> = self.running.keys().copied().collect();
        aborted.into_iter().for_each(|request| engine.cancel(request));
        while !engine.is_idle() {
            engine.step(&mut |event| {
                if let Event::Finished { completion, .. } = event {
                    self.output_tokens += completion.output_ids.len() as u64;
                    self.request_rounds += completion.rounds as u64;
                }
            })?;
        }
        figures::finish(&mut self.rounds);
        let elapsed_s = elapsed.as_secs_f64();
        Ok(Figures {
            elapsed_s,
            prefill_s: (prefill - self.prefill).as_secs_f64(),
            output_tokens: self.output_tokens,
            output_tokens_per_s: self.output_tokens as f64 / elapsed_s,
            accept_length: (self.request_rounds > 0).then(|| self.output_tokens as f64 / self.request_rounds as f64),
            energy_j,
            ends_s: self.ended.iter().map(Duration::as_secs_f64).collect(),
            retractions: retracted - self.retracted,
            rounds: self.rounds,
        })
    }
}

#[cfg(test)]
mod tests {
    use engine::{
        DeviceChoice,
        replay::trace::{FORMAT, Nodes, PositionTrace, ROOT, TextTrace},
    };
    use schemas::tree::TreeShape;

    use super::*;
    use crate::{
        fixtures::demo,
        forecast::{
            SimulatedWorkload,
            costs::StepCosts,
            policy::{PolicyTable, PolicyTableRow},
            simulate_policy,
        },
    };

    /// A text along which chains of two drafts accept a changing number.
    fn trace(accepted: &[usize]) -> PositionTrace {
        let position = |accepted: &usize| Nodes {
            score: vec![-0.2, -0.3],
            parent: vec![ROOT, 0],
            rank: vec![0; 2],
            depth: vec![1, 2],
            chance: vec![Some(1.0), None],
            on_text: (0..*accepted as u16).collect(),
            ..Nodes::default()
        };
        let positions = accepted.iter().map(position).collect::<Vec<_>>();
        PositionTrace {
            format: FORMAT,
            source: "EAGLE3".into(),
            limit: TreeShape::chain(2),
            largest: vec![TreeShape::chain(1), TreeShape::chain(2)],
            texts: vec![TextTrace { prompt_tokens: 7, output_tokens: accepted.len() + 1, sampled: false, positions }],
        }
    }

    /// What each round ran, on the engine and simulated: its tree and its requests.
    fn decisions(
        engine: &mut Engine,
        drafts: &Drafts,
        table: &PolicyTable,
        jobs: &[SimulatedRequest],
        arrivals: &Arrivals,
    ) -> [Vec<(TreeShape, usize)>; 2] {
        let rows: Vec<SimulatedRow> = (table.rows().iter())
            .map(|row| SimulatedRow {
                batch: row.batch,
                context: row.context.is_finite().then_some(row.context),
                shape: row.shape,
            })
            .collect();
        let policy = policy(&rows).expect("rows");
        let played = prepare(engine, drafts, &policy).expect("known shapes");
        engine.set_policy(policy).expect("it is idle");
        let load = PlayedLoad { jobs, arrivals, until: None, seed: 1 };
        warm_up(engine, &load, played.as_deref()).expect("it runs");
        let mut numbers = StdRng::seed_from_u64(1);
        let requests = jobs.iter().map(|job| request(engine, job, played.as_deref(), &mut numbers)).collect();
        let mut run = PlayedRun::new(&load, requests, engine);
        let mut ran = Vec::new();
        while run.ended.len() < run.until {
            run.send(engine).expect("they fit");
            run.step(engine).expect("it runs");
            ran.extend(engine.statistics().ran.iter().map(|one| (one.shape, one.batch)));
        }
        let measured = run.finish(engine).expect("it ends");
        let setup = setup(engine);
        let times = StepCosts::named("llama-3.1-8b-eagle3-h200").expect("a name").into();
        let simulation = SimulatedWorkload { jobs, arrivals, setup: &setup, drafts, times: &times, until: None };
        let simulated = simulate_policy(&simulation, &mut table.clone()).expect("it is simulated");
        let of_rounds = |one: &crate::forecast::Stretch| vec![(one.shape, one.batch); one.rounds as usize];
        let decided = simulated.stretches.iter().flat_map(of_rounds).collect();
        let simulated = Figures::from_forecast(&simulated, &setup.capture_sizes);
        let counts = |figures: &Figures| {
            let groups = figures.rounds.iter().map(|group| (group.shape, group.batch, group.rounds));
            (figures.output_tokens, figures.accept_length, figures.ends_s.len(), groups.collect::<Vec<_>>())
        };
        assert_eq!(counts(&measured), counts(&simulated), "{table:?}, {arrivals:?}");
        assert!(measured.elapsed_s > 0.0 && measured.rounds.iter().all(|group| group.context > 6.0));
        [ran, decided]
    }

    /// Loads whose batches shrink, and whose requests limit their drafts.
    fn loads() -> Vec<(Vec<SimulatedRequest>, Arrivals)> {
        let job = |number: usize| SimulatedRequest {
            prompt_tokens: 6 + 3 * number,
            output_tokens: 8 + 11 * number,
            text: 0,
            start: 5 * number,
            seed: 0,
            most_drafts: None,
        };
        let free: Vec<SimulatedRequest> = (0..6).map(job).collect();
        let limited: Vec<SimulatedRequest> =
            free.iter().map(|job| SimulatedRequest { most_drafts: Some(job.start / 5 % 3), ..*job }).collect();
        let at_once = || Arrivals::Open { at_ms: vec![0.0; 6] };
        let closed = |batch_size| Arrivals::Closed { batch_size };
        vec![
            (free.clone(), at_once()),
            (free.clone(), closed(1)),
            (free.clone(), closed(2)),
            (free, closed(4)),
            (limited.clone(), at_once()),
            (limited, closed(3)),
        ]
    }

    fn tables() -> Vec<PolicyTable> {
        let row = |batch, context, shape| PolicyTableRow { batch, context, shape };
        let (any, one, two) = (f64::INFINITY, TreeShape::chain(1), TreeShape::chain(2));
        // One of these borders is crossed in each phase of a request.
        let by_context = (12..60).step_by(7).map(|border| {
            let rows = vec![
                row(1, f64::from(border) + 3.0, one),
                row(1, any, two),
                row(3, f64::from(border), TreeShape::OFF),
                row(3, any, one),
                row(4, any, two),
            ];
            PolicyTable::new(rows).expect("rows")
        });
        [PolicyTable::fixed(TreeShape::OFF), PolicyTable::fixed(two)].into_iter().chain(by_context).collect()
    }

    /// Policies see the same batches and contexts in both, rounds accept the same drafts, and
    /// requests with other limits take the same turns, also where a load follows another one.
    #[test]
    fn the_engine_decides_in_each_round_what_the_simulator_says() {
        let drafts = Drafts::traced(vec![trace(&[2, 0, 1, 2, 2, 0, 1, 1, 0])]).expect("a trace");
        let mut engine = demo::engine(4);
        let mut switches = 0;
        for table in tables() {
            for (jobs, arrivals) in loads() {
                let [ran, decided] = decisions(&mut engine, &drafts, &table, &jobs, &arrivals);
                assert_eq!(ran, decided, "{table:?}, {arrivals:?}");
                let by_context = |pair: &&[(TreeShape, usize)]| pair[0].1 == pair[1].1 && pair[0].0 != pair[1].0;
                let free = jobs.iter().all(|job| job.most_drafts.is_none());
                switches += if free { ran.windows(2).filter(by_context).count() } else { 0 };
            }
        }
        assert!(switches > 20, "{switches}");
    }

    /// The same where the host launches a round before it knows what the one before yielded. Needs
    /// a C++ compiler for the emulator.
    #[test]
    fn with_a_round_in_flight_the_engine_decides_what_the_simulator_says() {
        let drafts = Drafts::traced(vec![trace(&[2, 0, 1, 2, 2, 0, 1, 1, 0])]).expect("a trace");
        let mut engine = demo::engine_on(DeviceChoice::Emulator, 4, 128);
        assert_eq!(setup(&engine).rounds_behind, 1);
        let (tables, loads) = (tables(), loads());
        // The emulator is slow: each load once, alone and with every slot taken, free and limited.
        for (table, load) in [(1, 0), (1, 3), (1, 4), (3, 0), (3, 2), (3, 5)] {
            let (table, (jobs, arrivals)) = (&tables[table], &loads[load]);
            let [ran, decided] = decisions(&mut engine, &drafts, table, jobs, arrivals);
            assert_eq!(ran, decided, "{table:?}, {arrivals:?}");
        }
    }
}
