//! The part of a model that one rank of a tensor-parallel group holds.
//!
//! Tensor parallelism splits heads, intermediate values and rows of vocabulary heads. A rank's
//! model is described like any other, with smaller layers, so memory, cost and kernels need not
//! know about ranks. If there are fewer key/value heads than ranks, they are replicated.
//! Embeddings, norms, routers and latent caches are whole on each rank.

use std::ops::Range;

use kernels::reference::MXFP4_BLOCK;

use super::{
    AttentionSpec, BlockLayer, BlockSpec, DeltaNet, DraftSpec, FfnSpec, GroupedQuery, LayerSpec, MultiHeadLatent,
    RecurrentSpec, TargetSpec, WeightFormat,
};

/// Rows of vocabulary heads are split in multiples of this.
const HEAD_UNIT: usize = 8;

/// One rank of a group, which identifies its part of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Its index.
    pub rank: usize,
    /// Number of ranks of the group.
    pub ranks: usize,
}

impl Share {
    /// The whole model on one rank.
    pub const WHOLE: Self = Self { rank: 0, ranks: 1 };

    /// Whether other ranks hold parts too.
    pub fn is_part(self) -> bool {
        self.ranks > 1
    }

    /// The rank's part of `whole` items if each rank has `part` of them; if that is more than all
    /// together, neighbouring ranks have the same ones.
    pub fn range(self, whole: usize, part: usize) -> Range<usize> {
        let copies = (part * self.ranks / whole.max(1)).max(1);
        let start = (self.rank / copies * part).min(whole.saturating_sub(part));
        start..start + part
    }

    /// The rank's part of sections that follow each other, if each rank has `parts` of them.
    pub fn sections(self, parts: [usize; 3]) -> [Range<usize>; 3] {
        let mut begin = 0;
        parts.map(|part| {
            let start = begin + self.rank * part;
            begin += self.ranks * part;
            start..start + part
        })
    }

    /// The rank's rows of a vocabulary head if each rank has `part` of them; if these do not divide
    /// the vocabulary, the last ranks overlap.
    pub fn head_range(self, vocabulary: usize, part: usize) -> Range<usize> {
        let start = (self.rank * part).min(vocabulary.saturating_sub(part));
        start..start + part
    }
}

/// Number of rows of a vocabulary head on each of several ranks.
fn head_rows(vocabulary: usize, ranks: usize) -> usize {
    match ranks {
        1 => vocabulary,
        _ => vocabulary.div_ceil(ranks).next_multiple_of(HEAD_UNIT).min(vocabulary / 2 * 2),
    }
}

impl TargetSpec {
    /// The spec of each rank's part.
    ///
    /// # Errors
    /// A message about what cannot be split, as in SGLang.
    pub fn of_rank(&self, ranks: usize) -> Result<Self, String> {
        let layers = self.layers.iter().map(|layer| layer.split_over(ranks)).collect::<Result<_, _>>()?;
        Ok(Self { layers, head_rows: head_rows(self.vocabulary, ranks), ..self.clone() })
    }
}

impl RecurrentSpec {
    /// The spec of each rank's part: its head is split, and with `splits_layer` its layer too.
    ///
    /// # Errors
    /// A message about what cannot be split. SGLang runs drafts on the same ranks as targets, and
    /// refuses the same.
    pub fn split_over(&self, ranks: usize, splits_layer: bool) -> Result<Self, String> {
        let layer = self.layer.split_over(ranks)?;
        let layer = if splits_layer { layer } else { self.layer.clone() };
        Ok(Self { layer, head_rows: head_rows(self.vocabulary, ranks), ..self.clone() })
    }
}

impl BlockSpec {
    /// The spec of each rank's part, as of a [`RecurrentSpec`]. Its Markov head is whole on each
    /// rank.
    ///
    /// # Errors
    /// As there.
    pub fn split_over(&self, ranks: usize, splits_layers: bool) -> Result<Self, String> {
        let split =
            |layer: &BlockLayer| Ok::<_, String>(BlockLayer { layer: layer.layer.split_over(ranks)?, ..layer.clone() });
        let layers = self.layers.iter().map(split).collect::<Result<_, _>>()?;
        let layers = if splits_layers { layers } else { self.layers.clone() };
        Ok(Self { layers, head_rows: head_rows(self.vocabulary, ranks), ..self.clone() })
    }
}

impl DraftSpec {
    /// The spec of each rank's part: its head is split, and with `splits_layers` its layers too.
    ///
    /// # Errors
    /// As [`RecurrentSpec::split_over`].
    pub fn of_rank(&self, ranks: usize, splits_layers: bool) -> Result<Self, String> {
        match self {
            Self::Recurrent(recurrent) => recurrent.split_over(ranks, splits_layers).map(Self::Recurrent),
            Self::Block(block) => block.split_over(ranks, splits_layers).map(Self::Block),
            Self::Model(model) => {
                let part = model.of_rank(ranks)?;
                let layers = if splits_layers { part.layers } else { model.layers.clone() };
                Ok(Self::Model(TargetSpec { layers, ..part }))
            }
            Self::Text(text) => Ok(Self::Text(*text)),
        }
    }
}

