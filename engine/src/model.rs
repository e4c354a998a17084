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

pub use attention::Rows;
pub use draft::{Draft, load_draft, read_draft};
pub use facts::read_target;
pub use llama::{Llama, Pass};
pub(crate) use names::Names;
