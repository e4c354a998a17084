//! Loading, and the account of the device's memory before anything is taken from it.

use kernels::{
    device::{Buffer, Device, Element},
    launch::{HEAD_DIMS, Kernels, MOST_PLACES, MOST_TOPK, files},
};
use schemas::tree::TreeShape;

use super::{
    CudaBackend,
    layout::{Activations, Extent, MOST_CHOICES, RoundArrays, RowArrays, Sizes, SlotArrays},
    passes::{AttentionKernels, Machine},
    products::Products,
    ring,
    weights::{HeadWeights, TargetWeights, WeightSource},
};
use crate::{
    backend::{Asking, Capacity},
    error::EngineError,
    model::{HeadFacts, LayerFacts, TargetFacts},
};

/// How a [`CudaBackend`] is set up.
#[derive(Clone, Debug, PartialEq)]
pub struct CudaOptions {
    /// Type of weights, activations and caches.
    pub element: Element,
    /// Requests that run together.
    pub slots: usize,
    /// Tokens a page.
    pub page_size: usize,
    /// Longest sequence.
    pub context_length: usize,
    /// Share of the device's memory for weights and caches.
    pub mem_fraction_static: f64,
    /// Most prompt tokens of a pass.
    pub prefill_chunk: usize,
    /// The shapes that will be asked for: memory for them is taken into account.
    pub shapes: Vec<TreeShape>,
    /// Run without graphs.
    pub disable_cuda_graph: bool,
    /// Reductions in an order that depends neither on the batch nor on the number of rows.
    pub batch_invariant: bool,
    /// Which kernels attend; `None` for those that suit element type and mode.
    pub attention: Option<AttentionKernels>,
    /// Where the target is asked for tokens; `None` for where that takes the least.
    pub asking: Option<Asking>,
    /// Accept this many tokens a round on average, whatever the target says.
    pub simulate_accept_length: Option<f32>,
}

