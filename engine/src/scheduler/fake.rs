//! A scripted backend without a model, which checks that the scheduler keeps the rules of the
//! interface.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Range,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use schemas::tree::TreeShape;

use crate::{
    backend::{
        Backend, Capacity, Decode, Describe, DeviceInfo, Drafted, MAX_PENDING_DRAFT, Measure, PageId, Pool, Prefill,
        PrefillChunk, ProbabilityQuery, ProducedToken, Replay, ReplayPlace, Round, RoundOutput, RoundTiming, Slot,
        Slots, Snapshot, StateRow, TargetStates, Ticket, TokenLogprobs, WindowChange, Yield, windows::WindowMap,
    },
    error::EngineError,
    played::Simulated,
    request::SamplingParams,
    spec::ModelCost,
};

/// Used in place of a token: the target's logits are not finite there.
pub const NOT_FINITE: u32 = u32::MAX - 1;

/// The device's output: a function of the prompt and the position in the output, independent of
/// other requests.
#[derive(Clone, Copy)]
pub struct Script {
    /// The token at a place of the output; after [`NOT_FINITE`] there is none.
    pub token: fn(prompt: &[u32], at: usize) -> u32,
    /// Number of accepted drafts, at most `most`, in the round that starts at a place of the
    /// output.
    pub accepted: fn(prompt: &[u32], at: usize, most: usize) -> usize,
}

/// A record of the device's actions that tests can inspect while the scheduler owns the device.
#[derive(Default)]
pub struct DeviceRecord {
    open: BTreeMap<Slot, Open>,
    in_flight: VecDeque<(Ticket, Vec<Slot>, RoundOutput)>,
    /// First tokens of the prefill in flight, each with the index of its piece.
    first: Option<Vec<(usize, Yield)>>,
    launched: u64,
    /// Seeds of requests, in the order in which slots were opened.
    pub opened: Vec<u64>,
    /// `(batch, shape)` of each round.
    pub rounds: Vec<(usize, TreeShape)>,
    /// Prompt tokens of each prefill.
    pub prefills: Vec<usize>,
    /// Whether a prepared shape speculates.
    follows: bool,
    /// The contents of each row of each page: the target's row, which depends on a token, and the
    /// draft's, which also depends on the next token.
    rows: BTreeMap<(PageId, usize), (u32, Option<u32>)>,
    /// Which window page each page has, if there are any, and the token in each of their rows.
    windows: Option<WindowMap>,
    window_rows: BTreeMap<u32, u32>,
    /// Kept states.
    kept: BTreeMap<Snapshot, Vec<u32>>,
}

struct Open {
    pages: Vec<PageId>,
    prompt: Vec<u32>,
    /// The tokens that its state has read.
    state: Vec<u32>,
    next: Option<u32>,
    produced: usize,
    /// The last produced token, which is not in any cache yet.
    root: u32,
    /// Positions that the draft has not processed, each with its token and the next one.
    unread: Vec<(usize, u32, u32)>,
}

/// The scripted device.
pub struct Fake {
    capacity: Capacity,
    script: Script,
    world: Arc<Mutex<DeviceRecord>>,
}

impl Fake {
    /// A device, and access to its record.
    pub fn new(capacity: Capacity, script: Script) -> (Self, Arc<Mutex<DeviceRecord>>) {
        let world = DeviceRecord { windows: WindowMap::new(&capacity), ..DeviceRecord::default() };
        let world = Arc::new(Mutex::new(world));
        (Self { capacity, script, world: Arc::clone(&world) }, world)
    }

    fn world(&self) -> MutexGuard<'_, DeviceRecord> {
        self.world.lock().expect("no panic while it was held")
    }
}

impl DeviceRecord {
    /// Whether no slot is open and nothing is in flight.
    pub fn is_clean(&self) -> bool {
        self.open.is_empty() && self.in_flight.is_empty() && self.first.is_none()
    }
}

impl DeviceRecord {
    /// Writes a row on a page that no other slot reads.
    fn write(&mut self, slot: Slot, page_size: usize, position: usize, token: u32, next: Option<u32>) {
        let page = self.open[&slot].pages[position / page_size];
        let shared = self.open.iter().any(|(other, open)| *other != slot && open.pages.contains(&page));
        assert!(!shared, "{slot:?} writes to a page that others read");
        self.rows.insert((page, position % page_size), (token, next));
    }

