//! Logs as the engines write them.

use super::*;

/// The last server of a log.
fn last(text: &str) -> Option<ServerLog> {
    ServerLog::read(text.as_bytes()).expect("a text can be read").pop()
}

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
    let log = last(SGLANG).expect("a log");
    assert_eq!((log.kind, log.retractions), (ApiKind::Sglang, 1));
    let settings = &log.settings;
    assert_eq!((settings.algorithm.as_deref(), settings.max_running), (Some("EAGLE3"), Some(32)));
    assert_eq!((settings.num_steps, settings.topk, settings.verified_rows), (Some(5), Some(8), Some(32)));
    assert_eq!(settings.captured, [1, 2, 32], "the draft's sizes are others");
    let [first, second] = &log.intervals[..] else { panic!("{:?}", log.intervals) };
    assert!(first.prompts && !second.prompts, "prompts belong to the report after them");
    assert_eq!((first.waiting, first.graph, second.graph), (1.0, Some(true), Some(false)));
    assert_eq!((second.cache_used, second.round_ms()), (Some(0.9), Some(40.0)));
    assert_eq!((second.seconds, second.speculates), (1.6, true), "40 rounds");
}

#[test]
fn captured_sizes_come_from_the_arguments_where_no_line_lists_them() {
    let decode =
        "[2026-11-28 21:36:03] Decode batch, #running-req: 31, gen throughput (token/s): 30.3, #queue-req: 1\n";
    let of = |lines: &str| last(&format!("{lines}\n{decode}")).expect("a log").settings;
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
    let log = last(text).expect("a log");
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
    let log = last(text).expect("a log");
    let settings = &log.settings;
    assert_eq!((log.kind, settings.max_running, settings.simulated), (ApiKind::Vllm, Some(64), true));
    assert_eq!((settings.algorithm.as_deref(), settings.verified_rows), (Some("eagle3"), Some(4)));
    assert_eq!(settings.captured, [1, 2, 256]);
    let [only] = &log.intervals[..] else { panic!("{:?}", log.intervals) };
    assert_eq!((only.waiting, only.prompts, only.positions.as_slice()), (2.0, true, &[0.903, 0.0, 0.0][..]));
    assert!(
        (only.round_ms().expect("rounds") - 40.0).abs() < 1e-9
            && (only.cache_used.expect("a share") - 0.046).abs() < 1e-9
    );
}

#[test]
fn sizes_are_read_next_to_the_number_of_tokens_of_each() {
    let text = SGLANG.replace("num_tokens_per_req=32", "num_tokens_per_bs=32");
    assert_eq!(last(&text).expect("a log").settings.captured, [1, 2, 32]);
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
    last(&text).expect("a log")
}

const ACCEPTED: &str = "Mean acceptance length: 2.90, Accepted throughput: 50.00 tokens/s, Drafted throughput: 1.00 tokens/s, \
                        Per-position acceptance rate: 0.900, 0.600, 0.400, Avg Draft acceptance rate: 63.3%";

#[test]
fn preemptions_of_vllm_are_counted_in_each_period() {
    let log = vllm_log("eagle3", &[(900.0, 64, "", ACCEPTED), (900.0, 64, "Preemptions: 3, ", ACCEPTED)]);
    assert_eq!(log.retractions, 3);
    let second = "Engine 001: Avg generation throughput: 9.0 tokens/s, Running: 4 reqs, Preemptions: 5, GPU";
    let first = |number: usize| {
        format!("Engine 000: Avg generation throughput: 9.0 tokens/s, Running: 4 reqs, Preemptions: {number}, GPU")
    };
    let log = last(&[first(2), second.to_owned(), first(7)].join("\n")).expect("a log");
    assert_eq!(log.retractions, 14);
    let older = "Engine 000: Avg generation throughput: 9.0 tokens/s, Running: 4 reqs\nSequence group 1 is preempted\n";
    assert_eq!(last(older).expect("a log").retractions, 1);
    // V0 names every 50th.
    let cumulative = "WARNING 11-27 02:04:48 scheduler.py:1754] Sequence group cmpl-1 is preempted by \
                      PreemptionMode.RECOMPUTE mode because there is not enough KV cache space. This can affect the \
                      end-to-end performance. total_num_cumulative_preemption=";
    let text = format!("{}{cumulative}1\n{cumulative}51\n", V0_REPORT);
    assert_eq!(last(&text).expect("a log").retractions, 51);
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
        assert_eq!(last(text), None, "{text}");
    }
}

