//! Diagnoses of logs with known figures.

use external::{
    api::ApiKind,
    log::{LogInterval, LoggedSettings},
};

use super::*;

/// Reports of a batch: without prompts, a round takes `round_ms`; every third report has as much
/// time for prompts.
fn log(kind: ApiKind, running: f64, round_ms: f64, accept: Option<f64>) -> ServerLog {
    let intervals = (0..13).map(|at| {
        let round_ms = if at % 3 == 0 { 2.0 * round_ms } else { round_ms };
        LogInterval {
            running,
            seconds: if kind == ApiKind::Sglang { 40.0 * round_ms / 1e3 } else { 10.0 },
            tokens_per_s: running * accept.unwrap_or(1.0) / round_ms * 1e3,
            speculates: accept.is_some(),
            accept_length: accept,
            prompts: at % 3 == 0,
            graph: Some(true),
            ..LogInterval::default()
        }
    });
    let settings = LoggedSettings { algorithm: accept.map(|_| "EAGLE3".into()), ..LoggedSettings::default() };
    ServerLog { kind, settings, intervals: intervals.collect(), retractions: 0 }
}

#[test]
fn the_gap_is_the_product_of_its_factors() {
    let (with, without) = (log(ApiKind::Sglang, 32.0, 12.0, Some(1.8)), log(ApiKind::Sglang, 31.0, 6.0, None));
    let promise = Promise { speed_up: Some(2.0), accept_length: Some(3.0) };
    let found = diagnose(&with, Some(&without), promise);
    let against = &found.against[0];
    // The rounds of each are a quarter of prompts: only rounds and acceptance differ, and the
    // batch.
    assert!((against.round_ratio.expect("rounds without prompts") - 2.0).abs() < 1e-9, "{against:?}");
    let expected = 1.8 / 2.0 * 32.0 / 31.0;
    assert!((against.speed_up - expected).abs() < 1e-9, "{against:?}");
    let product: f64 = found.factors.iter().map(|factor| factor.factor).product();
    assert!((product - 2.0 / against.speed_up).abs() < 1e-9, "{:?}", found.factors);
    assert!(found.findings[0].what.contains("slower than none"), "{:?}", found.findings);
    assert!(found.findings.iter().any(|finding| finding.what.contains("1.80 tokens a round")), "{:?}", found.findings);
    let load = &found.loads[0];
    assert!((load.round_ms.expect("rounds") - 12.0).abs() < 1e-9, "{load:?}");
    assert_eq!(load.reports, 12, "the first report has none before it");
    // A third of the reports take twice as long.
    assert!((load.other_share.expect("a share") - 0.25).abs() < 1e-9, "{load:?}");
}

#[test]
fn loads_that_are_not_alike_are_not_compared() {
    let (with, without) = (log(ApiKind::Sglang, 32.0, 12.0, Some(1.8)), log(ApiKind::Sglang, 8.0, 6.0, None));
    let found = diagnose(&with, Some(&without), Promise::default());
    assert!(found.against.is_empty() && found.factors.is_empty(), "{found:?}");
}

#[test]
fn findings_name_the_cause_that_the_log_shows() {
    let mut vllm = log(ApiKind::Vllm, 64.0, 20.0, Some(1.9));
    vllm.settings.max_running = Some(64);
    vllm.retractions = 3;
    for interval in &mut vllm.intervals {
        interval.positions = vec![0.8, 0.3, 0.02];
        interval.waiting = 10.0;
    }
    let found = diagnose(&vllm, None, Promise::default());
    let said: Vec<String> =
        found.findings.iter().map(|finding| format!("{} → {}", finding.what, finding.change)).collect();
    for expected in [
        "of 3 drafts the last one is accepted in under 10% of the rounds (position 3: 2.0%) → num_speculative_tokens 2",
        "10 requests wait while 64 run → --max-num-seqs is 64",
        "put back 3 times",
    ] {
        assert!(said.iter().any(|line| line.contains(expected)), "{expected}: {said:#?}");
    }
    let mut sglang = log(ApiKind::Sglang, 33.0, 20.0, Some(1.9));
    sglang.settings.captured = vec![1, 16, 32];
    sglang.intervals.iter_mut().for_each(|interval| interval.graph = Some(false));
    let found = diagnose(&sglang, None, Promise::default());
    let graphs = found.findings.iter().find(|finding| finding.what.contains("outside")).expect("a finding");
    assert!(graphs.change.contains("--cuda-graph-max-bs 33"), "{graphs:?}");
    sglang.settings.captured = vec![1, 16, 40];
    let found = diagnose(&sglang, None, Promise::default());
    assert!(
        found.findings.iter().any(|finding| finding.what.contains("padded to a captured batch of 40")),
        "{found:?}"
    );
}

