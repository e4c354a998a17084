//! Loading, and accounting of device memory before anything is allocated.

use kernels::{
    device::{Buffer, Device, Element},
    launch::{
        DELTA_CHUNK, HEAD_DIMS, Kernels, LatentDims, MOST_BLOCK_ROWS, MOST_PLACES, MOST_TOPK, Weights, block_files,
        delta_chunk_files, delta_files, expert_files, files, fp8_cache_files, fp8_files, has_delta_chunks,
        latent_files, look_up_files, mxfp4_files, product_files, rank_files, refused_delta, sink_files, window_files,
    },
};
use schemas::tree::{NodeSource, TreeShape};

use super::{
    CudaBackend,
    device_texts::DeviceTexts,
    expansion::least_spared,
    gemm::GemmDispatch,
    limits::{ROUNDS_IN_FLIGHT, SPLITS},
    look_ups::TextStaging,
    machine::{AttentionKernels, Machine, Ranks},
    ops::MOST_VALUE_ROWS,
    prefill_staging::prefill_staging_of,
    slot_states::States,
    staging_of,
    weights::{DraftWeights, TargetWeights, WeightSource, experts_shape, latent_dims, rotation_table, weights_in},
    windows::{SPARE, WindowStaging, Windows},
    workspace::{Activations, RoundArrays, RowArrays, SlotArrays, WorkspaceShape, WorkspaceSizes},
};
use crate::{
    backend::{
        Capacity, VerifyPlan,
        expert_reads::ExpertCount,
        slot_table::SlotTable,
        state_places::{StateOptions, StatePlaces},
        windows::{PagePlan, WindowNeeds},
    },
    checkpoint::Tensors,
    error::EngineError,
    quantization::{Fp8Compute, Quantization, StoredIn, quantised_draft, quantised_target},
    spec::{
        AttentionSpec, BlockSpec, CacheFormat, DraftSpec, FfnSpec, GroupedQuery, LayerSpec, ModelCost, PassCost,
        PromptLookup, Share, StateLayout, TargetSpec, TensorSpec, VocabularySource,
    },
};

/// Options of a [`CudaBackend`].
#[derive(Clone, Debug, PartialEq)]
pub struct CudaOptions {
    /// Type of weights, activations and caches.
    pub element: Element,
    /// Maximum number of running requests.
    pub slots: usize,
    /// Tokens per page.
    pub page_size: usize,
    /// Maximum sequence length.
    pub context_length: usize,
    /// Share of the device's memory for weights and caches.
    pub mem_fraction_static: f64,
    /// Maximum number of pages, whatever the memory.
    pub max_pages: usize,
    /// Maximum number of prompt tokens per pass.
    pub prefill_chunk: usize,
    /// Tree shapes that may be requested; memory for them is reserved.
    pub shapes: Vec<TreeShape>,
    /// Whether to run without graphs.
    pub disable_cuda_graph: bool,
    /// Whether reductions use an order that depends neither on the batch nor on the number of rows.
    pub batch_invariant: bool,
    /// Attention kernels; `None` chooses by element type and mode.
    pub attention: Option<AttentionKernels>,
    /// How trees are verified; `None` for the fastest choice.
    pub verify_plan: Option<VerifyPlan>,
    /// Whether the draft's trees are joined with chains that are looked up.
    pub joins_chains: bool,
    /// The rule by which the device looks up drafts; `None` if the host does, or none are looked
    /// up.
    pub looks_up: Option<PromptLookup>,
    /// Maximum number of rows that products in FP8 multiply as values of 16 bits; `None` for the
    /// default.
    pub most_value_rows: Option<usize>,
    /// Whether ranks split the draft's layer; `None` for the faster choice.
    pub split_draft: Option<bool>,
    /// Memory for the states of sequences.
    pub states: StateOptions,
}

