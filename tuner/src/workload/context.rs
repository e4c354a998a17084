//! The typical context length of a workload's rounds.

use engine::Request;

/// Tokens of a request when half of its output is there: the context of its middle round.
pub fn halfway(prompt_tokens: usize, output_tokens: usize) -> f64 {
    prompt_tokens as f64 + output_tokens as f64 / 2.0
}

/// The same on average over requests of this many prompt and output tokens; 0 without any.
pub fn mean_halfway(requests: impl ExactSizeIterator<Item = (usize, usize)>) -> f64 {
    let count = requests.len().max(1) as f64;
    requests.map(|(prompt, output)| halfway(prompt, output)).sum::<f64>() / count
}

/// Prompt and output tokens that a request asks for.
pub fn asked(request: &Request) -> (usize, usize) {
    (request.input_ids.len(), request.stop.max_new_tokens.unwrap_or_default())
}
