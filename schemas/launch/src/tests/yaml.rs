//! Launches in YAML.

use std::fmt::Write;

use schemas::{
    diagnostic::{Edit, Severity},
    finding::settle_all,
    flags::Key,
    text::{Source, Span},
    version::EngineVersion,
};

use super::super::{Launch, Options, Parsed, Syntax, parse};

const VERSION: EngineVersion = EngineVersion::new(0, 5, 9);

/// The launches of a text: engine, syntax and anchor; then each flag and its values with their
/// places.
fn shown(text: &str) -> String {
    let source = Source::new("<stdin>", text);
    let Parsed { launches, findings } = parse(&source, &Options::default());
    let at = |span: Span| {
        let place = source.position(span.start);
        format!("{}:{}", place.line, place.column)
    };
    let mut out = String::new();
    for launch in &launches {
        let _ = writeln!(
            out,
            "{} {:?} {} `{}`",
            launch.engine,
            launch.syntax,
            at(launch.anchor),
            source.slice(launch.anchor)
        );
        for (name, value) in launch.environment.iter() {
            let _ = writeln!(out, "  {name}={} {}", value.value.written(), at(value.span));
        }
        for argument in &launch.arguments {
            let _ = write!(out, "  {} {}", at(argument.flag.span), argument.flag.value);
            for value in &argument.values {
                let unknown = if value.value.known().is_none() { "?" } else { "" };
                let _ = write!(out, " {}{unknown}@{}", value.value.written(), at(value.span));
            }
            out.push('\n');
        }
    }
    for diagnostic in &findings {
        let _ = writeln!(out, "{} {} `{}`", diagnostic.code, at(diagnostic.span), source.slice(diagnostic.span));
    }
    out
}

/// Checks the text after an edit, and that it parses to the intended launch.
fn check(text: &str, edit: impl Fn(&Launch) -> Edit, expected: &str) {
    let first = |text: &str| {
        let parsed = parse(&Source::new("x.yaml", text), &Options::default());
        assert!(!parsed.launches.is_empty(), "a launch in {text}: {:?}", parsed.findings);
        parsed.launches.into_iter().next().expect("a launch")
    };
    let before = first(text);
    let edit = edit(&before);
    let mut edited = text.to_owned();
    edited.replace_range(edit.span.range(), &edit.replacement);
    assert_eq!(edited, expected);
    let after = first(&edited);
    assert_eq!(before.syntax, after.syntax);
}

fn values(text: &str, key: Key) -> Option<Vec<String>> {
    let parsed = parse(&Source::new("x.yaml", text), &Options::default());
    let launch = parsed.launches.first().expect("a launch");
    let values = &launch.setting(key)?.values;
    Some(values.iter().map(|value| value.value.written().to_owned()).collect())
}

/// Every kind of edit that rules make, in one text: a value, a list, another flag, a removal.
fn edits(text: &str) {
    let first = |text: &str| {
        let parsed = parse(&Source::new("x.yaml", text), &Options::default());
        assert!(!parsed.launches.is_empty(), "a launch in\n{text}\n{:?}", parsed.findings);
        parsed.launches.into_iter().next().expect("a launch")
    };
    let apply = |edit: Edit| {
        let mut edited = text.to_owned();
        edited.replace_range(edit.span.range(), &edit.replacement);
        edited
    };
    let launch = first(text);
    let others = |launch: &Launch, but: Key| -> Vec<(Key, Vec<String>)> {
        let words = |values: &[schemas::text::Located<super::super::Value>]| {
            values.iter().map(|value| value.value.written().to_owned()).collect()
        };
        launch.settings.iter().filter(|(key, _)| **key != but).map(|(key, one)| (*key, words(&one.values))).collect()
    };
    let changes = [
        (Key::SpeculativeNumSteps, "7"),
        (Key::SpeculativeAlgorithm, "NGRAM"),
        (Key::CudaGraphBs, "1 2 48"),
        (Key::EnableDpAttention, ""),
        (Key::KvCacheDtype, "fp8_e5m2"),
        (Key::MaxRunningRequests, "64"),
    ];
    for (key, value) in changes {
        if launch.has(key) && value.is_empty() {
            continue;
        }
        let edited = apply(launch.set(key, VERSION, value));
        let wanted: Vec<String> = value.split_whitespace().map(str::to_owned).collect();
        assert_eq!(values(&edited, key), Some(wanted), "{key:?} in\n{edited}");
        assert_eq!(others(&launch, key), others(&first(&edited), key), "beside {key:?} in\n{edited}");
    }
    for key in launch.settings.keys() {
        let edited = apply(launch.remove(*key).expect("given"));
        if launch.settings.len() > 1 {
            assert_eq!(values(&edited, *key), None, "{key:?} in\n{edited}");
            assert_eq!(others(&launch, *key), others(&first(&edited), *key), "beside {key:?} in\n{edited}");
        }
    }
}