/// The models to load: descriptions, and sources of the tensors.
pub struct Models<'a> {
    /// The target.
    pub target: (TargetSpec, WeightSource<'a>),
    /// The draft.
    pub draft: Option<(DraftSpec, WeightSource<'a>)>,
}

/// Positions past the context that a round may write: its tree, and the tokens of a request that
/// has ended but still runs along.
fn slack(options: &CudaOptions, nodes: NodeSource) -> usize {
    let ahead = |shape: &TreeShape| (shape.num_draft_tokens + shape.longest_path()).max(nodes.passes(*shape).1);
    let widest = options.shapes.iter().map(ahead).max().unwrap_or(2);
    2 * widest.max(2)
}

/// The rule by which the device looks up drafts, if it does, and the maximum number of tokens of a
/// text.
fn looks_up(options: &CudaOptions, sizes: &WorkspaceSizes<'_>) -> Option<(PromptLookup, usize)> {
    let width = DeviceTexts::width(sizes.table_width * sizes.page_size)?;
    options.looks_up.map(|rule| (rule, width))
}

/// Loads models onto a device: whole, or the part of one rank of a group.
///
/// # Errors
/// When a size exceeds the kernels' limits, memory is insufficient, or a tensor is missing or has
/// the wrong shape.
pub fn load(
    device: Device,
    device_name: String,
    models: Models<'_>,
    options: CudaOptions,
    ranks: Option<Ranks>,
) -> Result<CudaBackend, EngineError> {
    let share = ranks.as_ref().map_or(Share::WHOLE, Ranks::share);
    let (models, host_nodes) = without_texts(models);
    let splits_layers = share.is_part() && splits_draft_layers(&models, &options, share.ranks);
    let Models { target: (target_spec, target_weights), draft } = of_rank(models, share, splits_layers)?;
    check_model(&target_spec, options.element, "target")?;
    if let Some((draft, _)) = &draft {
        draft.layers().into_iter().try_for_each(|layer| check_layer(layer, options.element, "draft"))?;
        match draft {
            DraftSpec::Block(block) => check_block(block, options.element)?,
            DraftSpec::Model(model) => check_model(model, options.element, "draft")?,
            DraftSpec::Recurrent(_) | DraftSpec::Text(_) => {}
        }
    }
    let draft_spec = draft.as_ref().map(|(spec, _)| spec);
    let nodes = draft_spec.map(DraftSpec::nodes).or(host_nodes).unwrap_or_default();
    let positions = options.context_length + slack(&options, nodes);
    let element = options.element.bytes();
    let all_layers = target_spec.layers.iter().chain(draft_spec.iter().flat_map(|draft| draft.layers()));
    let expanded_positions = expanded_positions(&device, &options, all_layers);
    let chunks_deltas = chunks_deltas(&device, &target_spec, options.element, options.batch_invariant);
    let sizes = WorkspaceSizes {
        chunked_pieces: if chunks_deltas { options.slots } else { 0 },
        target: &target_spec,
        draft: draft_spec.cloned(),
        element: options.element,
        splits: SPLITS,
        page_size: options.page_size,
        table_width: positions.div_ceil(options.page_size),
        batch_invariant: options.batch_invariant,
        expanded_positions,
        windowed: target_spec.window().is_some(),
    };
    let cost = ModelCost::new(&target_spec, draft_spec, element);
    let prefill = WorkspaceShape::of_prefill(options.prefill_chunk.min(options.context_length).max(1));
    let extent = prefill.and(WorkspaceShape::of_rounds(nodes, &options.shapes, options.slots));
    // Before anything large is allocated, so that the free memory is what this process has left.
    let mut capacity = agreed(capacity(&device, &options, &sizes, extent)?, ranks.as_ref())?;
    let texts = looks_up(&options, &sizes);
    if (host_nodes.is_some() || options.joins_chains) && texts.is_none() {
        // The host must know the tokens of a round before it drafts the next.
        capacity.rounds_in_flight = 1;
    }

    let kernels = kernels(&device, &options, ranks.as_ref())?;
    compile_in_turn(&device, &options, &sizes, ranks.as_ref())?;
    let slots = SlotArrays::new(&device, &capacity, slack(&options, nodes), &sizes)?;
    let target = TargetWeights::load(&kernels, target_weights, target_spec, share)?;
    let draft = match draft {
        Some((spec, weights)) => Some(DraftWeights::load(&kernels, weights, spec, &target, splits_layers)?),
        None => None,
    };

    // The page after the last takes the rows of padding.
    let cache_rows = (capacity.pages + 1) * capacity.page_size;
    let scratch_rows = (extent.scratch * extent.batch).max(1);
    let layer_cache = |layer: &LayerSpec, rows: usize| layer.attention.kv().bytes(element) * rows;
    let rotations = |layer: &LayerSpec| {
        let table = layer.attention.rotation().map(|rotation| rotation.table(positions)).unwrap_or_default();
        let table = layer.attention.grouped().map_or(table.clone(), |attention| rotation_table(attention, &table));
        device.upload(&table)
    };
    let empty = || device.allocate(16);
    let in_pages = |layer: &&LayerSpec| capacity.windows.is_none() || layer.attention.window().is_none();
    let draft_spec = draft.as_ref().map(DraftWeights::spec);
    let draft_layers = draft_spec.as_ref().map(DraftSpec::layers).unwrap_or_default();
    let mut machine = Machine {
        // Zeros: unwritten pages are never read, but a sanitizer cannot know that.
        target_cache: match target.spec.layers.iter().filter(in_pages).map(|layer| layer_cache(layer, cache_rows)).sum()
        {
            0 => empty()?,
            bytes => device.zeros(bytes)?,
        },
        draft_cache: match draft_layers.iter().map(|layer| layer_cache(layer, cache_rows + scratch_rows)).sum() {
            0 => empty()?,
            bytes => device.zeros(bytes)?,
        },
        target_rotations: match target.spec.layers.iter().find(|layer| layer.attention.rope().is_some()) {
            Some(layer) => rotations(layer)?,
            None => empty()?,
        },
        draft_rotations: match draft_layers.first() {
            Some(layer) => rotations(layer)?,
            None => empty()?,
        },
        cost: with_second_pass(cost, &target.spec, &options),
        positions,
        cache_rows,
        scratch_rows,
        splits: SPLITS,
        attention: attention_kernels(&options)?,
        batch_invariant: options.batch_invariant,
        chunks_deltas,
        expanded_positions,
        least_spared: least_spared(device.properties().multiprocessors),
        verify_plan: options.verify_plan,
        most_value_rows: options.most_value_rows.unwrap_or(MOST_VALUE_ROWS),
        played: None,
        gemm: GemmDispatch::new(&device, ranks.as_ref().map(|ranks| ranks.meeting.clone()))?,
        ranks,
        states: States::new(&device, &target.spec, &capacity, element)?,
        windows: Windows::new(&device, &target.spec, &capacity, slots.table_width, element)?,
        slots,
        kernels,
        capacity,
        target,
        draft,
        host_nodes,
        joins_chains: options.joins_chains,
        texts: match texts {
            Some((rule, width)) => Some(DeviceTexts::new(&device, rule, capacity.slots, width)?),
            None => None,
        },
    };
    let table_width = machine.slots.table_width;
    let work = Activations::new(&device, &self::sizes(&machine), extent)?;
    // Only now, since the sums are timed in the buffers of a pass.
    let library_from = machine.compare_with_library(&work)?;
    if let Some(ranks) = &mut machine.ranks {
        ranks.library_from = library_from;
    }
    Ok(CudaBackend {
        work,
        arrays: RowArrays::of_target(&device, extent, machine.windows.is_some())?,
        round: RoundArrays::new(&device, &self::sizes(&machine), extent)?,
        staging: staging_of(&device, extent)?,
        window_staging: WindowStaging::new(&device)?,
        text_staging: TextStaging::new(&machine)?,
        prefills: prefill_staging_of(&device, extent, capacity.slots)?,
        next_prefill: 0,
        pending_first: Default::default(),
        prefilled: Default::default(),
        sent: Vec::new(),
        slot_staging: device.host_buffer(capacity.slots * CudaBackend::staging_bytes(table_width))?,
        slots: SlotTable::new(capacity),
        graphs: Default::default(),
        capture_sizes: Vec::new(),
        capture_time: Default::default(),
        follows: false,
        simulated: None,
        times_parts: false,
        flights: Default::default(),
        launched: 0,
        counted: ExpertCount::default(),
        machine,
        device,
        device_name,
        options,
        extent,
    })
}

/// The models without look-ups in texts, and what these fill a tree with: the host does them, and
/// nothing is loaded.
fn without_texts(models: Models<'_>) -> (Models<'_>, Option<NodeSource>) {
    match models.draft {
        Some((DraftSpec::Text(rule), _)) => (Models { draft: None, ..models }, Some(rule.nodes())),
        draft => (Models { draft, ..models }, None),
    }
}

/// Longest prompt whose latent attention is expanded, in positions: 0 in batch-invariant mode,
/// which has a single summation order, and if some layer has no kernels for it.
fn expanded_positions<'l>(
    device: &Device,
    options: &CudaOptions,
    mut layers: impl Iterator<Item = &'l LayerSpec>,
) -> usize {
    let expands = |layer: &LayerSpec| match &layer.attention {
        AttentionSpec::Latent(latent) => {
            Kernels::expands_latents(options.element, &latent_dims(latent), device.properties())
        }
        AttentionSpec::Grouped(_) | AttentionSpec::Delta(_) => true,
    };
    let has_kernels = layers.all(expands);
    if has_kernels && !options.batch_invariant { options.context_length } else { 0 }
}

