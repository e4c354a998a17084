//! The rows, in alphabetical order.

use super::{Flag, Key, Takes};

/// Every flag that spectune knows.
pub const FLAGS: &[Flag] = &[Flag {
    key: Key::AttentionBackend,
    name: "attention-backend",
    aliases: &[],
    takes: Takes::Text,
    ours: true,
    since: None,
    until: None,
    help: "Attention kernels of the target and, unless told otherwise, of the draft",
}];
