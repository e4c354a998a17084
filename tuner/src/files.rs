//! Files: written atomically, and their formats.

pub(crate) mod atomic_file;
pub mod date;
pub mod traces;

pub use self::atomic_file::{remove_folder, replace, replace_folder};