/// What is loaded: facts, and where the tensors come from.
pub struct Models<'a> {
    /// The target.
    pub target: (TargetFacts, WeightSource<'a>),
    /// The draft.
    pub head: Option<(HeadFacts, WeightSource<'a>)>,
}

/// Positions behind the context that a round may touch: its tree, and what a request gets that runs along after its end.
fn slack(options: &CudaOptions) -> usize {
    let widest = options.shapes.iter().map(|shape| shape.num_draft_tokens + shape.num_steps + 1).max().unwrap_or(2);
    2 * widest.max(2)
}

/// Loads models onto a device.
///
/// # Errors
/// When a size is beyond the kernels' limits, memory does not suffice, or a tensor is missing or misshapen.
pub fn load(
    device: Device,
    device_name: String,
    models: Models<'_>,
    options: CudaOptions,
) -> Result<CudaBackend, EngineError> {
    let (target_facts, target_weights) = models.target;
    let head = models.head;
    check_layer(&target_facts.layer, options.element, "target")?;
    if let Some((head, _)) = &head {
        check_layer(&head.layer, options.element, "draft")?;
    }
    let head_facts = head.as_ref().map(|(facts, _)| facts);
    let sizes = Sizes { target: &target_facts, head: head_facts, element: options.element.bytes(), splits: SPLITS };
    let prefill = Extent::of_prefill(options.prefill_chunk.min(options.context_length).max(1));
    let extent = prefill.and(Extent::of_rounds(&options.shapes, options.slots));
    let capacity = capacity(&device, &options, &sizes, extent)?;

    let kernels = Kernels::new(device.clone(), options.element);
    compile(&device, &options, &sizes)?;
    let slots = SlotArrays::new(&device, &capacity, slack(&options), &sizes)?;
    let target = TargetWeights::load(&kernels, target_weights, target_facts)?;
    let head = match head {
        Some((facts, weights)) => Some(HeadWeights::load(&kernels, weights, facts, &target)?),
        None => None,
    };

    let cache_rows = (capacity.pages + 1) * capacity.page_size;
    let scratch_rows = (extent.scratch * extent.batch).max(1);
    let positions = options.context_length + slack(&options);
    let plane = |facts: &LayerFacts, rows: usize| {
        2 * rows * facts.attention.key_value_heads * facts.attention.head_dim * options.element.bytes()
    };
    let turns = |facts: &LayerFacts| device.upload(&facts.rope.table(positions));
    let empty = || device.allocate(16);
    let machine = Machine {
        // Zeros: pages that nobody has written are read by nobody, but a sanitizer cannot know.
        target_cache: device.zeros(target.facts.layers * plane(&target.facts.layer, cache_rows))?,
        head_cache: match &head {
            Some(head) => device.zeros(plane(&head.facts.layer, cache_rows + scratch_rows))?,
            None => empty()?,
        },
        target_turns: turns(&target.facts.layer)?,
        head_turns: match &head {
            Some(head) => turns(&head.facts.layer)?,
            None => empty()?,
        },
        positions,
        cache_rows,
        scratch_rows,
        splits: SPLITS,
        attention: attention_kernels(&options)?,
        batch_invariant: options.batch_invariant,
        asking: options.asking,
        products: Products::new(&device)?,
        slots,
        kernels,
        capacity,
        target,
        head,
    };
    let table_width = machine.slots.table_width;
    Ok(CudaBackend {
        work: Activations::new(&device, &self::sizes(&machine), extent)?,
        arrays: RowArrays::new(&device, extent)?,
        round: RoundArrays::new(&device, extent)?,
        ring: ring(&device, extent)?,
        sent: Vec::new(),
        slot_staging: device.host_buffer(capacity.slots * CudaBackend::staging_bytes(table_width))?,
        slots: (0..capacity.slots).map(|_| None).collect(),
        graphs: Default::default(),
        capture_sizes: Vec::new(),
        capture_time: Default::default(),
        follows: false,
        times_parts: false,
        flights: Default::default(),
        launched: 0,
        machine,
        device,
        device_name,
        options,
        extent,
    })
}

/// The kernels that are asked for, or that are fastest where any will do.
fn attention_kernels(options: &CudaOptions) -> Result<AttentionKernels, EngineError> {
    let float = options.element == Element::F32;
    match options.attention {
        Some(AttentionKernels::Tiles) if options.batch_invariant || float => Err(EngineError::Configuration(
            "--attention-backend tiles sums in an order that depends on the batch and knows float16 and bfloat16 only: \
             leave it out with --batch-invariant and --dtype float32"
                .into(),
        )),
        Some(asked) => Ok(asked),
        None if options.batch_invariant || float => Ok(AttentionKernels::Rows),
        None => Ok(AttentionKernels::Tiles),
    }
}

/// Parts into which attention splits a long list of keys. A constant: the bits of a result depend on it.
const SPLITS: usize = 16;

/// The sizes of a loaded machine.
pub fn sizes(machine: &Machine) -> Sizes<'_> {
    Sizes {
        target: &machine.target.facts,
        head: machine.head.as_ref().map(|head| &head.facts),
        element: machine.kernels.element().bytes(),
        splits: machine.splits,
    }
}

/// Whether a tree can run.
pub fn check_shape(machine: &Machine, shape: TreeShape) -> Result<(), EngineError> {
    if shape.is_off() {
        return Ok(());
    }
    if machine.head.is_none() {
        return Err(EngineError::Configuration(format!(
            "the tree shape {shape} needs a draft, and none is loaded; give --speculative-draft-model-path"
        )));
    }
    let TreeShape { num_steps: steps, topk, num_draft_tokens: nodes } = shape;
    let places = topk + (steps - 1) * topk * topk;
    let most = kernels::launch::MOST_NODES;
    if nodes > most || steps + 1 > most || topk > MOST_TOPK || places > MOST_PLACES {
        return Err(EngineError::Configuration(format!(
            "the tree shape {shape} is too large for the GPU: at most {most} draft tokens, {MOST_TOPK} branches, and \
             topk + (steps − 1)·topk² = {MOST_PLACES} proposals"
        )));
    }
    Ok(())
}

fn check_layer(facts: &LayerFacts, element: Element, whose: &str) -> Result<(), EngineError> {
    let LayerFacts { hidden, intermediate, attention, .. } = facts;
    if !HEAD_DIMS.contains(&attention.head_dim) {
        let found = attention.head_dim;
        return Err(EngineError::Configuration(format!(
            "the {whose} has heads of {found} elements; the GPU's attention has kernels for {HEAD_DIMS:?}: use --device cpu"
        )));
    }
    // Rows are read 16 bytes at a time; the tensor cores' kernels want eight inputs whatever the type.
    let unit = 8.max(16 / element.bytes());
    match [*hidden, *intermediate].into_iter().find(|width| !width.is_multiple_of(unit)) {
        Some(width) => Err(EngineError::Configuration(format!(
            "the {whose} has a layer of width {width}, which is no multiple of {unit}: use --device cpu"
        ))),
        None => Ok(()),
    }
}