/// A report of SGLang at this second, by this rank, with a throughput.
fn decoded(second: usize, rank: &str, running: usize, rate: f64) -> String {
    format!(
        "[2026-11-28 21:35:{second:02}{rank}] Decode batch, #running-req: {running}, #token: 1000, token usage: 0.10, \
         accept len: 2.00, accept rate: 0.50, cuda graph: True, gen throughput (token/s): {rate:.2}, #queue-req: 0\n"
    )
}

fn prefilled(second: usize, rank: &str) -> String {
    format!(
        "[2026-11-28 21:35:{second:02}{rank}] Prefill batch, #new-seq: 8, #new-token: 800, #cached-token: 0, token usage: \
         0.00, #running-req: 0, #queue-req: 0, #pending-token: 0, cuda graph: False, input throughput (token/s): 0.00\n"
    )
}

#[test]
fn each_data_parallel_rank_is_a_source_and_each_stage_of_a_pipeline_is_not() {
    let of = |ranks: &[&str]| {
        let mut text = ranks.iter().map(|rank| prefilled(0, rank)).collect::<String>();
        for second in 1..4 {
            text += &ranks.iter().map(|rank| decoded(second, rank, 8, 1600.0)).collect::<String>();
        }
        last(&text).expect("a log")
    };
    let sources = |log: &ServerLog| log.intervals.iter().map(|interval| interval.source).collect::<Vec<_>>();
    let data = of(&[" DP0 TP0 EP0", " DP1 TP1 EP1"]);
    assert_eq!((data.sources(), sources(&data)), (2, vec![0, 1, 0, 1, 0, 1]));
    let prompts: Vec<bool> = data.intervals.iter().map(|interval| interval.prompts).collect();
    assert_eq!(prompts, [true, true, false, false, false, false], "each rank has its own");
    // In versions up to 0.5.5 the stage is last.
    for stages in [
        [" PP0 TP0", " PP1 TP0"],
        [" TP0 PP0", " TP0 PP1"],
        [" TP0", " TP1"],
        [" DP0 ATTN_CP0 TP0", " DP0 ATTN_CP1 TP1"],
    ] {
        let log = of(&stages);
        assert_eq!((log.sources(), log.intervals.len()), (1, 3), "{stages:?}");
        let prompts: Vec<bool> = log.intervals.iter().map(|interval| interval.prompts).collect();
        assert_eq!(prompts, [true, false, false], "{stages:?}");
    }
    let both = of(&[" DP0 PP0 TP0", " DP0 PP1 TP0", " DP1 PP0 TP1", " DP1 PP1 TP1"]);
    assert_eq!((both.sources(), both.intervals.len()), (2, 6));
    let times_alone = decoded(1, " TP0", 8, 1600.0).replace("2026-11-28 ", "") + &decoded(2, ".123 TP1", 8, 1600.0);
    assert_eq!(last(&times_alone).expect("a log").intervals.len(), 1);
}

