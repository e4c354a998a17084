//! Parameters that this server does not have, where their value asks for nothing. Clients write out defaults; whoever
//! asks for something that would not happen is told.

use serde_json::Value;

/// Whether a parameter that was not read may be passed over.
pub fn asks_for_nothing(name: &str, value: &Value) -> bool {
    let number = |neutral: f64| value.as_f64() == Some(neutral);
    let word = |words: &[&str]| value.as_str().is_some_and(|word| words.contains(&word));
    let always = match name {
        // Notes for whoever keeps accounts; and switches of parts that are not there: tools, reasoning parsers, slow
        // tokenizers.
        "metadata"
        | "parallel_tool_calls"
        | "prompt_cache_key"
        | "safety_identifier"
        | "separate_reasoning"
        | "spaces_between_special_tokens"
        | "store"
        | "stream_reasoning"
        | "user" => true,
        "frequency_penalty" | "min_new_tokens" | "min_tokens" | "presence_penalty" | "priority" => number(0.0),
        "length_penalty" | "repetition_penalty" | "typical_p" => number(1.0),
        // Log-probabilities of the prompt are asked for from this token on: -1 asks for none.
        "logprob_start_len" => number(-1.0),
        "add_generation_prompt" | "detokenize" | "skip_special_tokens" => value == &Value::Bool(true),
        "service_tier" => word(&["auto", "default"]),
        "tool_choice" => word(&["auto", "none"]),
        "reasoning_effort" => word(&["none"]),
        "response_format" => value.get("type").and_then(Value::as_str) == Some("text"),
        "modalities" => value.as_array().is_some_and(|list| list.iter().all(|kind| kind == "text")),
        _ => false,
    };
    always || is_empty(value)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    }
}
