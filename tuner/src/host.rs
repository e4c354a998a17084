//! The machine that measures: its load, its GPUs, and what disturbs trials on it.

pub mod machine;
pub(crate) mod mark;
pub(crate) mod nvidia_smi;