    /// The same in all caches of the target too.
    fn run(&mut self, slot: Slot, page_size: usize, position: usize, token: u32, next: Option<u32>) {
        self.write(slot, page_size, position, token, next);
        let page = self.open[&slot].pages[position / page_size];
        if let Some(map) = &self.windows {
            let row = page.0 * page_size as u32 + (position % page_size) as u32;
            self.window_rows.insert(map.row(row).expect("a window page of a page that is written"), token);
        }
    }

    /// Checks that a pass from a position on sees in its window what the slot has written there.
    fn see_window(&self, slot: Slot, page_size: usize, position: usize) {
        let Some(map) = &self.windows else { return };
        for before in position.saturating_sub(map.window() - 1)..position {
            let page = self.open[&slot].pages[before / page_size];
            let row = map.row(page.0 * page_size as u32 + (before % page_size) as u32).expect("a page in the window");
            let (token, _) = self.rows[&(page, before % page_size)];
            assert_eq!(self.window_rows.get(&row), Some(&token), "position {before} of {slot:?}, seen from {position}");
        }
    }

    /// The draft processes its pending positions, if there are at least this many.
    fn read_unread(&mut self, slot: Slot, page_size: usize, most: usize) {
        let open = self.open.get_mut(&slot).expect("an open slot");
        if open.unread.len() >= most {
            for (position, token, next) in std::mem::take(&mut open.unread) {
                self.write(slot, page_size, position, token, Some(next));
            }
        }
    }
}

fn produced(id: u32) -> ProducedToken {
    ProducedToken { id, logprobs: None }
}

fn no_draft() -> EngineError {
    EngineError::Configuration("a script has neither target nor draft to replay".into())
}

impl Describe for Fake {
    fn capacity(&self) -> Capacity {
        self.capacity
    }

    fn device(&self) -> DeviceInfo {
        DeviceInfo { device: "fake".into(), name: String::new(), driver: String::new(), units: 0 }
    }

    fn looks_up(&self) -> bool {
        false
    }

    fn cost(&self) -> ModelCost {
        ModelCost::default()
    }
}

impl Slots for Fake {
    fn open(
        &mut self,
        slot: Slot,
        sampling: &SamplingParams,
        pages: &[PageId],
        cached: usize,
    ) -> Result<(), EngineError> {
        let mut world = self.world();
        let page_size = self.capacity.page_size;
        assert!(cached.is_multiple_of(page_size), "a part of a page is shared");
        assert!((slot.0 as usize) < self.capacity.slots, "{slot:?} does not exist");
        let held: BTreeSet<PageId> = world.open.values().flat_map(|open| open.pages.clone()).collect();
        let own: BTreeSet<PageId> = pages.iter().copied().collect();
        assert_eq!(own.len(), pages.len(), "a page twice");
        assert!(own.iter().all(|page| (page.0 as usize) < self.capacity.pages), "pages that are not there");
        assert!(pages[cached / page_size..].iter().all(|page| !held.contains(page)), "held pages");
        let row = |at: usize| world.rows.get(&(pages[at / page_size], at % page_size)).copied().expect("a filled row");
        let prompt: Vec<u32> = (0..cached).map(|at| row(at).0).collect();
        // Every row of the draft also depends on the next token of the prompt.
        let follows = (1..cached).all(|at| row(at - 1).1 == Some(prompt[at]));
        assert!(follows, "a row of the draft belongs to another sequence");
        let next = cached.checked_sub(1).and_then(|last| row(last).1);
        let state = Vec::new();
        let open = Open { pages: pages.to_vec(), prompt, state, next, produced: 0, root: 0, unread: Vec::new() };
        world.opened.push(sampling.seed);
        assert!(world.open.insert(slot, open).is_none(), "{slot:?} is in use");
        Ok(())
    }

    fn extend(&mut self, slot: Slot, pages: &[PageId]) -> Result<(), EngineError> {
        let mut world = self.world();
        let held: BTreeSet<PageId> = world.open.values().flat_map(|open| open.pages.clone()).collect();
        assert!(pages.iter().all(|page| !held.contains(page) && (page.0 as usize) < self.capacity.pages), "held pages");
        world.open.get_mut(&slot).expect("an open slot").pages.extend(pages);
        Ok(())
    }

    fn change_windows(&mut self, changes: &[WindowChange]) -> Result<(), EngineError> {
        let mut world = self.world();
        let map = world.windows.as_mut().expect("window pages");
        map.change(changes)?;
        let pages = (0..self.capacity.pages as u32).map(PageId);
        let in_use: BTreeSet<u32> = pages.filter_map(|page| Some(map.window_page(page)?.0)).collect();
        // Contents of a window page without a page are lost.
        world.window_rows.retain(|row, _| in_use.contains(&(row / self.capacity.page_size as u32)));
        Ok(())
    }