/// Minimum number of bytes per layer of a draft that splitting it must save each rank: reading
/// these takes as long as two sums over ranks, about 10 µs.
const LEAST_SPLIT: f64 = 64e6;

/// Whether ranks split the draft's layers, or each has them whole.
fn splits_draft_layers(models: &Models<'_>, options: &CudaOptions, ranks: usize) -> bool {
    let Some((draft, _)) = &models.draft else { return false };
    let bytes = |layer: &LayerSpec| PassCost::of_layer(layer, options.element.bytes()).bytes(1);
    let least = draft.layers().into_iter().map(bytes).fold(f64::INFINITY, f64::min);
    options.split_draft.unwrap_or(least * (1.0 - 1.0 / ranks as f64) >= LEAST_SPLIT)
}

/// The part of models that a rank loads. The tensors have been checked.
pub(super) fn of_rank(models: Models<'_>, share: Share, splits_layers: bool) -> Result<Models<'_>, EngineError> {
    if !share.is_part() {
        return Ok(models);
    }
    let Models { target: (target, weights), draft } = models;
    let refused = |whose: &str, reason: String| {
        EngineError::Configuration(format!(
            "--tp-size {}: the {whose} cannot be split: {reason} (SGLang rejects it too)",
            share.ranks
        ))
    };
    // Before the split: messages name the shapes that the checkpoint has, not those of a part.
    check_tensors(weights, target.tensors().all())?;
    let rank = target.of_rank(share.ranks).map_err(|reason| refused("target", reason))?;
    let draft = draft.map(|(spec, weights)| {
        if spec.tokens().is_some() && spec.head().0 == VocabularySource::Target {
            return Err(EngineError::Configuration(
                "--speculative-token-map selects rows of the target's head, which --tp-size splits over ranks: \
                 remove one of the two flags (SGLang fails on it, #4328)"
                    .into(),
            ));
        }
        check_tensors(weights, spec.tensors(target.vocabulary).iter().collect())?;
        Ok((spec.of_rank(share.ranks, splits_layers).map_err(|reason| refused("draft", reason))?, weights))
    });
    Ok(Models { target: (rank, weights), draft: draft.transpose()? })
}

/// Checks that tensors exist with the expected shapes, which reading a rank's part of them would
/// not detect.
pub(super) fn check_tensors(weights: WeightSource<'_>, tensors: Vec<&TensorSpec>) -> Result<(), EngineError> {
    let WeightSource::Checkpoint(weights) = weights else { return Ok(()) };
    let checkpoint = Tensors::new(weights);
    tensors.into_iter().try_for_each(|tensor| checkpoint.expect(&tensor.name, &tensor.shape))
}

/// What fits on all ranks.
fn agreed(capacity: Capacity, ranks: Option<&Ranks>) -> Result<Capacity, EngineError> {
    let Some(ranks) = ranks else { return Ok(capacity) };
    let least = |one: Capacity, other: Capacity| Capacity {
        pages: one.pages.min(other.pages),
        slots: one.slots.min(other.slots),
        windows: one.windows.min(other.windows),
        snapshots: one.snapshots.min(other.snapshots),
        ..one
    };
    Ok(ranks.meeting.exchange(capacity)?.into_iter().fold(capacity, least))
}

/// Compiles the kernels of a device; all ranks of a group use the same.
fn kernels(device: &Device, options: &CudaOptions, ranks: Option<&Ranks>) -> Result<Kernels, EngineError> {
    let own = Kernels::new(device.clone(), options.element);
    match ranks {
        Some(ranks) => Ok(ranks.meeting.agree(own)?.on(device.clone())),
        None => Ok(own),
    }
}

/// Compiles on rank 0 first; the others find the results on disk.
fn compile_in_turn(
    device: &Device,
    options: &CudaOptions,
    sizes: &WorkspaceSizes<'_>,
    ranks: Option<&Ranks>,
) -> Result<(), EngineError> {
    let Some(Ranks { meeting, .. }) = ranks else { return compile(device, options, sizes, false) };
    // One rank compiles and the others find its binaries in the cache on disk.
    if meeting.leads() {
        compile(device, options, sizes, true)?;
    }
    meeting.agree(())?;
    if !meeting.leads() {
        compile(device, options, sizes, true)?;
    }
    Ok(())
}

/// The requested kernels, or the fastest suitable ones.
fn attention_kernels(options: &CudaOptions) -> Result<AttentionKernels, EngineError> {
    let float = options.element == Element::F32;
    match options.attention {
        Some(AttentionKernels::Tiles) if options.batch_invariant || float => Err(EngineError::Configuration(
            "--attention-backend tiles sums in an order that depends on the batch, and supports float16 and bfloat16 \
             only: remove it when using --batch-invariant or --dtype float32"
                .into(),
        )),
        Some(requested) => Ok(requested),
        None if options.batch_invariant || float => Ok(AttentionKernels::Rows),
        None => Ok(AttentionKernels::Tiles),
    }
}

/// Cost per layer of a second pass of the target in addition to reading its weights, in bytes that
/// could be read in that time: small kernels and the tails of large ones, about 25 µs, and a
/// context of some hundred positions for each request.
const SECOND_PASS: u64 = 100 << 20;

/// The cost of passes, if the target may run twice in a round. In batch-invariant mode it never
/// does: if there are more inner nodes than the first pass covers, which of them count as leaves
/// depends on the batch.
fn with_second_pass(cost: ModelCost, target: &TargetSpec, options: &CudaOptions) -> ModelCost {
    // Nor over trees of a target that keeps states: a second pass would need those of nodes.
    let may = !options.batch_invariant && target.state() == StateLayout::default();
    let second_pass = may.then_some(target.layers.len() as u64 * SECOND_PASS);
    ModelCost { second_pass, ..cost }
}

/// Whether prompts run through layers with a state in chunks. In batch-invariant mode, and in
/// float32, they are a recurrence.
fn chunks_deltas(device: &Device, target: &TargetSpec, element: Element, batch_invariant: bool) -> bool {
    let mut nets = target.delta_nets();
    !batch_invariant && nets.next().is_some_and(|net| has_delta_chunks(element, &net.sizes, device.properties()))
}

/// The sizes that determine a loaded machine's workspace.
pub fn sizes(machine: &Machine) -> WorkspaceSizes<'_> {
    WorkspaceSizes {
        chunked_pieces: if machine.chunks_deltas { machine.capacity.slots } else { 0 },
        target: &machine.target.spec,
        draft: machine.draft.as_ref().map(DraftWeights::spec),
        element: machine.kernels.element(),
        splits: machine.splits,
        page_size: machine.capacity.page_size,
        table_width: machine.slots.table_width,
        batch_invariant: machine.batch_invariant,
        expanded_positions: machine.expanded_positions,
        windowed: machine.windows.is_some(),
    }
}

