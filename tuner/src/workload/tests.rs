use std::{fs, path::Path, time::Duration};

use engine::Engine;
use schemas::{
    sweep::{self, SweepFile},
    text::Source,
};

use super::{LoadedWorkload, ModelText};
use crate::{
    fixtures::demo,
    trials::configuration::{ContextRange, TrialLoad},
};

/// Parses the `[workload]` table of a sweep file.
fn requested(lines: &str) -> sweep::Workload {
    let text = format!(
        "[models]\ntarget = 't'\ndraft = 'd'\nalgorithm = 'EAGLE3'\n[workload]\noutput_length = 8\nchat = false\n{lines}\n"
    );
    let file = SweepFile::read(&Source::new("sweep.toml", text));
    file.unwrap_or_else(|finding| panic!("{lines}: {}", finding.message)).workload
}

/// Writes a file named `file` and loads a workload that uses it.
fn load(engine: &Engine, content: &str, lines: &str) -> Result<LoadedWorkload, String> {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("file"), content).expect("a file");
    let shown = folder.path().display().to_string();
    LoadedWorkload::load(&requested(lines), folder.path(), &ModelText::from_engine(engine))
        .map_err(|error| error.to_string().replace(&shown, "."))
}

#[test]
fn one_text_in_every_form_is_one_workload() {
    let engine = demo::engine(1);
    let turns = load(&engine, r#"{"question_id": 1, "turns": ["let x", "no"]}"#, "prompts = 'file'").expect("turns");
    let expected = engine.text().expect("a tokenizer").encode("let x").expect("tokens");
    assert_eq!(turns.requests.len(), 16);
    assert_eq!(turns.requests[0].input_ids, expected);
    for content in [
        r#"{"conversations": [{"from": "human", "value": "let x"}, {"from": "gpt", "value": "a"}]}"#,
        r#"[{"conversations": [{"from": "human", "value": "let x"}]}]"#,
        r#"{"messages": [{"role": "user", "content": "let x"}]}"#,
        r#"{"custom_id": "1", "body": {"messages": [{"role": "user", "content": "let x"}]}}"#,
        r#"{"prompt": "let x"}"#,
        r#"{"text": "let x"}"#,
        r#"{"instruction": "let x", "input": ""}"#,
        r#"["let x"]"#,
        "let x\n\n",
        "instruction,output\nlet x,1\n",
    ] {
        assert_eq!(load(&engine, content, "prompts = 'file'"), Ok(turns.clone()), "{content}");
    }
    let timed = load(&engine, r#"{"arrival_s": 4, "prompt": "let x"}"#, "trace = 'file'").expect("a trace");
    assert_eq!((timed.requests.as_slice(), timed.recorded.as_slice()), (&turns.requests[..1], &[Duration::ZERO][..]));
}

#[test]
fn a_file_with_several_bad_lines_says_how_many() {
    let engine = demo::engine(1);
    let content = "{\"prompt\": \"let x\"}\n{\"prompt\": 3}\n{\"prompt\": \"let y\"}\n{}\n{\"prompt\"";
    let words = load(&engine, content, "prompts = 'file'").expect_err("three bad lines");
    assert!(words.contains("file, line 2: column 12: expected a text"), "{words}");
    assert!(words.contains("(3 of 5 entries cannot be used; this is the first)"), "{words}");
}

#[test]
fn a_trace_of_burstgpt_has_arrivals_and_lengths() {
    let engine = demo::engine(1);
    let content = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n\
                   7.5,ChatGPT,9,4,13,API log\n5,GPT-4,3,2,5,API log\n6,GPT-4,3,0,3,API log\n";
    let trace = load(&engine, content, "trace = 'file'").expect("a trace");
    let lengths: Vec<_> =
        trace.requests.iter().map(|request| (request.input_ids.len(), request.stop.max_new_tokens)).collect();
    assert_eq!((lengths, trace.left_out), (vec![(3, Some(2)), (9, Some(4))], 1));
    assert_eq!(trace.arrivals(TrialLoad::Recorded, 0), Some(vec![Duration::ZERO, Duration::from_millis(2500)]));
}

#[test]
fn a_trace_of_azure_has_dates() {
    let engine = demo::engine(1);
    let content = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-12 00:00:01.5+00:00,9,4\n\
                   2024-05-12 00:00:00+00:00,3,2\n";
    let trace = load(&engine, content, "trace = 'file'").expect("a trace");
    let lengths: Vec<_> =
        trace.requests.iter().map(|request| (request.input_ids.len(), request.stop.max_new_tokens)).collect();
    assert_eq!((lengths, trace.left_out), (vec![(3, Some(2)), (9, Some(4))], 0));
    assert_eq!(trace.recorded, [Duration::ZERO, Duration::from_millis(1500)]);
}

#[test]
fn the_pace_of_a_trace_is_stated() {
    let engine = demo::engine(1);
    let content = "{\"arrival_s\": 7, \"input_length\": 4}\n{\"arrival_s\": 7.5, \"input_length\": 4}\n\
                   {\"arrival_s\": 10.21, \"input_length\": 4}";
    let span = |lines: &str| load(&engine, content, lines).expect("a trace").recorded_span();
    assert_eq!(span("trace = 'file'").as_deref(), Some("3 recorded requests arrive within 3.21 s, 0.623 per second"));
    assert_eq!(span("trace = 'file'\nrequests = 1").as_deref(), Some("all 1 recorded requests arrive at once"));
    assert_eq!(super::significant(1950.4), "1950");
}

#[test]
fn a_batch_larger_than_the_workload_asks_more_of_the_same_requests() {
    let engine = demo::engine(1);
    let content = "{\"prompt\": \"let x\"}\n{\"prompt\": \"let y\"}";
    let workload = load(&engine, content, "prompts = 'file'\nrequests = 6").expect("a workload");
    assert_eq!((workload.requests.len(), workload.prompts), (6, 2));
    for (batch_size, requests) in [(1, 6), (6, 6), (100, 100)] {
        let load = TrialLoad::BatchSize(batch_size);
        assert_eq!((workload.requests_under(load), workload.tokens_under(load)), (requests, 8 * requests as u64));
    }
    assert_eq!(workload.requests_under(TrialLoad::Recorded), 6);
}

#[test]
fn a_load_of_a_context_bucket_has_the_requests_of_the_bucket_only() {
    let engine = demo::engine(1);
    let content = "{\"prompt_ids\": [1, 2, 3, 4]}\n{\"prompt_ids\": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]}\n\
                   {\"prompt_ids\": [1, 2, 3, 4, 5, 6]}";
    let workload = load(&engine, content, "prompts = 'file'\nrequests = 5").expect("a workload");
    // Outputs have 8 tokens: halfway, the contexts are 8, 16, 10, 8 and 16.
    let load = |batch, above, up_to| TrialLoad::BatchInContexts(batch, ContextRange { above, up_to });
    let (short, long) = (load(2, 0, Some(10)), load(3, 10, None));
    assert_eq!((workload.places_of(short), workload.sent_under(long)), (vec![0, 2, 3], vec![1, 4, 1]));
    assert_eq!((workload.requests_under(short), workload.tokens_under(long)), (3, 24));
    assert_eq!(workload.for_load(long).requests, [workload.requests[1].clone(), workload.requests[4].clone()]);
    assert_eq!(*workload.for_load(TrialLoad::BatchSize(2)), workload);
    assert!(workload.check_buckets(&[short, long, TrialLoad::BatchSize(1)], "a file").is_ok());
    let words =
        workload.check_buckets(&[short, load(1, 16, Some(64))], "a file").expect_err("no such request").to_string();
    assert!(
        words.contains("no request of a file has contexts of 17 to 64; ")
            && words.contains("contexts of 8 to 16 tokens"),
        "{words}"
    );
}

#[test]
fn a_bad_file_is_named_with_the_line() {
    let engine = demo::engine(1);
    let good = r#"{"prompt": "let x", "arrival_s": 5}"#;
    for (source, bad, expected) in [
        ("prompts", r#"{"query": "a"}"#, "file, line 2: no prompt in it: expected one of turns, messages"),
        (
            "prompts",
            r#"{"timestamp": 9, "input_length": 5}"#,
            "line 2: times and lengths without a prompt: such a trace is",
        ),
        ("prompts", r#"{"prompt": 7}"#, "file, line 2: column 12: expected a text in quotes, found 7"),
        ("trace", r#"{"prompt": "a"}"#, "file, line 2: no arrival time"),
        ("trace", r#"{"arrival_s": 9}"#, "file, line 2: neither input_length nor a prompt"),
        ("trace", r#"{"arrival_s": 9, "input_length": 500}"#, "file, line 2: the prompt has 500 tokens; with 8 new"),
        (
            "trace",
            r#"{"arrival_s": 9, "input_length": 99, "output_length": 30}"#,
            "file, line 2: the prompt has 99 tokens; with 30 new ones it does not fit the context of 128",
        ),
        ("trace", r#"{"arrival_s": 1e300, "input_length": 9}"#, "line 2: it arrives too long after the first request"),
        ("input_ids", "", "file: expected a JSON list of token-id lists"),
    ] {
        let found = load(&engine, &format!("{good}\n{bad}\n"), &format!("{source} = 'file'")).expect_err(bad);
        assert!(found.contains(expected), "{bad}: {found}");
    }
    let silent = load(&engine, r#"{"turns": []}"#, "prompts = 'file'").expect_err("no one speaks");
    assert!(silent.contains("file contains no prompt (1 were skipped"), "{silent}");
    let missing =
        LoadedWorkload::load(&requested("trace = 'none.jsonl'"), Path::new("."), &ModelText::from_engine(&engine))
            .expect_err("no file");
    assert!(missing.to_string().contains("cannot read none.jsonl"), "{missing}");
    let much = super::check_total(super::MOST_TOKENS + 1).expect_err("too much").to_string();
    assert!(much.contains("lower workload.requests"), "{much}");
}

#[test]
fn a_trace_says_when_and_how_long() {
    let engine = demo::engine(1);
    let content = "{\"arrival_ms\": 3500, \"input_length\": 7, \"output_length\": 5, \"hash_ids\": [1]}\n\
                   {\"arrival_ms\": 1000, \"input_length\": 4}\n\
                   {\"arrival_ms\": 2000, \"input_length\": 90, \"output_length\": 5}\n\
                   {\"arrival_ms\": 9000, \"input_length\": 4}\n";
    let lines = "trace = 'file'\nmax_prompt_tokens = 50\nrequests = 2";
    let trace = load(&engine, content, lines).expect("a trace");
    let lengths: Vec<_> =
        trace.requests.iter().map(|request| (request.input_ids.len(), request.stop.max_new_tokens)).collect();
    assert_eq!(lengths, [(4, Some(8)), (7, Some(5))]);
    assert_eq!(trace.arrivals(TrialLoad::Recorded, 0), Some(vec![Duration::ZERO, Duration::from_millis(2500)]));
    assert_eq!(trace.left_out, 1);
    assert_eq!(load(&engine, content, lines), Ok(trace.clone()), "the same at every reading");
    let later = load(&engine, &content.replace("3500", "3501"), lines).expect("a trace");
    assert_eq!(later.requests, trace.requests);
    assert_ne!(later.hash, trace.hash, "the hash covers the times");
}
