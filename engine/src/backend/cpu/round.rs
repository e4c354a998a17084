//! The round: draft → verify → accept → extend.

use std::{borrow::Cow, time::Instant};

use schemas::tree::TreeShape;

use super::{
    CpuBackend,
    draft::Root,
    passes::{PassInput, produce, select},
    slot::{PendingDraft, SlotState},
    target::PassOutput,
};
use crate::{
    backend::{Drafted, MAX_PENDING_DRAFT, ProducedToken, Round, RoundOutput, RoundTiming, Slot, Yield},
    error::EngineError,
    options::padded,
    played::PlayedTree,
    tree::{DraftTree, Pool, joined, simulated_walk, verified_drafts, walk},
};

/// A request's tree.
struct RoundTree<'a> {
    tree: Cow<'a, DraftTree>,
    /// The node at which acceptance ends, if the tree is played.
    end: Option<usize>,
}

/// The result of verifying a request's tree.
struct Verified {
    /// The accepted nodes, root first.
    path: Vec<usize>,
    /// Their rows in the verify pass.
    rows: Vec<usize>,
    /// The target's choice after each of them.
    tokens: Vec<ProducedToken>,
    /// The position after these tokens, if the target's logits for it are not finite.
    not_finite: Option<usize>,
}

impl CpuBackend {
    /// Runs one round for a batch.
    pub(super) fn run_round(&mut self, round: Round<'_>, drafted: Drafted<'_>) -> Result<RoundOutput, EngineError> {
        let Round { shape, slots } = round;
        let start = Instant::now();
        let draft = Self::draft_tallies(self.draft.as_deref());
        self.counted.begin_round(self.target.tallies().chain(draft));
        if !shape.is_off() {
            self.read_pending(slots)?;
        }
        let trees = match drafted {
            Drafted::ByHost(trees) => {
                trees.iter().map(|tree| RoundTree { tree: Cow::Borrowed(tree), end: None }).collect()
            }
            Drafted::Here | Drafted::Joined(_) => self.draft_trees(shape, slots, drafted)?,
        };
        let has_drafted = Instant::now();
        let (pass, verified) = self.verify(&trees, slots, shape)?;
        let accepted = Instant::now();
        self.compact(&verified, slots)?;
        let yields = self.advance(&pass, verified, slots)?;
        let full = |slot: &Slot| self.slots.pending_draft_tokens(*slot) >= MAX_PENDING_DRAFT;
        if !shape.is_off() || slots.iter().any(full) {
            self.read_pending(slots)?;
        }
        let timing = RoundTiming {
            draft: Some(has_drafted - start),
            verify: Some(accepted - has_drafted),
            extend: Some(accepted.elapsed()),
            total: start.elapsed(),
            stall: None,
        };
        self.counted.end_round(self.target.tallies(), Self::draft_tallies(self.draft.as_deref()));
        Ok(RoundOutput { yields, timing })
    }

