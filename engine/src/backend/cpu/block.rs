//! A block head built from its [`BlockSpec`]: DFLASH and DSPARK.
//!
//! Of the sequence it keeps keys and values that follow from the target's features alone. A block
//! is one pass over the last token and mask tokens, whose rows attend to the kept ones and to each
//! other; nothing of it is kept.

mod markov;

use std::{collections::HashMap, sync::Arc};

use kernels::reference::{Matrix, Visible, linear, rms_norm};
use schemas::tree::{NodeSource, TreeShape};

use self::markov::Markov;
use super::{
    attention::{Cache, RowPlacement},
    beams::ranked,
    draft::{CpuDraft, Root},
    layer::{CpuLayer, embed},
    linear::CpuLinear,
    passes::{PassInput, select},
    target::{PassOutput, Target},
};
use crate::{
    backend::{
        Pool, RequiredTree,
        confidence::{ConfidenceHead, before_drafts},
        expert_reads::ExpertTally,
    },
    checkpoint::{Tensors, Weights},
    error::EngineError,
    spec::{BlockLayer, BlockSpec, ConfidenceSpec, DraftSpec},
    tree::Levels,
};

/// A loaded block head.
#[derive(Debug)]
pub struct BlockDraft {
    embedding: Arc<Matrix>,
    head: Arc<Matrix>,
    /// The input vector of a position to be drafted, if it is not a row of the embedding.
    mask: Option<Vec<f32>>,
    /// Projects captured features to the head's width.
    reduce: CpuLinear,
    /// Norm of the projected features.
    context_norm: Vec<f32>,
    layers: Vec<CpuLayer>,
    norm: Vec<f32>,
    markov: Option<Markov>,
    confidence: Option<ConfidenceHead>,
    spec: BlockSpec,
}

/// The best tokens of a row with their log-probabilities, best first.
type Ranking = Vec<(u32, f32)>;

/// The output of a block pass for several roots.
struct BlockOutput {
    /// Hidden rows that propose, `[roots · depth, hidden]`.
    hidden: Vec<f32>,
    /// Their logits, `[roots · depth, vocabulary]`.
    logits: Vec<f32>,
    /// Rows of each root.
    depth: usize,
}

impl BlockDraft {
    /// Loads a head that has this spec.
    ///
    /// # Errors
    /// When a tensor is missing or has the wrong shape.
    pub fn load(weights: &Weights, spec: BlockSpec, target: &Target) -> Result<Self, EngineError> {
        let (from, tensors) = (Tensors::new(weights), spec.tensors(target.vocab_size()));
        let shared = |own: Option<&_>, of_target: &Arc<Matrix>| match own {
            Some(own) => from.matrix(own).map(Arc::new),
            None => Ok(of_target.clone()),
        };
        let layer = |(tensors, spec): (&_, &BlockLayer)| CpuLayer::load(from, tensors, &spec.layer);
        let mut layers =
            tensors.layers.iter().zip(&spec.layers).map(layer).collect::<Result<Vec<CpuLayer>, EngineError>>()?;
        layers.iter_mut().for_each(|layer| layer.scale_values(spec.value_scale));
        Ok(Self {
            embedding: shared(tensors.embedding.as_ref(), &target.embedding)?,
            head: shared(tensors.head.as_ref(), &target.head)?,
            mask: from.optional_vector(tensors.mask.as_ref())?,
            reduce: CpuLinear::load(from, &tensors.reduce)?,
            context_norm: from.vector(&tensors.context_norm)?,
            layers,
            norm: from.vector(&tensors.norm)?,
            markov: match (&tensors.markov, spec.markov) {
                (Some(tensors), Some(markov)) => Some(Markov::load(from, tensors, markov)?),
                _ => None,
            },
            confidence: match (&tensors.confidence, spec.confidence) {
                (Some(tensors), Some(ConfidenceSpec { with_markov })) => Some(ConfidenceHead {
                    weight: from.matrix(&tensors.weight)?,
                    bias: from.optional_vector(tensors.bias.as_ref())?,
                    with_markov,
                }),
                _ => None,
            },
            spec,
        })
    }