/// Checks that a tree shape can run.
pub fn check_shape(machine: &Machine, shape: TreeShape) -> Result<(), EngineError> {
    if shape.is_off() {
        return Ok(());
    }
    if machine.draft.is_none() && machine.host_nodes.is_none() {
        return Err(EngineError::Configuration(format!(
            "the tree shape {shape} needs a draft, but none is loaded; give --speculative-draft-model-path"
        )));
    }
    let TreeShape { num_steps: steps, topk, num_draft_tokens: nodes } = shape;
    let most = kernels::launch::MOST_NODES;
    let source = machine.nodes();
    if let NodeSource::Block(block) = source {
        source.check(shape).map_err(|error| EngineError::Configuration(error.to_string()))?;
        if nodes > most || steps + 1 > most || topk > MOST_TOPK || block.rows_of(shape) > MOST_BLOCK_ROWS {
            return Err(EngineError::Configuration(format!(
                "the tree shape {shape} is too large for the GPU: at most {most} draft tokens, {MOST_TOPK} branches, and a \
                 block of {MOST_BLOCK_ROWS} rows"
            )));
        }
        return Ok(());
    }
    if let NodeSource::Text(_) = source {
        if nodes > most || steps + 1 > most {
            return Err(EngineError::Configuration(format!(
                "the tree shape {shape} is too large for the GPU: at most {most} draft tokens"
            )));
        }
        return source.check(shape).map_err(|error| EngineError::Configuration(error.to_string()));
    }
    let places = shape.pool_size();
    if nodes > most || steps + 1 > most || topk > MOST_TOPK || places > MOST_PLACES {
        return Err(EngineError::Configuration(format!(
            "the tree shape {shape} is too large for the GPU: at most {most} draft tokens, {MOST_TOPK} branches, and \
             topk + (steps − 1)·topk² = {MOST_PLACES} proposals"
        )));
    }
    source.check(shape).map_err(|error| EngineError::Configuration(error.to_string()))
}

