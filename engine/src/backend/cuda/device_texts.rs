//! The texts of slots on the device, in which it looks drafts up.

use kernels::{
    device::{Buffer, Device, DeviceError},
    launch::{LOOK_UP_RANGES, LOOK_UP_WORDS, LookUps, MOST_TEXT, SlotTexts},
};

use crate::{
    spec::{Occurrence, PromptLookup},
    text_drafts::{RIGHT_OF_LOOK_UPS, RUNS, WEIGHT},
};

const _: () = assert!(RUNS.len() == LOOK_UP_RANGES);

/// The texts of slots.
pub struct DeviceTexts {
    pub rule: PromptLookup,
    /// Maximum number of tokens of a text.
    pub width: usize,
    /// int32 `[slots, width]`.
    pub text: Buffer,
    /// `[slots, LOOK_UP_WORDS]`.
    pub counted: Buffer,
    range_first: Buffer,
    range_share: Buffer,
}

impl DeviceTexts {
    /// Maximum number of tokens of texts on pages that hold this many positions, whose last token
    /// is not in the cache; `None` if the kernel cannot look up in texts of that size.
    pub fn width(positions: usize) -> Option<usize> {
        Some(positions + 1).filter(|width| *width <= MOST_TEXT)
    }

    /// Bytes of the texts of slots.
    pub fn bytes(slots: usize, width: usize) -> u64 {
        ((slots + 1) * (width + LOOK_UP_WORDS) * 4) as u64
    }

    /// Empty texts for slots, and for padding.
    pub fn new(device: &Device, rule: PromptLookup, slots: usize, width: usize) -> Result<Self, DeviceError> {
        Ok(Self {
            rule,
            width,
            text: device.zeros((slots + 1) * width * 4)?,
            counted: device.zeros((slots + 1) * LOOK_UP_WORDS * 4)?,
            range_first: device.upload(&RUNS.map(|first| first as i32))?,
            range_share: device.upload(&RIGHT_OF_LOOK_UPS)?,
        })
    }

    /// Where acceptance adds tokens.
    pub fn texts(&self) -> SlotTexts<'_> {
        SlotTexts { at: self.text.slice(), width: self.width }
    }

    /// Operands of the kernel; `slots` includes the one of padding.
    pub fn operands(&self, slots: usize) -> LookUps<'_> {
        let PromptLookup { min, max, occurrence } = self.rule;
        LookUps {
            slots,
            text: self.texts(),
            counted: self.counted.slice(),
            range_first: self.range_first.slice(),
            range_share: self.range_share.slice(),
            weight: WEIGHT,
            min,
            max,
            earliest: occurrence == Occurrence::Earliest,
        }
    }
}