#[test]
fn a_log_of_a_single_report_is_diagnosed_without_rounds() {
    let mut short = log(ApiKind::Vllm, 4.0, 10.0, None);
    short.intervals.truncate(1);
    let found = diagnose(&short, None, Promise::default());
    assert_eq!((found.loads.len(), found.loads[0].round_ms), (1, None));
}

/// Findings as lines.
fn said(log: &ServerLog) -> Vec<String> {
    let found = diagnose(log, None, Promise::default());
    found.findings.iter().map(|finding| format!("{} → {}", finding.what, finding.change)).collect()
}

#[test]
fn an_accept_length_alone_bounds_the_positions_of_both_engines() {
    for (kind, accept, steps, expected) in [
        (ApiKind::Sglang, 1.04, Some(3), Some("hardly any draft is accepted: 1.04 tokens per round")),
        (ApiKind::Vllm, 1.04, Some(3), Some("hardly any draft is accepted: 1.04 tokens per round")),
        // Look-ups have no steps.
        (ApiKind::Sglang, 1.04, None, Some("hardly any draft is accepted")),
        // 0.25 / 3 is the first share below a tenth.
        (
            ApiKind::Sglang,
            1.25,
            Some(5),
            Some("of 5 drafts the last 3 are accepted in under 10% of the rounds (position 3: at most 8.3%)"),
        ),
        (ApiKind::Sglang, 1.25, None, None),
        (ApiKind::Sglang, 1.25, Some(2), None),
        (ApiKind::Sglang, 1.25, Some(usize::MAX), None),
        (ApiKind::Sglang, 2.0, Some(5), None),
    ] {
        let mut log = log(kind, 8.0, 10.0, Some(accept));
        log.settings.num_steps = steps;
        log.settings.topk = steps.map(|_| 1);
        let lines = said(&log);
        let about = lines.iter().find(|line| line.contains("accepted"));
        match expected {
            Some(expected) => {
                assert!(about.is_some_and(|line| line.contains(expected)), "{accept} {steps:?}: {lines:#?}")
            }
            None => assert_eq!(about, None, "{accept} {steps:?}"),
        }
    }
    let mut positions = log(ApiKind::Vllm, 8.0, 10.0, Some(1.04));
    positions.intervals.iter_mut().for_each(|interval| interval.positions = vec![0.04, 0.0]);
    let lines = said(&positions);
    let advice = "num_speculative_tokens 1, or no speculation (without --speculative-config)";
    assert!(lines.iter().any(|line| line.contains(advice)), "{lines:#?}");
    let mut tree = log(ApiKind::Sglang, 8.0, 10.0, Some(1.25));
    (tree.settings.num_steps, tree.settings.topk) = (Some(5), Some(4));
    let advice = "--speculative-num-steps 2, and a tree of fewer nodes";
    assert!(said(&tree).iter().any(|line| line.contains(advice)), "{:#?}", said(&tree));
}