/// Checks that there are kernels for a block head, beyond those for its layers.
fn check_block(block: &BlockSpec, element: Element) -> Result<(), EngineError> {
    let refused =
        |what: String| Err(EngineError::Configuration(format!("the block head has {what}: use --device cpu")));
    if let Some(at) = block.odd_layer() {
        return refused(format!("a layer ({at}) that differs from the first in its width, its cache or its rotation"));
    }
    let normed = |layer: &LayerSpec| layer.attention.grouped().map(|attention| attention.head_norms);
    let first = block.layers.first().map(|layer| normed(&layer.layer));
    if block.layers.iter().any(|layer| Some(normed(&layer.layer)) != first || normed(&layer.layer).is_none()) {
        return refused("layers with different kinds of attention".into());
    }
    let unit = 8.max(16 / element.bytes());
    match block.markov.filter(|markov| !markov.rank.is_multiple_of(unit)) {
        Some(markov) => refused(format!("a Markov head of rank {}, which is not a multiple of {unit}", markov.rank)),
        None => Ok(()),
    }
}

fn check_model(model: &TargetSpec, element: Element, whose: &str) -> Result<(), EngineError> {
    if let Some(at) = model.odd_layer() {
        return Err(EngineError::Configuration(format!(
            "layer {at} of the {whose} differs from the first in its width, its cache or its rotation: use --device cpu"
        )));
    }
    let sizes = model.delta_nets().next().map(|delta| delta.sizes);
    if model.delta_nets().any(|delta| Some(delta.sizes) != sizes) {
        return Err(EngineError::Configuration(format!(
            "the {whose} has linear attention whose sizes differ from layer to layer: use --device cpu"
        )));
    }
    model.layers.iter().try_for_each(|layer| check_layer(layer, element, whose))
}

