//! For any text, reading, resolving, rendering and fixing terminate without a panic.

use launch::{Launch, Options, Parsed, Syntax, from_arguments, parse, resolve::version_of};
use lint::{
    published_models,
    report::{self, Report, ReportedModels, report},
};
use proptest::prelude::*;
use schemas::{
    diagnostic::{Findings, Format, fix, render},
    engines::Engine,
    model::{ModelConfig, ModelFacts, TensorHeaders},
    text::{Source, Span},
    version::EngineVersion,
};

const CORPUS: &str = include_str!("../../../tests/data/launches.jsonl");

fn launches() -> Vec<String> {
    let text = |line: &str| {
        let record: serde_json::Value = serde_json::from_str(line).expect("a record");
        record["launch"].as_str().map(str::to_owned)
    };
    CORPUS.lines().filter_map(text).collect()
}

fn looks_at(source: &Source, launch: &Launch) {
    let lies_in = |span: Span| assert!(source.text().get(span.range()).is_some(), "{span:?} of {:?}", source.text());
    lies_in(launch.span);
    lies_in(launch.anchor);
    for argument in &launch.arguments {
        lies_in(argument.span);
        lies_in(argument.flag.span);
        argument.values.iter().for_each(|value| lies_in(value.span));
    }
    for setting in launch.settings.values() {
        lies_in(setting.removal);
        setting.value.into_iter().for_each(lies_in);
    }
    for version in VERSIONS {
        let version: EngineVersion = version.parse().expect("a version");
        for flag in schemas::flags::FLAGS {
            lies_in(launch.set(flag.key, version, "1").span);
            launch.remove(flag.key).into_iter().for_each(|edit| lies_in(edit.span));
        }
    }
    let _ = version_of(launch, None);
}

const VERSIONS: [&str; 4] = ["0.4.7", "0.5.2", "0.5.9", "0.5.23"];

/// Resolves the launches and lints them, on several versions and GPUs.
fn judge(source: &Source, parsed: &Parsed, models: impl Fn(&Launch) -> ReportedModels) {
    let lies_in = |span: Span| assert!(source.text().get(span.range()).is_some(), "{span:?} of {:?}", source.text());
    for version in VERSIONS {
        let version: EngineVersion = version.parse().expect("a version");
        for gpu_memory in [None, Some(24_000), Some(200_000)] {
            let options = report::ReportOptions {
                version: Some(version),
                gpu_memory,
                expected_concurrency: Some(64),
                ..report::ReportOptions::default()
            };
            let Report { findings, resolved, .. } = report(source, parsed.clone(), &models, &options);
            for resolved in &resolved {
                let _ = (resolved.table(source), resolved.to_json(source));
            }
            for diagnostic in &findings {
                lies_in(diagnostic.span);
                diagnostic.related.iter().for_each(|related| lies_in(related.span));
                diagnostic.fix.iter().flat_map(|fix| &fix.edits).for_each(|edit| lies_in(edit.span));
            }
            render(&[Findings { source, diagnostics: &findings }], Format::Full, false);
            fix::apply(source, &findings, true);
        }
    }
}

fn everything(name: &str, text: &str, engine: Option<Engine>) {
    let source = Source::new(name, text);
    let parsed = parse(&source, &Options { engine, ..Options::default() });
    parsed.launches.iter().for_each(|launch| looks_at(&source, launch));
    judge(&source, &parsed, published_models::facts_of);
    let found = report(&source, parsed, published_models::facts_of, &report::ReportOptions::default()).findings;
    let findings = [Findings { source: &source, diagnostics: &found }];
    for format in [Format::Full, Format::Concise, Format::Json, Format::Github, Format::Sarif] {
        render(&findings, format, false);
    }
    fix::apply(&source, &found, true);
}

