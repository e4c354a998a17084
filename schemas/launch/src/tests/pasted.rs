//! Kinds of text that contain launches and that a shell parser would misread or report twice.

use schemas::{finding::settle_all, flags::Key, text::Source};

use super::super::{Options, Value, parse};

/// The errors and warnings of a text, as code and place.
fn amiss(name: &str, text: &str) -> Vec<String> {
    let source = Source::new(name, text);
    let found = settle_all(parse(&source, &Options::default()).findings);
    let found = found.into_iter().filter(|one| one.severity > schemas::diagnostic::Severity::Info);
    found.map(|one| format!("{} at `{}`", one.code, source.slice(one.span))).collect()
}

fn count(name: &str, text: &str) -> usize {
    parse(&Source::new(name, text), &Options::default()).launches.len()
}

#[track_caller]
fn is_clean(name: &str, text: &str) {
    let found: Vec<String> = amiss(name, text).into_iter().filter(|one| !one.starts_with("LT02")).collect();
    assert_eq!(found, Vec::<String>::new(), "{name}\n{text}");
}

#[test]
fn a_comment_after_a_backslash_is_stated_once_and_the_launch_read_on() {
    let text = "sglang serve --model-path a \\ # the target\n  --tp 2 \\  # ranks\n  --page-size 1\n";
    assert_eq!(amiss("run.sh", text), ["LT04 at `# the target`", "LT04 at `# ranks`"]);
    let parsed = parse(&Source::new("run.sh", text), &Options::default());
    assert_eq!(parsed.launches[0].count(Key::PageSize).map(|size| size.value), Some(1));
    assert_eq!(parsed.launches[0].count(Key::TpSize).map(|size| size.value), Some(2));
    // An escaped blank is part of a name.
    is_clean("run.sh", "sglang serve --model-path /models/a\\ #1 --tp 2\n");
}

#[test]
fn quotes_stay_in_files_of_variables() {
    let json = "{\"method\":\"mtp\",\"num_speculative_tokens\":1}";
    let text = format!(
        "# served\nMODEL=m\nPORT=8000\nVLLM_EXTRA_ARGS=--max-model-len 4096 --kv-cache-dtype fp8 --speculative-config {json}\n"
    );
    for name in ["prod.env", ".env", "a/.env.example"] {
        is_clean(name, &text);
        assert_eq!(count(name, &text), 1, "{name}");
    }
    // A script is read as a shell reads it.
    let script = text.replace("MODEL=m", "export MODEL=m\necho \"$MODEL\"");
    assert!(amiss("prod.sh", &script).iter().any(|one| one.starts_with("LT14")), "{script}");
    let quoted = "ARGS='--model-path m --speculative-algorithm NGRAM --tp 2' # all\n";
    let parsed = parse(&Source::new("a.env", quoted), &Options::default());
    assert_eq!(parsed.launches.len(), 1, "{:#?}", parsed.findings);
    let used = "ARGS=--model-path $M --speculative-algorithm NGRAM --tp ${T}\n";
    let parsed = parse(&Source::new("a.env", used), &Options::default());
    assert!(matches!(parsed.launches[0].settings[&Key::TpSize].values[0].value, Value::Unknown(_)));
}

#[test]
fn who_splits_a_text_of_flags_is_not_known() {
    let text = r#"{"engine": "vllm", "extra_args": "--max-num-seqs 8 --speculative-config {\"method\":\"mtp\",\"num_speculative_tokens\":1}"}"#;
    is_clean("meta.json", text);
    assert_eq!(count("meta.json", text), 1);
}

#[test]
fn words_of_a_page_stand_for_the_readers_own() {
    is_clean("a.md", "```bash\nvllm serve m --master-port 端口 --nnodes 2\n```\n");
    is_clean("a.md", "```bash\npython3 -m sglang.bench_one_batch --correct --model [your model]\n```\n");
    let listed =
        "sglang\n```bash\n# all of them\n--page-size 64 # pages\n--hicache-storage-backend # file, mooncake\n```\n";
    is_clean("a.md", listed);
    assert_eq!(amiss("run.sh", "vllm serve m --master-port port\n").len(), 0);
}

#[test]
fn servers_of_diffusion_models_have_flags_of_their_own() {
    is_clean("run.sh", "sglang serve --model-path m --disagg-role server --decoder-urls tcp://a:1 --port 3000\n");
    is_clean("run.sh", "sglang serve --model-path m --performance-mode speed\n");
    // Language models are served with some of them too.
    assert_eq!(count("run.sh", "vllm serve m --performance-mode throughput\n"), 1);
    assert_eq!(count("run.sh", "docker run vllm/vllm-openai:v0.20.1 m --performance-mode balanced\n"), 1);
    assert_eq!(count("run.sh", "sglang serve --model-path m --language-only --encoder-urls http://a:1\n"), 1);
}

