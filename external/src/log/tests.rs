//! Logs as the engines write them.

use super::*;

const SGLANG: &str = "\
[2026-11-28 21:34:48] server_args=ServerArgs(model_path='m', max_running_requests=32, disable_cuda_graph=False, \
speculative_algorithm='EAGLE3', speculative_num_steps=5, speculative_eagle_topk=8, speculative_num_draft_tokens=32)
[2026-11-28 21:35:21] Capture target verify CUDA graph begin. backend=full, num_tokens_per_req=32, bs=[1, 2, 32], avail mem=28.98 GB
[2026-11-28 21:35:24] Capture draft decode CUDA graph begin. backend=full, num_tokens_per_req=8, bs=[1, 2], avail mem=28.03 GB
[2026-11-28 21:35:32] Prefill batch, #new-seq: 1, #new-token: 13, #cached-token: 0, token usage: 0.00, #running-req: 0, #queue-req: 0
[2026-11-28 21:36:03] Decode batch, #running-req: 31, #token: 21261, token usage: 0.03, accept len: 1.88, accept rate: 0.03, \
cuda graph: True, gen throughput (token/s): 30.34, #queue-req: 1
[2026-11-28 21:36:04] Decode batch, #running-req: 31, #token: 23648, token usage: 0.90, accept len: 2.00, accept rate: 0.03, \
cuda graph: False, gen throughput (token/s): 1550.0, #queue-req: 0
[2026-11-28 21:36:05] KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_token_ratio: 0.1 -> 0.2
";

#[test]
fn reports_of_sglang_are_read_with_the_configuration() {
    let log = ServerLog::parse(SGLANG).expect("a log");
    assert_eq!((log.kind, log.retractions), (ApiKind::Sglang, 1));
    let settings = &log.settings;
    assert_eq!((settings.algorithm.as_deref(), settings.max_running), (Some("EAGLE3"), Some(32)));
    assert_eq!((settings.num_steps, settings.topk, settings.verified_rows), (Some(5), Some(8), Some(32)));
    assert_eq!(settings.captured, [1, 2, 32], "the draft's sizes are others");
    let [first, second] = &log.intervals[..] else { panic!("{:?}", log.intervals) };
    assert!(first.prompts && !second.prompts, "prompts belong to the report after them");
    assert_eq!((first.waiting, first.graph, second.graph), (1.0, Some(true), Some(false)));
    assert_eq!((second.cache_used, second.round_ms()), (Some(0.9), 40.0));
}