/// Text from pieces of shell scripts and launches, so that it gets past the first character.
fn shell_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("SGLANG_ARGS=(".to_owned()),
        Just("--sglang-speculative-algorithm EAGLE ".to_owned()),
        Just("python3 -m sglang.launch_server ".to_owned()),
        Just("--cuda-graph-bs $(seq 1 4 64) ".to_owned()),
        Just("${SGLANG_ARGS[@]} ".to_owned()),
        Just("X=\"$X $X\"\n".to_owned()),
        Just("A+=(${A[@]} \"${A[@]}\" --sglang-tp 1)\n".to_owned()),
        Just("<<EOF\n".to_owned()),
        Just("cat > run.sh <<EOF\n".to_owned()),
        Just("bash <<-'EOF' | kubectl apply -f - <<E\n".to_owned()),
        Just("\nEOF\n".to_owned()),
        Just("\tE\n".to_owned()),
        Just("\\$X ${SGLANG_ARGS[@]} '$X'".to_owned()),
        Just("args: [--speculative-num-steps, $X]\n".to_owned()),
        Just("vllm serve x --speculative-config '{\"num_speculative_tokens\": ".to_owned()),
        Just("```\n".to_owned()),
        "[ \\t\\n\\\\'\"`$(){}\\[\\]<>|&;#=!*@+-]{1,4}",
        "[a-zA-Z0-9_./:-]{1,6}",
        "\\PC{1,3}",
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

/// Text from pieces of manifests.
fn yaml_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("command: [sh, -c, ".to_owned()),
        Just("command: ".to_owned()),
        Just("args:\n".to_owned()),
        Just("  - --speculative-num-steps\n  - \"3\"\n".to_owned()),
        Just("- '--page-size=4' # ä\n".to_owned()),
        Just("- &a |\n    sglang serve --model-path $(M) \\\n      --cuda-graph-bs 1 2\n".to_owned()),
        Just(">-\n  python3 -m sglang.launch_server\n  --tp 2\n".to_owned()),
        Just("\"sglang serve --tp 2 \\\n  --page-size \\\"4\\\" ä\"\n".to_owned()),
        Just("env: [{name: M, value: x y}]\n".to_owned()),
        Just("environment:\n  M: --tp 2\n".to_owned()),
        Just("- *a\n".to_owned()),
        Just("<<: *a\n".to_owned()),
        Just("model-path: x\n".to_owned()),
        Just("speculative_num_steps: [3, 4]\n".to_owned()),
        Just("sglang:\n- server_groups:\n  - overrides: {page_size: 4, tp_size: 2}\n".to_owned()),
        Just("  ".to_owned()),
        "[ \\t\\n'\"{}\\[\\],:&*#|>%@`!?-]{1,3}",
        "[a-z0-9_./:-]{1,6}",
        "\\PC{1,2}",
    ];
    prop::collection::vec(piece, 0..14).prop_map(|pieces| pieces.concat())
}

/// Text from pieces of Python, Dockerfiles, systemd units, and Markdown with blocks of them.
fn program_text() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        Just("import sglang as sgl\n".to_owned()),
        Just("cmd = [".to_owned()),
        Just("cmd += [".to_owned()),
        Just("]\n".to_owned()),
        Just("\"--speculative-algorithm\", \"EAGLE\",".to_owned()),
        Just("\"python3 -m sglang.launch_server \"".to_owned()),
        Just("f\"--tp={tp} {{\\\"a\\\"}} \"".to_owned()),
        Just("sgl.Engine(model_path=m, speculative_num_steps=3, **kw)\n".to_owned()),
        Just("LLM(\"m\", speculative_config={\"method\": \"mtp\", \"x\": [1, None]})\n".to_owned()),
        Just("FROM lmsysorg/sglang:v0.5.9\n".to_owned()),
        Just("ENV A=b C d\n".to_owned()),
        Just("CMD [\"sglang\", \"serve\", \"--tp\", \"2\"]\n".to_owned()),
        Just("ENTRYPOINT sglang serve \\\n --tp 2\n".to_owned()),
        Just("[Service]\nExecStart=-/usr/bin/sglang serve --tp ${N} \\\n".to_owned()),
        Just("Environment=\"A=b\" C=d\n".to_owned()),
        Just("```python\n".to_owned()),
        Just("```yaml\n".to_owned()),
        Just("```\n".to_owned()),
        "[ -~\n]{0,6}",
        "\\PC{0,3}",
    ];
    prop::collection::vec(word, 0..16).prop_map(|words| words.concat())
}