/// Checks that there are kernels for a layer.
fn check_layer(layer: &LayerSpec, element: Element, whose: &str) -> Result<(), EngineError> {
    let refused = |what: String| Err(EngineError::Configuration(format!("the {whose} has {what}: use --device cpu")));
    if let Some(reason) = refused_attention(&layer.attention) {
        return refused(reason);
    }
    let query_rank = match &layer.attention {
        AttentionSpec::Latent(latent) => latent.query_rank,
        AttentionSpec::Grouped(_) | AttentionSpec::Delta(_) => None,
    };
    let intermediate = match &layer.ffn {
        FfnSpec::Dense(dense) => dense.intermediate,
        FfnSpec::Experts(experts) => match experts_shape(experts, layer.hidden, weights_in(layer.formats.ffn)) {
            Ok(shape) => shape.intermediate,
            Err(reason) => return refused(reason),
        },
    };
    // Rows are read 16 bytes at a time; the tensor-core kernels need a multiple of eight inputs for
    // every type.
    let unit = 8.max(16 / element.bytes());
    let mut widths = [layer.hidden, intermediate].into_iter().chain(query_rank);
    match widths.find(|width| !width.is_multiple_of(unit)) {
        Some(width) => refused(format!("a layer of width {width}, which is not a multiple of {unit}")),
        None => Ok(()),
    }
}

/// The reason why no attention kernel supports these sizes, if none does.
fn refused_attention(attention: &AttentionSpec) -> Option<String> {
    let attention = match attention {
        AttentionSpec::Latent(latent) => return latent_dims(latent).refused(),
        AttentionSpec::Delta(delta) => return refused_delta(&delta.sizes),
        AttentionSpec::Grouped(grouped) => grouped,
    };
    if !HEAD_DIMS.contains(&attention.head_dim) {
        let found = attention.head_dim;
        return Some(format!("heads of {found} elements; the GPU's attention has kernels for {HEAD_DIMS:?}"));
    }
    let rotated = attention.rope.dims;
    let pairs = (attention.head_dim - rotated.min(attention.head_dim)).is_multiple_of(2);
    (!pairs).then(|| format!("heads of which {rotated} elements are rotated"))
}

