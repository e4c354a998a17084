mod matrix;

use launch::{Launch, Options};
use schemas::{
    chain_tables::NoTable,
    diagnostic::Severity,
    engines::{Engine, NEWEST_SGLANG, NEWEST_VLLM, SLIME_PIN},
    export::{ExportError, Exported, Form, Measured, Tuning, export},
    flags::Key,
    launch_file::LaunchFile,
    text::Source,
    tree::TreeShape,
    tuned::{TunedFile, TunedVerdict},
    version::EngineVersion,
};

const TREE: TreeShape = TreeShape::whole_tree(5, 4, 16);

fn launch_file() -> LaunchFile {
    LaunchFile {
        model_path: Some("models/target one".into()),
        speculative_algorithm: Some("EAGLE3".into()),
        speculative_draft_model_path: Some("models/draft".into()),
        // A shape that the table replaces.
        speculative_num_steps: Some(9),
        device: Some("cpu".into()),
        attention_backend: Some("native".into()),
        tp_size: Some(2),
        trust_remote_code: Some(true),
        ..LaunchFile::default()
    }
}

fn table() -> Vec<(usize, TreeShape)> {
    vec![(1, TREE), (8, TreeShape::chain(3)), (32, TreeShape::OFF)]
}

fn tuning(launch: LaunchFile, table: &[(usize, TreeShape)]) -> Tuning {
    let target_dtype = Some("bfloat16".to_owned());
    let (table, draft_context_length) = (table.to_vec(), Some(2048));
    Tuning {
        launch,
        table,
        verdicts: Vec::new(),
        target_dtype,
        draft_context_length,
        gpu: None,
        measured: None,
        server: None,
    }
}

#[test]
fn every_form_says_whose_figures_chose_the_shape() {
    let chain = [(8, TreeShape::chain(3))];
    let note = |form, engine: Option<&str>| {
        let measured = engine.map(|engine| Measured { engine: engine.into(), device: "NVIDIA H200".into() });
        let tuning = Tuning { measured, ..tuning(launch_file(), &chain) };
        export(&tuning, form, None, None).expect("exported").general[0].clone()
    };
    for form in Form::ALL {
        let engine = form.engine();
        let expected = format!("{engine} was not measured: another engine may rank the same shapes differently");
        assert_eq!(note(form, None), expected);
        let own = format!("chosen from measurements of spectune's own engine 0.1.0 on NVIDIA H200; {expected}");
        assert_eq!(note(form, Some("spectune 0.1.0")), own);
    }
    assert!(!note(Form::Sglang, Some("SGLang 0.5.23")).contains("was not measured"));
    let other = note(Form::Vllm, Some("SGLang 0.5.23"));
    assert!(other.starts_with("chosen from measurements of SGLang 0.5.23 on NVIDIA H200; vLLM was not"), "{other}");
}

#[test]
fn notes_name_flags_as_the_launch_spells_them() {
    let notes = |form, version| all(&exported(form, Some(1), version));
    assert!(notes(Form::Sglang, Some("0.5.23")).contains("--cuda-graph-max-bs-decode 1 is filled in"));
    assert!(notes(Form::Sglang, Some("0.5.9")).contains("--cuda-graph-max-bs 1 is filled in"));
    let slime = notes(Form::Slime, None);
    assert!(slime.contains("--sglang-max-running-requests 1 is filled in") && !slime.contains("\n--max-"), "{slime}");
}

#[test]
fn vllm_gets_blocks_and_hears_of_its_share_of_memory() {
    let with = |page_size| {
        let launch = LaunchFile { page_size: Some(page_size), mem_fraction_static: Some(0.8), ..launch_file() };
        export(&tuning(launch, &[(8, TreeShape::chain(3))]), Form::Vllm, None, None).expect("exported")
    };
    assert!(with(16).text.contains("--block-size 16"), "{}", with(16).text);
    let notes = all(&with(16));
    assert!(notes.contains("--gpu-memory-utilization") && !notes.contains("--page-size"), "{notes}");
    let odd = with(48);
    assert!(!odd.text.contains("--block-size") && all(&odd).contains("--block-size takes [1, 8, 16"));
}

