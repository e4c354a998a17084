//! Traces and simulated policies: `generate --trace` and `simulate`.

use std::{fs, path::Path};

use tempfile::TempDir;

use super::{EAGLE3, Ran, TARGET, check, text};

const LOAD: [&str; 8] = ["--rollout", "8x4", "--median-len", "30", "--max-len", "400", "--draws", "2"];
/// The load without the draws of a comparison.
const COSTS_LOAD: &[&str] = LOAD.split_at(6).0;

#[test]
fn policies_are_simulated_from_accept_lengths_and_from_a_trace() {
    let folder = TempDir::new().expect("a folder");
    let tiers = folder.path().join("tiers.json").display().to_string();
    let lengths = ["simulate", "--accept-lengths", "1.7,2.2,2.5", "--policy", "fixed,batch"];
    let lengths = [&lengths[..], &["--speculative-algorithm", "EAGLE3"]].concat();
    let ran =
        check(&[&lengths[..], &LOAD, &["--export", "slime", "--export-file", &tiers]].concat(), 0, &["simulated"]);
    for words in ["simulated: seconds until all", "batch over time", "chosen", "--sglang-speculative-num-steps"] {
        assert!(ran.stdout.contains(words), "no {words:?} in\n{}", ran.stdout);
    }
    let trace = folder.path().join("trace.jsonl").display().to_string();
    let models = ["--model-path", "models/tiny/target", "--speculative-draft-model-path", "models/tiny/eagle3"];
    let generate = ["generate", "--speculative-algorithm", "EAGLE3", "--device", "cpu", "--prompt", "def read(self"];
    let limits = ["--max-new-tokens", "24", "--trace", &trace, "--trace-limits", "3,1,4;2,3,6"];
    check(&[&generate[..], &models, &limits].concat(), 0, &["trace of 23 positions"]);
    let ran = check(&[&["simulate", "--trace", &trace, "--json"][..], &LOAD].concat(), 0, &[]);
    let found: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let policies = found["study"]["policies"].as_array().expect("policies");
    let names: Vec<&str> = policies.iter().filter_map(|one| one["name"].as_str()).collect();
    for name in ["none", "fixed 2,3,6", "sglang", "vllm-adaptive 3", "budget 3,1,4", "budget 2,3,6"] {
        assert!(names.contains(&name), "{name} of {names:?}");
    }
    assert_eq!(found["simulated"], true);
    check(&["simulate", "--accept-lengths", "1.7,2.9", "--batch-size", "4"], 2, &["accept lengths"]);
    check(&["simulate", "--accept-lengths", "1.7"], 2, &["give a load"]);
}

/// Writes a trace of the demo pair: 23 positions of one text, up to these limits.
#[track_caller]
fn traced(path: &Path, limits: &str) {
    let models = ["--model-path", TARGET, "--speculative-draft-model-path", EAGLE3];
    let generate = ["generate", "--speculative-algorithm", "EAGLE3", "--device", "cpu", "--prompt", "def read(self"];
    let trace = ["--max-new-tokens", "24", "--trace", text(path), "--trace-limits", limits];
    check(&[&generate[..], &models, &trace].concat(), 0, &["trace of 23 positions"]);
}