#[test]
fn engines_of_one_log_differ_by_what_is_written_before_their_lines() {
    let arguments =
        "[2026-11-28 21:34:48] server_args=ServerArgs(speculative_algorithm='EAGLE3', speculative_num_steps=3)\n";
    for prefixes in [
        ["(SGLangEngine pid=100) ", "(SGLangEngine pid=200, ip=10.0.0.2) "],
        ["sglang-1  | ", "sglang-2  | "],
        ["[pod/sglang-0/server] ", "[pod/sglang-1/server] "],
    ] {
        let mut text = prefixes.iter().map(|prefix| format!("{prefix}{arguments}")).collect::<String>();
        text += &format!("{}{}", prefixes[0], prefilled(0, " TP0"));
        for second in 1..4 {
            text += &prefixes
                .iter()
                .map(|prefix| format!("{prefix}{}", decoded(second, " TP0", 8, 1600.0)))
                .collect::<String>();
        }
        let servers = ServerLog::read(text.as_bytes()).expect("a text");
        let [log] = &servers[..] else { panic!("{prefixes:?}: {servers:?}") };
        let found: Vec<(usize, bool)> =
            log.intervals.iter().map(|interval| (interval.source, interval.prompts)).collect();
        assert_eq!(found, [(0, true), (1, false), (0, false), (1, false), (0, false), (1, false)], "{prefixes:?}");
    }
    // A configuration without a prefix is that of all.
    let text = format!("{arguments}(SGLangEngine pid=1) {}", decoded(1, " TP0", 8, 1600.0));
    assert_eq!(last(&text).expect("a log").settings.num_steps, Some(3));
    // Engines with other settings are other servers.
    let other = arguments.replace("steps=3", "steps=5");
    let mixed = [
        format!("a-1 | {arguments}"),
        format!("b-1 | {other}"),
        format!("a-1 | {}", decoded(1, "", 8, 9.0)),
        format!("b-1 | {}", decoded(1, "", 8, 9.0)),
        format!("a-1 | {}", decoded(2, "", 8, 9.0)),
    ];
    let servers = ServerLog::read(mixed.concat().as_bytes()).expect("a text");
    let found: Vec<_> = servers.iter().map(|log| (log.settings.num_steps, log.intervals.len())).collect();
    assert_eq!(found, [(Some(3), 2), (Some(5), 1)]);
    let engines = |number: usize| {
        format!(
            "INFO 11-28 21:36:13 [loggers.py:310] Engine {number:03}: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 9.0 tokens/s, Running: 4 reqs, Waiting: 0 reqs\n"
        )
    };
    let log = last(&[engines(0), engines(1), engines(0), engines(1)].concat()).expect("a log");
    assert_eq!((log.sources(), log.intervals[1].source, log.intervals[2].source), (2, 1, 0));
}

#[test]
fn each_start_of_a_server_is_one_of_its_own() {
    let start = |steps: usize| {
        format!(
            "[2026-11-28 21:34:48] server_args=ServerArgs(max_running_requests=32, speculative_algorithm='EAGLE3', \
             speculative_num_steps={steps}, speculative_eagle_topk=1, speculative_num_draft_tokens={})\n",
            steps + 1
        )
    };
    let retracted = "[2026-11-28 21:36:05] KV cache pool is full. Retract requests. #retracted_reqs: 7, #new_tokens_gained: 3000, #new_token_ratio: 0.1 -> 0.2\n";
    let first = start(3) + &decoded(1, "", 8, 1600.0) + &decoded(2, "", 8, 1600.0) + retracted;
    // A start that fails, or is printed twice, is none.
    let second = start(4) + &start(5) + &prefilled(3, "") + &decoded(4, "", 8, 800.0);
    let servers = ServerLog::read((first + &second).as_bytes()).expect("a text");
    let found: Vec<_> =
        servers.iter().map(|log| (log.settings.num_steps, log.intervals.len(), log.retractions)).collect();
    assert_eq!(found, [(Some(3), 2, 7), (Some(5), 1, 0)]);
    let throughput = "INFO 11-28 21:36:13 [loggers.py:310] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 9.0 tokens/s, Running: 4 reqs\n";
    let launch = |seqs: usize| {
        format!(
            "(APIServer pid={seqs}) INFO 11-28 21:34:09 [api_utils.py:273] non-default args: {{'max_num_seqs': {seqs}}}\n"
        )
    };
    let servers =
        ServerLog::read([&launch(8), throughput, &launch(16), throughput].concat().as_bytes()).expect("a text");
    assert_eq!(servers.iter().map(|log| log.settings.max_running).collect::<Vec<_>>(), [Some(8), Some(16)]);
}