#[test]
fn fewer_drafts_cost_tokens_and_the_advice_says_how_many() {
    let mut measured = log(ApiKind::Vllm, 8.0, 10.0, Some(1.6));
    measured.intervals.iter_mut().for_each(|interval| interval.positions = vec![0.346, 0.16, 0.078]);
    let lines = said(&measured);
    let advice = "num_speculative_tokens 2: fewer rows, for 0.078 of 1.60 tokens per round (5%)";
    assert!(lines.iter().any(|line| line.contains(advice)), "{lines:#?}");
    // All positions equally often: 0.25 / 5 each.
    let mut bounded = log(ApiKind::Sglang, 8.0, 10.0, Some(1.25));
    (bounded.settings.num_steps, bounded.settings.topk) = (Some(5), Some(1));
    let lines = said(&bounded);
    let advice = "--speculative-num-steps 2: fewer rows, for at most 0.150 of 1.25 tokens per round (12%)";
    assert!(lines.iter().any(|line| line.contains(advice)), "{lines:#?}");
    assert!(!lines.iter().any(|line| line.contains("as many tokens")), "{lines:#?}");
}

#[test]
fn sizes_that_no_line_lists_are_those_of_the_printed_arguments() {
    use schemas::{keywords::Callee, version::EngineVersion};
    let arguments = |version: EngineVersion| {
        let keywords = Callee::ServerArgs.keywords().filter(|keyword| keyword.exists_in(version));
        let mut arguments: serde_json::Map<_, _> =
            keywords.map(|keyword| (keyword.name.to_owned(), serde_json::Value::Null)).collect();
        for (name, value) in [
            ("model_path", "m".into()),
            ("speculative_algorithm", "EAGLE3".into()),
            ("tp_size", 1.into()),
            ("max_running_requests", 64.into()),
            ("cuda_graph_max_bs", 20.into()),
        ] {
            arguments.insert(name.into(), value);
        }
        serde_json::Value::Object(arguments)
    };
    let mut short = log(ApiKind::Sglang, 33.0, 20.0, Some(1.9));
    short.intervals.iter_mut().for_each(|interval| interval.graph = Some(false));
    short.settings.arguments = arguments(EngineVersion::new(0, 5, 2));
    let has = |log: &ServerLog, text: &str| said(log).iter().any(|line| line.contains(text));
    assert!(has(&short, "the largest captured batch is 20: --cuda-graph-max-bs 33"), "{:#?}", said(&short));
    // The default list of that version depends on the memory of the GPU.
    if let Some(arguments) = short.settings.arguments.as_object_mut() {
        arguments.insert("cuda_graph_max_bs".into(), serde_json::Value::Null);
    }
    short.settings.free_memory = Some(22 * 1024);
    assert!(has(&short, "the largest captured batch is 8: --cuda-graph-max-bs 33"), "{:#?}", said(&short));
    // Arguments of no version are not resolved.
    if let Some(arguments) = short.settings.arguments.as_object_mut() {
        arguments.remove("mem_fraction_static");
    }
    assert!(has(&short, "batches of prompts or of other kinds"), "{:#?}", said(&short));
    short.settings.version = Some("0.5.2".into());
    assert!(has(&short, "the largest captured batch is 8"), "{:#?}", said(&short));
}

/// A report of 10 seconds with 8 requests at 2 tokens per round.
fn of_time(tokens_per_s: f64, prompts: bool) -> LogInterval {
    LogInterval {
        running: 8.0,
        seconds: 10.0,
        tokens_per_s,
        speculates: true,
        accept_length: Some(2.0),
        prompts,
        ..LogInterval::default()
    }
}

