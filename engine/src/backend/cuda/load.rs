//! Loading models onto a device, stage by stage: what is supported, what fits, kernels, weights,
//! caches.

use kernels::{
    device::{Buffer, Device, Element},
    launch::{Kernels, has_delta_chunks},
};
use schemas::tree::NodeSource;

use super::{
    CudaBackend,
    compile::{compile_in_turn, kernels},
    device_texts::DeviceTexts,
    expansion::least_spared,
    gemm::GemmDispatch,
    limits::SPLITS,
    look_ups::TextStaging,
    machine::{AttentionKernels, Machine, Ranks},
    memory::{self, agreed, capacity, looks_up, slack},
    options::{CudaOptions, Models},
    prefill_staging::prefill_staging_of,
    slot_states::States,
    staging_of,
    supported::check_models,
    weights::{DraftWeights, TargetWeights, WeightSource, latent_dims, rotation_table},
    windows::{WindowStaging, Windows},
    workspace::{Activations, RoundArrays, RowArrays, SlotArrays, WorkspaceShape, WorkspaceSizes},
};
use crate::{
    backend::{Capacity, expert_reads::ExpertCount, slot_table::SlotTable},
    checkpoint::Tensors,
    error::EngineError,
    spec::{
        AttentionSpec, DraftSpec, LayerSpec, ModelCost, PassCost, PromptLookup, Share, StateLayout, TargetSpec,
        TensorSpec, VocabularySource,
    },
};

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
    let models = of_rank(models, share, splits_layers)?;
    check_models(&models, options.element)?;
    let nodes = models.draft.as_ref().map(|(spec, _)| spec.nodes()).or(host_nodes).unwrap_or_default();
    let sizes = sizes_of_models(&device, &models, &options, nodes);
    let plan = Plan::new(&device, &options, &sizes, (nodes, host_nodes), ranks.as_ref())?;
    let kernels = kernels(&device, &options, ranks.as_ref())?;
    compile_in_turn(&device, &options, &sizes, ranks.as_ref())?;
    let slots = SlotArrays::new(&device, &plan.capacity, slack(&options, nodes), &sizes)?;

    let extent = plan.extent;
    let weights = load_weights(&kernels, models, share, splits_layers)?;
    let mut machine = machine(&options, plan, kernels, slots, weights, ranks)?;
    let work = Activations::new(&device, &memory::sizes(&machine), extent)?;
    // Only now, since the sums are timed in the buffers of a pass.
    let library_from = machine.compare_with_library(&work)?;
    if let Some(ranks) = &mut machine.ranks {
        ranks.library_from = library_from;
    }
    backend(device, device_name, options, machine, work, extent)
}