#[test]
fn the_limit_that_holds_counts_before_the_one_that_was_given() {
    let of = |arguments: &str, line: &str| {
        let text =
            format!("[2026-11-28 21:34:48] server_args=ServerArgs({arguments})\n{line}{}", decoded(1, " TP0", 48, 9.0));
        last(&text).expect("a log").settings.max_running
    };
    let holds = "[2026-11-28 21:34:58 TP0] max_total_num_tokens=400000, chunked_prefill_size=8192, max_prefill_tokens=16384, \
                 max_running_requests=48, context_len=8192, available_gpu_mem=6.56 GB\n";
    assert_eq!(of("max_running_requests=None", holds), Some(48));
    assert_eq!(of("max_running_requests=192, dp_size=4, enable_dp_attention=True", holds), Some(48));
    assert_eq!(of("max_running_requests=192, dp_size=4, enable_dp_attention=True", ""), Some(48));
    assert_eq!(of("max_running_requests=192, dp_size=4, enable_dp_attention=False", ""), Some(192));
    let answer = serde_json::json!({
        "max_running_requests": null,
        "internal_states": [{"effective_max_running_requests_per_dp": 48}, {"effective_max_running_requests_per_dp": 48}],
    });
    assert_eq!(sglang_settings(&answer).max_running, Some(96));
}

#[test]
fn the_fullest_pool_and_the_graphs_of_all_devices_are_read() {
    for (usage, expected) in [
        ("#token: 9, token usage: 0.30, ", 0.30),
        ("#full token: 7936, full token usage: 0.30, #swa token: 512, swa token usage: 0.97, ", 0.97),
        ("#full token: 9, full token usage: 0.30, mamba num: 9, mamba usage: 0.99, ", 0.99),
        ("#gpu token: 9, gpu token usage: 0.40, #cpu token: 9, cpu token usage: 1.00, ", 0.40),
        ("#token: 9, token usage: 0.30, accept len: 2.00, pre-allocated usage: 0.95, ", 0.30),
    ] {
        let line = format!(
            "[2026-09-17 11:37:00 TP0 EP0] Decode batch, #running-req: 16, {usage}npu graph: True, gen throughput (token/s): 900.0, \
             #queue-req: 20\n"
        );
        let only = last(&line).expect("a log").intervals.remove(0);
        assert_eq!((only.cache_used, only.graph), (Some(expected), Some(true)), "{usage}");
    }
}

const V0_REPORT: &str = "INFO 02-06 03:05:53 metrics.py:455] Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 310.0 tokens/s, Running: 8 \
     reqs, Swapped: 0 reqs, Pending: 40 reqs, GPU KV cache usage: 0.2%, CPU KV cache usage: 0.0%.\n";