    /// Runs a block of `rows` rows after each root, and returns its first `depth` proposing rows.
    fn run(&self, caches: &mut [Cache], scratch: usize, roots: &[Root<'_>], rows: usize, depth: usize) -> BlockOutput {
        let write: Vec<u32> = (scratch..scratch + rows * roots.len()).map(|row| row as u32).collect();
        let positions: Vec<usize> =
            roots.iter().flat_map(|root| (0..rows).map(move |row| root.prefix.len() + row)).collect();
        let mask = self.spec.mask;
        let tokens: Vec<u32> =
            roots.iter().flat_map(|root| (0..rows).map(move |row| if row == 0 { root.token } else { mask })).collect();
        let mut x = embed(&self.embedding, &tokens);
        if let Some(vector) = &self.mask {
            let each = x.chunks_exact_mut(vector.len()).enumerate();
            each.filter(|(row, _)| row % rows != 0).for_each(|(_, row)| row.copy_from_slice(vector));
        }
        for ((layer, spec), cache) in self.layers.iter().zip(&self.spec.layers).zip(caches) {
            cache.grow(scratch + write.len());
            let visible: Vec<Visible<'_>> = (roots.iter().zip(write.chunks_exact(rows.max(1))))
                .flat_map(|(root, block)| (0..rows).map(|row| view(spec, root.prefix, block, row)))
                .collect();
            layer.forward(
                &mut x,
                RowPlacement {
                    positions: &positions,
                    write: &write,
                    visible: &visible,
                    sequences: &[],
                    windowed: None,
                },
                cache,
            );
        }
        let first = usize::from(!self.spec.block.anchored);
        let proposing = (0..roots.len()).flat_map(|root| (0..depth).map(move |row| root * rows + first + row));
        let hidden = rms_norm(&select(&x, self.spec.hidden(), proposing), &self.norm, self.spec.epsilon());
        BlockOutput { logits: linear(&hidden, &self.head, None), hidden, depth }
    }

    /// The best tokens after some nodes of a depth, each of which is a root's index, a token and a
    /// state of the Markov head; and the states after them.
    fn after(
        &self,
        drafted: &BlockOutput,
        depth: usize,
        topk: usize,
        nodes: &[(usize, u32, Vec<f32>)],
    ) -> (Vec<Ranking>, Vec<Vec<f32>>) {
        let width = self.head.outputs();
        let token = |index: usize| self.spec.tokens.as_ref().map_or(index as u32, |tokens| tokens[index]);
        let rows = || nodes.iter().map(|(root, ..)| root * drafted.depth + depth);
        let Some(markov) = &self.markov else {
            // Nodes of a root have the same children.
            let mut known: HashMap<usize, Ranking> = HashMap::new();
            let best = rows().map(|row| {
                let logits = &drafted.logits[row * width..(row + 1) * width];
                known.entry(row).or_insert_with(|| ranked(logits, topk, token)).clone()
            });
            return (best.collect(), vec![Vec::new(); nodes.len()]);
        };
        let mut logits = select(&drafted.logits, width, rows());
        let hidden = select(&drafted.hidden, self.spec.hidden(), rows());
        let tokens: Vec<u32> = nodes.iter().map(|(_, token, _)| *token).collect();
        let states: Vec<f32> = nodes.iter().flat_map(|(.., state)| state).copied().collect();
        let states = markov.correct(&mut logits, &hidden, &tokens, &states);
        let best = logits.chunks_exact(width).map(|logits| ranked(logits, topk, token)).collect();
        let each = states.len() / nodes.len().max(1);
        (best, (0..nodes.len()).map(|node| states[node * each..(node + 1) * each].to_vec()).collect())
    }
}

impl BlockDraft {
    /// The confidence head's log-odds for the best chain of the root with this index.
    fn confidences(
        &self,
        head: &ConfidenceHead,
        drafted: &BlockOutput,
        at: usize,
        root: &Root<'_>,
        pool: &Pool,
    ) -> Vec<f32> {
        let before = before_drafts(pool, root.token);
        let embedded = self.markov.as_ref().map(|markov| markov.rows(&before)).unwrap_or_default();
        let (width, rank) = (self.spec.hidden(), embedded.len() / before.len().max(1));
        let row = |depth: usize| {
            let hidden = (at * drafted.depth + depth) * width;
            (&drafted.hidden[hidden..hidden + width], &embedded[depth * rank..(depth + 1) * rank])
        };
        head.log_odds((0..before.len()).map(row))
    }
}

/// The cache rows that a row of a block attends to in a layer.
fn view<'a>(layer: &BlockLayer, prefix: &'a [u32], block: &'a [u32], row: usize) -> Visible<'a> {
    let last = if layer.causal { row + 1 } else { block.len() };
    let (mut before, mut first) = (0, 0);
    if let Some(window) = layer.window {
        before = (prefix.len() + row + 1).saturating_sub(window).min(prefix.len());
        first = (row + 1).saturating_sub(window);
    }
    Visible { prefix: &prefix[before..], own: &block[first..last] }
}

impl CpuDraft for BlockDraft {
    fn spec(&self) -> DraftSpec {
        DraftSpec::Block(self.spec.clone())
    }