    /// Drafts the trees of all requests together, and joins each with its chain, if there are any.
    fn draft_trees(
        &mut self,
        shape: TreeShape,
        slots: &[Slot],
        drafted: Drafted<'_>,
    ) -> Result<Vec<RoundTree<'static>>, EngineError> {
        let states = self.slots.get_all(slots.iter().copied())?;
        if shape.is_off() {
            let root = |state: &&SlotState| RoundTree { tree: Cow::Owned(DraftTree::root(state.root)), end: None };
            return Ok(states.iter().map(root).collect());
        }
        let scratch = self.capacity.pages * self.capacity.page_size;
        let Some(draft) = &self.draft else {
            return Err(EngineError::Configuration(format!(
                "the tree shape {shape} needs a draft, but none is loaded"
            )));
        };
        let mut roots = Vec::with_capacity(states.len());
        for (slot, state) in slots.iter().zip(&states) {
            let followed_by = followed(*slot, state)?;
            let prefix = state.rows_before(state.length + draft.ahead())?;
            roots.push(Root { token: state.root, prefix, state: followed_by, followed: None });
        }
        let pools = draft.pools(&mut self.draft_caches, scratch, &[shape], &roots);
        let with_chain = |(at, pool): (usize, Pool)| match drafted.chain(at) {
            Some(chain) => joined(&pool, shape, chain),
            None => pool,
        };
        let mut pools: Vec<Pool> = pools.into_iter().enumerate().map(with_chain).collect();
        let played = |state: &&SlotState| self.simulated.as_ref()?.tree(shape, state.sampling.played, state.length);
        let played: Vec<Option<&PlayedTree>> = states.iter().map(played).collect();
        for (pool, played) in pools.iter_mut().zip(&played) {
            let Some(played) = played else { continue };
            let drafted: Vec<u32> = pool.kept(shape).into_iter().map(|at| pool.all()[at].token).collect();
            *pool = played.pool(&drafted);
        }
        // The budget of a batch is that of the graph that would run it on a GPU.
        let verified = verified_drafts(&pools, shape, padded(&self.capture_sizes, slots.len()));
        let drawn = |(at, state): (usize, &&SlotState)| RoundTree {
            tree: Cow::Owned(pools[at].tree_of(&verified[at], state.root)),
            end: played[at].map(|played| played.end_within(&verified[at])),
        };
        Ok(states.iter().enumerate().map(drawn).collect())
    }

    /// One pass of the target over all nodes of all trees, and acceptance.
    fn verify(
        &mut self,
        trees: &[RoundTree<'_>],
        slots: &[Slot],
        shape: TreeShape,
    ) -> Result<(PassOutput, Vec<Verified>), EngineError> {
        let mut adjusters = self.slots.take_adjusters(slots.iter().copied());
        let states = self.slots.get_all(slots.iter().copied())?;
        let mut stack = PassInput::default();
        for ((RoundTree { tree, .. }, state), slot) in trees.iter().zip(&states).zip(slots) {
            let first = stack.len();
            let ahead = state.rows_ahead(tree.nodes().len())?;
            for (at, node) in tree.nodes().iter().enumerate() {
                let path = tree.path(at).into_iter().map(|node| ahead[node]).collect();
                stack.push(node.token, state.length + node.depth, ahead[at], &state.rows[..state.length], path);
            }
            let parents = tree.nodes().iter().map(|node| node.parent).collect();
            stack.branches(slot.0 as usize, first, parents);
        }
        let capture = self.draft.as_ref().map_or(&[][..], |draft| draft.captured());
        let pass = stack.run_windowed(self.slots.windows(), |tokens, rows| {
            self.target.forward(tokens, rows, &mut self.caches, capture)
        })?;
        let logits = self.target.logits(&pass.hidden);

        let mut rows = logits.chunks_exact(self.target.vocab_size());
        let mut begin = 0;
        let mut verified = Vec::new();
        for ((RoundTree { tree, end }, state), adjuster) in trees.iter().zip(&states).zip(&mut adjusters) {
            let logits: Vec<&[f32]> = rows.by_ref().take(tree.nodes().len()).collect();
            let mut tokens = Vec::new();
            let mut not_finite = None;
            let mut choose = |node: usize| {
                let position = state.length + tree.nodes()[node].depth + 1;
                // The walk asks for tokens along one path, so the adjuster sees the tokens before
                // each.
                let token = produce(logits[node], &state.sampling, adjuster.as_mut(), position);
                let id = token.as_ref().map_or(0, |token| token.id);
                match (not_finite, token) {
                    (None, Some(token)) => tokens.push(token),
                    (None, None) => not_finite = Some(position),
                    // No token can follow a missing one.
                    (Some(_), _) => {}
                }
                id
            };
            let simulated = self.simulated.as_ref();
            let simulated =
                simulated.and_then(|one| one.count(shape, state.sampling.played, state.sampling.seed, state.length));
            let mut path = match (end, simulated) {
                (Some(end), _) => tree.path(*end).into_iter().inspect(|node| _ = choose(*node)).collect(),
                (None, Some(count)) => simulated_walk(tree, count, shape.max_tokens_per_round(), choose),
                (None, None) => walk(tree, choose),
            };
            path.truncate(tokens.len());
            let rows = path.iter().map(|node| begin + node).collect();
            verified.push(Verified { path, rows, tokens, not_finite });
            begin += tree.nodes().len();
        }
        self.slots.put_back(slots.iter().copied(), adjusters);
        Ok((pass, verified))
    }

    /// Moves the accepted rows of the target's caches to the rows of their positions, and commits
    /// them to its states.
    fn compact(&mut self, verified: &[Verified], slots: &[Slot]) -> Result<(), EngineError> {
        let states = self.slots.get_all(slots.iter().copied())?;
        for ((verified, state), slot) in verified.iter().zip(states).zip(slots) {
            let ahead = &state.rows[state.length..];
            let from: Vec<u32> = verified.path.iter().map(|node| ahead[*node]).collect();
            let to = &ahead[..from.len()];
            let windowed = self.slots.windows().map(|map| Ok::<_, EngineError>((map.rows(&from)?, map.rows(to)?)));
            let windowed = windowed.transpose()?;
            for (layer, cache) in self.caches.iter_mut().enumerate() {
                match windowed.as_ref().filter(|_| self.target.has_window(layer)) {
                    Some((from, to)) => cache.compact(from, to),
                    None => cache.compact(&from, to),
                }
                if let Some(states) = cache.states() {
                    states.commit(slot.0 as usize, &verified.rows);
                }
            }
        }
        Ok(())
    }

    /// Appends the accepted tokens to the sequences, and keeps what the draft needs to process
    /// them.
    fn advance(
        &mut self,
        pass: &PassOutput,
        verified: Vec<Verified>,
        slots: &[Slot],
    ) -> Result<Vec<Yield>, EngineError> {
        let hidden = self.target.hidden_size();
        let captured = self.draft.as_ref().map_or(0, |draft| hidden * draft.captured().len());
        let mut yields = Vec::new();
        for (verified, slot) in verified.into_iter().zip(slots) {
            let state = self.slots.get_mut(*slot)?;
            let tokens = || verified.tokens.iter().map(|token| token.id);
            state.length += verified.tokens.len();
            state.root = tokens().next_back().unwrap_or(state.root);
            if self.follows {
                let rows = || verified.rows.iter().copied();
                state.pending.tokens.extend(tokens());
                state.pending.pass.hidden.extend(select(&pass.hidden, hidden, rows()));
                state.pending.pass.captured.extend(select(&pass.captured, captured, rows()));
            } else {
                // From here on the draft cannot follow the sequence, since it skips these tokens.
                state.drafted = None;
            }
            yields.push(Yield { tokens: verified.tokens, not_finite: verified.not_finite });
        }
        Ok(yields)
    }

    /// Runs the draft over the pending tokens of some sequences, with the target's features, and
    /// keeps its state after the last token of each.
    fn read_pending(&mut self, slots: &[Slot]) -> Result<(), EngineError> {
        let Some(draft) = &self.draft else { return Ok(()) };
        let late: Vec<Slot> = slots.iter().copied().filter(|slot| self.slots.pending_draft_tokens(*slot) > 0).collect();
        if late.is_empty() {
            return Ok(());
        }
        let states = self.slots.get_all(late.iter().copied())?;
        let mut stack = PassInput::default();
        let mut all = PassOutput::default();
        let mut lasts = Vec::new();
        for (slot, state) in late.iter().zip(&states) {
            followed(*slot, state)?;
            let PendingDraft { tokens, pass } = &state.pending;
            state.rows_before(state.length + draft.ahead())?;
            stack.push_causal(tokens, state.length - tokens.len() + draft.ahead(), &state.rows);
            all.hidden.extend(&pass.hidden);
            all.captured.extend(&pass.captured);
            lasts.push(stack.len() - 1);
        }
        let drafted = draft.read(&all, &stack, &mut self.draft_caches);
        let width = draft.state_width();
        for (slot, last) in late.iter().zip(lasts) {
            let state = self.slots.get_mut(*slot)?;
            state.drafted = Some(drafted[last * width..(last + 1) * width].to_vec());
            state.pending = PendingDraft::default();
        }
        Ok(())
    }
}

/// The draft's state after a sequence. It can continue only if it has processed the whole sequence.
fn followed(slot: Slot, state: &SlotState) -> Result<&[f32], EngineError> {
    state.drafted.as_deref().ok_or_else(|| {
        EngineError::Device(format!(
            "the draft has no cache for slot {}: it was opened while no shape speculated",
            slot.0
        ))
    })
}
