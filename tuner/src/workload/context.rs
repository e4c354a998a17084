//! The typical context length of a workload's rounds.

use engine::Request;

/// Tokens of a request halfway through its output: the context of its middle round.
pub fn halfway(prompt_tokens: usize, output_tokens: usize) -> f64 {
    prompt_tokens as f64 + output_tokens as f64 / 2.0
}

/// The mean of this over requests, given as (prompt, output) tokens; 0 without any.
pub fn mean_halfway(requests: impl ExactSizeIterator<Item = (usize, usize)>) -> f64 {
    let count = requests.len().max(1) as f64;
    requests.map(|(prompt, output)| halfway(prompt, output)).sum::<f64>() / count
}

/// The same for a request with its maximum output.
pub fn requested_halfway(request: &Request) -> f64 {
    let (prompt, output) = requested(request);
    halfway(prompt, output)
}

/// Prompt tokens and maximum output tokens of a request.
pub fn requested(request: &Request) -> (usize, usize) {
    (request.input_ids.len(), request.stop.max_new_tokens.unwrap_or_default())
}
