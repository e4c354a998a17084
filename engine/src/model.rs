//! Models, one a file: what each tensor does, on top of the kernels' reference.

mod attention;
mod draft;
mod eagle2;
mod eagle3;
mod facts;
mod feed_forward;
mod llama;
mod names;
mod rope;

pub use attention::{AttentionShape, Rows};
pub(crate) use draft::PREFIXES;
pub use draft::{Draft, HeadKind, head_facts, load_draft};
pub(crate) use facts::TARGET_PREFIXES;
pub use facts::{HeadFacts, HeadSource, LayerFacts, TargetFacts};
pub use llama::{Llama, Pass};
pub(crate) use names::Names;
