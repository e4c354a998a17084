//! vLLM's API (0.10 to 0.33).

use serde_json::{Value, json};

use super::{Counters, Generate, Generated, Metrics, ServerInfo, TokenTimes, check_end, is_hidden, whole};
use crate::{ServerError, http::Address};

pub(super) fn info(address: &Address, listed: ServerInfo) -> Result<ServerInfo, ServerError> {
    let path = "/version";
    let answer = address.get(path)?;
    let version = match is_hidden(answer.status) {
        true => None,
        false => address.json(path, &answer)?["version"].as_str().map(str::to_owned),
    };
    // Available only in development mode.
    let path = "/server_info?config_format=json";
    let answer = address.get(path)?;
    let resolved = (answer.status == 200).then(|| address.json(path, &answer)).transpose()?;
    // Versions before 0.11 answer a text for people.
    let resolved = resolved.filter(|answer| answer["vllm_config"].is_object());
    Ok(ServerInfo { version, resolved, ..listed })
}

/// Available in development mode. Does nothing while a request holds blocks: versions from 0.26 on
/// respond with 200 and `false` then, and earlier ones with 200 and an empty body in any case. Of
/// these, a flush counts as refused if a request runs or waits after it.
pub(super) fn reset_prefix_cache(address: &Address) -> Result<bool, ServerError> {
    let answer = address.post("/reset_prefix_cache", &json!({}))?;
    let said = serde_json::from_str::<Value>(&answer.body).ok();
    match said.and_then(|said| said["success"].as_bool()) {
        _ if answer.status != 200 => Ok(false),
        Some(success) => Ok(success),
        None => {
            let page = address.get("/metrics")?;
            let counters = counters(&Metrics::parse(&page.body));
            Ok([counters.running, counters.waiting].iter().all(|requests| requests.is_none_or(|number| number == 0.0)))
        }
    }
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
        let ids = event["choices"][0]["token_ids"].as_array().filter(|ids| !ids.is_empty());
        if let Some(tokens) = whole(&event["usage"]["completion_tokens"]) {
            times.seen(tokens as usize);
        } else if ids.is_some() || event["choices"][0]["text"].as_str().is_some_and(|text| !text.is_empty()) {
            // A proxy may drop the usage of every chunk, or of all.
            times.brought(ids.map(Vec::len));
        }
        // With --enable-prompt-tokens-details.
        generated.cached_tokens =
            whole(&event["usage"]["prompt_tokens_details"]["cached_tokens"]).or(generated.cached_tokens);
        if let Some(ids) = ids {
            generated.output_ids.extend(ids.iter().filter_map(Value::as_u64).map(|id| id as u32));
        }
        take_speculation(&event["metrics"]["speculative_decoding"], &mut generated);
        Ok(!times.is_interrupted())
    })?;
    count_rounds(times.tokens, &mut generated);
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
    generated.rounds = whole(&figures["num_spec_steps"]).or(generated.rounds);
    generated.accepted_drafts = whole(&figures["num_accepted_draft_tokens"]).or(generated.accepted_drafts);
    generated.proposed_drafts = whole(&figures["num_draft_tokens"]).or(generated.proposed_drafts);
    if let Some(histogram) = figures["acceptance_histogram"].as_array() {
        generated.accept_histogram = histogram.iter().filter_map(whole).collect();
    }
}

/// Adds the rounds for which nothing was drafted, of which look-ups in texts (`ngram`, `suffix`)
/// have many: vLLM counts only rounds with drafts. Each token after the first one is an accepted
/// draft or the last one of a round. Drafts may have been accepted beyond the end of the request,
/// so this number too is a lower bound.
fn count_rounds(tokens: usize, generated: &mut Generated) {
    let (Some(drafted), Some(accepted)) = (generated.rounds, generated.accepted_drafts) else { return };
    let further = (tokens as u64).saturating_sub(1);
    let rounds = drafted.max(further.saturating_sub(accepted));
    if let Some(none_accepted) = generated.accept_histogram.first_mut() {
        *none_accepted += rounds - drafted;
    }
    generated.rounds = Some(rounds);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_without_drafts_are_rounds() {
        // 41 tokens: 4 rounds accepted 12 drafts, 24 had none; then no match at all; then all
        // rounds had drafts, and two were accepted beyond the end.
        for (tokens, steps, accepted, histogram, expected) in [
            (41, 4, 12, vec![0, 0, 1, 2, 1], (28, vec![24, 0, 1, 2, 1])),
            (9, 0, 0, vec![0, 0], (8, vec![8, 0])),
            (9, 3, 7, vec![0, 0, 2, 1], (3, vec![0, 0, 2, 1])),
        ] {
            let mut generated = Generated::empty();
            let last = json!({
                "num_spec_steps": steps, "num_accepted_draft_tokens": accepted, "acceptance_histogram": histogram
            });
            take_speculation(&last, &mut generated);
            count_rounds(tokens, &mut generated);
            assert_eq!((generated.rounds, generated.accept_histogram), (Some(expected.0), expected.1));
        }
        let mut unreported = Generated::empty();
        count_rounds(9, &mut unreported);
        assert_eq!(unreported.rounds, None);
    }

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