#[test]
fn the_adaptive_file_ends_at_the_batch_that_is_requested_for() {
    let chains = [(1, TreeShape::chain(5)), (8, TreeShape::chain(3)), (32, TreeShape::OFF)];
    let tuning = tuning(launch_file(), &chains);
    let exported = |batch| export(&tuning, Form::SglangAdaptive, batch, None).expect("exported");
    let file: serde_json::Value = serde_json::from_str(&exported(Some(4)).text).expect("JSON");
    assert_eq!(file, serde_json::json!({ "1": {"candidate_steps": [5]}, "2": {"candidate_steps": [3]} }));
    let notes = exported(Some(4)).notes.join("\n");
    assert!(notes.contains("--max-running-requests 4") && notes.contains("1 of 3 rows are left out"), "{notes}");
    let command = exported(Some(4)).command.expect("a command");
    assert!(
        command.contains("--cuda-graph-bs-decode 1 2 4 ") || command.contains("--cuda-graph-bs-decode 1 2 4\n"),
        "{command}"
    );
    assert!(exported(Some(99)).notes.join("\n").contains("outside the measured range (up to 32)"));
    assert_eq!(exported(None).text, exported(Some(32)).text);
}

fn exported(form: Form, batch_size: Option<usize>, version: Option<&str>) -> Exported {
    let tuning = tuning(launch_file(), &table());
    let version = version.map(|version| version.parse().expect("a version"));
    export(&tuning, form, batch_size, version).expect("exported")
}

/// All remarks on an export.
fn all(exported: &Exported) -> String {
    [&exported.general[..], &exported.notes].concat().join("\n")
}

fn read_back(text: &str) -> Launch {
    let parsed = launch::parse(&Source::new("exported.sh", text), &Options::default());
    // The remark that vLLM is read only in part has the harm info.
    let found: Vec<_> = parsed.findings.iter().filter(|found| found.harm > Severity::Info).collect();
    assert!(found.is_empty(), "{text}\n{found:?}");
    assert_eq!(parsed.launches.len(), 1, "{text}");
    parsed.launches.into_iter().next().expect("one launch")
}

fn check(launch: &Launch, expected: &[(Key, Option<&str>)]) {
    for (key, value) in expected {
        assert_eq!(launch.text(*key).map(|text| text.value), *value, "{key:?}");
    }
}

#[test]
fn a_batch_of_no_request_is_refused() {
    let tuning = tuning(launch_file(), &table());
    for form in [Form::Sglang, Form::Slime, Form::Vllm, Form::SglangAdaptive] {
        assert_eq!(export(&tuning, form, Some(0), None), Err(ExportError::EmptyBatch));
    }
}

#[test]
fn what_is_said_of_a_version_holds_for_it() {
    let old = EngineVersion::new(0, 5, 9);
    let tuning = tuning(launch_file(), &[(8, TreeShape::chain(3))]);
    let refused = export(&tuning, Form::SglangAdaptive, None, Some(old));
    assert_eq!(refused, Err(ExportError::AdaptiveVersion(NoTable::SglangWithout(old))));
    let notes = |version| export(&tuning, Form::Slime, None, version).map(|exported| all(&exported));
    assert!(notes(None).is_ok_and(|notes| notes.contains("which slime pins")));
    assert!(notes(Some(old)).is_ok_and(|notes| notes.contains("written for SGLang 0.5.9")));
}

#[test]
fn a_version_outside_of_the_known_ones_is_named_as_the_linter_names_it() {
    for (form, known, unknown, words) in [
        (Form::Sglang, "0.5.23", "0.6.0", "SGLang 0.6.0 is newer than 0.5.23, the newest that is known"),
        (Form::Sglang, "0.5.16", "0.1.0", "SGLang 0.1.0 is older than "),
        (Form::Slime, "0.5.15.post1", "1.0.0", "SGLang 1.0.0 is newer than 0.5.23"),
        (Form::Vllm, "0.33.0", "9.9.9", "vLLM 9.9.9 is newer than 0.33.0, the newest that is known"),
        (Form::TensorRtLlm, "1.4.0", "2.0.0", "TensorRT-LLM 2.0.0 is newer than 1.4.0"),
    ] {
        let of = |version: &str| all(&written(form, &[(8, TreeShape::chain(3))], None, Some(version)));
        let found = of(unknown);
        assert!(found.contains(words) && found.contains("check the number"), "{form}: {found}");
        assert!(!of(known).contains("that is known"), "{form} {known}");
    }
}