/// The models without look-ups in texts, and what these fill a tree with: the host does them, and
/// nothing is loaded.
fn without_texts(models: Models<'_>) -> (Models<'_>, Option<NodeSource>) {
    match models.draft {
        Some((DraftSpec::Text(rule), _)) => (Models { draft: None, ..models }, Some(rule.nodes())),
        draft => (Models { draft, ..models }, None),
    }
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

/// The sizes that determine the workspace of models that are about to be loaded.
fn sizes_of_models<'m>(
    device: &Device,
    models: &'m Models<'_>,
    options: &CudaOptions,
    nodes: NodeSource,
) -> WorkspaceSizes<'m> {
    let (target, draft) = (&models.target.0, models.draft.as_ref().map(|(spec, _)| spec));
    let all_layers = target.layers.iter().chain(draft.iter().flat_map(|draft| draft.layers()));
    let chunks_deltas = chunks_deltas(device, target, options.element, options.batch_invariant);
    WorkspaceSizes {
        chunked_pieces: if chunks_deltas { options.slots } else { 0 },
        target,
        draft: draft.cloned(),
        element: options.element,
        splits: SPLITS,
        page_size: options.page_size,
        table_width: (options.context_length + slack(options, nodes)).div_ceil(options.page_size),
        batch_invariant: options.batch_invariant,
        expanded_positions: expanded_positions(device, options, all_layers),
        windowed: target.window().is_some(),
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

/// Whether prompts run through layers with a state in chunks. In batch-invariant mode, and in
/// float32, they are a recurrence.
fn chunks_deltas(device: &Device, target: &TargetSpec, element: Element, batch_invariant: bool) -> bool {
    let mut nets = target.delta_nets();
    !batch_invariant && nets.next().is_some_and(|net| has_delta_chunks(element, &net.sizes, device.properties()))
}

/// What is decided before anything large is allocated.
struct Plan {
    /// What fills a tree, if the host does.
    host_nodes: Option<NodeSource>,
    /// Positions of a slot: the context, and what rounds may write after it.
    positions: usize,
    cost: ModelCost,
    /// Rows of the widest passes.
    extent: WorkspaceShape,
    capacity: Capacity,
    /// The rule by which the device looks up drafts, and the maximum number of tokens of a text.
    texts: Option<(PromptLookup, usize)>,
    expanded_positions: usize,
    chunks_deltas: bool,
}

impl Plan {
    fn new(
        device: &Device,
        options: &CudaOptions,
        sizes: &WorkspaceSizes<'_>,
        (nodes, host_nodes): (NodeSource, Option<NodeSource>),
        ranks: Option<&Ranks>,
    ) -> Result<Self, EngineError> {
        let cost = ModelCost::new(sizes.target, sizes.draft.as_ref(), options.element.bytes());
        let prefill = WorkspaceShape::of_prefill(options.prefill_chunk.min(options.context_length).max(1));
        let extent = prefill.and(WorkspaceShape::of_rounds(nodes, &options.shapes, options.slots));
        // Before anything large is allocated, so that the free memory is what this process has
        // left.
        let capacity = agreed(capacity(device, options, sizes, extent)?, ranks)?;
        let texts = looks_up(options, sizes);
        Ok(Self {
            host_nodes,
            positions: options.context_length + slack(options, nodes),
            cost: with_second_pass(cost, sizes.target, options),
            extent,
            capacity,
            texts,
            expanded_positions: sizes.expanded_positions,
            chunks_deltas: sizes.chunked_pieces > 0,
        })
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

/// The weights of the models on the device.
fn load_weights(
    kernels: &Kernels,
    models: Models<'_>,
    share: Share,
    splits_layers: bool,
) -> Result<(TargetWeights, Option<DraftWeights>), EngineError> {
    let (spec, source) = models.target;
    let target = TargetWeights::load(kernels, source, spec, share)?;
    let draft = models
        .draft
        .map(|(spec, source)| DraftWeights::load(kernels, source, spec, &target, splits_layers))
        .transpose()?;
    Ok((target, draft))
}

/// Memory of keys and values, and tables of rotations.
struct Caches {
    target: Buffer,
    draft: Buffer,
    target_rotations: Buffer,
    draft_rotations: Buffer,
    /// Rows of a plane of a cache that pages have.
    rows: usize,
    /// Rows after them in the draft's planes, for nodes that are not accepted yet.
    scratch_rows: usize,
}

impl Caches {
    fn new(
        device: &Device,
        plan: &Plan,
        target: &TargetWeights,
        draft: Option<&DraftWeights>,
        element: usize,
    ) -> Result<Self, EngineError> {
        // The page after the last takes the rows of padding.
        let rows = (plan.capacity.pages + 1) * plan.capacity.page_size;
        let scratch_rows = (plan.extent.scratch * plan.extent.batch).max(1);
        let layer_cache = |layer: &LayerSpec, rows: usize| layer.attention.kv().bytes(element) * rows;
        // Zeros: unwritten pages are never read, but a sanitizer cannot know that.
        let cache = |bytes: usize| if bytes == 0 { device.allocate(EMPTY) } else { device.zeros(bytes) };
        let rotations = |layer: Option<&LayerSpec>| {
            let Some(layer) = layer else { return device.allocate(EMPTY) };
            let table = layer.attention.rotation().map(|rotation| rotation.table(plan.positions)).unwrap_or_default();
            let table = layer.attention.grouped().map_or(table.clone(), |attention| rotation_table(attention, &table));
            device.upload(&table)
        };
        let in_pages = |layer: &&LayerSpec| plan.capacity.windows.is_none() || layer.attention.window().is_none();
        let draft_spec = draft.map(DraftWeights::spec);
        let draft_layers = draft_spec.as_ref().map(DraftSpec::layers).unwrap_or_default();
        let layers = &target.spec.layers;
        Ok(Self {
            target: cache(layers.iter().filter(in_pages).map(|layer| layer_cache(layer, rows)).sum())?,
            draft: cache(draft_layers.iter().map(|layer| layer_cache(layer, rows + scratch_rows)).sum())?,
            target_rotations: rotations(layers.iter().find(|layer| layer.attention.rope().is_some()))?,
            draft_rotations: rotations(draft_layers.first().copied())?,
            rows,
            scratch_rows,
        })
    }
}

/// Bytes of a buffer that nothing is read from: a kernel gets its address all the same.
const EMPTY: usize = 16;

/// The machine that runs passes: weights, caches and all that does not depend on a pass.
fn machine(
    options: &CudaOptions,
    plan: Plan,
    kernels: Kernels,
    slots: SlotArrays,
    (target, draft): (TargetWeights, Option<DraftWeights>),
    ranks: Option<Ranks>,
) -> Result<Machine, EngineError> {
    let device = kernels.device().clone();
    let element = options.element.bytes();
    let caches = Caches::new(&device, &plan, &target, draft.as_ref(), element)?;
    let Plan { host_nodes, positions, cost, capacity, texts, expanded_positions, chunks_deltas, .. } = plan;
    Ok(Machine {
        target_cache: caches.target,
        draft_cache: caches.draft,
        target_rotations: caches.target_rotations,
        draft_rotations: caches.draft_rotations,
        cost,
        positions,
        cache_rows: caches.rows,
        scratch_rows: caches.scratch_rows,
        splits: SPLITS,
        attention: attention_kernels(options)?,
        batch_invariant: options.batch_invariant,
        chunks_deltas,
        expanded_positions,
        least_spared: least_spared(device.properties().multiprocessors),
        verify_plan: options.verify_plan,
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
    })
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

/// The backend of a machine, before its first pass.
fn backend(
    device: Device,
    device_name: String,
    options: CudaOptions,
    machine: Machine,
    work: Activations,
    extent: WorkspaceShape,
) -> Result<CudaBackend, EngineError> {
    let (capacity, table_width) = (machine.capacity, machine.slots.table_width);
    Ok(CudaBackend {
        work,
        arrays: RowArrays::of_target(&device, extent, machine.windows.is_some())?,
        round: RoundArrays::new(&device, &memory::sizes(&machine), extent)?,
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
