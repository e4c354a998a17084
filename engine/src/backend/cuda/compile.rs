//! Compiling the kernels that models need.

use kernels::{
    device::Device,
    launch::{
        Kernels, LatentDims, WeightType, block_files, delta_chunk_files, delta_files, expert_files, files,
        fp8_cache_files, fp8_files, latent_files, look_up_files, mxfp4_files, product_files, rank_files, sink_files,
        window_files,
    },
};

use super::{
    machine::Ranks,
    memory::looks_up,
    options::CudaOptions,
    weights::{latent_dims, weights_in},
    workspace::WorkspaceSizes,
};
use crate::{
    error::EngineError,
    spec::{AttentionSpec, CacheFormat, DraftSpec, GroupedQuery, LayerSpec},
};

/// Compiles the kernels of a device; all ranks of a group use the same.
pub(super) fn kernels(device: &Device, options: &CudaOptions, ranks: Option<&Ranks>) -> Result<Kernels, EngineError> {
    let own = Kernels::new(device.clone(), options.element);
    match ranks {
        Some(ranks) => Ok(ranks.meeting.agree(own)?.on(device.clone())),
        None => Ok(own),
    }
}

/// Compiles on rank 0 first; the others find the results on disk.
pub(super) fn compile_in_turn(
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
            [layer.formats.attention, layer.formats.ffn].into_iter().any(|format| weights_in(format) == WeightType::Fp8)
        };
        let in_mxfp4 = |layer: &LayerSpec| weights_in(layer.formats.ffn) == WeightType::Mxfp4;
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
