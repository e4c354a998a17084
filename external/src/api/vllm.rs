//! vLLM's API (0.10 to 0.33).

use serde_json::{Value, json};

use super::{Counters, Generate, Generated, Metrics, ServerInfo, TokenTimes, check_end, whole};
use crate::{ServerError, http::Address};

pub(super) fn info(address: &Address, listed: ServerInfo) -> Result<ServerInfo, ServerError> {
    let path = "/version";
    let version = address.json(path, &address.get(path)?)?["version"].as_str().map(str::to_owned);
    // Available only in development mode.
    let path = "/server_info?config_format=json";
    let answer = address.get(path)?;
    let resolved = (answer.status == 200).then(|| address.json(path, &answer)).transpose()?;
    Ok(ServerInfo { version, resolved, ..listed })
}

/// Available in development mode; responds with 200 and `false` while an ended request still holds
/// blocks. Versions before 0.12 have an empty response.
pub(super) fn reset_prefix_cache(address: &Address) -> Result<bool, ServerError> {
    let answer = address.post("/reset_prefix_cache", &json!({}))?;
    let said = serde_json::from_str::<Value>(&answer.body).ok();
    let success = said.and_then(|said| said["success"].as_bool());
    Ok(answer.status == 200 && success.unwrap_or(true))
}

pub(super) fn counters(metrics: &Metrics) -> Counters {
    Counters {
        running: metrics.get("vllm:num_requests_running"),
        waiting: metrics.get("vllm:num_requests_waiting"),
        generated_tokens: metrics.get("vllm:generation_tokens_total"),
        rounds: metrics.get("vllm:spec_decode_num_drafts_total"),
        accepted_drafts: metrics.get("vllm:spec_decode_num_accepted_tokens_total"),
        retracted: metrics.get("vllm:num_preemptions_total"),
        cached_tokens: metrics.get("vllm:prefix_cache_hits_total"),
        draft_positions: metrics.values_of("vllm:spec_decode_num_accepted_tokens_per_pos_total", "position"),
    }
}

pub(super) fn generate(
    address: &Address,
    request: &Generate<'_>,
    model: &str,
    times: &mut TokenTimes<'_>,
) -> Result<(&'static str, Generated), ServerError> {
    let path = "/v1/completions";
    let mut generated = Generated::empty();
    address.stream(path, &body(request, model), |event| {
        if let Some(error) = event.get("error") {
            return Err(error["message"].as_str().map_or_else(|| error.to_string(), str::to_owned));
        }
        check_end(event["choices"][0]["finish_reason"].as_str(), None)?;
        if let Some(tokens) = whole(&event["usage"]["completion_tokens"]) {
            times.seen(tokens as usize);
        }
        // With --enable-prompt-tokens-details.
        generated.cached_tokens =
            whole(&event["usage"]["prompt_tokens_details"]["cached_tokens"]).or(generated.cached_tokens);
        if let Some(ids) = event["choices"][0]["token_ids"].as_array() {
            generated.output_ids.extend(ids.iter().filter_map(Value::as_u64).map(|id| id as u32));
        }
        take_speculation(&event["metrics"]["speculative_decoding"], &mut generated);
        Ok(!times.is_interrupted())
    })?;
    Ok((path, generated))
}

fn body(request: &Generate<'_>, model: &str) -> Value {
    let mut body = json!({
        "model": model,
        "prompt": request.input_ids,
        "max_tokens": request.max_new_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "ignore_eos": request.ignore_eos,
        "stream": true,
        // Usage with every chunk, because a chunk contains several tokens under speculation.
        "stream_options": {"include_usage": true, "continuous_usage_stats": true},
        "return_token_ids": true,
    });
    if request.top_k > 0 {
        body["top_k"] = json!(request.top_k);
    }
    if request.min_p > 0.0 {
        body["min_p"] = json!(request.min_p);
    }
    if let Some(seed) = request.seed.filter(|_| request.temperature > 0.0) {
        body["seed"] = json!(seed);
    }
    body
}

/// Present on the last chunk, with `--per-request-spec-decode-metrics`.
fn take_speculation(figures: &Value, generated: &mut Generated) {
    generated.rounds = whole(&figures["num_spec_steps"]).filter(|rounds| *rounds > 0).or(generated.rounds);
    generated.accepted_drafts = whole(&figures["num_accepted_draft_tokens"]).or(generated.accepted_drafts);
    generated.proposed_drafts = whole(&figures["num_draft_tokens"]).or(generated.proposed_drafts);
    if let Some(histogram) = figures["acceptance_histogram"].as_array() {
        generated.accept_histogram = histogram.iter().filter_map(whole).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_request_are_taken_from_its_last_chunk() {
        let mut generated = Generated::empty();
        take_speculation(&Value::Null, &mut generated);
        assert_eq!((generated.rounds, generated.accepted_drafts), (None, None));
        let last = json!({"num_spec_steps": 4, "num_accepted_draft_tokens": 6, "acceptance_histogram": [1, 0, 3]});
        take_speculation(&last, &mut generated);
        assert_eq!((generated.rounds, generated.accepted_drafts), (Some(4), Some(6)));
        assert_eq!(generated.accept_histogram, [1, 0, 3]);
    }
}
