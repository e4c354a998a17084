//! What is predicted instead of measured: acceptance, round times, and the batch sizes that are
//! worth a graph. None of these modules knows a clock or a device.

pub mod acceptance;
pub mod capture;
pub mod guide;
pub mod latency;
pub mod text_drafts;