#[test]
fn tests_show_what_they_start() {
    let refused = "import vllm\ndef test_refused():\n    args = vllm.EngineArgs(model='m', speculative_config={'model': 'd', 'tensor_parallel_size': 1})\n    with pytest.raises(ValueError):\n        args.create_engine_config()\n";
    let found = parse(&Source::new("test_a.py", refused), &Options::default()).launches;
    assert!(found.iter().all(|launch| launch.is_shown) && found.len() == 1, "{found:#?}");
    assert_eq!(count("a.py", "import sglang\nFLAG = dict(aliases=['--speculative-draft-model'])\n"), 0);
    let equals = "import sglang\nargs = ['--model-path=m', '--speculative-algorithm=NGRAM', '--tp-size=2']\n";
    assert_eq!(count("a.py", equals), 1);
}

#[test]
fn an_image_for_one_platform_is_not_that_of_the_whole_page() {
    let page = "# A\n\n- AMD: `lmsysorg/sglang:v0.5.9-rocm700-mi35x`.\n\n# B\n\n```bash\nsglang serve --model-path m --tp 8\n```\n";
    let version = |text: &str| {
        let parsed = parse(&Source::new("a.md", text), &Options::default());
        parsed.launches[0].engine_version.map(|version| version.value.to_string())
    };
    assert_eq!(version(page), None);
    assert_eq!(version(&page.replace("-rocm700-mi35x", "-cu130")).as_deref(), Some("0.5.9"));
}

#[test]
fn lines_of_a_text_in_python_may_be_split_into_words() {
    let text = "import sglang\nrun(\n    \"\"\"\n    python3 -m sglang.launch_server --model-path m \\\n    --max-lora-rank 8\n    --log-level warning\n\"\"\")\n";
    let found = settle_all(parse(&Source::new("a.py", text), &Options::default()).findings);
    assert!(found.iter().all(|one| one.severity < schemas::diagnostic::Severity::Error), "{found:#?}");
    assert!(found.iter().any(|one| one.code == "LT04"), "{found:#?}");
}

#[test]
fn what_stands_for_a_text_of_the_same_length_is_not_that_text() {
    // The called name is as long as the resulting command.
    let text = "import sglang\nllm = sgl.éééééééééé.Engine(mod=3)\n";
    let source = Source::new("a.py", text);
    for launch in parse(&source, &Options::default()).launches {
        let spans = launch.arguments.iter().map(|argument| argument.span).chain([launch.span, launch.anchor]);
        spans.for_each(|span| assert!(text.get(span.range()).is_some(), "{span:?}"));
    }
}

#[test]
fn a_command_that_grows_may_get_the_value_later() {
    let text = "import os\ncmd = f'python3 -m sglang.launch_server --model-path {m} --lora-paths '\nfor i in n:\n    cmd += f'l{i}={p} '\nos.system(cmd)\n";
    is_clean("a.py", text);
    assert_eq!(count("a.py", text), 1);
}

#[test]
fn templates_of_scripts_are_read_in_their_first_branches() {
    let script = "#!/bin/bash\n{# of a generator #}\n{% if debug %}\nexport DEBUG=1\n{% endif %}\npython3 -m sglang.launch_server --model-path m \\\n  {{ arguments }} \\\n  --tp {{ tp }}\n";
    for name in ["run.sh.j2", "run.sh.jinja", "serve.bash.tmpl"] {
        is_clean(name, script);
        assert_eq!(count(name, script), 1, "{name}");
        let two = script.replace("{% endif %}", "{% else %}\nexport DEBUG=0\n{% endif %}");
        is_clean(name, &two);
        assert_eq!(count(name, &two), 1, "{name}");
        let unclosed = two.replace("{% endif %}", "");
        is_clean(name, &unclosed);
        assert_eq!(count(name, &unclosed), 0, "{name}");
    }
    let counted = script.replace("export DEBUG=1", "echo ${#ARGUMENTS[@]}");
    assert_eq!(count("run.sh.j2", &counted), 1);
    // No template expressions: an ordinary script.
    let plain = "sglang serve --model-path a --page-size\n";
    assert_eq!(amiss("run.sh.j2", plain), amiss("run.sh", plain));
    assert_eq!(amiss("run.sh.j2", plain).len(), 1);
}

#[test]
fn messages_of_a_program_are_no_launches() {
    for call in ["typer.echo", "click.secho", "raise click.UsageError", "raise ValueError", "raise typer.BadParameter"]
    {
        let text = format!(
            "import vllm\n{call}(\"--num-speculative-tokens must be positive\")\n{call}(\"--no-mtp needs vLLM without \" \"--speculative-config; see help\")\n"
        );
        is_clean("a.py", &text);
        assert_eq!(count("a.py", &text), 0, "{call}");
    }
}