#[test]
fn the_command_reads_back_as_the_tuned_launch() {
    let exported = exported(Form::Sglang, Some(1), None);
    let launch = read_back(&exported.text);
    assert_eq!(launch.engine, Engine::Sglang);
    check(
        &launch,
        &[
            (Key::ModelPath, Some("models/target one")),
            (Key::SpeculativeAlgorithm, Some("EAGLE3")),
            (Key::SpeculativeDraftModelPath, Some("models/draft")),
            (Key::SpeculativeNumSteps, Some("5")),
            (Key::SpeculativeEagleTopk, Some("4")),
            (Key::SpeculativeNumDraftTokens, Some("16")),
            (Key::Dtype, Some("bfloat16")),
            (Key::ContextLength, Some("2048")),
            (Key::MaxRunningRequests, Some("1")),
            (Key::CudaGraphMaxBs, Some("1")),
            (Key::TpSize, Some("2")),
            (Key::Device, None),
            (Key::AttentionBackend, Some("triton")),
        ],
    );
    let notes = all(&exported);
    for part in
        ["3,1,4 at batch 2 to 8", "no speculation at batch 9 to 32", "--device cpu", "--attention-backend native"]
    {
        assert!(notes.contains(part), "{part}: {notes}");
    }
}

#[test]
fn flags_are_spelled_as_the_version_wants() {
    assert!(exported(Form::Sglang, Some(1), Some("0.5.9")).text.contains("--cuda-graph-max-bs 1\n"));
    assert!(exported(Form::Sglang, Some(1), Some("0.5.23")).text.contains("--cuda-graph-max-bs-decode 1\n"));
}

#[test]
fn slime_gets_its_array_without_what_it_sets_itself() {
    let exported = exported(Form::Slime, Some(8), None);
    let launch = read_back(&exported.text);
    assert_eq!(launch.engine, Engine::Slime);
    check(
        &launch,
        &[
            (Key::SpeculativeNumSteps, Some("3")),
            (Key::SpeculativeEagleTopk, Some("1")),
            (Key::SpeculativeNumDraftTokens, Some("4")),
            (Key::MaxRunningRequests, Some("8")),
            (Key::ModelPath, None),
            (Key::TpSize, None),
        ],
    );
    let notes = all(&exported);
    assert!(notes.contains("--hf-checkpoint 'models/target one'"), "{notes}");
    assert!(notes.contains("--rollout-num-gpus-per-engine 2"), "{notes}");
}

#[test]
fn a_batch_beyond_the_table_runs_its_last_row() {
    assert!(!exported(Form::Sglang, Some(1000), None).text.contains("speculative"));
    assert!(exported(Form::Sglang, Some(5), None).text.contains("--speculative-num-steps 3"));
    for (batch, beyond) in [(32, false), (33, true), (1000, true)] {
        let notes = exported(Form::Sglang, Some(batch), None).notes.join("\n");
        assert_eq!(notes.contains("outside the measured range (up to 32)"), beyond, "{batch}: {notes}");
    }
}

#[test]
fn vllm_gets_the_chain_as_json() {
    let exported = exported(Form::Vllm, Some(8), None);
    let config = r#"--speculative-config '{"method":"eagle3","model":"models/draft","num_speculative_tokens":3}'"#;
    assert!(exported.text.contains(config), "{}", exported.text);
    assert!(exported.text.starts_with("vllm serve 'models/target one'"), "{}", exported.text);
}

#[test]
fn the_adaptive_file_names_the_smallest_batch_of_each_row() {
    let chains = [(1, TreeShape::chain(5)), (4, TreeShape::chain(5)), (8, TreeShape::chain(3)), (32, TreeShape::OFF)];
    let tuning = tuning(launch_file(), &chains);
    let exported = export(&tuning, Form::SglangAdaptive, None, None).expect("exported");
    let file: serde_json::Value = serde_json::from_str(&exported.text).expect("JSON");
    let expected = serde_json::json!({
        "1": {"candidate_steps": [5]}, "5": {"candidate_steps": [3]}, "9": {"candidate_steps": [0]},
    });
    assert_eq!(file, expected);
    let command = exported.command.expect("a command");
    assert!(command.contains("--speculative-num-steps 5 \\\n"), "{command}");
    // A batch is looked up by the capture size to which it pads, so the ends of rows must be among
    // them.
    assert!(command.contains("--cuda-graph-bs-decode 1 2 4 8 16 24 32\n"), "{command}");
}