#[test]
fn speculation_of_older_versions_of_vllm_is_read() {
    // V1 of 0.8: 3 drafts a round.
    let v1 = |drafts: &str| {
        format!(
            "INFO 04-05 10:00:10 [loggers.py:87] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 400.0 \
             tokens/s, Running: 8 reqs, Waiting: 0 reqs, GPU KV cache usage: 4.0%, Prefix cache hit rate: 0.0%\n\
             INFO 04-05 10:00:10 [metrics.py:53] {drafts}\n"
        )
    };
    let arguments = |config: &str| {
        format!(
            "INFO 04-05 09:59:00 [api_server.py:1035] args: Namespace(subparser='serve', model_tag='m', max_num_seqs=64, \
             speculative_config={config}, port=8000, func=<function main at 0x7f>)\n"
        )
    };
    let counts = "SpecDecoding metrics: Draft acceptance rate: 60.0%, Accepted: 2571 tokens, Drafted: 4285 tokens";
    let config = "{'model': 'e', 'method': 'eagle', 'num_speculative_tokens': 3}";
    let eagle = last(&(arguments(config) + &v1(counts))).expect("a log");
    assert_eq!((eagle.settings.algorithm.as_deref(), eagle.settings.max_running), (Some("eagle"), Some(64)));
    let only = &eagle.intervals[0];
    assert!((only.accept_length.expect("a length") - 2.8).abs() < 1e-3, "{only:?}");
    assert!((only.round_ms().expect("rounds") - 56.0).abs() < 0.1, "{only:?}");
    let earlier = counts.replace("SpecDecoding", "Speculative").replace("Accepted:", "Number of accepted tokens:");
    let earlier = v1(&earlier.replace("Drafted:", "Number of draft tokens:"));
    assert_eq!(last(&(arguments(config) + &earlier)).expect("a log").intervals[0].accept_length, only.accept_length);
    // Its arguments are not in the log: each token is an accepted draft or the last one of a round.
    let only = last(&v1(counts)).expect("a log").intervals.remove(0);
    assert!(only.speculates && (only.accept_length.expect("a length") - 400.0 / (400.0 - 257.1)).abs() < 1e-9);
    // The line is written without speculation too.
    let none = "SpecDecoding metrics: Draft acceptance rate: nan%, Accepted: 0 tokens, Drafted: 0 tokens";
    let plain = last(&(arguments("None") + &v1(none))).expect("a log");
    assert!(!plain.speculates() && plain.intervals[0].round_ms() == Some(20.0), "{plain:?}");
    // Speculation without a line of drafts has no known length.
    let silent = last(&(arguments(config) + v1("").trim_end())).expect("a log");
    assert!(silent.speculates() && silent.intervals[0].round_ms().is_none(), "{silent:?}");
}

#[test]
fn speculation_of_engine_v0_is_counted_between_its_reports() {
    let drafts = |accepted: usize, drafted: usize, emitted: usize| {
        format!(
            "{V0_REPORT}INFO 02-06 03:05:53 metrics.py:475] Speculative metrics: Draft acceptance rate: 0.642, System efficiency: \
             0.598, Number of speculative tokens: 3, Number of accepted tokens: {accepted}, Number of draft tokens: {drafted}, Number \
             of emitted tokens: {emitted}.\n"
        )
    };
    let launch = "INFO 01-05 09:59:00 api_server.py:585] args: Namespace(model='m', speculative_model='e', num_speculative_tokens=3, max_num_seqs=256)\n";
    let first = drafts(8547, 13_311, 10_616);
    let text = launch.to_owned() + &first + &drafts(9000, 16_311, 12_616) + V0_REPORT + &drafts(9000, 16_311, 12_616);
    let log = last(&text).expect("a log");
    assert_eq!((log.settings.num_steps, log.settings.max_running), (Some(3), Some(256)));
    assert_eq!(log.settings.algorithm.as_deref(), Some("a draft model"));
    let [first, second, third, fourth] = &log.intervals[..] else { panic!("{:?}", log.intervals) };
    assert_eq!(first.waiting, 40.0);
    assert!((first.accept_length.expect("a length") - 10_616.0 / 4437.0).abs() < 1e-9, "{first:?}");
    assert_eq!(second.accept_length, Some(2.0), "1,000 rounds since the first report");
    for silent in [third, fourth] {
        assert!(silent.speculates && silent.accept_length.is_none() && silent.round_ms().is_none(), "{silent:?}");
    }
    let ngram = launch.replace("'e'", "'[ngram]'");
    assert_eq!(last(&(ngram + V0_REPORT)).expect("a log").settings.algorithm.as_deref(), Some("ngram"));
}