#[test]
fn reports_of_equal_time_add_up_tokens_and_those_of_equal_rounds_add_up_times() {
    let settings = LoggedSettings { algorithm: Some("eagle3".into()), ..LoggedSettings::default() };
    let intervals: Vec<LogInterval> =
        (0..20).map(|at| of_time(if at % 2 == 0 { 300.0 } else { 100.0 }, at % 2 == 1)).collect();
    let mut alternating = ServerLog { kind: ApiKind::Vllm, settings, intervals, retractions: 0 };
    let load = diagnose(&alternating, None, Promise::default()).loads[0].clone();
    let expected = (9.0 * 300.0 + 10.0 * 100.0) / 19.0;
    assert!((load.tokens_per_s - expected).abs() < 1e-9, "{load:?}");
    // A round takes 8 · 2 / 300 s.
    assert!((load.round_ms.expect("rounds") - 160.0 / 3.0).abs() < 1e-9, "{load:?}");
    assert!((load.other_share.expect("a share") - (1.0 - expected / 300.0)).abs() < 1e-9, "{load:?}");
    // A report that is shorter, or in which hardly anything happened, counts for its time.
    alternating.intervals.push(LogInterval { seconds: 1.0, ..of_time(10.0, true) });
    let load = diagnose(&alternating, None, Promise::default()).loads[0].clone();
    assert!((load.tokens_per_s - (190.0 * expected + 10.0) / 191.0).abs() < 1e-9, "{load:?}");
    // Accept lengths and positions are those of all rounds, not of all reports.
    alternating.intervals = vec![
        of_time(100.0, false),
        LogInterval { accept_length: Some(1.0), positions: vec![0.0], ..of_time(100.0, true) },
        LogInterval { positions: vec![1.0], ..of_time(300.0, false) },
    ];
    let load = diagnose(&alternating, None, Promise::default()).loads[0].clone();
    assert!((load.accept_length.expect("a length") - 400.0 / 250.0).abs() < 1e-9, "{load:?}");
    assert!((load.positions[0] - 150.0 / 250.0).abs() < 1e-9, "{load:?}");
}

#[test]
fn the_first_report_of_each_rank_is_left_out() {
    let mut ranks = log(ApiKind::Sglang, 8.0, 10.0, Some(2.0));
    let rate = ranks.intervals[1].tokens_per_s;
    ranks.intervals = (0..44)
        .map(|at| LogInterval {
            source: at % 4,
            tokens_per_s: if at < 4 { 10.0 } else { rate },
            // The rank's own prompts, of its first report alone.
            prompts: at < 4,
            seconds: if at < 4 { 64.0 } else { 0.4 },
            ..ranks.intervals[1].clone()
        })
        .collect();
    ranks.settings.max_running = Some(8);
    ranks.intervals.iter_mut().for_each(|interval| interval.waiting = 3.0);
    let found = diagnose(&ranks, None, Promise::default());
    let load = &found.loads[0];
    assert_eq!((found.sources, found.loads.len(), load.reports), (4, 1, 40));
    assert!((load.tokens_per_s - rate).abs() < 1e-9, "{load:?}");
    assert!(load.other_share.expect("a share") < 1e-9, "{load:?}");
    let lines = said(&ranks);
    let advice = "each of 4 ranks or engines runs at most 8: raise --max-running-requests (SGLang lowers it";
    assert!(lines.iter().any(|line| line.contains(advice)), "{lines:#?}");
    // One report of each rank is no load, as one report of a single rank is none.
    let one = LogInterval { running: 4.0, ..ranks.intervals[4].clone() };
    ranks.intervals.extend((0..4).map(|source| LogInterval { source, ..one.clone() }));
    assert_eq!(diagnose(&ranks, None, Promise::default()).loads.len(), 1);
}

#[test]
fn rounds_of_speculation_without_a_length_are_not_known() {
    let mut silent = log(ApiKind::Vllm, 8.0, 10.0, Some(2.0));
    silent.intervals.iter_mut().for_each(|interval| interval.accept_length = None);
    let found = diagnose(&silent, None, Promise::default());
    let load = &found.loads[0];
    assert_eq!((load.accept_length, load.round_ms, load.other_share), (None, None, None));
    assert!(found.unknown.iter().any(|line| line.contains("the accept length")), "{:?}", found.unknown);
    // Those that are known count.
    silent.intervals.iter_mut().skip(6).for_each(|interval| interval.accept_length = Some(2.0));
    let load = &diagnose(&silent, None, Promise::default()).loads[0];
    assert_eq!((load.accept_length, load.round_ms.map(f64::round)), (Some(2.0), Some(10.0)));
}