    fn nodes(&self) -> NodeSource {
        NodeSource::Block(self.spec.block)
    }

    fn captured(&self) -> &[usize] {
        &self.spec.features.at
    }

    fn caches(&self, rows: usize) -> Vec<Cache> {
        self.layers.iter().map(|layer| layer.cache(rows, 0)).collect()
    }

    fn tallies(&self) -> Vec<&ExpertTally> {
        self.layers.iter().filter_map(CpuLayer::tally).collect()
    }

    fn state_width(&self) -> usize {
        0
    }

    fn read(&self, pass: &PassOutput, stack: &PassInput<'_>, caches: &mut [Cache]) -> Vec<f32> {
        let context = rms_norm(&self.reduce.forward(&pass.captured), &self.context_norm, self.spec.epsilon());
        stack.run(|_, rows| {
            self.layers.iter().zip(caches).for_each(|(layer, cache)| layer.store(&context, rows, cache));
        });
        Vec::new()
    }

    fn pools(&self, caches: &mut [Cache], scratch: usize, shapes: &[TreeShape], roots: &[Root<'_>]) -> Vec<Pool> {
        let Some(shape) = shapes.first() else { return Vec::new() };
        let depth = shapes.iter().map(|shape| shape.num_steps).max().unwrap_or_default();
        let topk = shapes.iter().map(|shape| shape.topk).max().unwrap_or_default();
        let drafted = self.run(caches, scratch, roots, self.nodes().family(*shape), depth);
        let initial = self.markov.as_ref().map(Markov::initial).unwrap_or_default();
        let starts: Vec<_> = roots.iter().enumerate().map(|(at, root)| (at, root.token, initial.clone())).collect();
        let (first, states) = self.after(&drafted, 0, topk, &starts);
        let mut grown: Vec<Levels<'_>> = first.iter().map(|first| Levels::new(shapes, first)).collect();
        // The Markov head's state after the parent of each node of the last depth.
        let mut states: HashMap<(usize, Option<usize>), Vec<f32>> =
            states.into_iter().enumerate().map(|(at, state)| ((at, None), state)).collect();
        for depth in 1..depth {
            let parents: Vec<Vec<usize>> = grown.iter().map(Levels::parents).collect();
            let places: Vec<(usize, usize)> = parents
                .iter()
                .enumerate()
                .flat_map(|(at, places)| places.iter().map(move |place| (at, *place)))
                .collect();
            let node = |(at, place): &(usize, usize)| {
                let proposal = grown[*at].pool().all()[*place];
                (*at, proposal.token, states.get(&(*at, proposal.parent)).cloned().unwrap_or_default())
            };
            let nodes: Vec<_> = places.iter().map(node).collect();
            let (best, after) = self.after(&drafted, depth, topk, &nodes);
            states = places.iter().map(|(at, place)| (*at, Some(*place))).zip(after).collect();
            let mut best = best.into_iter();
            for (levels, parents) in grown.iter_mut().zip(&parents) {
                let own: Vec<_> = best.by_ref().take(parents.len()).collect();
                levels.push(parents, &own);
            }
        }
        let mut pools: Vec<Pool> = grown.into_iter().map(Levels::into_pool).collect();
        if let Some(head) = &self.confidence {
            for (at, (pool, root)) in pools.iter_mut().zip(roots).enumerate() {
                if let Some((_, RequiredTree::Whole)) = root.followed {
                    let log_odds = self.confidences(head, &drafted, at, root, pool);
                    pool.set_confidence(log_odds);
                }
            }
        }
        pools
    }
}
