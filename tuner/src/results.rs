//! What the trials say: which configuration is best, how sure that is, and the tuned file.

pub mod outcome;
pub mod selection;