#[test]
fn advice_names_the_engine_that_wrote_the_log() {
    for (kind, flag) in [
        (ApiKind::Vllm, "--max-num-seqs is 64: raise"),
        (ApiKind::Sglang, "--max-running-requests is 64 (SGLang lowers"),
    ] {
        let mut full = log(kind, 64.0, 20.0, Some(1.9));
        full.settings.max_running = Some(64);
        full.intervals.iter_mut().for_each(|interval| interval.waiting = 10.0);
        let lines = said(&full);
        assert!(lines.iter().any(|line| line.contains(flag)), "{lines:#?}");
        assert!(kind == ApiKind::Sglang || !lines.iter().any(|line| line.contains("SGLang")), "{lines:#?}");
    }
}

#[test]
fn requests_that_wait_without_a_limit_in_sight_are_explained_by_the_engine() {
    for (kind, prompts, expected) in [
        (ApiKind::Sglang, false, "(62% of it is used): lower --schedule-conservativeness"),
        (ApiKind::Vllm, false, "neither --max-num-seqs nor the KV cache is at its limit"),
        (ApiKind::Sglang, true, "prompts come faster than they are processed: raise --chunked-prefill-size"),
    ] {
        let mut queued = log(kind, 32.0, 20.0, Some(1.9));
        queued.settings.max_running = Some(64);
        let clean = queued.intervals[1].clone();
        for interval in &mut queued.intervals {
            if !prompts {
                *interval = clean.clone();
            }
            (interval.waiting, interval.cache_used) = (40.0, Some(0.62));
        }
        let lines = said(&queued);
        let about = lines.iter().find(|line| line.contains("40 requests wait")).expect("a finding");
        assert!(about.contains(expected), "{about}");
    }
}

#[test]
fn advice_about_prompts_is_given_where_prompts_take_the_time() {
    for (in_prefill, expected) in [(0.0, "see what else runs on the host"), (0.2, "see whether prompts repeat")] {
        let mut counted = log(ApiKind::Sglang, 4.0, 20.0, Some(1.9));
        let spent = external::log::Spent { all: 1.0, rounds: 30.0, in_rounds: 0.7, in_prefill, parts: [0.0; 3] };
        counted.intervals.iter_mut().for_each(|interval| interval.spent = Some(spent));
        let lines = said(&counted);
        let about = lines.iter().find(|line| line.contains("at 4 running requests is not rounds")).expect("a finding");
        assert!(about.contains(expected), "{about}");
    }
    let mut once = log(ApiKind::Sglang, 4.0, 20.0, Some(1.9));
    once.retractions = 1;
    assert!(said(&once).iter().any(|line| line.contains("were put back once because")), "{:#?}", said(&once));
}

#[test]
fn a_comparison_that_is_missing_is_explained() {
    let of = |log: &ServerLog, other: &ServerLog| diagnose(log, Some(other), Promise::default()).unknown[0].clone();
    let (with, without) = (log(ApiKind::Sglang, 32.0, 12.0, Some(1.8)), log(ApiKind::Sglang, 8.0, 6.0, None));
    let said = of(&with, &without);
    assert!(said.contains("(32 running requests with speculation, 8 without"), "{said}");
    assert!(!said.contains("different engines"), "{said}");
    let said = of(&with, &log(ApiKind::Vllm, 8.0, 6.0, None));
    assert!(said.contains("different engines"), "{said}");
    assert!(of(&without, &log(ApiKind::Sglang, 8.0, 6.0, None)).contains("neither of the two"));
    let compared = diagnose(&with, Some(&log(ApiKind::Sglang, 32.0, 6.0, None)), Promise::default());
    assert!(!compared.unknown.iter().any(|line| line.contains("the speed-up")), "{:?}", compared.unknown);
}