#[test]
fn a_server_with_adaptive_steps_is_simulated_by_its_version_and_file() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("adaptive.json");
    let slots = r#"{"update_interval": 2, "1": {"candidate_steps": [2, 3]}, "8": {"candidate_steps": [1], "why": 1}}"#;
    fs::write(&file, slots).expect("writable");
    let base = [&["simulate", "--accept-lengths", "1.7,2.2,2.5", "--policy", "none,sglang"][..], &LOAD].concat();
    let with = |more: &[&str], code: i32, words: &[&str]| check(&[&base[..], more].concat(), code, words);
    let config = ["--speculative-adaptive-config", text(&file)];
    let launch = [&config[..], &["--engine-version", "0.5.13", "--speculative-num-steps", "2", "--json"]].concat();
    let ran = with(&launch, 0, &[]);
    let found: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let notes = found["notes"].to_string();
    for words in ["the rule of 0.5.13, launched with 2 steps", "`why` in the slot from batch 8 on"] {
        assert!(notes.contains(words), "{notes}");
    }
    let shown = with(&[], 0, &[]).stdout;
    assert!(shown.contains("the rule of 0.5.23, launched with 3 steps"), "{shown}");
    assert!(shown.contains("[0, 1, 3] of [0, 1, 3, 5, 7] steps"), "{shown}");
    with(&["--engine-version", "0.5.10"], 2, &["--engine-version", "0.5.10", "0.5.11 is the first version"]);
    with(&["--speculative-num-steps", "4"], 2, &["--speculative-num-steps 4", "[0, 1, 3, 5, 7]"]);
    fs::write(&file, r#"{"8": {"candidate_steps": [1], "ema_alpha": "x"}}"#).expect("writable");
    with(&config, 2, &["adaptive.json", "the slot from batch 8 on: `ema_alpha`: expected a number"]);
    let other = ["simulate", "--accept-lengths", "1.7", "--policy", "fixed"];
    for flag in [&config[..], &["--engine-version", "0.5.20"], &["--speculative-num-steps", "1"]] {
        check(&[&other[..], flag, &LOAD].concat(), 2, &[flag[0], "add sglang to it"]);
    }
    let export = ["--export", "sglang-dspark", "--engine-version", "0.5.20"];
    check(&[&other[..3], &export, &LOAD].concat(), 2, &["--engine-version has no effect with --export sglang-dspark"]);
    // An output must not overwrite the file.
    with(&[&config[..], &["--policies-out", text(&file)]].concat(), 2, &["--speculative-adaptive-config"]);
}

#[test]
fn numbers_that_no_load_has_are_refused_with_their_flag() {
    let lengths = ["simulate", "--accept-lengths", "1.7,2.2"];
    let refused = |more: &[&str], words: &[&str]| check(&[&lengths[..], more].concat(), 2, words);
    refused(&["--rollout", "100000x100000"], &["100000 prompts × 100000 samples", "1048576"]);
    refused(&["--rollout", "9223372036854775807x2"], &["1048576 requests"]);
    refused(&["--rollout", "1000000x1", "--tail", "0", "--median-len", "16384"], &["output tokens on average"]);
    refused(&["--batch-size", "4", "--requests", "99999999999"], &["--requests 99999999999", "expected 1 to"]);
    refused(&["--batch-size", "4", "--prompt-len", "99999999999"], &["--prompt-len 99999999999"]);
    refused(
        &["--batch-size", "4", "--max-len", "99999999999"],
        &["--max-len 99999999999 is out of range", "expected 1 to"],
    );
    refused(&["--batch-size", "4", "--draws", "0"], &["--draws 0"]);
    refused(&["--batch-size", "4", "--max-running-requests", "99999999999"], &["--max-running-requests 99999999999"]);
    refused(&["--batch-size", "4", "--cuda-graph-bs", "1,99999999999"], &["--cuda-graph-bs 99999999999"]);
    refused(&["--batch-size", "4", "--max-total-tokens", "9", "--max-new-tokens", "99999999999"], &["max_new_tokens"]);
    refused(&["--batch-size", "4", "--contexts", "0"], &["--contexts 0", "expected 1 to"]);
    refused(&["--batch-size", "4", "--contexts", "512,512"], &["--contexts: expected ascending"]);
    refused(&["--batch-size", "4", "--speculative-algorithm", "EAGEL"], &["--speculative-algorithm EAGEL", "EAGLE3"]);
    let folder = TempDir::new().expect("a folder");
    let empty = folder.path().join("measured.jsonl");
    fs::write(&empty, "").expect("a file");
    refused(&["--against", text(&empty)], &["measured.jsonl", "no measured run"]);
}

