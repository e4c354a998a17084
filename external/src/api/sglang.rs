//! SGLang's API (0.5.9 to 0.5.23), which `spectune serve` also implements.

use serde_json::{Value, json};

use super::{Counters, Generate, Generated, Metrics, ServerInfo, TokenTimes, check_end, is_hidden, whole};
use crate::{ServerError, http::Address};

/// In some versions `/health` generates a token, so `/ready` is used if it exists.
pub(super) fn is_ready(address: &Address) -> Result<bool, ServerError> {
    match address.get("/ready")?.status {
        404 | 405 => Ok(address.get("/health")?.status == 200),
        status => Ok(status == 200),
    }
}

pub(super) fn info(address: &Address, listed: ServerInfo) -> Result<ServerInfo, ServerError> {
    // The longer path is the older name.
    for path in ["/server_info", "/get_server_info"] {
        let answer = address.get(path)?;
        if !is_hidden(answer.status) {
            let resolved = address.json(path, &answer)?;
            let version = resolved["version"].as_str().map(str::to_owned);
            return Ok(ServerInfo { version, resolved: Some(resolved), ..listed });
        }
    }
    Ok(listed)
}

pub(super) fn counters(metrics: &Metrics) -> Counters {
    Counters {
        running: metrics.total("sglang:num_running_reqs"),
        waiting: metrics.total("sglang:num_queue_reqs"),
        generated_tokens: metrics.get("sglang:generation_tokens_total"),
        rounds: metrics.get("sglang:spec_verify_calls_total"),
        accepted_drafts: None,
        retracted: metrics
            .get("sglang:num_retracted_requests_total")
            .or_else(|| metrics.get("sglang:num_retracted_reqs")),
        cached_tokens: metrics.get("sglang:cached_tokens_total"),
        draft_positions: None,
    }
}

pub(super) fn generate(
    address: &Address,
    request: &Generate<'_>,
    times: &mut TokenTimes<'_>,
) -> Result<(&'static str, Generated), ServerError> {
    let path = "/generate";
    let mut generated = Generated::empty();
    address.stream(path, &body(request), |event| {
        if let Some(error) = event.get("error") {
            return Err(error["message"].as_str().map_or_else(|| error.to_string(), str::to_owned));
        }
        let meta = &event["meta_info"];
        let end = &meta["finish_reason"];
        check_end(end["type"].as_str(), end["message"].as_str())?;
        if let Some(tokens) = whole(&meta["completion_tokens"]) {
            times.seen(tokens as usize);
        }
        generated.cached_tokens = whole(&meta["cached_tokens"]).or(generated.cached_tokens);
        take_output(&event, times.tokens, &mut generated.output_ids);
        take_speculation(meta, &mut generated);
        Ok(!times.is_interrupted())
    })?;
    Ok((path, generated))
}

fn body(request: &Generate<'_>) -> Value {
    let mut sampling = json!({
        "max_new_tokens": request.max_new_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "ignore_eos": request.ignore_eos,
    });
    if request.top_k > 0 {
        sampling["top_k"] = json!(request.top_k);
    }
    if request.min_p > 0.0 {
        sampling["min_p"] = json!(request.min_p);
    }
    if let Some(seed) = request.seed.filter(|_| request.temperature > 0.0) {
        sampling["sampling_seed"] = json!(seed);
    }
    json!({"input_ids": request.input_ids, "sampling_params": sampling, "stream": true})
}

/// Events contain all tokens so far, or with `--incremental-streaming-output` only the new ones.
fn take_output(event: &Value, tokens: usize, output: &mut Vec<u32>) {
    let Some(ids) = event["output_ids"].as_array() else { return };
    let ids = ids.iter().filter_map(Value::as_u64).map(|id| id as u32);
    if ids.clone().count() == tokens {
        output.clear();
    }
    output.extend(ids);
}

/// Figures of the request so far. `spec_accept_length` is ignored, because it counts the token of
/// the prefill as one of a round.
fn take_speculation(meta: &Value, generated: &mut Generated) {
    let rounds = whole(&meta["spec_verify_ct"]).filter(|rounds| *rounds > 0);
    generated.rounds = rounds.or(generated.rounds);
    let accepted = ["spec_num_correct_drafts", "spec_accept_token_num"].iter().find_map(|name| whole(&meta[*name]));
    generated.accepted_drafts = accepted.or(generated.accepted_drafts);
    let histogram =
        ["spec_correct_drafts_histogram", "spec_accept_histogram"].iter().find_map(|name| meta[*name].as_array());
    if let Some(histogram) = histogram {
        generated.accept_histogram = histogram.iter().filter_map(whole).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_taken_from_cumulative_and_from_incremental_streams() {
        for events in [[json!([1, 2]), json!([1, 2, 3])], [json!([1, 2]), json!([3])]] {
            let mut output = Vec::new();
            for (event, tokens) in events.into_iter().zip([2, 3]) {
                take_output(&json!({"output_ids": event}), tokens, &mut output);
            }
            assert_eq!(output, [1, 2, 3]);
        }
    }

    #[test]
    fn an_answer_that_the_server_gives_up_is_an_error() {
        let checked = |end: Value| check_end(end["type"].as_str(), end["message"].as_str());
        assert_eq!(checked(Value::Null), Ok(()));
        assert_eq!(checked(json!({"type": "length", "length": 4})), Ok(()));
        let error = checked(json!({"type": "abort", "message": "out of memory"})).expect_err("it is not complete");
        assert!(error.contains("finish reason abort): out of memory"), "{error}");
    }

    #[test]
    fn requests_are_not_counted_again_by_priority_or_by_rank() {
        let page = "sglang:num_running_reqs{priority=\"\",tp_rank=\"0\"} 8\nsglang:num_running_reqs{priority=\"2\",tp_rank=\"0\"} 8\n\
                    sglang:num_running_reqs{priority=\"\",tp_rank=\"1\"} 8\nsglang:num_queue_reqs{priority=\"\",tp_rank=\"0\"} 1\n\
                    sglang:num_queue_reqs{priority=\"2\",tp_rank=\"0\"} 1\n";
        let counters = counters(&Metrics::parse(page));
        assert_eq!((counters.running, counters.waiting), (Some(8.0), Some(1.0)));
    }

    #[test]
    fn figures_are_read_by_their_names_of_either_version() {
        for (correct, histogram) in [
            ("spec_num_correct_drafts", "spec_correct_drafts_histogram"),
            ("spec_accept_token_num", "spec_accept_histogram"),
        ] {
            let meta = json!({"spec_verify_ct": 10, correct: 20, histogram: [1, 8, 1], "spec_accept_length": 9.9});
            let mut generated = Generated::empty();
            take_speculation(&meta, &mut generated);
            assert_eq!((generated.rounds, generated.accepted_drafts), (Some(10), Some(20)));
            assert_eq!(generated.accept_histogram, [1, 8, 1]);
        }
        let mut plain = Generated::empty();
        take_speculation(&json!({"spec_verify_ct": 0}), &mut plain);
        assert_eq!((plain.rounds, plain.accepted_drafts), (None, None));
    }
}