    fn keep(&mut self, slot: Slot, to: Snapshot) -> Result<(), EngineError> {
        let mut world = self.world();
        assert!((to.0 as usize) < self.capacity.snapshots.expect("states"), "{to:?} does not exist");
        let open = &world.open[&slot];
        assert!(open.produced == 0, "rounds have changed the state");
        let state = open.state.clone();
        world.kept.insert(to, state);
        Ok(())
    }

    fn resume(&mut self, slot: Slot, from: Snapshot) -> Result<(), EngineError> {
        let mut world = self.world();
        let state = world.kept[&from].clone();
        world.open.get_mut(&slot).expect("an open slot").state = state;
        Ok(())
    }

    fn adjust(&mut self, _: Slot, _: &[u32], _: &[u32], _: &[u32]) -> Result<(), EngineError> {
        Err(EngineError::Configuration("a script has no logits to adjust".into()))
    }

    fn remember(&mut self, _: Slot, _: &[u32], _: &[u32]) -> Result<(), EngineError> {
        Ok(())
    }

    fn prompt_logprobs(&mut self, _: Slot) -> Vec<TokenLogprobs> {
        Vec::new()
    }

    fn grammar_failure(&self, _: Slot) -> Option<String> {
        None
    }

    fn close(&mut self, slot: Slot) {
        let mut world = self.world();
        assert!(world.in_flight.iter().all(|(_, slots, _)| !slots.contains(&slot)), "{slot:?} is in flight");
        assert!(world.open.remove(&slot).is_some(), "{slot:?} is not open");
    }
}

impl Prefill for Fake {
    fn prefill(
        &mut self,
        chunks: &[PrefillChunk<'_>],
        first: &mut dyn FnMut(usize, Yield),
    ) -> Result<bool, EngineError> {
        let mut world = self.world();
        assert!(world.first.is_none(), "the first tokens of the last prefill have not been collected");
        let distinct: BTreeSet<Slot> = chunks.iter().map(|chunk| chunk.slot).collect();
        assert_eq!(distinct.len(), chunks.len(), "a slot twice");
        world.prefills.push(chunks.iter().map(|chunk| chunk.tokens.len()).sum());
        let page_size = self.capacity.page_size;
        // Like a GPU, a device that runs ahead does not wait for the tokens.
        let runs_ahead = self.capacity.rounds_in_flight > 1;
        let mut pending = Vec::new();
        for (at, chunk) in chunks.iter().enumerate() {
            let open = world.open.get_mut(&chunk.slot).expect("an open slot");
            assert!(!chunk.tokens.is_empty() && chunk.tokens.len() <= self.capacity.prefill_chunk, "size of a piece");
            assert_eq!(chunk.start, open.prompt.len(), "a piece does not continue the prompt");
            let Capacity { snapshots, prefill_chunk, state_chunk, .. } = self.capacity;
            if snapshots.is_some() && prefill_chunk >= state_chunk {
                assert!(chunk.start.is_multiple_of(state_chunk), "a piece begins within a chunk");
            }
            assert!(open.next.is_none_or(|next| next == chunk.tokens[0]), "another token than was announced");
            if self.capacity.snapshots.is_some() {
                assert_eq!(open.state, open.prompt, "the state of another sequence");
                open.state.extend(chunk.tokens);
            }
            open.prompt.extend(chunk.tokens);
            open.next = chunk.next;
            open.produced = usize::from(chunk.next.is_none());
            open.root = (self.script.token)(&open.prompt, 0);
            let root = open.root;
            let position = open.prompt.len();
            let token = (root != NOT_FINITE).then(|| produced(root));
            match Yield::from_prompt(token, position) {
                _ if chunk.next.is_some() => {}
                token if runs_ahead => pending.push((at, token)),
                token => first(at, token),
            }
            world.see_window(chunk.slot, page_size, chunk.start);
            for (at, token) in chunk.tokens.iter().enumerate() {
                let next = chunk.tokens.get(at + 1).copied().or(chunk.next).unwrap_or(root);
                world.run(chunk.slot, page_size, chunk.start + at, *token, Some(next));
            }
        }
        world.first = runs_ahead.then_some(pending);
        Ok(runs_ahead)
    }

    fn collect_prefill(&mut self, first: &mut dyn FnMut(usize, Yield)) -> Result<(), EngineError> {
        let pending = self.world().first.take().expect("a prefill in flight");
        pending.into_iter().for_each(|(at, token)| first(at, token));
        Ok(())
    }

    fn prefill_time(&mut self) -> Result<Duration, EngineError> {
        Ok(Duration::ZERO)
    }
}

impl Decode for Fake {
    fn prepare(
        &mut self,
        shapes: &[TreeShape],
        _capture_sizes: &[usize],
        _captured: &mut dyn FnMut(usize, usize),
    ) -> Result<(), EngineError> {
        self.world().follows = shapes.iter().any(|shape| !shape.is_off());
        Ok(())
    }