#[test]
fn rounds_without_drafts_count_in_versions_that_give_numbers_alone() {
    let report = |second: usize, drafts: &str| {
        format!(
            "INFO 04-05 10:00:{second:02} [loggers.py:116] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: \
             400.0 tokens/s, Running: 8 reqs, Waiting: 0 reqs, GPU KV cache usage: 4.0%, Prefix cache hit rate: 0.0%\n{drafts}"
        )
    };
    let drafts = |accepted: usize| {
        format!(
            "INFO 04-05 10:00:00 [metrics.py:86] SpecDecoding metrics: Draft acceptance rate: 60.0%, Mean acceptance length: 4.00, \
             Accepted: {accepted} tokens, Drafted: 500 tokens, Per-position acceptance rate: 0.800, 0.700, 0.600\n"
        )
    };
    let launch = "INFO [utils.py:1] non-default args: {'speculative_config': {'method': 'ngram', 'num_speculative_tokens': 3}}\n";
    let expected = 400.0 / 370.0;
    // 10 seconds by default, else the time between the lines. A report without drafts has no line.
    for (step, accepted) in [(0, 300), (5, 150)] {
        let text: String = (1..5).map(|at| report(step * at, &drafts(accepted))).collect();
        let log = last(&(launch.to_owned() + &text + &report(5 * step, ""))).expect("a log");
        let (with, without) = (&log.intervals[1], &log.intervals[4]);
        assert!((with.accept_length.expect("a length") - expected).abs() < 1e-9, "{step}: {with:?}");
        assert_eq!((with.seconds, without.accept_length), (if step == 0 { 10.0 } else { 5.0 }, Some(1.0)));
    }
    let eagle = last(&(launch.replace("ngram", "eagle3") + &report(0, &drafts(300)))).expect("a log");
    assert_eq!(eagle.intervals[0].accept_length, Some(4.0), "all of its rounds have drafts");
}

#[test]
fn an_engine_without_a_launch_says_its_speculation_itself() {
    let line = |config: &str| {
        format!(
            "(EngineCore_DP0 pid=5853) INFO 02-27 15:33:28 [core.py:97] Initializing a V1 LLM engine (v0.16.0) with config: model='m', \
             speculative_config={config}, tokenizer='m', enforce_eager=True, compilation_config={{'cudagraph_capture_sizes': [1, 2]}}\n"
        )
    };
    let settings = |config: &str| last(&(line(config) + V0_REPORT)).expect("a log").settings;
    let found = settings("SpeculativeConfig(method='eagle3', model='e', num_spec_tokens=3)");
    assert_eq!((found.algorithm.as_deref(), found.verified_rows), (Some("eagle3"), Some(4)));
    assert_eq!((found.captured.as_slice(), found.graphs_off), (&[1, 2][..], true));
    assert_eq!(
        settings("SpeculativeConfig(draft_model='d', num_spec_tokens=5)").algorithm.as_deref(),
        Some("a draft model")
    );
    assert_eq!(settings("None").algorithm, None);
}

#[test]
fn engines_that_report_together_have_their_limits_together() {
    let text = "INFO 11-28 21:34:09 [api_utils.py:273] non-default args: {'max_num_seqs': 64}\n\
                INFO 11-28 21:36:13 [loggers.py:310] 4 Engines Aggregated: Avg prompt throughput: 0.0 tokens/s, Avg generation \
                throughput: 9.0 tokens/s, Running: 250 reqs, Waiting: 9 reqs\n";
    let log = last(text).expect("a log");
    assert_eq!((log.settings.max_running, log.sources()), (Some(256), 1));
}

#[test]
fn logs_of_other_encodings_and_line_ends_are_read() {
    let text = SGLANG.replace('\n', "\r\n");
    let expected = last(SGLANG).expect("a log");
    let wide = |unit: fn(u16) -> [u8; 2]| format!("\u{feff}{text}").encode_utf16().flat_map(unit).collect::<Vec<u8>>();
    for bytes in [format!("\u{feff}{text}").into_bytes(), wide(u16::to_le_bytes), wide(u16::to_be_bytes)] {
        assert_eq!(ServerLog::read(&bytes[..]).expect("bytes").pop().as_ref(), Some(&expected), "{:?}", &bytes[..4]);
        // A character that is cut at the end, and bytes of other programs.
        let _ = ServerLog::read(&bytes[..bytes.len() - 1]).expect("bytes");
    }
    let mut bytes = text.clone().into_bytes();
    bytes.splice(0..0, [0xc3, 0x28, b'\n']);
    assert_eq!(ServerLog::read(&bytes[..]).expect("bytes").pop(), Some(expected));
}
