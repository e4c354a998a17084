//! Facts about a checkpoint, read from its folder, from the local Hugging Face cache, or from the
//! hub.
//!
//! The linter gets its facts from this crate. File contents are validated before use, every read
//! has a size limit, and the network is used only if a hub is given. Without the feature `hub`
//! there is none.
#![forbid(unsafe_code)]

mod cache;
mod data_sets;
mod error;
mod files;
mod folder;
mod gather;
#[cfg(feature = "hub")]
mod hub;
mod names;
mod sources;
mod tensors;

pub use cache::HubCache;
pub use data_sets::DataSet;
pub use error::Error;
pub use files::{FilePart, Files};
pub use folder::FactsFolder;
pub use gather::{GatheredFacts, ModelPlaces, gather};
#[cfg(feature = "hub")]
pub use hub::Hub;
pub use names::is_id;
pub use sources::{FoundFacts, ModelSource, Sources};