#[test]
fn flags_without_effect_are_refused_with_what_they_need() {
    let lengths = ["simulate", "--accept-lengths", "1.7,2.2"];
    let refused = |load: &[&str], flags: &[&str], needs: &str| {
        let ran = check(&[&lengths[..], load, flags].concat(), 2, &[flags[0], needs]);
        assert!(ran.stdout.is_empty(), "{}", ran.stdout);
    };
    let (closed, rollout) = (["--batch-size", "4"], ["--rollout", "4x2"]);
    refused(&closed, &["--finish", "95"], "it needs --rollout");
    refused(&closed, &["--abort"], "it needs --rollout");
    refused(&closed, &["--burst", "2"], "it needs --request-rate");
    refused(&rollout, &["--burst", "2"], "it needs --request-rate");
    refused(&rollout, &["--abort"], "it needs --finish below 100");
    refused(&rollout, &["--keep-contexts"], "it needs --trace");
    refused(&rollout, &["--contexts", "9", "--policy", "fixed"], "it needs --policy batch-context");
    refused(&rollout, &["--shapes", "1,1,2", "--policy", "sglang"], "such as --policy fixed");
    refused(&["--arrivals", "none"], &["--requests", "9"], "cannot be used with");
    for flags in [&["--finish", "95"][..], &["--draws", "9"], &["--policy", "fixed"], &["--mixed-prefill"]] {
        refused(&["--against", "none"], flags, "cannot be used with");
    }
    for flags in [&["--policies-out", "x"][..], &["--draws", "9"], &["--policy", "fixed"], &["--mixed-prefill"]] {
        let head = ["--speculative-algorithm", "DSPARK", "--export", "sglang-dspark"];
        refused(&[&rollout[..], &head].concat(), flags, "without simulating any");
    }
}

#[test]
fn what_is_exported_is_that_of_the_draft_or_refused() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("exported.json");
    let export = |to: &str, more: &[&str], code: i32, words: &[&str]| -> Ran {
        let base = ["simulate", "--export", to, "--export-file", text(&file)];
        let load = if to == "sglang-dspark" { COSTS_LOAD } else { &LOAD };
        check(&[&base[..], load, more].concat(), code, words)
    };
    let lengths = ["--accept-lengths", "1.9,2.7,3.3,3.7,4.0,4.2,4.3"];
    let block = ["--times", "llama-3.1-8b-block8-h200"];
    let head = ["--speculative-algorithm", "DSPARK"];
    let chain = ["--shapes", "7,1,8"];
    export("sglang-dspark", &lengths, 2, &["--speculative-algorithm DSPARK"]);
    export("sglang-dspark", &[&lengths[..], &head].concat(), 2, &["give its chain with --shapes"]);
    let known = [&lengths[..], &head, &chain].concat();
    export("sglang-dspark", &known, 2, &["a pass for each step", "are those of an EAGLE-3 head"]);
    assert!(!file.exists());
    let written = export("sglang-dspark", &[&known[..], &block].concat(), 0, &["written"]);
    assert!(written.stdout.contains("--speculative-dspark-block-size 7") && file.exists(), "{}", written.stdout);
    export("sglang-dspark", &[&lengths[..], &["--speculative-algorithm", "DFLASH"]].concat(), 2, &["is DFLASH"]);
    export("slime", &lengths, 2, &["add --speculative-algorithm"]);
    let flags = export("slime", &[&known[..], &block].concat(), 0, &[]).stdout;
    assert!(flags.contains("--sglang-speculative-algorithm DSPARK"), "{flags}");

    // Names of algorithms are written as SGLang spells them, and what it needs besides is said.
    let eagle = ["--accept-lengths", "1.7,2.2", "--speculative-algorithm", "eagle3", "--policy", "fixed"];
    let flags = export("slime", &eagle, 0, &["add --sglang-speculative-draft-model-path"]).stdout;
    assert!(flags.contains("--sglang-speculative-algorithm EAGLE3"), "{flags}");

    let trace = folder.path().join("trace.jsonl");
    traced(&trace, "3,1,4");
    let traced = ["--trace", text(&trace)];
    export("sglang-dspark", &[&traced[..], &block].concat(), 2, &["the draft is EAGLE3", "those of a block head"]);
    let flags = export("slime", &[&traced[..], &["--policy", "fixed"]].concat(), 0, &[]).stdout;
    assert!(flags.contains("--sglang-speculative-algorithm EAGLE3"), "{flags}");
    // A budget has no table. At this price of rows it is the fastest.
    let costs = folder.path().join("costs.json");
    let text_of_costs = r#"{"format": 1, "source": "by hand", "verify_ms": [[1, 1.0], [2, 1.0001]], "request_ms": 0,
        "context_ms": 0, "draft": {"pass_ms": 0, "row_ms": 0, "context_ms": 0}, "prefill_step_ms": 1,
        "prefill_token_ms": 0}"#;
    fs::write(&costs, text_of_costs).expect("a file");
    let budget = [&traced[..], &["--times", text(&costs), "--policy", "budget"]].concat();
    let refused = export("spectune", &budget, 2, &["--policy budget has no table that spectune's engine could follow"]);
    assert!(!refused.stderr.contains("slime") && refused.stdout.is_empty(), "{}", refused.stderr);
    let both = [&budget[..budget.len() - 1], &["budget,fixed"]].concat();
    let other = "the chosen policy, budget 3,1,4, is not exported: it has no table that spectune's engine could follow";
    export("spectune", &both, 0, &[other, "is the fastest, with"]);
    let rows = fs::read_to_string(&file).expect("a file");
    assert!(rows.contains("[[policy]]") && !rows.contains("row_budget"), "{rows}");
    // SGLang's own rule needs no table, but a launch.
    let own = [&traced[..], &["--times", text(&costs), "--policy", "sglang"]].concat();
    let flags = export("slime", &own, 0, &["measure the policy sglang before"]).stdout;
    for flag in ["--sglang-speculative-num-steps 3", "--sglang-speculative-adaptive\n"] {
        assert!(flags.contains(flag), "{flag}: {flags}");
    }
    // The table of a block head changes by batch, which SGLang does not follow.
    let table = [&lengths[..], &["--policy", "batch"], &head, &block].concat();
    let refused = export("slime", &table, 2, &["no policy can be exported: batch: ", "not with DSPARK"]);
    assert!(refused.stdout.is_empty(), "{}", refused.stdout);
}