/// A published launch with some of its bytes changed.
fn mutated_launch() -> impl Strategy<Value = String> {
    let launches = launches();
    let change = (any::<prop::sample::Index>(), 0..3_u8, any::<char>());
    (prop::sample::select(launches), prop::collection::vec(change, 1..8)).prop_map(|(launch, changes)| {
        let mut characters: Vec<char> = launch.chars().collect();
        for (place, kind, character) in changes {
            let at = place.index(characters.len() + 1);
            match kind {
                0 => characters.insert(at, character),
                1 if at < characters.len() => drop(characters.remove(at)),
                _ if at < characters.len() => characters[at] = ['"', '\'', '\\', '\n', '(', '$', '='][at % 7],
                _ => {}
            }
        }
        characters.into_iter().collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let text = String::from_utf8_lossy(&bytes);
        everything("x.sh", &text, None);
        everything("x.toml", &text, None);
        everything("x.yaml", &text, None);
        everything("x", &text, Some(Engine::Slime));
    }

    #[test]
    fn shell_like_text(text in shell_text()) {
        everything("x.sh", &text, None);
        everything("x", &text, Some(Engine::Sglang));
    }

    #[test]
    fn program_like_text(text in program_text()) {
        for name in ["x.py", "Dockerfile", "x.service", "x.md", "x"] {
            everything(name, &text, None);
        }
    }

    #[test]
    fn mutated_launches(text in mutated_launch()) {
        everything("x", &text, None);
    }

    #[test]
    fn toml_like_text(text in "([a-z_]{1,12} ?= ?([0-9.-]{1,20}|\"[a-z\\\\]{0,5}\"|\\[[0-9, ]{0,9}\\]|true)?\n|\\[[a-z]{0,5}\\]?\n|\\PC{0,3}){0,8}") {
        everything("x.toml", &text, None);
    }

    #[test]
    fn yaml_like_text(text in yaml_text()) {
        everything("x.yaml", &text, None);
        everything("x", &text, Some(Engine::Sglang));
    }

    #[test]
    fn numbers_of_any_size((text, target, draft) in numbers()) {
        let source = Source::new("x", text);
        let facts = |text: &str| ModelConfig::parse(text).ok().map(|config| ModelFacts { config, ..ModelFacts::default() });
        let (target, draft) = (facts(&target), facts(&draft));
        judge(&source, &parse(&source, &Options::default()), |_| (target.clone(), draft.clone()));
    }

    #[test]
    fn printed_launches_read_back(words in prop::collection::vec("(--[a-z=-]{1,16}|[ -~]{0,8}|\\PC{0,4})", 0..10)) {
        let words: Vec<String> = std::iter::once("--model-path".to_owned()).chain(words).collect();
        let (_, launch) = from_arguments(&words);
        let printed = launch.to_string();
        let parsed = parse(&Source::new("x.sh", printed.clone()), &Options::default());
        let again = parsed.launches.first().map(ToString::to_string);
        prop_assert_eq!(again, Some(printed));
    }

    #[test]
    fn whatever_is_read_prints_and_reads_back(text in prop_oneof![shell_text(), mutated_launch()]) {
        check_printed("x.sh", &text);
    }

    #[test]
    fn a_launch_in_a_here_document_is_the_launch_at_another_place(text in prop_oneof![shell_text(), mutated_launch()]) {
        check_in_document(&text);
    }

    #[test]
    fn configs_and_headers(text in "\\{(\"[a-z_]{1,20}\": ?([0-9.eE-]{1,9}|\"\\PC{0,4}\"|null|\\[[0-9, ]{0,8}\\]|\\{\\}),? ?){0,6}\\}?") {
        let _ = ModelConfig::parse(&text).map(|config| {
            let facts = ModelFacts { config, ..ModelFacts::default() };
            (facts.config.derived_context_length(), facts.config.head_dim(), facts.draft_kind())
        });
        let _ = TensorHeaders::default().add_header(&text);
    }
}

/// A launch whose words are all known prints as a line that parses to the same launch.
fn check_printed(name: &str, text: &str) {
    for launch in parse(&Source::new(name, text), &Options::default()).launches {
        let words = || launch.arguments.iter().flat_map(|argument| &argument.values);
        // A command without a flag is not a launch.
        let has_flag =
            launch.syntax == Syntax::Toml || launch.arguments.iter().any(|one| one.flag.value.starts_with("--"));
        if !has_flag || !words().all(|word| word.value.known().is_some()) {
            continue;
        }
        let printed = launch.to_string();
        let again = parse(&Source::new("x.sh", printed.as_str()), &Options::default()).launches;
        let printed_again: Vec<String> = again.iter().map(ToString::to_string).collect();
        assert_eq!(printed_again, [printed], "{text}");
        let keys = |launch: &Launch| launch.settings.keys().copied().collect::<Vec<_>>();
        assert_eq!(again.first().map(keys), Some(keys(&launch)), "{text}");
    }
}

/// All spans and edits of a launch are the same in a here-document, shifted by its start.
fn check_in_document(text: &str) {
    // These texts may be a launch only alone, or only in a here-document.
    if !text.contains("sglang")
        || text.contains("```")
        || text.contains("~~~")
        || text.lines().any(|line| line.trim() == "EOF")
    {
        return;
    }
    let opener = "cat > run.sh <<'EOF'\n";
    let (alone, within) = (format!("{text}\n"), format!("{opener}{text}\nEOF\n"));
    let read = |text: &str| parse(&Source::new("x.sh", text), &Options::default());
    let shown = |parsed: &Parsed, by: usize| -> Vec<String> {
        let at = |span: Span| format!("{:?}", Span::new(span.start + by, span.end + by));
        let of_launch = |launch: &Launch| {
            let mut places = vec![at(launch.span), at(launch.anchor)];
            places.extend(launch.arguments.iter().map(|argument| at(argument.span)));
            for key in schemas::flags::FLAGS.iter().map(|flag| flag.key) {
                let edits = launch.remove(key).into_iter().chain([launch.set(key, EngineVersion::new(0, 5, 23), "1")]);
                places.extend(edits.map(|edit| format!("{} {}", at(edit.span), edit.replacement)));
            }
            places.join(" ")
        };
        let of_finding = |found: &schemas::finding::Finding| format!("{} {}", found.code, at(found.span));
        parsed.launches.iter().map(of_launch).chain(parsed.findings.iter().map(of_finding)).collect()
    };
    let (alone, within) = (read(&alone), read(&within));
    if !alone.launches.is_empty() {
        assert_eq!(shown(&within, 0), shown(&alone, opener.len()), "{text}");
    }
}

#[test]
fn published_launches_are_the_same_in_here_documents() {
    launches().iter().for_each(|launch| check_in_document(launch));
}

#[test]
fn published_launches_print_and_read_back() {
    launches().iter().for_each(|launch| check_printed("x.sh", launch));
}

#[test]
fn a_toml_launch_prints_with_its_flags_and_reads_back() {
    check_printed(
        "x.toml",
        "engine = \"sglang\"\nmodel_path = \"a b\"\ncuda_graph_bs = [1, 2]\ndtype = \"--x\"\ndisable_radix_cache = true\n",
    );
    check_printed("x.toml", "model_path = \"it's\"\nspeculative_num_steps = 3\nmem_fraction_static = 0.5\n");
}

/// A launch and configs with extreme numbers.
fn numbers() -> impl Strategy<Value = (String, String, String)> {
    let number = || prop_oneof![Just(i64::MAX), Just(-1), Just(0), Just(1), Just(2), 3..70_i64, Just(i64::MAX / 2)];
    let flag = prop::sample::select(vec![
        "--speculative-num-steps",
        "--speculative-eagle-topk",
        "--speculative-num-draft-tokens",
        "--max-running-requests",
        "--cuda-graph-max-bs",
        "--cuda-graph-bs 3",
        "--context-length",
        "--page-size",
        "--tp",
        "--dp-size",
        "--attn-dp-size",
        "--speculative-accept-threshold-acc",
        "--random-input-len",
        "--random-output-len",
    ]);
    let words = prop::sample::select(vec![
        "--speculative-algorithm EAGLE",
        "--speculative-algorithm EAGLE3",
        "--speculative-algorithm STANDALONE",
    ]);
    let field = prop::sample::select(vec![
        "hidden_size",
        "vocab_size",
        "draft_vocab_size",
        "num_attention_heads",
        "num_key_value_heads",
        "intermediate_size",
        "max_position_embeddings",
        "target_hidden_size",
        "num_aux_hidden_states",
        "sliding_window",
        "num_nextn_predict_layers",
    ]);
    let config = || {
        prop::collection::vec((field.clone(), number()), 0..8).prop_map(|fields| {
            let mut text = String::from(r#"{"architectures": ["LlamaForCausalLMEagle3"], "torch_dtype": "bfloat16""#);
            fields.iter().for_each(|(field, number)| text.push_str(&format!(", \"{field}\": {number}")));
            text + "}"
        })
    };
    (words, prop::collection::vec((flag, number()), 0..9), config(), config()).prop_map(
        |(words, flags, target, draft)| {
            let flags: String = flags.iter().map(|(flag, number)| format!(" {flag} {number}")).collect();
            (format!("sglang serve --model-path a --speculative-draft-model-path b {words}{flags}"), target, draft)
        },
    )
}

/// Repetitions that would take far too long if any part of a reader were quadratic in the length of
/// the text.
#[test]
fn long_texts_of_unclosed_constructs_are_read_in_one_go() {
    for piece in [
        "\"$(",
        "${",
        "'",
        "`",
        "$((",
        "<<E\n",
        "(",
        "\\ \n",
        "X=(",
        "\"",
        "a=$a$a;",
        "${a:-",
        "--x \"",
        "A+=(${A[@]} b)\n",
        "bash <<E\nE\n",
        "cat <<E | bash\nsglang serve --tp $T\nE\n",
        "cat > a.sh <<E |",
        "bash <<-E\n\t${A[@]} $(\nE\n",
        "bash <<'E'\n",
    ] {
        let text = piece.repeat((1 << 20) / piece.len());
        let source = Source::new("x.sh", text);
        parse(&source, &Options::default());
    }
}

#[test]
fn deep_programs_are_read_in_one_go() {
    let several = |piece: &str, again: usize| piece.repeat(again);
    let names: String =
        (0..100).map(|number| format!("a{number} = {{'x': a{0}, 'y': a{0}, 'z': a{0}}}\n", number + 1)).collect();
    for text in [
        format!("x = {}", several("[", 50_000)),
        format!("x = {}''", several("\"sglang --tp 2 \" + ", 5_000)),
        format!("x = {}'sglang --tp 2'{}", several("(", 10_000), several(")", 10_000)),
        several("f\"{", 20_000),
        format!("{names}LLM(m=1, speculative_config=a0)"),
    ] {
        parse(&Source::new("x.py", format!("import sglang, vllm\n{text}\n")), &Options::default());
    }
}

#[test]
fn a_text_too_large_is_refused_and_said_so() {
    let source = Source::new("x", " ".repeat(launch::LONGEST_TEXT + 1));
    let parsed = parse(&source, &Options::default());
    assert!(parsed.launches.is_empty());
    assert_eq!(parsed.findings.first().map(|found| found.code), Some("LT01"));
}

#[test]
fn the_forms_of_a_launch_are_stated_apart() {
    let syntax = |name: &str, text: &str| {
        parse(&Source::new(name, text), &Options::default()).launches.first().map(|launch| launch.syntax)
    };
    assert_eq!(syntax("x", "model_path = \"a\""), Some(Syntax::Toml));
    assert_eq!(syntax("x", "--model-path a"), Some(Syntax::CommandLine));
    assert_eq!(syntax("x", "A=( --sglang-dtype half )"), Some(Syntax::ShellArray));
}
