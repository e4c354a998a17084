//! From generated tokens to the parts of a response: reasoning, function calls, structured output,
//! and streams of them.

pub mod grammar;
pub mod harmony;
pub mod reading;
pub mod reasoning;
pub mod stream;
pub mod tools;