/// A trace of a DSPARK head of two drafts, whose confidence head states three times the log-odds by
/// which the text takes them.
fn confident_trace(texts: usize) -> String {
    let position = |at: usize| {
        let (accepted, odds) = (usize::from(!at.is_multiple_of(8)) + usize::from(at % 8 > 3), 7.0_f64.ln());
        serde_json::json!({
            "score": [-0.1, -0.2], "parent": [65535, 0], "rank": [0, 0], "depth": [1, 2], "chance": [null, null],
            "on_text": (0..accepted).collect::<Vec<_>>(), "confidence": [3.0 * odds, 0.3],
        })
    };
    let text = serde_json::json!({
        "prompt_tokens": 9, "output_tokens": 401, "sampled": false,
        "positions": (0..400).map(position).collect::<Vec<_>>(),
    });
    let shape = serde_json::json!({"num_steps": 2, "topk": 1, "num_draft_tokens": 3});
    let trace = serde_json::json!({
        "format": 2, "source": "DSPARK", "limit": shape, "largest": [shape], "texts": vec![text; texts],
    });
    format!("{trace}\n")
}

#[test]
fn temperatures_are_written_where_the_trace_has_confidences() {
    let folder = TempDir::new().expect("a folder");
    let [trace, costs, table, temperatures] =
        ["trace.jsonl", "costs.json", "table.json", "temperatures.json"].map(|name| folder.path().join(name));
    let block = r#"{"format": 1, "source": "by hand", "verify_ms": [[1, 1.0], [2, 1.9]], "request_ms": 0,
        "context_ms": 0, "draft": {"kind": "block", "block": 2, "pass_ms": 0.1, "row_ms": 0, "context_ms": 0},
        "prefill_step_ms": 1, "prefill_token_ms": 0}"#;
    fs::write(&costs, block).expect("a file");
    let base = ["simulate", "--export", "sglang-dspark", "--export-file", text(&table), "--trace", text(&trace)];
    let base = [&base[..], &["--times", text(&costs)], COSTS_LOAD].concat();
    let given = [&base[..], &["--temperatures-file", text(&temperatures)]].concat();
    fs::write(&trace, confident_trace(2)).expect("a file");
    let ran = check(&given, 0, &["calibration error on 399 positions of other texts", "temperatures.json"]);
    let flag = format!("--speculative-dspark-confidence-sts-path {}", temperatures.display());
    assert!(ran.stdout.contains(&flag), "{}", ran.stdout);
    let read = |path: &Path| fs::read_to_string(path).expect("it is written");
    let written: serde_json::Value = serde_json::from_str(&read(&temperatures)).expect("JSON");
    let found: Vec<f64> = serde_json::from_value(written["temperatures"].clone()).expect("numbers");
    assert!(found.len() == 2 && (2.0..4.5).contains(&found[0]), "{found:?}");
    // One text cannot both fit and judge, and a trace of an older format has no confidences.
    fs::write(&trace, confident_trace(1)).expect("a file");
    check(&given, 2, &["--temperatures-file", "at least two"]);
    let ran = check(&base, 0, &["no temperatures for the confidence head"]);
    assert!(!ran.stdout.contains("--speculative-dspark-confidence-sts-path"), "{}", ran.stdout);
    fs::write(&trace, read(&trace).replace("\"confidence\"", "\"other\"").replace("\"format\":2", "\"format\":1"))
        .expect("a file");
    check(&given, 2, &["the trace has no confidences"]);
    let other = ["simulate", "--trace", text(&trace), "--export", "slime", "--temperatures-file", "x"];
    check(&[&other[..], &LOAD].concat(), 2, &["--temperatures-file is for --export sglang-dspark"]);
}