#[test]
fn what_an_engine_cannot_run_is_an_error() {
    let check = |change: fn(&mut LaunchFile), table: &[(usize, TreeShape)], form: Form, expected: ExportError| {
        let mut launch = launch_file();
        change(&mut launch);
        let tuning = tuning(launch, table);
        assert_eq!(export(&tuning, form, None, None), Err(expected));
    };
    let (tree, chain, off) = ([(8, TREE)], [(8, TreeShape::chain(3))], [(8, TreeShape::OFF)]);
    check(|_| {}, &[], Form::Sglang, ExportError::EmptyTable);
    check(|_| {}, &tree, Form::Vllm, ExportError::Tree(TREE));
    check(|_| {}, &table()[..1], Form::Vllm, ExportError::Tree(TREE));
    check(|_| {}, &tree, Form::SglangAdaptive, ExportError::AdaptiveTree(TREE));
    check(|_| {}, &off, Form::SglangAdaptive, ExportError::NothingToAdapt);
    check(|launch| launch.model_path = None, &chain, Form::Sglang, ExportError::NoTarget);
    check(|launch| launch.speculative_algorithm = None, &chain, Form::Slime, ExportError::NoAlgorithm(chain[0].1));
    check(
        |launch| launch.speculative_draft_model_path = None,
        &chain,
        Form::Sglang,
        ExportError::NoDraft("EAGLE3".into()),
    );
    check(
        |launch| launch.speculative_algorithm = Some("NGRAM".into()),
        &chain,
        Form::Vllm,
        ExportError::Algorithm("NGRAM".into()),
    );
}

#[test]
fn names_that_a_shell_would_act_on_are_quoted() {
    let mut launch = launch_file();
    launch.model_path = Some("$(reboot)'; rm -rf /".into());
    let tuning = tuning(launch, &[(8, TreeShape::chain(3))]);
    for form in [Form::Sglang, Form::Vllm] {
        let text = export(&tuning, form, None, None).expect("exported").text;
        assert!(text.contains(r"'$(reboot)'\''; rm -rf /'"), "{text}");
    }
}

#[test]
fn a_tuned_file_is_a_tuning() {
    let text = r#"
format = 1
written_by = "spectune 0.1.0"
[models]
target = "models/target"
draft = "models/draft"
algorithm = "EAGLE3"
dtype = "auto"
target_dtype = "float16"
draft_context_length = 2048
[engine]
device = "cuda:0"
context_length = 4096
page_size = 16
mem_fraction_static = 0.8
max_running_requests = 8
capture_sizes = [1, 2, 4, 8]
[[policy]]
max_running_batch = 8
num_steps = 5
topk = 4
num_draft_tokens = 16
output_tokens_per_s = 100.0
speedup = 1.5
speedup_interval = [1.4, 1.6]
accept_length = 2.5
verdict = "speculation pays"
[measured]
device_name = "NVIDIA H200"
driver = ""
engine = "spectune 0.1.0"
target_hash = "a"
draft_hash = "b"
workload_hash = "c"
objective = "throughput"
"#;
    let tuned = TunedFile::read(&Source::new("tuned.toml", text)).expect("a tuned file");
    let exported = export(&Tuning::from(&tuned), Form::Slime, None, None).expect("exported");
    let launch = read_back(&exported.text);
    check(
        &launch,
        &[
            (Key::Dtype, Some("float16")),
            (Key::ContextLength, Some("2048")),
            (Key::MaxRunningRequests, Some("8")),
            (Key::AttentionBackend, Some("fa3")),
            (Key::PageSize, None),
            (Key::MemFractionStatic, None),
            (Key::SpeculativeNumDraftTokens, Some("16")),
        ],
    );
    let sizes = |launch: &Launch| {
        let sizes = launch.integers(Key::CudaGraphBs).expect("given");
        sizes.iter().map(|size| size.value).collect::<Vec<_>>()
    };
    assert_eq!(sizes(&launch), [1, 2, 4, 8]);

    // With a smaller batch size, the launch runs and captures no larger batch.
    let exported = export(&Tuning::from(&tuned), Form::Sglang, Some(3), None).expect("exported");
    let launch = read_back(&exported.text);
    check(&launch, &[(Key::MaxRunningRequests, Some("3"))]);
    assert_eq!(sizes(&launch), [1, 2, 3]);
}