/// Compiles the files that are not in the cache yet, several at once.
fn compile(
    device: &Device,
    options: &CudaOptions,
    sizes: &WorkspaceSizes<'_>,
    is_rank: bool,
) -> Result<(), EngineError> {
    let layers = || sizes.layers();
    let mut head_dims: Vec<usize> = layers().filter_map(|layer| Some(layer.attention.grouped()?.head_dim)).collect();
    head_dims.sort_unstable();
    head_dims.dedup();
    let mut latents: Vec<LatentDims> = layers()
        .filter_map(|layer| match &layer.attention {
            AttentionSpec::Latent(latent) => Some(latent_dims(latent)),
            AttentionSpec::Grouped(_) | AttentionSpec::Delta(_) => None,
        })
        .collect();
    latents.dedup();
    let results: Vec<_> = std::thread::scope(|scope| {
        let mut all = files(options.element, &head_dims, device.properties());
        if is_rank {
            all.extend(rank_files(options.element));
        }
        let has_experts = |layer: &LayerSpec| layer.ffn.experts().is_some();
        let with_experts = layers().any(has_experts);
        if matches!(sizes.draft, Some(DraftSpec::Block(_))) {
            all.extend(block_files(options.element));
        }
        if with_experts {
            all.extend(expert_files(options.element));
        }
        if let Some(delta) = sizes.target.delta_nets().next() {
            all.extend(delta_files(options.element, &delta.sizes));
            if sizes.chunked_pieces > 0 {
                all.extend(delta_chunk_files(options.element, &delta.sizes));
            }
        }
        if !latents.is_empty() {
            all.extend(latent_files(options.element, &latents, device.properties()));
        }
        let in_fp8 = |layer: &LayerSpec| {
            [layer.formats.attention, layer.formats.ffn].into_iter().any(|format| weights_in(format) == Weights::Fp8)
        };
        let in_mxfp4 = |layer: &LayerSpec| weights_in(layer.formats.ffn) == Weights::Mxfp4;
        if layers().any(in_mxfp4) {
            all.extend(mxfp4_files(options.element));
        }
        let has_sinks = |spec: &GroupedQuery| spec.sinks || spec.window.is_some();
        let mut with_sinks: Vec<usize> = layers()
            .filter_map(|layer| layer.attention.grouped().filter(|spec| has_sinks(spec)).map(|spec| spec.head_dim))
            .collect();
        with_sinks.dedup();
        if layers().any(|layer| layer.attention.kv().format == CacheFormat::Fp8) {
            all.extend(fp8_cache_files(options.element, &head_dims, &with_sinks, device.properties()));
        }
        all.extend(sink_files(options.element, &with_sinks, device.properties()));
        if sizes.windowed {
            all.extend(window_files());
        }
        if looks_up(options, sizes).is_some() {
            all.extend(look_up_files());
        }
        if layers().any(in_fp8) {
            all.extend(fp8_files(options.element, device.properties(), with_experts));
        }
        let in_products = |layer: &LayerSpec| layer.formats.attention_rows.or(layer.formats.ffn_rows).is_some();
        if layers().any(in_products) {
            all.extend(product_files(options.element, device.properties(), with_experts));
        }
        // A file is compiled on one core and takes seconds, so all are compiled at the same time.
        let threads: Vec<_> =
            all.into_iter().map(|(file, options)| scope.spawn(move || device.load(file, &options))).collect();
        threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
    });
    for result in results {
        result.map_err(|_| EngineError::Device("compiling a kernel panicked".into()))??;
    }
    Ok(())
}

/// The format in which weights fit into this many bytes, with the flag that chooses it; `None` if
/// they fit in none.
fn smaller_format(sizes: &WorkspaceSizes<'_>, budget: u64) -> Option<String> {
    let found = |flag: &str, bytes: u64| {
        (bytes <= budget).then(|| format!("{flag} would take {} MiB and fit", bytes.div_ceil(1 << 20)))
    };
    if sizes.element == Element::F32 {
        let shorter = WorkspaceSizes { element: Element::BF16, draft: sizes.draft.clone(), ..*sizes };
        return found("--dtype bfloat16", shorter.weights());
    }
    let (by, compute) = (Some(Quantization::Fp8), Fp8Compute::Weights);
    let target = quantised_target(sizes.target.clone(), StoredIn::Nowhere, by, compute).ok()?;
    let draft = sizes.draft.clone().map(|draft| quantised_draft(draft, StoredIn::Nowhere, by, compute));
    let quantised = WorkspaceSizes { target: &target, draft: draft.transpose().ok()?, ..*sizes };
    let bytes = quantised.weights();
    if bytes == sizes.weights() {
        return None;
    }
    found("--quantization fp8", bytes)
}