const WORKER_SET: &str = r#"apiVersion: v1
kind: ConfigMap
metadata:
  name: unrelated
data:
  key: value
---
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata:
  name: sglang
spec:
  replicas: 1
  leaderWorkerTemplate:
    size: 2
    leaderTemplate:
      spec:
        containers:
          - name: leader
            image: lmsysorg/sglang:latest
            env:
              - name: MODEL
                value: "deepseek-ai/DeepSeek-V3"
              - name: HF_TOKEN
                valueFrom:
                  secretKeyRef: {name: hf, key: token}
              - name: SPEC
                value: --speculative-algorithm EAGLE --speculative-num-steps 3
            command:
              - sh
              - -c
              - |
                set -e  # stop at once
                python3 -m sglang.launch_server --model-path $MODEL \
                  --tp 16 $(SPEC) \
                  --dist-init-addr $(LWS_LEADER_ADDRESS):20000 \
                  --cuda-graph-bs 1 2 4
            ports:
              - containerPort: 30000
"#;

#[test]
fn a_script_in_a_manifest() {
    insta::assert_snapshot!(shown(WORKER_SET), @r#"
    sglang CommandLine 34:28 `sglang.launch_server`
      HF_TOKEN=$HF_TOKEN 24:23
      MODEL=deepseek-ai/DeepSeek-V3 23:24
      SPEC=--speculative-algorithm EAGLE --speculative-num-steps 3 28:24
      34:49 --model-path deepseek-ai/DeepSeek-V3@34:62
      35:19 --tp 16@35:24
      28:24 --speculative-algorithm EAGLE@28:48
      28:54 --speculative-num-steps 3@28:78
      36:19 --dist-init-addr $(LWS_LEADER_ADDRESS):20000?@36:36
      37:19 --cuda-graph-bs 1@37:35 2@37:37 4@37:39
    "#);
    edits(WORKER_SET);
}

const DEPLOYMENT: &str = r#"kind: Deployment
spec:
  template:
    spec:
      containers:
      - name: sidecar
        image: nginx
        args: ["--port", "80", "--config", x]
      - name: server
        image: lmsysorg/sglang:v0.5.9
        command: ["python3", "-m", "sglang.launch_server"]
        args:
        # the target
        - --model-path=$(MODEL)
        - --speculative-algorithm   # the draft
        - EAGLE3
        - "--speculative-num-steps"
        - "3"
        - '--tp=4'
        - --cuda-graph-bs
        - "1"
        - "2"
        - --trust-remote-code
        - --revision=$(REVISION)
        env:
        - {name: MODEL, value: meta-llama/Llama-3.1-8B-Instruct}
"#;

#[test]
fn words_of_a_container() {
    insta::assert_snapshot!(shown(DEPLOYMENT), @r"
    sglang YamlWords 11:37 `sglang.launch_server`
      MODEL=meta-llama/Llama-3.1-8B-Instruct 26:32
      14:11 --model-path meta-llama/Llama-3.1-8B-Instruct@14:24
      15:11 --speculative-algorithm EAGLE3@16:11
      17:12 --speculative-num-steps 3@18:12
      19:12 --tp 4@19:17
      20:11 --cuda-graph-bs 1@21:12 2@22:12
      23:11 --trust-remote-code
      24:11 --revision $(REVISION)?@24:22
    ");
    edits(DEPLOYMENT);
    let remove = |key: Key| move |launch: &Launch| launch.remove(key).expect("given");
    check(DEPLOYMENT, remove(Key::TpSize), &DEPLOYMENT.replace("        - '--tp=4'\n", ""));
    let set = |key: Key, value: &'static str| move |launch: &Launch| launch.set(key, VERSION, value);
    check(DEPLOYMENT, set(Key::TpSize, "8"), &DEPLOYMENT.replace("--tp=4", "--tp=8"));
    check(DEPLOYMENT, set(Key::SpeculativeNumSteps, "5"), &DEPLOYMENT.replace("\"3\"", "\"5\""));
    let added = DEPLOYMENT.replace("REVISION)\n", "REVISION)\n        - --page-size=1\n");
    check(DEPLOYMENT, set(Key::PageSize, "1"), &added);
}

const FLOW: &str = r#"containers: [{image: "vllm/x", args: [serve]}, {command: [python3, -m, sglang.launch_server, --model-path, x, "--speculative-num-steps", '3', --cuda-graph-bs, "4", --page-size=1], tty: true}]
"#;

#[test]
fn words_in_brackets() {
    insta::assert_snapshot!(shown(FLOW), @r"
    sglang YamlWords 1:72 `sglang.launch_server`
      1:94 --model-path x@1:108
      1:112 --speculative-num-steps 3@1:139
      1:143 --cuda-graph-bs 4@1:161
      1:165 --page-size 1@1:177
    ");
    edits(FLOW);
}

const COMPOSE: &str = r#"x-base: &base
  image: lmsysorg/sglang:latest
  environment:
    SGLANG_ENABLE_SPEC_V2: "1"
services:
  folded:
    <<: *base
    command: >
      python3 -m sglang.launch_server
      --model-path ${MODEL:-Qwen/Qwen3-8B}
      --speculative-algorithm EAGLE3 --speculative-num-steps 3
      --cuda-graph-bs 1 2
      --host ${HOST}
    ports: ["30000:30000"]
  entry:
    entrypoint: python3 -m sglang.launch_server
    command: --model-path x --tp 2
  quoted:
    command: "bash -c \"python3 -m sglang.launch_server --model-path $$MODEL --json-model-override-args '{\\\"a\\\": 1}' --tp 2\""
    environment:
      - MODEL=q
  listed:
    image: lmsysorg/sglang
    command:
      - --model-path
      - org/listed
"#;

#[test]
fn services_of_compose() {
    insta::assert_snapshot!(shown(COMPOSE), @r#"
    sglang CommandLine 9:18 `sglang.launch_server`
      SGLANG_ENABLE_SPEC_V2=1 4:28
      10:7 --model-path Qwen/Qwen3-8B@10:20
      11:7 --speculative-algorithm EAGLE3@11:31
      11:38 --speculative-num-steps 3@11:62
      12:7 --cuda-graph-bs 1@12:23 2@12:25
      13:7 --host ${HOST}?@13:14
    sglang CommandLine 16:28 `sglang.launch_server`
      17:14 --model-path x@17:27
      17:29 --tp 2@17:34
    sglang CommandLine 19:36 `sglang.launch_server`
      MODEL=q 21:9
      19:57 --model-path $MODEL?@19:70
      19:78 --json-model-override-args {"a": 1}@19:105
      19:122 --tp 2@19:127
    sglang YamlWords 23:12 `lmsysorg/sglang`
      25:9 --model-path org/listed@26:9
    LT16 25:9 `--model-path`
    "#);
    edits(COMPOSE);
}

#[test]
fn every_way_to_write_a_command() {
    let line = "python3 -m sglang.launch_server --model-path x --speculative-algorithm EAGLE --speculative-num-steps 3 --cuda-graph-bs 1 2 --enable-lora";
    let script = line.replace(" --", " \\\n  --");
    let indented = |text: &str, by: &str| text.replace('\n', &format!("\n{by}"));
    let escaped = script.replace('\\', "\\\\").replace('\n', "\\n");
    for text in [
        format!("c:\n  command: {line}\n  d: e\n"),
        format!("c:\n  command: '{line}' # why\n  d: e\n"),
        format!("c:\n  command: \"{line}\" # why\n  d: e\n"),
        format!("c:\n  command: [sh, -c, \"{escaped}\"]\n  d: e\n"),
        format!("c:\n  command: [sh, -c, {line}]\n  d: e\n"),
        format!("c:\n  command: [/bin/bash, -lc]\n  args:\n  - |-\n    {}\n  d: e\n", indented(&script, "    ")),
        format!("c:\n  args:\n  - -c\n  - |+2\n      {}\n\n\n  d: e\n", indented(&script, "      ")),
        format!("c:\n  command: [sh, -c]\n  args:\n  - >-\n    {}\n  d: e\n", line.replace(" --", "\n    --")),
        format!("c:\n  command: [sh, -c]\n  args:\n  - {}\n  d: e\n", line.replace(" --", "\n    --")),
        format!("c:\n  command: [sh, -c]\n  args:\n  - \"{}\"\n  d: e\n", line.replace(" --", "\n    --")),
        format!("c:\n  command: [sh, -c]\n  args:\n  - \"{}\"\n  d: e\n", line.replace(" --", " \\\n    --")),
        format!("c:\n  command: [sh, -c]\n  args:\n  - '{}'\n  d: e\n", line.replace(" --", "\n    --")),
        format!("services:\n  s:\n    command: |\n      {}\n", line.replace(" --", "\n        --")),
        format!("services:\n  s:\n    command: >\n      {}\n", line.replace(" --", "\n        --")),
        format!("c:\n  command:\n  - {}\n  d: e\n", line.replace(" ", "\n  - ").replace("- 3", "- \"3\"")),
        format!("c:\n  command:\n    - {}\n", line.replace(" ", " # ä\n    - ")),
        format!("c: {{command: [{}]}}\n", line.replace(" ", ", ")),
        format!("c: {{command: [\n  {}\n]}}\n", line.replace(" ", ",\n  ")),
        format!("data:\n  run.sh: |\n    #!/bin/sh\n    # ä\n    {}\n", indented(&script, "    ")),
        format!(
            "data:\n  run.sh: |\n    A=(\n      {}\n    )\n    python3 -m sglang.launch_server ${{A[@]}}\n",
            line.replace("python3 -m sglang.launch_server ", "").replace(" --", "\n      --")
        ),
    ] {
        let parsed = parse(&Source::new("<stdin>", text.as_str()), &Options::default());
        assert_eq!(parsed.launches.len(), 1, "{text}\n{:?}", parsed.findings);
        assert_eq!(values(&text, Key::SpeculativeNumSteps), Some(vec!["3".into()]), "{text}");
        assert_eq!(values(&text, Key::CudaGraphBs), Some(vec!["1".into(), "2".into()]), "{text}");
        edits(&text);
        let crlf = text.replace('\n', "\r\n");
        assert_eq!(values(&crlf, Key::CudaGraphBs), Some(vec!["1".into(), "2".into()]), "{text}");
    }
}

const CONFIG: &str = "# what we serve
model-path: meta-llama/Llama-3.1-8B-Instruct  # the target
tp: 2
speculative_algorithm: \"EAGLE3\" # the draft
speculative-num-steps: 3
cuda-graph-bs:
  - 1
  - 2  # two
  - 4
trust-remote-code: true
enable-lora: false
revision:
speculative-num-stps: 3
json-model-override-args: {a: [1, x]}
";

#[test]
fn the_config_of_sglang() {
    insta::assert_snapshot!(shown(CONFIG), @r#"
    sglang YamlConfig 2:1 `model-path`
      2:1 --model-path meta-llama/Llama-3.1-8B-Instruct@2:13
      3:1 --tp 2@3:5
      4:1 --speculative-algorithm EAGLE3@4:24
      5:1 --speculative-num-steps 3@5:24
      6:1 --cuda-graph-bs 1@7:5 2@8:5 4@9:5
      10:1 --trust-remote-code
      13:1 --speculative-num-stps 3@13:23
      14:1 --json-model-override-args {"a":[1,"x"]}@14:27
    LT09 13:1 `speculative-num-stps`
    "#);
    edits(CONFIG);
    edits("model-path: x\nspeculative-num-steps: 3\ncuda-graph-bs: [1, 2]\nenable-dp-attention: true");
    edits("{model_path: x, speculative_num_steps: 3, cuda_graph_bs: [1, 2]}\n");
    edits("---\nmodel_path: x\ncuda_graph_bs:\n- 1\n- 2\nspeculative_num_steps: 3\n...\n");
    let add = |launch: &Launch| launch.add(Key::PageSize, VERSION, "1");
    check("model_path: x\ntp-size: 2", add, "model_path: x\ntp-size: 2\npage_size: 1");
}

const GROUPS: &str = "sglang:
  - name: actor
    model_path: /models/actor
    server_groups:
      - worker_type: prefill
        num_gpus: 4
      - worker_type: decode
        num_gpus: 8
        overrides:
          speculative_algorithm: EAGLE
          speculative_num_steps: 3   # deep
          cuda_graph_bs: [1, 2, 4]
  - name: reward
    server_groups:
      - {worker_type: regular, overrides: {mem_fraction_static: 0.8, speculative_num_steps: 2}}
";

#[test]
fn the_groups_of_slime() {
    insta::assert_snapshot!(shown(GROUPS), @r"
    sglang YamlOverrides 9:9 `overrides`
      10:11 --speculative-algorithm EAGLE@10:34
      11:11 --speculative-num-steps 3@11:34
      12:11 --cuda-graph-bs 1@12:27 2@12:30 4@12:33
      3:5 --model-path /models/actor@3:17
    sglang YamlOverrides 15:32 `overrides`
      15:44 --mem-fraction-static 0.8@15:65
      15:70 --speculative-num-steps 2@15:93
    ");
    edits(GROUPS);
    let parsed = parse(&Source::new("x", GROUPS), &Options::default());
    assert!(parsed.launches.iter().all(|launch| launch.syntax == Syntax::YamlOverrides && !launch.is_complete()));
}

#[test]
fn the_config_of_vllm() {
    let nested = "model: meta/x\nmax-model-len: 8192\nspeculative-config:\n  method: eagle3\n  model: org/draft\n  num_speculative_tokens: 3\n";
    let text = "model: meta/x\nspeculative_config: '{\"method\": \"eagle3\", \"model\": \"org/draft\", \"num_speculative_tokens\": 3}'\n";
    let dotted = "model: meta/x\nspeculative_config.method: eagle3\nspeculative-config.model: org/draft\n\
                  speculative-config.num_speculative_tokens: 3\n";
    let named = "model: meta/x\nspec-method: eagle3\nspec_model: org/draft\nspec-tokens: 3\n";
    for text in [nested, text, dotted, named] {
        let parsed = parse(&Source::new("<stdin>", text), &Options::default());
        let launch = parsed.launches.first().expect("a launch");
        let speculation = launch.vllm_speculation().expect("a speculative configuration");
        assert_eq!(speculation.method.as_deref(), Some("eagle3"));
        assert_eq!(speculation.model.as_deref(), Some("org/draft"));
        assert_eq!(speculation.num_speculative_tokens, Some(3));
        assert!(launch.is_complete());
    }
    insta::assert_snapshot!(shown(nested), @r#"
    vllm YamlConfig 1:1 `model`
      1:1 --model meta/x@1:8
      2:1 --max-model-len 8192@2:16
      3:1 --speculative-config {"method":"eagle3","model":"org/draft","num_speculative_tokens":3}@4:3
    LT07 1:1 `model`
    "#);
}

#[test]
fn what_is_not_yaml_with_an_engine_is_read_as_before() {
    let syntax = |name: &str, text: &str| {
        let parsed = parse(&Source::new(name, text), &Options::default());
        (parsed.launches.first().map(|launch| launch.syntax), parsed.findings.first().map(|found| found.code))
    };
    let line = (Some(Syntax::CommandLine), None);
    assert_eq!(syntax("x", "Command: see below\nsglang serve --model-path x\n"), line);
    assert_eq!(syntax("x", "sglang serve --model-path x\n"), line);
    assert_eq!(syntax("x.sh", "a: b\nsglang serve --model-path x\n"), line);
    assert_eq!(syntax("x.yaml", "cmd: {{ .Values.cmd }}\nrun: sglang serve --model-path x\n"), line);
    assert_eq!(syntax("x.yaml", "name: x\nport: 3\nhost: y\n"), (None, Some("LT02")));
    assert_eq!(syntax("x.yaml", "model_path: x\nlearning_rate: 1\nepochs: 3\n"), (None, Some("LT02")));
    assert_eq!(syntax("x.yaml", "a: b\n\tc: d\n"), (None, Some("LT12")));
    assert_eq!(syntax("x.yaml", ""), (None, Some("LT02")));
}

#[test]
fn comments_suppress_in_yaml() {
    let text = DEPLOYMENT.replace("# the target", "# it's spectune: ignore[SD081]\n        # spectune: ignore[SD082]");
    let source = Source::new("<stdin>", text.as_str());
    let found: Vec<&str> = super::super::comments(&source).into_iter().map(|span| source.slice(span)).collect();
    assert_eq!(found.len(), 3, "{found:?}");
    assert_eq!(found.get(1), Some(&"# spectune: ignore[SD082]"));
}

#[test]
fn hostile_yaml_ends() {
    let mut bomb = String::from("a0: &a0 {args: [--model-path, x]}\n");
    for level in 1..60 {
        let before = level - 1;
        let _ = writeln!(bomb, "a{level}: &a{level} [{}]", format!("*a{before},").repeat(9).trim_end_matches(','));
    }
    let long = "x".repeat(1 << 19);
    let aliases = format!("m: &m {long}\nspec:\n  args: [sglang{}]\n", ", *m".repeat(1 << 17));
    let environment = format!(
        "e: &e\n{}c:\n{}",
        "- {name: A, value: yyyyyyyyyyyyyyyyyyyyyyyyyyyy}\n".repeat(1 << 10),
        "- {env: *e, command: [sh, -c, 'sglang serve --model-path $(A)$(A)$(A)']}\n".repeat(1 << 12)
    );
    let merges =
        format!("m: &m {{{}}}\nl:\n{}", "a: b, ".repeat(1 << 14), "- {<<: *m, args: [sglang]}\n".repeat(1 << 13));
    let mut nested = String::new();
    for depth in 0..400 {
        let _ = writeln!(nested, "{}args:", " ".repeat(depth));
    }
    let texts = [
        bomb,
        aliases,
        environment,
        merges,
        nested,
        "a: &a [*a, *a]\n".into(),
        "args: &a\n- *a\n- sglang\n".into(),
        "<<: &m\n  <<: *m\n  args: [sglang]\n".into(),
        format!("a: {}", "[".repeat(1 << 19)),
        format!("a: {}", "- ".repeat(1 << 19)),
        format!("a: sglang\n{}", "? ".repeat(1 << 19)),
        format!("command: sglang serve {}", "--tp 2 ".repeat(1 << 14)),
        format!("command:\n- sglang\n- serve\n{}", "- --tp=2\n".repeat(1 << 12)),
        format!("command: sglang serve '{}", "{{".repeat(1 << 18)),
        format!("command: sglang serve {}", "$(".repeat(1 << 18)),
        format!("command: sglang serve {}", "${".repeat(1 << 18)),
        format!("model-path: x\n{}", "speculative-num-steps: 3\n".repeat(1 << 10)),
        format!("command: |\n{}", "\tsglang\n".repeat(1 << 10)),
    ];
    for text in texts {
        let source = Source::new("x.yaml", text);
        let parsed = parse(&source, &Options::default());
        for launch in parsed.launches.iter().take(8) {
            let places = launch.arguments.iter().take(64).map(|argument| argument.span);
            for span in places.chain([launch.span, launch.anchor]) {
                assert!(source.text().get(span.range()).is_some(), "{span:?}");
            }
        }
    }
}

#[test]
fn a_list_of_flags_is_part_of_a_launch_under_any_key() {
    for list in ["[--tp=2, --speculative-num-steps, \"3\"]", "\n  - --tp=2\n  - --speculative-num-steps\n  - \"3\""] {
        let source = Source::new("values.yaml", format!("image: x\nextraArgs: {list}\n"));
        let parsed = parse(&source, &Options::default());
        assert_eq!(parsed.findings, [], "{list}");
        let [launch] = parsed.launches.as_slice() else { panic!("one launch in {list}") };
        assert_eq!(launch.to_string(), "python3 -m sglang.launch_server --tp 2 --speculative-num-steps 3");
        assert!(!launch.is_complete());
    }
}

#[test]
fn a_template_is_read_where_its_blocks_close() {
    let manifest = |flag: &str| {
        format!(
            "metadata: {{name: {{{{ .Name }}}}}}\nspec:\n  containers:\n  - args:\n    - sglang\n    - serve\n    \
             - --tp\n    - {{{{ .Values.tp | quote }}}}\n    {{{{- {flag} }}}}\n    - --speculative-num-steps\n    \
             - \"3\"\n    {{{{- end }}}}\n"
        )
    };
    let read = |flag: &str| parse(&Source::new("x.yaml", manifest(flag)), &Options::default());
    let parsed = read("if .Values.spec");
    assert_eq!(parsed.findings, []);
    let [launch] = parsed.launches.as_slice() else { panic!("one launch") };
    assert!(launch.has(Key::TpSize) && launch.count(Key::TpSize).is_none() && launch.is_templated);
    assert_eq!(launch.count(Key::SpeculativeNumSteps).map(|steps| steps.value), Some(3));
    let codes: Vec<&str> = read("else").findings.iter().map(|found| found.code).collect();
    assert_eq!(codes, ["LT02"]);
}

#[test]
fn a_manifest_without_a_launch_is_not_read_as_a_script() {
    let found = parse(&Source::new("x.yaml", "- --tp\n- --dtype\n"), &Options::default());
    let codes: Vec<&str> = found.findings.iter().map(|found| found.code).collect();
    assert_eq!(codes, ["LT02"]);
    let line = "steps:\n- run: python3 -m sglang.launch_server --tp 2\n";
    assert_eq!(parse(&Source::new("x.yml", line), &Options::default()).launches.len(), 1);
}

#[test]
fn shell_syntax_that_no_shell_reads() {
    let found = |command: &str| {
        let text = format!("services:\n  a:\n    image: me/vllm:1\n    command: {command}\n");
        let parsed = parse(&Source::new("compose.yaml", text), &Options::default());
        let own = settle_all(parsed.findings).into_iter().filter(|one| one.code == "LT17");
        own.map(|one| one.severity).collect::<Vec<_>>()
    };
    assert_eq!(found("[vllm, serve, m, --dtype auto]"), [Severity::Error]);
    assert_eq!(found("vllm serve m --dtype auto"), []);
    assert_eq!(found(">\n      vllm serve m \\\n      --dtype auto # half\n"), [Severity::Warning; 2]);
    assert_eq!(found("[bash, -c, \"vllm serve m --dtype auto # half\"]"), []);
}
