//! When latent attention of prompts expands keys and values, and the workspace layout for it.

use kernels::device::Element;

use crate::spec::MultiHeadLatent;

/// Bytes of keys and values in memory at once, unless that is less than [`LEAST_HEADS`] heads of
/// the longest prompt need.
const ROOM: usize = 256 << 20;
/// Minimum number of heads at once: with blocks of 128 rows and pieces of 2,048 rows, these keep a
/// GPU busy.
const LEAST_HEADS: usize = 8;
/// Positions are padded to a multiple of this, since the library plans separately for each number
/// of rows.
const PADDING: usize = 256;
/// Products that a multiprocessor computes in the launch time of the kernels that only expanded
/// attention has: about 25 µs.
const PRODUCTS_AT_ONCE: usize = 30_000_000;

/// Workspace layout, in elements: the key weights of all heads, which the pieces of a pass share;
/// latent vectors and shared keys of all positions; then keys and values of some heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpandedLayout {
    /// Number of positions, including padding.
    pub padded: usize,
    pub weights: usize,
    pub latents: usize,
    pub turned: usize,
    /// Keys of one head, and likewise values.
    pub keys: usize,
    pub values: usize,
}

impl ExpandedLayout {
    pub fn new(spec: &MultiHeadLatent, positions: usize) -> Self {
        let padded = positions.next_multiple_of(PADDING);
        Self {
            padded,
            weights: spec.heads * spec.nope_dim * spec.latent_rank,
            latents: padded * spec.latent_rank,
            turned: padded * spec.rope.dims,
            keys: padded * spec.nope_dim,
            values: padded * spec.value_dim,
        }
    }

    /// Elements that do not depend on the number of heads.
    pub fn fixed(self) -> usize {
        self.weights + self.latents + self.turned
    }

    /// Elements of one head.
    pub fn head(self) -> usize {
        self.keys + self.values
    }
}

/// Bytes of workspace for prompts of up to this many positions.
pub fn expanded_bytes(spec: &MultiHeadLatent, positions: usize, element: Element) -> usize {
    let layout = ExpandedLayout::new(spec, positions);
    let heads = (ROOM / (layout.head() * element.bytes()).max(1)).max(LEAST_HEADS).min(spec.heads);
    (layout.fixed() + heads * layout.head()) * element.bytes()
}

/// Minimum number of products that expanding keys and values must save, on a device with this many
/// multiprocessors.
pub fn least_spared(multiprocessors: usize) -> usize {
    multiprocessors * PRODUCTS_AT_ONCE
}

/// Products that expanding keys and values saves for a piece of this many rows starting at a
/// position; negative if it costs some.
pub fn spared(spec: &MultiHeadLatent, start: usize, rows: usize) -> i128 {
    let pairs = rows * start + rows * (rows + 1) / 2;
    // Negative for models whose heads are wider than the latent: these never expand.
    let a_pair = 2 * spec.latent_rank as i128 - (spec.nope_dim + spec.value_dim) as i128;
    // Per row, absorbing takes as many products as expanding takes per position.
    let a_position = spec.latent_rank * (spec.nope_dim + spec.value_dim);
    spec.heads as i128 * (pairs as i128 * a_pair - (start * a_position) as i128)
}

#[cfg(test)]
mod tests {
    use kernels::reference::RopeScaling;

    use super::*;
    use crate::spec::{Pairing, RopeSpec};

    fn deepseek() -> MultiHeadLatent {
        let rope = RopeSpec { dims: 64, pairing: Pairing::Interleaved, theta: 10_000.0, scaling: RopeScaling::None };
        MultiHeadLatent {
            input: 7168,
            output: 7168,
            heads: 128,
            query_rank: Some(1536),
            latent_rank: 512,
            nope_dim: 128,
            value_dim: 128,
            score_scale: 0.1,
            rope,
        }
    }

    #[test]
    fn long_pieces_expand_and_short_ones_after_a_long_prefix_do_not() {
        let expands = |start: usize, rows: usize| spared(&deepseek(), start, rows) >= least_spared(132) as i128;
        assert!(expands(0, 2048) && expands(60_000, 2048) && expands(4096, 512));
        assert!(!expands(0, 100), "kernels start longer than that takes");
        assert!(!expands(8192, 128), "fewer rows than expanding is worth: 171");
    }

    #[test]
    fn the_longest_prompt_has_room_for_some_heads_and_a_short_one_for_all() {
        let spec = deepseek();
        for positions in [300, 4096, 163_840] {
            let layout = ExpandedLayout::new(&spec, positions);
            let left = expanded_bytes(&spec, positions, Element::BF16) / 2 - layout.fixed();
            let heads = left / layout.head();
            assert!((LEAST_HEADS..=128).contains(&heads), "{heads} heads for {positions} positions");
        }
        assert!(expanded_bytes(&spec, 163_840, Element::BF16) < 1 << 30);
    }
}
