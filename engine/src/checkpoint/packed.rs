//! Experts of gpt-oss, which share tensors: `mlp.experts.gate_up_proj_blocks`
//! `[experts, 2 · intermediate, hidden / 32, 16]` and `_scales`
//! `[experts, 2 · intermediate, hidden / 32]` in bytes, `gate_up_proj_bias`
//! `[experts, 2 · intermediate]`, whose rows belong to gate and up in turn, and the same of
//! `down_proj`.

use kernels::reference::MXFP4_BLOCK;

use super::dtype::MXFP4;

/// Bytes of a block's numbers.
const BLOCK_BYTES: usize = MXFP4_BLOCK / 2;

/// One expert's part of a shared tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExpertSlice {
    /// The name that a tensor of its own would have.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its format, if it is not the shared tensor's.
    pub dtype: Option<&'static str>,
    /// Which expert's: each has the same number of consecutive bytes.
    pub expert: usize,
    /// Which of the expert's rows, if not all.
    pub rows: Option<Every>,
}

/// Every `of`-th row, starting at `first`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Every {
    /// The first row.
    pub first: usize,
    /// Distance of rows.
    pub of: usize,
}

impl Every {
    /// The chosen rows of `bytes`, of which `rows` are chosen.
    pub fn gather(self, bytes: &[u8], rows: usize) -> Vec<u8> {
        let row = bytes.len() / (rows * self.of).max(1);
        bytes.chunks_exact(row.max(1)).skip(self.first).step_by(self.of).flatten().copied().collect()
    }
}

/// The parts of a shared tensor of up to `most` experts; `None` for any other tensor.
pub(super) fn parts(name: &str, dtype: &str, shape: &[usize], most: usize) -> Option<Vec<ExpertSlice>> {
    let (layer, tensor) = name.rsplit_once(".experts.").filter(|(layer, _)| layer.ends_with("mlp"))?;
    let (projections, kind): (&[&str], &str) = match tensor.split_once("_proj_")? {
        ("gate_up", kind) => (&["gate_proj", "up_proj"], kind),
        ("down", kind) => (&["down_proj"], kind),
        _ => return None,
    };
    let (experts, rows, inner, end, format) = match (kind, dtype, shape) {
        ("blocks", "U8", [experts, rows, blocks, BLOCK_BYTES]) => {
            (*experts, *rows, vec![blocks.checked_mul(MXFP4_BLOCK)?], "weight", Some(MXFP4))
        }
        ("scales", "U8", [experts, rows, blocks]) => (*experts, *rows, vec![*blocks], "weight_scale", None),
        ("bias", _, [experts, rows]) => (*experts, *rows, Vec::new(), "bias", None),
        _ => return None,
    };
    let of = projections.len();
    if !(1..=most).contains(&experts) || rows == 0 || !rows.is_multiple_of(of) {
        return None;
    }
    let part = |expert: usize, first: usize| ExpertSlice {
        name: format!("{layer}.experts.{expert}.{}.{end}", projections[first]),
        shape: [vec![rows / of], inner.clone()].concat(),
        dtype: format,
        expert,
        rows: (of > 1).then_some(Every { first, of }),
    };
    Some((0..experts).flat_map(|expert| (0..of).map(move |first| (expert, first))).map(|(a, b)| part(a, b)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_gate_and_up_alternate() {
        let parts = |name, dtype, shape: &[usize]| parts(name, dtype, shape, 8);
        let all = parts("model.layers.3.mlp.experts.gate_up_proj_blocks", "U8", &[2, 6, 4, 16]).expect("it is shared");
        let names: Vec<&str> = all.iter().map(|part| part.name.as_str()).collect();
        assert_eq!(names[1], "model.layers.3.mlp.experts.0.up_proj.weight");
        assert_eq!((all.len(), &all[3].shape[..], all[3].expert, all[3].dtype), (4, &[3, 128][..], 1, Some(MXFP4)));
        let up = all[1].rows.expect("every second");
        assert_eq!(up.gather(&[0, 0, 1, 1, 2, 2, 3, 3], 2), [1, 1, 3, 3]);
        let down = parts("layers.0.mlp.experts.down_proj_bias", "BF16", &[2, 5]).expect("it is shared");
        assert_eq!((down[1].name.as_str(), &down[1].shape[..]), ("layers.0.mlp.experts.1.down_proj.bias", &[5][..]));
        assert_eq!(down[0].rows, None);
        for (name, dtype, shape) in [
            ("layers.0.mlp.experts.gate_up_proj_bias", "BF16", &[2, 5][..]),
            ("layers.0.mlp.experts.gate_up_proj_blocks", "F32", &[2, 6, 4, 16]),
            ("layers.0.mlp.experts.gate_up_proj_blocks", "U8", &[2, 6, 4, 8]),
            ("layers.0.mlp.experts.gate_up_proj_scales", "U8", &[9, 6, 4]),
            ("layers.0.mlp.experts.gate_up_proj", "BF16", &[2, 6, 4]),
        ] {
            assert_eq!(parts(name, dtype, shape), None, "{name} {dtype} {shape:?}");
        }
    }
}