#[test]
fn the_targets_own_mtp_layer_is_no_draft_path() {
    for algorithm in ["EAGLE", "NEXTN"] {
        let launch = LaunchFile {
            speculative_algorithm: Some(algorithm.into()),
            speculative_draft_model_path: None,
            ..launch_file()
        };
        let tuning = tuning(launch, &[(8, TreeShape::chain(3))]);
        let text = |form| export(&tuning, form, None, None).map(|exported| exported.text);
        let sglang = text(Form::Sglang).expect("SGLang drafts with it");
        assert!(sglang.contains(algorithm) && !sglang.contains("draft-model-path"), "{sglang}");
        assert!(text(Form::Vllm).is_ok_and(|text| text.contains("\"method\":\"mtp\"")), "{algorithm}");
    }
}

fn chains() -> [(usize, TreeShape); 4] {
    [(1, TreeShape::chain(5)), (4, TreeShape::chain(5)), (16, TreeShape::chain(2)), (usize::MAX, TreeShape::OFF)]
}

fn written(form: Form, table: &[(usize, TreeShape)], batch: Option<usize>, version: Option<&str>) -> Exported {
    let launch = LaunchFile { max_running_requests: Some(64), ..launch_file() };
    let version = version.map(|version| version.parse().expect("a version"));
    export(&tuning(launch, table), form, batch, version).unwrap_or_else(|error| panic!("{form}: {error}"))
}

#[test]
fn a_table_of_chains_becomes_vllms_schedule() {
    for version in [None, Some("0.24.0")] {
        let whole = written(Form::Vllm, &chains(), None, version);
        let list = r#""num_speculative_tokens":5,"num_speculative_tokens_per_batch_size":[[1,4,5],[5,16,2],[17,64,0]]"#;
        assert!(whole.text.contains(list), "{}", whole.text);
        assert!(!all(&whole).contains("rows of the table") && whole.text.contains("--max-num-seqs 64"), "{whole:?}");
        assert_eq!(all(&whole).contains("without full CUDA graphs"), version.is_some());
    }
    // A requested single row and tables with one length have no schedule.
    for one in [written(Form::Vllm, &chains(), Some(8), None), written(Form::Vllm, &chains()[..2], None, None)] {
        assert!(one.text.contains("num_speculative_tokens") && !one.text.contains("per_batch_size"), "{}", one.text);
    }
}

#[test]
fn vllm_gets_the_numbers_of_look_ups_in_its_json() {
    let launch = LaunchFile {
        speculative_algorithm: Some("SUFFIX".into()),
        speculative_draft_model_path: None,
        suffix_decoding_max_tree_depth: Some(32),
        suffix_decoding_min_token_prob: Some(0.25),
        prompt_lookup_max: Some(4),
        ..launch_file()
    };
    let shape = TreeShape::chain(8);
    let found = export(&tuning(launch, &[(8, shape)]), Form::Vllm, None, None).expect("a chain");
    let json = r#""suffix_decoding_max_tree_depth":32,"suffix_decoding_min_token_prob":0.25"#;
    assert!(found.text.contains(json) && !found.text.contains("prompt_lookup"), "{}", found.text);
}