/// Compiles what is not in the cache yet, several files at once.
fn compile(device: &Device, options: &CudaOptions, sizes: &Sizes<'_>) -> Result<(), EngineError> {
    let mut head_dims = vec![sizes.target.layer.attention.head_dim];
    head_dims.extend(sizes.head.map(|head| head.layer.attention.head_dim));
    head_dims.dedup();
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = files(options.element, &head_dims, device.properties())
            .into_iter()
            .map(|(file, options)| scope.spawn(move || device.load(file, &options)))
            .collect();
        threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
    });
    for result in results {
        result.map_err(|_| EngineError::Device("compiling a kernel panicked".into()))??;
    }
    Ok(())
}

/// Pages for all requests at full length, or what the memory share allows.
fn capacity(
    device: &Device,
    options: &CudaOptions,
    sizes: &Sizes<'_>,
    extent: Extent,
) -> Result<Capacity, EngineError> {
    let (free, total) = device.memory()?;
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let weights = sizes.weights();
    let work = sizes.work(extent) + Products::WORKSPACE as u64;
    let tables = (options.context_length as u64 + 512) * 2048 + (options.slots as u64 + 1) * sizes.unread_slot();
    // The share is of the whole device, as in SGLang; what others hold of it counts against it.
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
            "raise --mem-fraction-static, use a smaller dtype or a smaller model",
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
    let page = sizes.cache_row() * options.page_size as u64;
    let left = (budget - weights).min(free - weights - work - tables);
    let widest = options.shapes.iter().map(|shape| shape.num_draft_tokens).max().unwrap_or(1);
    let wanted = (options.context_length + widest).div_ceil(options.page_size).saturating_mul(options.slots);
    let affordable = usize::try_from(left / page.max(1)).unwrap_or(usize::MAX).saturating_sub(1);
    // Cache rows are numbered in 32 bits.
    let pages = wanted.min(affordable).min(i32::MAX as usize / 2 / options.page_size);
    if pages == 0 {
        return refused("one page of KV cache".into(), page, left, "raise --mem-fraction-static or lower --page-size");
    }
    Ok(Capacity {
        slots: options.slots,
        pages,
        page_size: options.page_size,
        context_length: options.context_length,
        vocab_size: sizes.target.vocabulary,
        prefill_chunk: options.prefill_chunk,
        rounds_in_flight: super::ROUNDS_IN_FLIGHT,
    })
}

/// Whether larger buffers fit into what is free once the old ones are given back.
pub fn check_work(machine: &Machine, device: &Device, from: Extent, to: Extent) -> Result<(), EngineError> {
    let sizes = sizes(machine);
    let (free, _) = device.memory()?;
    let scratch = (to.scratch * to.batch) as u64 * sizes.cache_row();
    let (needed, available) = (sizes.work(to) + scratch, free + sizes.work(from));
    if needed <= available {
        return Ok(());
    }
    Err(EngineError::OutOfMemory {
        what: format!("the buffers of a pass over {} rows", to.rows),
        needed_mib: needed >> 20,
        available_mib: available >> 20,
        hint: "lower --mem-fraction-static, --max-running-requests or --speculative-num-draft-tokens".into(),
    })
}

/// Gives the draft's cache more scratch rows; what it holds stays.
pub fn grow_scratch(machine: &mut Machine, rows: usize) -> Result<(), EngineError> {
    let Some(head) = &machine.head else { return Ok(()) };
    let attention = head.facts.layer.attention;
    let row = attention.key_value_heads * attention.head_dim * machine.kernels.element().bytes();
    let device = machine.kernels.device();
    let (old, new) = ((machine.cache_rows + machine.scratch_rows) * row, (machine.cache_rows + rows) * row);
    let cache: Buffer = device.zeros(2 * new)?;
    for plane in 0..2 {
        let kept = machine.cache_rows * row;
        let from = machine.head_cache.range(plane * old..plane * old + kept);
        device.copy(cache.range(plane * new..plane * new + kept), from)?;
    }
    device.synchronize()?;
    machine.head_cache = cache;
    machine.scratch_rows = rows;
    Ok(())
}

const _: () = assert!(MOST_CHOICES <= kernels::launch::MOST_SELECTED);
