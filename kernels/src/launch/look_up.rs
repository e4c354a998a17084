//! Look-ups in the tokens of sequences: `cuda/look_up.cu`.

use super::{Kernels, MOST_NODES, address, check_ints, grid, int};
use crate::device::{Arg, DeviceError, KernelFile, Slice, Split};

pub(super) const FILE: KernelFile =
    KernelFile { name: "look_up.cu", text: include_str!("../../cuda/look_up.cu"), split: Split::Shared };

/// Threads of a block.
const THREADS: usize = 512;

/// Number of ranges of numbers of equal tokens whose look-ups are counted together.
pub const LOOK_UP_RANGES: usize = 7;
/// Words that are kept of a slot: the number of tokens whose look-ups are counted, the maximum
/// number of drafts of a round, and as float32 for each range how often look-ups were right and how
/// often there was one.
pub const LOOK_UP_WORDS: usize = 2 + 2 * LOOK_UP_RANGES;
/// Maximum number of equal tokens.
pub const MOST_LOOKED_UP: usize = 256;
/// Sequences must be shorter than this.
pub const MOST_TEXT: usize = (1 << 23) - 1;

/// The tokens of the sequences of slots.
#[derive(Clone, Copy, Debug)]
pub struct SlotTexts<'a> {
    /// int32 `[slots, width]`.
    pub at: Slice<'a>,
    /// Maximum number of tokens of a sequence.
    pub width: usize,
}

/// The texts of slots, and which occurrence of their last tokens is continued.
#[derive(Clone, Copy, Debug)]
pub struct LookUps<'a> {
    /// Slots, the one of padding included.
    pub slots: usize,
    /// The tokens of their sequences.
    pub text: SlotTexts<'a>,
    /// Words `[slots, LOOK_UP_WORDS]`.
    pub counted: Slice<'a>,
    /// The first number of equal tokens of each range, int32.
    pub range_first: Slice<'a>,
    /// The share of look-ups of each range that is expected to be right, float32.
    pub range_share: Slice<'a>,
    /// The number of look-ups that these shares weigh as much as.
    pub weight: f32,
    /// Least number of equal tokens.
    pub min: usize,
    /// Number of tokens that are compared at most.
    pub max: usize,
    /// Whether the earliest of the longest occurrences is continued; if not, the latest.
    pub earliest: bool,
}

/// A batch whose drafts are looked up.
#[derive(Clone, Copy, Debug)]
pub struct LookUpBatch<'a> {
    /// Requests, padding included.
    pub batch: usize,
    /// Maximum number of drafts of a request, at least 1.
    pub steps: usize,
    /// int32 `[batch]`.
    pub batch_slot: Slice<'a>,
    /// The position of each slot's root, int32 `[slots]`.
    pub length: Slice<'a>,
    /// The last token of each slot's sequence, int32 `[slots]`.
    pub root: Slice<'a>,
}

/// Where the drafts go.
#[derive(Clone, Copy, Debug)]
pub enum LookUpOutput<'a> {
    /// To chains with chances, as [`LookedUpChains`](super::LookedUpChains) has them.
    Chains {
        /// int32 `[batch]`.
        length: Slice<'a>,
        /// int32 `[batch, steps]`.
        token: Slice<'a>,
        /// float32 `[batch, steps]`.
        chance: Slice<'a>,
    },
    /// To trees, as [`HostTrees`](super::HostTrees) has them.
    Trees {
        /// Nodes of a tree, the root included.
        nodes: usize,
        /// int32 `[batch, nodes]`.
        token: Slice<'a>,
        /// int32 `[batch, nodes]`.
        parent: Slice<'a>,
        /// Whether missing drafts are copies of the root.
        filled: bool,
    },
}

impl LookUps<'_> {
    fn check(&self) -> Result<(), DeviceError> {
        let Self { slots, text: SlotTexts { at, width }, min, max, .. } = *self;
        if !(1..=max).contains(&min) || max > MOST_LOOKED_UP || !(1..=MOST_TEXT).contains(&width) || slots == 0 {
            return Err(DeviceError::Shape(format!(
                "look-ups of {min} to {max} tokens in {slots} texts of {width} tokens: 1 to {MOST_LOOKED_UP}, and up to \
                 {MOST_TEXT}, are supported"
            )));
        }
        check_ints(at, slots * width)?;
        check_ints(self.counted, slots * LOOK_UP_WORDS)?;
        check_ints(self.range_first, LOOK_UP_RANGES)?;
        check_ints(self.range_share, LOOK_UP_RANGES)
    }
}

impl Kernels {
    /// Looks up the drafts of a batch in its texts, after adding each slot's root to its text.
    /// Slots of the batch are trusted to exist, and to be different unless they are padding.
    ///
    /// # Errors
    /// When a buffer is too short, a number is too large, or the device fails.
    pub fn look_up(
        &self,
        texts: LookUps<'_>,
        of: LookUpBatch<'_>,
        output: LookUpOutput<'_>,
    ) -> Result<(), DeviceError> {
        let LookUpBatch { batch, steps, batch_slot, length, root } = of;
        texts.check()?;
        if batch == 0 || !(1..MOST_NODES).contains(&steps) {
            return Err(DeviceError::Shape(format!("{batch} look-ups of {steps} drafts: 1 to {MOST_NODES} rows")));
        }
        check_ints(batch_slot, batch)?;
        [length, root].into_iter().try_for_each(|values| check_ints(values, texts.slots))?;
        let (chains, trees, [nodes, filled]) = match output {
            LookUpOutput::Chains { length, token, chance } => {
                check_ints(length, batch)?;
                [token, chance].into_iter().try_for_each(|values| check_ints(values, batch * steps))?;
                ([length, token, chance], [Slice::NONE; 2], [0, 0])
            }
            LookUpOutput::Trees { nodes, token, parent, filled } => {
                if nodes <= steps || nodes > MOST_NODES {
                    return Err(DeviceError::Shape(format!("{nodes} nodes of {steps} drafts: up to {MOST_NODES}")));
                }
                [token, parent].into_iter().try_for_each(|values| check_ints(values, batch * nodes))?;
                ([Slice::NONE; 3], [token, parent], [nodes, usize::from(filled)])
            }
        };
        let kernel = self.device.kernel(FILE, &[], "look_up")?;
        let mut arguments = vec![address(texts.text.at), int(texts.text.width)];
        arguments.extend([texts.counted, texts.range_first, texts.range_share].map(address));
        arguments.push(Arg::Float(texts.weight));
        arguments.extend([batch_slot, length, root].map(address));
        arguments.extend([texts.min, texts.max, usize::from(texts.earliest), steps, texts.slots - 1].map(int));
        arguments.extend(chains.into_iter().chain(trees).map(address));
        arguments.extend([nodes, filled].map(int));
        // SAFETY: lengths are checked above; slots of the batch are the caller's promise. Places
        // that the kernel reads are within the slot's tokens, of which it reads at most `width`.
        unsafe { self.device.launch(&kernel, grid([batch, 1, 1], THREADS as u32, 0), &arguments) }
    }
}
