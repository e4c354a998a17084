//! The endpoints: those of OpenAI in `openai`, those of SGLang in `sglang`. The other modules are
//! shared by both.

mod access;
mod cors;
mod health;
mod info;
mod messages;
mod openai;
mod parameters;
mod prompt_logprobs;
mod prompts;
mod replies;
pub mod routes;
mod sglang;