/// Pages for all requests at full length, or as many as the memory share allows.
fn capacity(
    device: &Device,
    options: &CudaOptions,
    sizes: &WorkspaceSizes<'_>,
    extent: WorkspaceShape,
) -> Result<Capacity, EngineError> {
    let (free, total) = device.memory()?;
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let weights = sizes.weights();
    let work = sizes.work(extent) + GemmDispatch::WORKSPACE as u64;
    let texts = looks_up(options, sizes).map_or(0, |(_, width)| DeviceTexts::bytes(options.slots, width));
    let rotations = (options.context_length as u64 + 512) * 2048;
    let tables = rotations + (options.slots as u64 + 1) * sizes.pending_slot() + texts;
    // The share refers to the whole device, as in SGLang; memory held by others counts against it.
    let share = (total as f64 * options.mem_fraction_static) as u64;
    let budget = share.saturating_sub(total - free);
    let refused = |what: String, needed: u64, available: u64, hint: &str| {
        Err(EngineError::OutOfMemory {
            what,
            needed_mib: mib(needed),
            available_mib: available >> 20,
            hint: hint.into(),
        })
    };
    if weights > budget {
        let dtype = options.element.name();
        return refused(
            format!("loading the weights as {dtype} ({} MiB of {} MiB are free)", free >> 20, total >> 20),
            weights,
            budget,
            &smaller_format(sizes, budget).unwrap_or_else(|| {
                "raise --mem-fraction-static, use a smaller model, or split it over GPUs (--tp-size)".into()
            }),
        );
    }
    if weights + work + tables > free {
        return refused(
            format!("weights ({} MiB) and the buffers of a pass ({} MiB)", mib(weights), mib(work)),
            weights + work + tables,
            free,
            "lower --max-running-requests, --chunked-prefill-size or --speculative-num-draft-tokens",
        );
    }
    let page = sizes.page();
    // The fraction covers weights and cache only, as in SGLang, but buffers must fit as well.
    let left = (budget - weights).min(free - weights - work - tables);
    let widest = options.shapes.iter().map(|shape| shape.num_draft_tokens).max().unwrap_or(1);
    let draft_ahead = sizes.draft.as_ref().map_or(0, DraftSpec::ahead);
    let wanted =
        (options.context_length + widest + draft_ahead).div_ceil(options.page_size).saturating_mul(options.slots);
    let each = sizes.target.state().bytes(options.element.bytes());
    let states = StatePlaces::within(Some(left), options.states, options.slots, each, wanted)?;
    let tokens_a_round = options.shapes.iter().map(|shape| shape.max_tokens_per_round()).max().unwrap_or(1);
    let needs = sizes.target.window().map(|window| WindowNeeds {
        window,
        page_size: options.page_size,
        slots: states.slots,
        slack: widest + draft_ahead + (ROUNDS_IN_FLIGHT - 1) * tokens_a_round,
        chunk: options.prefill_chunk,
    });
    // Cache rows are indexed with 32-bit integers.
    let most = wanted.min(options.max_pages).min(i32::MAX as usize / 2 / options.page_size);
    let tables = needs.map_or(0, |_| Windows::bytes_of_tables(most, options.slots, sizes.table_width));
    let left = left.saturating_sub(states.bytes + tables);
    let spare = if needs.is_some() { SPARE } else { 1 };
    let PagePlan { pages, windows } = PagePlan::within(Some(left), most, spare, page, needs);
    if pages == 0 {
        return refused(
            "one page of KV cache".into(),
            page.all(),
            left,
            "raise --mem-fraction-static or lower --page-size",
        );
    }
    Ok(Capacity {
        snapshots: states.snapshots,
        windows,
        slots: states.slots,
        pages,
        page_size: options.page_size,
        context_length: options.context_length,
        vocab_size: sizes.target.vocabulary,
        prefill_chunk: options.prefill_chunk,
        state_chunk: if sizes.chunked_pieces > 0 { DELTA_CHUNK } else { 1 },
        rounds_in_flight: ROUNDS_IN_FLIGHT,
        draft_ahead,
    })
}

/// Checks that larger buffers fit into free memory once the old ones are freed.
pub fn check_work(
    machine: &Machine,
    device: &Device,
    from: WorkspaceShape,
    to: WorkspaceShape,
) -> Result<(), EngineError> {
    let sizes = sizes(machine);
    // All ranks grow, or none does.
    let free = machine.least(device.memory()?.0)?;
    let scratch = (to.scratch * to.batch) as u64 * sizes.cache_row();
    // The buffers of the old size are freed before those of the new size are allocated.
    let (needed, available) = (sizes.work(to) + scratch, free + sizes.work(from));
    if needed <= available {
        return Ok(());
    }
    Err(EngineError::OutOfMemory {
        what: format!("the buffers for a pass over {} rows", to.rows),
        needed_mib: needed >> 20,
        available_mib: available >> 20,
        hint: "lower --mem-fraction-static, --max-running-requests or --speculative-num-draft-tokens".into(),
    })
}

/// Allocates more scratch rows in the draft's cache; its contents are kept.
pub fn grow_scratch(machine: &mut Machine, rows: usize) -> Result<(), EngineError> {
    let Some(draft) = &machine.draft else { return Ok(()) };
    let layers = draft.spec().layers().len();
    let kv = machine.draft_kv(draft);
    let device = machine.kernels.device();
    // Each plane has its scratch rows at its end, so all planes move.
    let old = machine.plane(kv, machine.cache_rows + machine.scratch_rows);
    let new = machine.plane(kv, machine.cache_rows + rows);
    let kept = machine.plane(kv, machine.cache_rows);
    let cache: Buffer = device.zeros(layers * kv.planes * new)?;
    for plane in 0..layers * kv.planes {
        let from = machine.draft_cache.range(plane * old..plane * old + kept);
        device.copy(cache.range(plane * new..plane * new + kept), from)?;
    }
    // The old cache is freed below, and copies from it may still run.
    device.synchronize()?;
    machine.draft_cache = cache;
    machine.scratch_rows = rows;
    Ok(())
}
