//! Endpoints of OpenAI's API.

pub mod chat;
pub mod completions;
pub mod responses;