impl LayerSpec {
    fn split_over(&self, ranks: usize) -> Result<Self, String> {
        let attention = match &self.attention {
            AttentionSpec::Grouped(grouped) => AttentionSpec::Grouped(grouped.split_over(ranks)?),
            AttentionSpec::Latent(latent) => AttentionSpec::Latent(MultiHeadLatent {
                heads: divided(latent.heads, ranks, "attention heads")?,
                ..*latent
            }),
            AttentionSpec::Delta(delta) => AttentionSpec::Delta(delta.split_over(ranks)?),
        };
        let ffn = match &self.ffn {
            FfnSpec::Dense(dense) => {
                let mut dense = *dense;
                dense.intermediate = divided(dense.intermediate, ranks, "intermediate values of a feed-forward block")?;
                FfnSpec::Dense(dense)
            }
            FfnSpec::Experts(experts) => {
                let mut experts = experts.clone();
                experts.intermediate = divided(experts.intermediate, ranks, "intermediate values of an expert")?;
                let (width, is_mxfp4) = (experts.intermediate, self.formats.ffn == WeightFormat::Mxfp4);
                if ranks > 1 && is_mxfp4 && !width.is_multiple_of(MXFP4_BLOCK) {
                    let whole = width * ranks;
                    return Err(format!(
                        "{whole} intermediate values of an expert in MXFP4 cannot be divided by {ranks}: {width} are no \
                         whole blocks of {MXFP4_BLOCK}"
                    ));
                }
                let shared =
                    experts.shared.map(|width| divided(width, ranks, "intermediate values of the shared expert"));
                experts.shared = shared.transpose()?;
                FfnSpec::Experts(experts)
            }
        };
        Ok(Self { attention, ffn, ..self.clone() })
    }
}

impl GroupedQuery {
    fn split_over(&self, ranks: usize) -> Result<Self, String> {
        let heads = divided(self.heads, ranks, "attention heads")?;
        let key_value_heads = match self.key_value_heads {
            // Fewer heads than ranks are repeated: each rank holds the one that its query heads
            // read.
            few if few < ranks && ranks.is_multiple_of(few) => 1,
            few if few < ranks => {
                return Err(format!("{few} key/value heads cannot be split or repeated over {ranks} ranks"));
            }
            many => divided(many, ranks, "key/value heads")?,
        };
        Ok(Self { heads, key_value_heads, ..*self })
    }
}

impl DeltaNet {
    fn split_over(&self, ranks: usize) -> Result<Self, String> {
        let mut delta = *self;
        delta.sizes.key_heads = divided(delta.sizes.key_heads, ranks, "key heads of linear attention")?;
        delta.sizes.value_heads = divided(delta.sizes.value_heads, ranks, "value heads of linear attention")?;
        Ok(delta)
    }
}

fn divided(count: usize, ranks: usize, what: &str) -> Result<usize, String> {
    match count.is_multiple_of(ranks) {
        true => Ok(count / ranks),
        false => Err(format!("{count} {what} cannot be divided by {ranks}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::published;

    #[test]
    fn ranks_have_equal_parts_or_copies() {
        let ranges =
            |whole, part, ranks| (0..ranks).map(|rank| Share { rank, ranks }.range(whole, part)).collect::<Vec<_>>();
        assert_eq!(ranges(8, 4, 2), [0..4, 4..8]);
        assert_eq!(ranges(2, 1, 4), [0..1, 0..1, 1..2, 1..2]);
        let sections = |rank| Share { rank, ranks: 2 }.sections([2, 2, 6]);
        assert_eq!((sections(0), sections(1)), ([0..2, 4..6, 8..14], [2..4, 6..8, 14..20]));
        let heads = |whole, part, ranks| {
            (0..ranks).map(|rank| Share { rank, ranks }.head_range(whole, part)).collect::<Vec<_>>()
        };
        assert_eq!(heads(24, head_rows(24, 2), 2), [0..16, 8..24]);
        assert_eq!(heads(20, head_rows(20, 8), 8)[..3], [0..8, 8..16, 12..20]);
    }

    #[test]
    fn a_rank_of_llama_70b_has_its_part_of_everything() {
        let target = published("llama-2-70b").expect("it is published").target(None).expect("all layers");
        for ranks in [2, 4, 8] {
            let rank = target.of_rank(ranks).expect("it can be divided");
            let of = |spec: &TargetSpec| spec.layers[0].attention.grouped().copied().expect("it is grouped");
            assert_eq!(of(&rank).heads * ranks, of(&target).heads);
            assert_eq!(of(&rank).key_value_heads * ranks, of(&target).key_value_heads);
            assert_eq!(rank.head_rows * ranks, target.vocabulary);
            let (all, part) = (target.cost(2).bytes as f64, rank.cost(2).bytes as f64);
            assert!((part * ranks as f64 / all - 1.0).abs() < 1e-3, "{part} of {all}");
        }
        assert!(target.of_rank(3).is_err_and(|reason| reason.contains("64 attention heads cannot be divided by 3")));
    }
}