#[test]
fn a_tampered_or_truncated_trace_is_refused_with_its_name() {
    let folder = TempDir::new().expect("a folder");
    let trace = folder.path().join("trace.jsonl");
    traced(&trace, "3,1,4;2,2,6");
    let whole = fs::read_to_string(&trace).expect("a trace");
    let refused = |content: &str, words: &[&str]| {
        fs::write(&trace, content).expect("a file");
        let ran = check(&[&["simulate", "--trace", text(&trace)][..], &LOAD].concat(), 2, &["trace.jsonl"]);
        assert!(words.iter().all(|word| ran.stderr.contains(word)), "no {words:?} in {}", ran.stderr);
    };
    refused(&whole[..whole.len() / 3], &["line 1", "EOF"]);
    refused("", &["no trace"]);
    refused(&whole.replacen("\"depth\":[1", "\"depth\":[9", 1), &["line 1: text 0: position", "depth 9"]);
    refused(&whole.replacen("\"rank\":[0", "\"rank\":[5", 1), &["rank 5"]);
    refused(&whole.replacen("\"prompt_tokens\":", "\"prompt_tokens\":1", 1), &["different texts"]);
    refused(&whole.replacen("EAGLE3", "DSPARK", 1), &["different drafts"]);
}

#[test]
fn a_trace_that_cannot_be_made_is_refused_before_a_text_is_generated() {
    let folder = TempDir::new().expect("a folder");
    let trace = folder.path().join("trace.jsonl");
    let refused = |path: &Path, limits: &str, more: &[&str], words: &[&str]| {
        let base = ["generate", "--model-path", TARGET, "--device", "cpu", "--prompt", "def"];
        let files = ["--trace", text(path), "--trace-limits", limits];
        let ran = check(&[&base[..], &files, more].concat(), 2, words);
        assert!(ran.stdout.is_empty() && !path.is_file(), "{}", ran.stdout);
    };
    let head = ["--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", EAGLE3];
    let second = [&head[..], &["--speculative-second-source", "PROMPT_LOOKUP"]].concat();
    refused(&trace, "3,1,4", &second, &["remove --speculative-second-source"]);
    refused(&trace, "3,1,4", &["--speculative-algorithm", "PROMPT_LOOKUP"], &["has no trace by position"]);
    refused(&trace, "3,1,4", &[], &["needs a draft"]);
    refused(&trace, "none", &head, &["--trace-limits none"]);
    refused(&trace, "0,1,1", &head, &["at least one draft step"]);
    refused(&folder.path().join("none/trace.jsonl"), "3,1,4", &head, &["cannot write", "none/trace.jsonl"]);
    refused(folder.path(), "3,1,4", &head, &["cannot write"]);
    refused(&trace, "3,1,4", &[&head[..], &["--max-new-tokens", "1"]].concat(), &["--max-new-tokens"]);
}