    fn launch_drafted(&mut self, round: Round<'_>, drafted: Drafted<'_>) -> Result<Ticket, EngineError> {
        assert!(matches!(drafted, Drafted::Here), "the script accepts without regard to drafts of the host");
        let script = self.script;
        let mut world = self.world();
        assert!(world.in_flight.len() < self.capacity.rounds_in_flight, "too many rounds in flight");
        let distinct: BTreeSet<Slot> = round.slots.iter().copied().collect();
        assert!(!round.slots.is_empty() && distinct.len() == round.slots.len(), "a slot twice, or none");
        let mut yields = Vec::new();
        for slot in round.slots {
            let open = world.open.get_mut(slot).expect("an open slot");
            assert!(open.produced > 0, "the prompt has not been read");
            let length = open.prompt.len() + open.produced - 1;
            let room = open.pages.len() * self.capacity.page_size;
            assert!(length + round.shape.num_draft_tokens <= room, "the tree runs over the pages");
            let accepted = (script.accepted)(&open.prompt, open.produced, round.shape.max_tokens_per_round() - 1);
            let places = open.produced..=open.produced + accepted;
            let tokens: Vec<u32> = places.map(|at| (script.token)(&open.prompt, at)).collect();
            let root = std::mem::replace(&mut open.root, tokens[accepted]);
            open.produced += accepted + 1;
            world.see_window(*slot, self.capacity.page_size, length);
            // The tree leaves its nodes in the rows after the sequence.
            for node in 0..round.shape.num_draft_tokens {
                world.run(*slot, self.capacity.page_size, length + node, u32::MAX, None);
            }
            let late = world.follows && round.shape.is_off();
            for (at, next) in tokens.iter().enumerate() {
                let token = if at == 0 { root } else { tokens[at - 1] };
                world.run(*slot, self.capacity.page_size, length + at, token, (!late).then_some(*next));
                if late {
                    world.open.get_mut(slot).expect("an open slot").unread.push((length + at, token, *next));
                }
            }
            world.read_unread(*slot, self.capacity.page_size, if late { MAX_PENDING_DRAFT } else { 0 });
            let none = tokens.iter().position(|token| *token == NOT_FINITE);
            let tokens = tokens.into_iter().take(none.unwrap_or(usize::MAX)).map(produced).collect();
            yields.push(Yield { tokens, not_finite: none.map(|at| length + 1 + at) });
        }
        world.rounds.push((round.slots.len(), round.shape));
        world.launched += 1;
        let output = RoundOutput { yields, timing: RoundTiming::default() };
        let launched = world.launched;
        world.in_flight.push_back((Ticket(launched), round.slots.to_vec(), output));
        Ok(Ticket(launched))
    }

    fn collect(&mut self, ticket: Ticket) -> Result<RoundOutput, EngineError> {
        let (oldest, _, output) = self.world().in_flight.pop_front().expect("a launched round");
        assert_eq!(oldest, ticket, "rounds are collected in order");
        Ok(output)
    }

    fn pending_draft_tokens(&self, slot: Slot) -> usize {
        self.world().open[&slot].unread.len()
    }
}

impl Replay for Fake {
    fn trace(&mut self, _slot: Slot, _positions: Range<usize>, _target: bool) -> Result<(), EngineError> {
        Err(no_draft())
    }

    fn state_row(&self) -> Option<StateRow> {
        None
    }

    fn prefill_traced(&mut self, _chunks: &[PrefillChunk<'_>], _states: TargetStates<'_>) -> Result<(), EngineError> {
        Err(no_draft())
    }

    fn pools(&mut self, _places: &[ReplayPlace<'_>], _shapes: &[TreeShape]) -> Result<Vec<Pool>, EngineError> {
        Err(no_draft())
    }

    fn probabilities(&mut self, _requested: &[ProbabilityQuery]) -> Result<Vec<Vec<f64>>, EngineError> {
        Err(no_draft())
    }
}

impl Measure for Fake {
    fn measure_bandwidth(&self) -> Result<f64, EngineError> {
        Ok(1e9)
    }

    fn simulate_acceptance(&mut self, _simulated: Option<Simulated>) -> Result<(), EngineError> {
        Ok(())
    }
}

impl Backend for Fake {}