#[test]
fn vllm_captures_in_tokens_and_by_the_flag_of_its_version() {
    let launch = LaunchFile { cuda_graph_bs: Some(vec![1, 4, 8, 64]), max_running_requests: Some(64), ..launch_file() };
    let text = |table: &[(usize, TreeShape)], batch, version: &str| {
        let version = version.parse().expect("a version");
        export(&tuning(launch.clone(), table), Form::Vllm, batch, Some(version)).expect("exported").text
    };
    // 3 drafts and one more token each, for 1 and 4 requests and the 6 that may run.
    let flag = text(&[(8, TreeShape::chain(3))], Some(6), "0.11.2");
    assert!(flag.contains("--cudagraph-capture-sizes 4 16 24\n"), "{flag}");
    let json = text(&[(8, TreeShape::chain(3))], Some(6), "0.10.2");
    assert!(json.contains(r#"--compilation-config '{"cudagraph_capture_sizes":[4,16,24]}'"#), "{json}");
    let off = text(&[(8, TreeShape::OFF)], None, "0.33.0");
    assert!(off.contains("--cudagraph-capture-sizes 1 4 8 64\n"), "{off}");
    // 5 drafts up to batch 4, 2 up to 16, none above.
    let whole = text(&chains(), None, "0.33.0");
    assert!(whole.contains("--cudagraph-capture-sizes 6 24 48 64\n"), "{whole}");
}

#[test]
fn tensorrt_llm_gets_a_chain_or_a_schedule_of_largest_batch_sizes() {
    let whole = written(Form::TensorRtLlm, &chains(), None, None);
    let expected = "max_batch_size: 64\nspeculative_config:\n  decoding_type: Eagle3\n  max_draft_len: 5\n  speculative_model: \
                    \"models/draft\"\n  draft_len_schedule:\n    4: 5\n    16: 2\n";
    assert!(whole.text.contains(expected), "{}", whole.text);
    assert!(whole.text.contains("tensor_parallel_size: 2\n") && whole.text.contains("trust_remote_code: true\n"));
    assert_eq!(whole.command.as_deref(), Some("trtllm-serve 'models/target one' --config config.yaml\n"));
    let one = written(Form::TensorRtLlm, &chains(), Some(8), None);
    assert!(one.text.contains("max_draft_len: 2\n") && !one.text.contains("schedule"), "{}", one.text);
    let off = written(Form::TensorRtLlm, &chains(), Some(65), None);
    assert!(!off.text.contains("speculative_config"), "{}", off.text);
    // The engine refuses a schedule whose first length is not its longest.
    let rising = [(1, TreeShape::chain(2)), (8, TreeShape::chain(5))];
    let refused = export(&tuning(launch_file(), &rising), Form::TensorRtLlm, None, None);
    assert_eq!(refused, Err(ExportError::TensorRtSchedule(2, 5)));
}

#[test]
fn tensorrt_llm_gets_trees_within_its_bounds() {
    let tree = |shape| export(&tuning(launch_file(), &[(8, shape)]), Form::TensorRtLlm, None, None);
    let text = tree(TREE).expect("a tree").text;
    let keys = "  max_draft_len: 5\n  speculative_model: \"models/draft\"\n  use_dynamic_tree: true\n  \
                dynamic_tree_max_topK: 4\n  max_total_draft_tokens: 15\n";
    assert!(text.contains(keys), "{text}");
    for drafts in [4, 22, 60] {
        let shape = TreeShape { num_draft_tokens: drafts, ..TREE };
        assert_eq!(tree(shape), Err(ExportError::TensorRtTree(shape)));
    }
    let launch = LaunchFile { speculative_algorithm: Some("STANDALONE".into()), ..launch_file() };
    let refused = export(&tuning(launch, &[(8, TREE)]), Form::TensorRtLlm, None, None);
    assert_eq!(refused, Err(ExportError::TensorRtTreeAlgorithm("STANDALONE".into())));
    let old = EngineVersion::new(1, 2, 1);
    let refused = export(&tuning(launch_file(), &[(8, TREE)]), Form::TensorRtLlm, None, Some(old));
    assert!(matches!(refused, Err(ExportError::TensorRtVersion(..))));
}

#[test]
fn rows_that_differ_are_refused_with_the_commands_that_work() {
    let refused = |table: &[(usize, TreeShape)], form, version: Option<&str>| {
        let version = version.map(|version| version.parse().expect("a version"));
        match export(&tuning(launch_file(), table), form, None, version) {
            Err(ExportError::RowsDiffer(differ)) => (differ.message(), differ.commands("'my tuned.toml'")),
            other => panic!("{form}: {other:?}"),
        }
    };
    let (message, commands) = refused(&table(), Form::Sglang, None);
    assert!(message.contains("not as a whole") && message.contains("5,4,16 is a tree"), "{message}");
    let expected = [
        "spectune export 'my tuned.toml' --to sglang --batch-size 1   # 5,4,16 at batch 1",
        "spectune export 'my tuned.toml' --to sglang --batch-size 8   # 3,1,4 at batch 2 to 8",
        "spectune export 'my tuned.toml' --to sglang --batch-size 32  # no speculation at batch 9 to 32",
    ];
    assert_eq!(commands, expected);
    let (_, commands) = refused(&chains(), Form::Sglang, Some("0.5.16"));
    let end = "--to sglang-adaptive --engine-version 0.5.16         # the whole table";
    assert!(commands[3].ends_with(end), "{commands:#?}");
    assert!(commands[2].contains("--engine-version 0.5.16 --batch-size 17"), "{commands:#?}");
    let (message, commands) = refused(&chains(), Form::Sglang, Some("0.5.12"));
    assert!(message.contains("one list of steps") && commands.len() == 3, "{message}");
    let (_, commands) = refused(&chains(), Form::Slime, None);
    assert!(commands[3].contains("--to sglang-adaptive --engine-version 0.5.15.post1"), "{commands:#?}");
    let (message, commands) = refused(&chains(), Form::Vllm, Some("0.23.0"));
    assert!(message.contains("0.24.0 is the first version") && commands.len() == 3, "{message}");
    let (message, commands) = refused(&table(), Form::Vllm, None);
    assert!(message.contains("it cannot run 5,4,16 at batch 1") && commands.len() == 2, "{message}");
    let (_, commands) = refused(&table(), Form::TensorRtLlm, None);
    assert_eq!(commands.len(), 3);
}

#[test]
fn no_speculation_is_called_the_best_choice_only_by_its_verdict() {
    let note = |verdict: Option<TunedVerdict>, form| {
        let verdicts = verdict.map(|verdict| (8, verdict)).into_iter().collect();
        let tuning = Tuning { verdicts, ..tuning(launch_file(), &[(8, TreeShape::OFF)]) };
        all(&export(&tuning, form, None, None).expect("exported"))
    };
    for form in [Form::Sglang, Form::Slime, Form::Vllm, Form::TensorRtLlm] {
        let best = |verdict| note(verdict, form).contains("the best choice");
        assert!(best(Some(TunedVerdict::DoesNotPay)), "{form}");
        assert!(!best(None) && !best(Some(TunedVerdict::NoDifference)), "{form}");
        let unknown = note(Some(TunedVerdict::NotKnown), form);
        assert!(!unknown.contains("the best choice") && unknown.contains("is not known"), "{form}: {unknown}");
    }
}

#[test]
fn the_version_is_that_of_the_measured_engine_if_it_is_launched() {
    let version = |form, engine: &str| {
        let measured = Some(Measured { engine: engine.into(), device: "NVIDIA H200".into() });
        Tuning { measured, ..tuning(launch_file(), &[]) }.version(form, None).to_string()
    };
    assert_eq!(version(Form::Sglang, "SGLang 0.5.16"), "0.5.16");
    assert_eq!(version(Form::SglangAdaptive, "sglang 0.5.16"), "0.5.16");
    assert_eq!(version(Form::Slime, "SGLang 0.5.16"), SLIME_PIN.to_string());
    assert_eq!(version(Form::Vllm, "SGLang 0.5.16"), NEWEST_VLLM.to_string());
    assert_eq!(version(Form::Vllm, "vLLM 0.26.0"), "0.26.0");
    assert_eq!(version(Form::Sglang, "SGLang of an unknown version"), NEWEST_SGLANG.to_string());
}

#[test]
fn a_block_is_exported_by_its_size_and_a_tree_over_it_is_refused() {
    let text = |shape| {
        let launch = LaunchFile { speculative_algorithm: Some("DFLASH".into()), ..launch_file() };
        export(&tuning(launch, &[(8, shape)]), Form::Sglang, None, None).map(|exported| exported.text)
    };
    let chain = text(TreeShape::chain(7)).expect("a chain");
    assert!(chain.contains("--speculative-num-draft-tokens 8"), "{chain}");
    assert!(!chain.contains("num-steps") && !chain.contains("topk"), "{chain}");
    assert!(text(TREE).is_err_and(|error| error.to_string().contains("runs a block as a chain")));
}

#[test]
fn a_launch_of_the_measured_engine_has_the_arguments_of_its_servers() {
    let tuned = |kind: &str, engine: &str, arguments: &str| {
        let text = format!(
            "format = 2\nwritten_by = \"a test\"\n[models]\ntarget = \"t\"\ndraft = \"d\"\nalgorithm = \"EAGLE3\"\n\
             dtype = \"bfloat16\"\n[engine]\ndevice = \"gpu\"\ncontext_length = 2048\npage_size = 1\n\
             mem_fraction_static = 0.8\nmax_running_requests = 8\ncapture_sizes = []\n[server]\nkind = \"{kind}\"\n\
             arguments = {arguments}\nenvironment = {{ A = \"b c\" }}\n[[policy]]\nmax_running_batch = 8\n\
             num_steps = 3\ntopk = 1\nnum_draft_tokens = 4\noutput_tokens_per_s = 1.0\naccept_length = 2.0\n\
             verdict = \"pays\"\n[measured]\ndevice_name = \"NVIDIA H200\"\ndriver = \"\"\nengine = \"{engine}\"\n\
             target_hash = \"\"\ndraft_hash = \"\"\nworkload_hash = \"\"\nobjective = \"throughput\"\n"
        );
        let file = TunedFile::read(&Source::new("tuned.toml", text)).expect("a tuned file");
        Tuning::from(&file)
    };
    let of = |tuning: &Tuning, form| export(tuning, form, None, None).expect("exported");
    let arguments = r#"["--tp=2", "--mem-fraction-static", "0.7", "--moe-dense-tp-size", "1", "--dtype", "float16", "--max-running-requests", "64", "--api-key", "***"]"#;
    let sglang = tuned("sglang", "sglang 0.5.16", arguments);
    let Exported { text, general, .. } = of(&sglang, Form::Sglang);
    assert!(text.starts_with("A='b c' python3 -m sglang.launch_server"), "{text}");
    for line in [
        "--tp-size 2",
        "--mem-fraction-static 0.7",
        "--moe-dense-tp-size 1",
        "--dtype float16",
        "--max-running-requests 8",
    ] {
        assert!(text.contains(&format!("\n  {line}")), "{line} in {text}");
    }
    assert!(
        !text.contains("bfloat16") && !text.contains("--device") && !text.contains("running-requests 64"),
        "{text}"
    );
    assert!(general.iter().any(|note| note.starts_with("replace ***")), "{general:?}");
    let slime = of(&sglang, Form::Slime).text;
    assert!(slime.contains("\n   --sglang-moe-dense-tp-size 1\n"), "{slime}");
    // Of another engine they would not even be flags.
    let Exported { text, general, .. } = of(&sglang, Form::Vllm);
    assert!(!text.contains("moe-dense") && !text.contains("A="), "{text}");
    assert!(
        general.iter().any(|note| note.contains("arguments of SGLang") && note.contains("--moe-dense-tp-size 1")),
        "{general:?}"
    );
    let arguments =
        r#"["--gpu-memory-utilization", "0.3", "--max-model-len=1024", "-tp", "2", "--max-num-seqs", "64"]"#;
    let text = of(&tuned("vllm", "vllm 0.26.0", arguments), Form::Vllm).text;
    assert!(text.starts_with("A='b c' vllm serve t"), "{text}");
    for line in ["--gpu-memory-utilization 0.3", "--max-model-len 1024", "-tp 2", "--max-num-seqs 8"] {
        assert!(text.contains(&format!("\n  {line}")), "{line} in {text}");
    }
    assert!(!text.contains("2048") && !text.contains("64"), "{text}");
    // spectune's own server speaks SGLang's API, and is not SGLang.
    let own = of(&tuned("sglang", "spectune 0.2.0", arguments), Form::Sglang).text;
    assert!(!own.contains("--max-model-len"), "{own}");
}