#[test]
fn simulations_that_cannot_be_are_refused_before_the_work() {
    let folder = TempDir::new().expect("a folder");
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        fs::write(&path, content).expect("a file");
        path.display().to_string()
    };
    let lengths = ["simulate", "--accept-lengths", "1.8,2.4", "--draws", "2", "--median-len", "10"];
    let refused = |more: &[&str], words: &[&str]| {
        let ran = check(&[&lengths[..], more].concat(), 2, words);
        assert!(ran.stdout.is_empty(), "{more:?}: {}", ran.stdout);
    };
    refused(&["--rollout", "4x2", "--max-len", "0"], &["--max-len 0", "expected 1 to 1048576"]);
    refused(&["--rollout", "4x2", "--tail", "inf"], &["--tail inf: expected a finite number"]);
    refused(&["--rollout", "4x2", "--max-len", "9"], &["--median-len 10 is above --max-len 9"]);
    refused(&["--request-rate", "1e-300"], &["beyond the clock"]);
    for (content, words) in [
        ("", "no arrival time"),
        ("0\n99999999999999999999\n", "line 2: expected seconds, at least 0"),
        ("0\n-1\n", "line 2: expected seconds, at least 0"),
        ("0\nsoon\n", "found \"soon\""),
        ("1\n0\n", "line 2: 0 s is before the last time"),
    ] {
        refused(&["--arrivals", &file("arrivals", content)], &["arrivals: ", words]);
    }
    refused(&["--batch-size", "300"], &["--batch-size 300 is above --max-running-requests 256"]);
    refused(&["--request-rate", "inf"], &["--request-rate inf: expected a finite number above 0"]);
    // A wrong unit shows in a note, and traces are read.
    let trace = file(
        "trace.jsonl",
        "{\"arrival_ms\": 1500, \"output_length\": 3}\n{\"arrival_ms\": 0, \"output_length\": 5}\n",
    );
    let lengths_of_trace =
        ["simulate", "--accept-lengths", "1.8,2.4", "--draws", "2", "--policy", "fixed", "--lengths", &trace];
    check(&[&lengths_of_trace[..], &["--arrivals", &trace]].concat(), 0, &["2 recorded requests arrive within 1.50 s"]);
    let times = file("times", "0\n500\n");
    check(&[&lengths[..], &["--arrivals", &times]].concat(), 0, &["2 recorded requests arrive within 500 s"]);
    let load = ["--rollout", "4x2"];
    let refused = |more: &[&str], words: &[&str]| refused(&[&load[..], more].concat(), words);
    refused(&["--policy", "budget"], &["--policy budget", "give --trace FILE"]);
    refused(&["--policy", "vllm-adaptive,none"], &["--policy vllm-adaptive", "give --trace FILE"]);
    refused(&["--policies-out", text(&folder.path().join("none/out"))], &["cannot write"]);
    refused(&["--policies-out", text(folder.path())], &["cannot write"]);
    let out = folder.path().join("out").display().to_string();
    let both = ["--export", "spectune", "--export-file", &out, "--policies-out", &out];
    refused(&both, &["--export-file", "is also the file of --policies-out"]);
    refused(&["--json", "--export", "spectune"], &["add --export-file"]);
    assert!(!folder.path().join("out").exists());
}

#[test]
fn a_simulation_in_json_has_its_warnings_and_files_only() {
    let folder = TempDir::new().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    fs::write(at("lengths"), "\u{feff}7\n9\n").expect("a file");
    let rows = at("rows.toml");
    let lengths = at("lengths");
    let load = ["--rollout", "4x2", "--lengths", text(&lengths), "--draws", "2", "--policy", "fixed"];
    let draft = ["simulate", "--accept-lengths", "1.9", "--speculative-algorithm", "NGRAM", "--json"];
    let export = ["--export", "spectune", "--export-file", text(&rows)];
    let ran = check(&[&draft[..], &load[..], &export[..]].concat(), 0, &["written: ", "looked up in texts"]);
    let found: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON alone");
    let notes = found["notes"].as_array().expect("notes");
    let warns = |note: &serde_json::Value| note.as_str().is_some_and(|note| note.contains("looked up in texts"));
    assert!(notes.iter().any(warns), "{notes:?}");
    assert!(fs::read_to_string(&rows).expect("the rows").contains("[[policy]]"));
}
