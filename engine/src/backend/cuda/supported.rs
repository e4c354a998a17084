//! Which models and trees the kernels can run.

use kernels::{
    device::Element,
    launch::{HEAD_DIMS, MOST_BLOCK_ROWS, MOST_NODES, MOST_PLACES, MOST_TOPK, refused_delta},
};
use schemas::tree::{NodeSource, TreeShape};

use super::{
    machine::Machine,
    options::Models,
    weights::{experts_shape, latent_dims, weights_in},
};
use crate::{
    backend::check_budget,
    error::EngineError,
    spec::{AttentionSpec, BlockSpec, DraftSpec, FfnSpec, LayerSpec, TargetSpec},
};

/// Checks that there are kernels for all layers of the models.
pub(super) fn check_models(models: &Models<'_>, element: Element) -> Result<(), EngineError> {
    check_model(&models.target.0, element, "target")?;
    let Some((draft, _)) = &models.draft else { return Ok(()) };
    draft.layers().into_iter().try_for_each(|layer| check_layer(layer, element, "draft"))?;
    match draft {
        DraftSpec::Block(block) => check_block(block, element),
        DraftSpec::Model(model) => check_model(model, element, "draft"),
        DraftSpec::Recurrent(_) | DraftSpec::Text(_) => Ok(()),
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

/// Checks that a tree shape can run.
pub fn check_shape(machine: &Machine, shape: TreeShape) -> Result<(), EngineError> {
    if shape.is_off() {
        return Ok(());
    }
    check_budget(shape, machine.nodes(), machine.states.is_some())?;
    if machine.draft.is_none() && machine.host_nodes.is_none() {
        return Err(EngineError::Configuration(format!(
            "the tree shape {shape} needs a draft, but none is loaded; give --speculative-draft-model-path"
        )));
    }
    let TreeShape { num_steps: steps, topk, num_draft_tokens: nodes, .. } = shape;
    let most = MOST_NODES;
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