#[test]
fn captured_sizes_come_from_the_arguments_where_no_line_lists_them() {
    let decode =
        "[2026-11-28 21:36:03] Decode batch, #running-req: 31, gen throughput (token/s): 30.3, #queue-req: 1\n";
    let of = |lines: &str| ServerLog::parse(&format!("{lines}\n{decode}")).expect("a log").settings;
    for (arguments, expected) in [
        (
            "ServerArgs(model_path='a, b)', cuda_graph_max_bs=8, cuda_graph_bs=[8, 1, 2], max_running_requests=3)",
            &[1, 2, 8][..],
        ),
        (
            "{'cuda_graph_bs_decode': None, 'cuda_graph_config': {'decode': {'backend': 'full', 'bs': [1, 4]}, \
          'prefill': {'backend': 'disabled', 'bs': [64]}}, 'max_running_requests': 3}",
            &[1, 4],
        ),
        (
            "ServerArgs(cuda_graph_config=CudaGraphConfig(decode=PhaseConfig(backend=<Backend.FULL: 'full'>, bs=[2]), \
          prefill=PhaseConfig()), max_running_requests=3)",
            &[2],
        ),
        (r#"{"cuda_graph_bs": [1, 3], "max_running_requests": 3}"#, &[1, 3]),
        ("ServerArgs(cuda_graph_bs=None, max_running_requests=3)", &[]),
    ] {
        let settings = of(&format!("[2026-11-28 21:34:48] server_args={arguments}"));
        assert_eq!((settings.captured.as_slice(), settings.max_running), (expected, Some(3)), "{arguments}");
    }
    let both = of(
        "server_args=ServerArgs(cuda_graph_bs=[1, 8])\nCapture cuda graph bs [1, 2]\nLoad weight begin. avail mem=22.5 GB",
    );
    assert_eq!((both.captured.as_slice(), both.free_memory), (&[1, 2][..], Some(23_040)));
    let off = |arguments: &str| of(&format!("server_args={arguments}")).graphs_off;
    assert!(off("ServerArgs(disable_cuda_graph=True)") && off("{'disable_decode_cuda_graph': True}"));
    assert!(off("{'cuda_graph_config': {'decode': {'backend': 'disabled'}}}") && !off("{'disable_cuda_graph': False}"));
}

#[test]
fn older_versions_and_several_ranks_are_read_too() {
    let text = "\
[2025-12-12 08:43:58 DP0 TP0] Prefill batch. #new-seq: 1, #new-token: 103, #cached-token: 1, token usage: 0.00, #running-req: 0
[2025-12-12 08:43:59 DP1 TP0] Decode batch. #running-req: 4, #token: 137, token usage: 0.94, cuda graph: True, \
gen throughput (token/s): 400.0, #queue-req: 5,
[2025-12-12 08:43:59 DP0 TP0] Decode batch. #running-req: 6, #full token: 26, full token usage: 1.00, cuda graph: True, \
gen throughput (token/s): 446.45, #queue-req: 5,
[2025-12-12 08:43:59 DP0 TP0] Decode out of memory happened. #retracted_reqs: 1, #new_token_ratio: 0.1474 -> 0.1845
[2025-12-12 08:43:59 DP0 TP1] Decode out of memory happened. #retracted_reqs: 1, #new_token_ratio: 0.1474 -> 0.1845
";
    let log = ServerLog::parse(text).expect("a log");
    assert_eq!(log.intervals.iter().map(|interval| interval.prompts).collect::<Vec<_>>(), [false, true]);
    assert_eq!((log.intervals[1].cache_used, log.intervals[1].accept_length), (Some(1.0), None));
    assert_eq!(log.retractions, 1, "both ranks mean one event");
}

#[test]
fn reports_of_vllm_are_read_with_the_configuration() {
    let text = "\
(APIServer pid=10670) INFO 11-28 21:34:09 [api_utils.py:273] non-default args: {'model': 'm', 'max_num_seqs': 64, \
'speculative_config': {'method': 'eagle3', 'num_speculative_tokens': 3, 'rejection_sample_method': 'synthetic'}}
(EngineCore pid=1) INFO [core.py:116] compilation_config={'cudagraph_capture_sizes': [1, 2, 256], 'x': 1}
\u{1b}[1;36m(APIServer pid=10670)\u{1b}[0;0m INFO 11-28 21:36:13 [loggers.py:310] Engine 000: Avg prompt throughput: 12126.1 tokens/s, \
Avg generation throughput: 3040.0 tokens/s, Running: 64 reqs, Waiting: 2 reqs, GPU KV cache usage: 4.6%, Prefix cache hit rate: 7.1%
(APIServer pid=10670) INFO 11-28 21:36:13 [metrics.py:120] SpecDecoding metrics: Mean acceptance length: 1.90, Accepted throughput: \
387.60 tokens/s, Drafted: 92526 tokens, Per-position acceptance rate: 0.903, 0.000, 0.000, Avg Draft acceptance rate: 12.9%
(APIServer pid=10670) INFO 11-28 21:36:23 [loggers.py:310] Engine 000: Avg prompt throughput: 0.0 tokens/s, \
Avg generation throughput: 12.0 tokens/s, Running: 0 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%, Prefix cache hit rate: 7.1%
";
    let log = ServerLog::parse(text).expect("a log");
    let settings = &log.settings;
    assert_eq!((log.kind, settings.max_running, settings.simulated), (ApiKind::Vllm, Some(64), true));
    assert_eq!((settings.algorithm.as_deref(), settings.verified_rows), (Some("eagle3"), Some(4)));
    assert_eq!(settings.captured, [1, 2, 256]);
    let [only] = &log.intervals[..] else { panic!("{:?}", log.intervals) };
    assert_eq!((only.waiting, only.prompts, only.positions.as_slice()), (2.0, true, &[0.903, 0.0, 0.0][..]));
    assert!((only.round_ms() - 40.0).abs() < 1e-9 && (only.cache_used.expect("a share") - 0.046).abs() < 1e-9);
}

#[test]
fn sizes_are_read_next_to_the_number_of_tokens_of_each() {
    let text = SGLANG.replace("num_tokens_per_req=32", "num_tokens_per_bs=32");
    assert_eq!(ServerLog::parse(&text).expect("a log").settings.captured, [1, 2, 32]);
}

/// A log of vLLM with a method, from the throughput, running requests, preemptions and acceptance
/// of its reports.
fn vllm_log(method: &str, reports: &[(f64, usize, &str, &str)]) -> ServerLog {
    let mut text = format!(
        "non-default args: {{'model': 'm', 'speculative_config': {{'method': '{method}', 'num_speculative_tokens': 3}}}}\n"
    );
    for (tokens, running, preemptions, speculation) in reports {
        text += &format!(
            "INFO 11-28 21:36:13 [loggers.py:310] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: \
             {tokens} tokens/s, Running: {running} reqs, Waiting: 12 reqs, {preemptions}GPU KV cache usage: 99.6%\n\
             INFO 11-28 21:36:13 [metrics.py:120] SpecDecoding metrics: {speculation}\n"
        );
    }
    ServerLog::parse(&text).expect("a log")
}

const ACCEPTED: &str = "Mean acceptance length: 2.90, Accepted throughput: 50.00 tokens/s, Drafted throughput: 1.00 tokens/s, \
                        Per-position acceptance rate: 0.900, 0.600, 0.400, Avg Draft acceptance rate: 63.3%";

#[test]
fn preemptions_of_vllm_are_the_last_number_of_each_engine() {
    let log = vllm_log("eagle3", &[(900.0, 64, "", ACCEPTED), (900.0, 64, "Preemptions: 3, ", ACCEPTED)]);
    assert_eq!(log.retractions, 3);
    let second = "Engine 001: Avg generation throughput: 9.0 tokens/s, Running: 4 reqs, Preemptions: 5, GPU";
    let first = |number: usize| {
        format!("Engine 000: Avg generation throughput: 9.0 tokens/s, Running: 4 reqs, Preemptions: {number}, GPU")
    };
    let log = ServerLog::parse(&[first(2), second.to_owned(), first(7)].join("\n")).expect("a log");
    assert_eq!(log.retractions, 12);
    let older = "Engine 000: Avg generation throughput: 9.0 tokens/s, Running: 4 reqs\nSequence group 1 is preempted\n";
    assert_eq!(ServerLog::parse(older).expect("a log").retractions, 1);
}

#[test]
fn acceptance_of_a_report_that_is_left_out_is_left_out_too() {
    let idle = "Mean acceptance length: 1.10, Accepted throughput: 1.00 tokens/s, Per-position acceptance rate: 0.100";
    let log = vllm_log("eagle3", &[(900.0, 64, "", ACCEPTED), (12.0, 0, "", idle)]);
    let [only] = &log.intervals[..] else { panic!("{:?}", log.intervals) };
    assert_eq!((only.accept_length, only.positions.as_slice()), (Some(2.9), &[0.9, 0.6, 0.4][..]));
}

#[test]
fn rounds_without_drafts_count_where_drafts_are_looked_up_in_texts() {
    let of = |method: &str| vllm_log(method, &[(550.0, 64, "", ACCEPTED)]).intervals[0].clone();
    assert_eq!(of("eagle3").accept_length, Some(2.9));
    for method in ["ngram", "ngram_gpu", "suffix"] {
        // 500 rounds a second, of which few had drafts.
        let found = of(method);
        assert!((found.accept_length.expect("a length") - 1.1).abs() < 1e-9, "{found:?}");
        assert!((found.positions.iter().sum::<f64>() - 0.1).abs() < 1e-3, "{found:?}");
    }
}

#[test]
fn texts_without_reports_are_no_logs() {
    for text in [
        "",
        "INFO: ready\n",
        "Decode batch, #running-req: x\n",
        "Decode batch, #running-req: 0, gen throughput (token/s): 0",
    ] {
        assert_eq!(ServerLog::parse(text), None, "{text}");
    }
}
