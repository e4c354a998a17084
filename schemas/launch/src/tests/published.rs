//! Forms in which launches are published, and texts that look like launches but are not.

use schemas::{diagnostic::Severity, finding::settle_all, flags::Key, text::Source};

use super::super::{Engine, Launch, Launcher, Options, parse};

fn launches(name: &str, text: &str) -> Vec<Launch> {
    parse(&Source::new(name, text), &Options::default()).launches
}

/// The codes of the findings about a text, without infos.
fn amiss(name: &str, text: &str) -> Vec<&'static str> {
    let found = settle_all(parse(&Source::new(name, text), &Options::default()).findings);
    found.into_iter().filter(|one| one.severity > Severity::Info).map(|one| one.code).collect()
}

#[track_caller]
fn check_none(name: &str, text: &str) {
    let found = launches(name, text);
    assert!(found.is_empty(), "{name}: {found:#?}");
}

#[track_caller]
fn one(name: &str, text: &str) -> Launch {
    let mut found = launches(name, text);
    assert_eq!(found.len(), 1, "{name}\n{text}\n{found:#?}");
    assert_eq!(amiss(name, text), Vec::<&str>::new(), "{name}\n{text}");
    found.remove(0)
}

#[test]
fn files_of_other_programs_are_no_launches() {
    check_none("rl.toml", "max_steps = 5\n\n[model]\nname = \"m\"\n\n[ckpt]\n[trainer]\n[orchestrator]\n");
    check_none("uv.lock", "version = 1\nrevision = 3\nrequires-python = \">=3.12\"\n\n[[package]]\nname = \"x\"\n");
    assert_eq!(launches("a.toml", "model_path = \"m\"\nunknown = 1\nother = 2\nthird = 3\n").len(), 1);
    assert_eq!(launches("a.toml", "speculative_algoritm = \"EAGLE\"\n").len(), 1);
}

#[test]
fn questions_and_other_engines_are_no_launches() {
    for text in [
        "python3 -m sglang.launch_server --help",
        "vllm serve --help",
        "docker run -p 80:80 ghcr.io/huggingface/text-generation-inference:2.0 --model-id m --quantize eetq --port 80",
        "python3 -m sgl_jax.launch_server --model-path m --speculative-algorithm EAGLE --speculative-num-steps 3",
        "trl vllm-serve --model m --tensor-parallel-size 2 --max-model-len 4096",
    ] {
        check_none("run.sh", text);
    }
}

#[test]
fn flags_that_a_page_speaks_of_are_a_part() {
    for text in [
        "Seeds:\n```bash\n--seed kind=static,value=42\n```\n",
        "Vary:\n```\n--max-model-len\n--tensor-parallel-size\n```\n",
        "| --random-seed Random seed. | as `--seed 1` |\n| --warmup Warmup: int or float |\n",
        "```txt\n  --dtype DTYPE, --data-type DTYPE\n  --max_model_len MAX_MODEL_LEN, --max-model-len \
         MAX_MODEL_LEN\n```\n",
        "```\na/\n├── b/      ← configs (--serve)\n```\n",
    ] {
        assert_eq!(amiss("a.md", text).iter().filter(|code| **code != "LT02").count(), 0, "{text}");
    }
    let part = one("a.md", "Add:\n```\n--speculative-algorithm NEXTN\n--speculative-num-steps 3\n```\n");
    assert!(part.is_part && part.integer(Key::SpeculativeNumSteps).is_some());
    let whole = one("run.sh", "--model-path m --speculative-algorithm NEXTN --speculative-num-steps 3");
    assert!(!whole.is_part);
}

#[test]
fn what_pages_leave_out_ends_no_command() {
    let text = "```bash\nvllm serve m \\\n  ...\n  --max-model-len 9 \\\n  --dtype auto\n```\n";
    let launch = one("a.md", text);
    assert_eq!(launch.integer(Key::ContextLength).map(|length| length.value), Some(9));
    one("a.md", "```bash\nvllm serve ...\n  --enable-auto-tool-choice\n  --tool-call-parser hermes\n```\n");
    // A line that does end is reported.
    let text = "```bash\nvllm serve m\n  --max-model-len 9\n```\n";
    assert_eq!(amiss("a.md", text), ["LT04"]);
}

#[test]
fn the_readers_own_values_are_not_known() {
    let text = "```bash\nA=('your ip1' 'your ip2')\nM=\"${A[0]}:your port\"\nsglang serve --model-path m --dist-init-addr $M --tp 2\n```\n";
    let launch = one("a.md", text);
    assert_eq!(launch.integer(Key::TpSize).map(|size| size.value), Some(2));
}

#[test]
fn json_that_a_program_puts_together_is_not_judged_in_parts() {
    let text = "out = 'serve '\nout += '--speculative_config=\\'{\\\\\"method\\\\\": \\\\\"%s\\\\\"}\\' ' % method\n";
    assert_eq!(amiss("a.py", text).iter().filter(|code| **code == "LT14").count(), 0, "{text}");
}

#[test]
fn images_say_whose_build_runs() {
    let of = |text: &str| one("run.sh", text).may_be_fork();
    assert!(of("docker run --gpus all me/sglang:mine python3 -m sglang.launch_server --model-path m --tp 2"));
    assert!(of("docker run --gpus all sglang:v0.5.16-mine python3 -m sglang.launch_server --model-path m --tp 2"));
    for image in ["lmsysorg/sglang:latest", "nvcr.io/nvidia/sglang:26.01-py3", "rocm/sgl-dev:x", "$IMAGE"] {
        let text = format!("docker run --gpus all {image} python3 -m sglang.launch_server --model-path m --tp 2");
        assert!(!of(&text), "{image}");
    }
    assert!(!of("sglang serve --model-path m"));
    let compose = "services:\n  s:\n    image: ghcr.io/me/sglang:x\n    command: python3 -m sglang.launch_server --model-path m\n";
    assert!(one("compose.yaml", compose).may_be_fork());
}

#[test]
fn a_substitution_has_quotes_of_its_own() {
    let text = r#"T="$(sed -n 's/^\(a\)["'"'"']\?b/\1/p' "$HOME/.rc" | head -1)"
N="${N:-10}"
sglang serve --model-path m --max-running-requests "${N}" --speculative-algorithm NGRAM
"#;
    let launch = one("run.sh", text);
    assert_eq!(launch.integer(Key::MaxRunningRequests).map(|number| number.value), Some(10));
}

#[test]
fn a_quote_that_is_left_for_a_quote_is_one_for_the_command_inside() {
    let text = r#"docker run --rm vllm/vllm-openai:v0.28.0 bash -lc '
vllm serve m --port 5002 \
  --speculative-config '\''{"method":"ngram","num_speculative_tokens":3,"prompt_lookup_max":4}'\'''
"#;
    let config = one("run.sh", text).vllm_speculation().expect("a configuration");
    assert_eq!((config.method.as_deref(), config.num_speculative_tokens), (Some("ngram"), Some(3)));
}

#[test]
fn sidecars_tables_and_benchmarks_are_no_launches() {
    let sidecar = r#"containers:
- name: runtime
  image: ghcr.io/me/runtime:latest
  args:
  - --port
  - "8900"
  - --engine
  - sglang
  - --engine-base-url
  - http://localhost:30000
  - --engine-metrics-path
  - /metrics
  - --pod
  - $(POD)
  - --model
  - m
"#;
    check_none("pod.yaml", sidecar);
    let table = r#"import vllm
for flag, key, value in (
    ("--spec-method", "method", 1),
    ("--spec-tokens", "num_speculative_tokens", n),
):
    pass
"#;
    check_none("a.py", table);
    check_none("eval.toml", "model = \"m\"\n\n[eval.client]\nbase_url = \"x\"\n");
    check_none("infer.toml", "[model]\nname = \"m\"\n");
    check_none("run.sh", "python -m vllm.entrypoints.cli.main bench serve --port xxxx --backend vllm --model m");
    let timed = "$PY -m vllm.entrypoints.cli.main bench latency --model m --input-len 8 --batch-size 8";
    assert_eq!(amiss("run.sh", timed), Vec::<&str>::new());
    let page =
        "vllm\n```bash\n--all2all-backend  # a\n--all2all-backend low-latency  # b\n--all2all-backend high  # c\n```\n";
    assert_eq!(amiss("a.md", page).iter().filter(|code| **code != "LT02").count(), 0, "{page}");
}

#[test]
fn a_flag_that_a_page_shows_is_no_command() {
    let text = "vLLM, with:\n\n```\n--speculative_config {\"method\":\"mtp\",\"num_speculative_tokens\":1}\n```\n";
    let found = settle_all(parse(&Source::new("a.md", text), &Options::default()).findings);
    assert!(found.iter().any(|one| one.code == "LT14"), "{found:#?}");
    assert!(found.iter().all(|one| one.severity < Severity::Error), "{found:#?}");
}

#[test]
fn texts_that_patch_an_engine_run_one_of_their_own() {
    assert!(one("run.sh", "git apply own.diff\nvllm serve m --kv-cache-dtype own4\n").may_be_fork());
    assert!(!one("run.sh", "vllm serve m --kv-cache-dtype fp8\n").may_be_fork());
}

#[test]
fn a_trainer_may_lie_in_a_folder_that_a_variable_names() {
    let text = "uv run coverage run -a $ROOT/examples/run_grpo.py --config c.yaml policy.generation.vllm_kwargs.speculative_config.method=eagle3 policy.generation.vllm_kwargs.speculative_config.model=d\n";
    let found = launches("run.sh", text);
    assert_eq!(found.iter().map(|launch| launch.engine).collect::<Vec<_>>(), [Engine::Vllm], "{found:#?}");
}

#[test]
fn flags_of_forks_are_theirs() {
    let kt = "sglang serve --model-path m --kt-method AMXINT4 --kt-num-gpu-experts 8 --max-running-requests 4";
    assert_eq!(amiss("run.sh", kt), Vec::<&str>::new());
    assert!(one("run.sh", kt).may_be_fork());
    let flags =
        "python3 -m sglang.launch_server --model-path m --attn-tp-size 8 --moe-parallel-strategy ep --ext-yaml a";
    assert_eq!(amiss("run.sh", flags), ["LT09", "LT09", "LT09"]);
    let named = format!("git clone https://github.com/meituan-longcat/SGLang-FluentLLM\n{flags}");
    assert_eq!(amiss("run.sh", &named), Vec::<&str>::new());
    assert_eq!(amiss("SGLang-FluentLLM/run.sh", flags), Vec::<&str>::new());
    // A typo is reported as a warning.
    let slip = format!("{named} --max-running-requestz 4\n");
    let found = settle_all(parse(&Source::new("run.sh", slip.as_str()), &Options::default()).findings);
    assert_eq!(found.iter().map(|one| (one.code, one.severity)).collect::<Vec<_>>(), [("LT09", Severity::Warning)]);
}

#[test]
fn blanks_that_separate_no_words_are_named() {
    let stated = |text: &str| {
        let found = settle_all(parse(&Source::new("run.sh", text), &Options::default()).findings);
        found
            .into_iter()
            .filter(|one| one.code != "LT07")
            .map(|one| format!("{} {}", one.code, one.message))
            .collect::<Vec<_>>()
    };
    for text in [
        "sglang serve --model-path m --tp\u{a0}8 --dtype auto",
        "sglang serve --model-path m --max-running-requests 16\u{a0}--dp-size 2",
        "sglang serve --model-path m \\\n\u{a0}\u{a0}--tp 8",
        "sglang serve --model-path m --dtype bfloat16\u{a0} --tp 8",
        "vllm serve m --max-model-len\u{a0}9",
        "vllm serve m \\\n\u{a0} --max-model-len 9 \\\n\u{a0}--dtype auto",
    ] {
        let found = stated(text);
        assert!(
            found.iter().all(|one| one.starts_with("LT15 `") && one.contains("a no-break space (U+00A0)")),
            "{text}\n{found:#?}"
        );
        assert!(!found.is_empty(), "{text}");
    }
    let after = stated("sglang serve --model-path m \\\u{a0}\n --tp 8");
    assert_eq!(after.len(), 1, "{after:#?}");
    assert!(after[0].starts_with("LT04 a no-break space (U+00A0) after the backslash"), "{after:#?}");
    // Python parses such a number, and a quoted string may contain any blank.
    for text in [
        "sglang serve --model-path m --tp 8\u{a0} --dtype auto",
        "sglang serve --model-path m --served-model-name \"my\u{a0}model\"",
    ] {
        assert_eq!(stated(text), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn programs_that_are_not_known_may_have_values_of_their_own() {
    // Another engine, with flags similar to those of both.
    check_none(
        "run.sh",
        "ts serve --model m --kv-cache-dtype fp8 --speculative-algorithm MTP --speculative-num-steps 3",
    );
    check_none("run.sh", "tokenspeed serve m --kv-cache-dtype fp8 --speculative-algorithm MTP");
    let wrapped = one("run.sh", "./serve.sh --model-path m --speculative-algorithm EAGLE");
    assert_eq!(wrapped.launcher, Launcher::Wrapper);
    assert_eq!(one("run.sh", "sglang serve --model-path m").launcher, Launcher::Own);
}

#[test]
fn other_shells_continue_their_lines() {
    for end in ["`", "^"] {
        let text = format!(
            "```powershell\nvllm serve m {end}\n  --port 80 {end}\r\n  --gpu-memory-utilization 0.9 {end}\n  --max-model-len 9\n```\n"
        );
        assert_eq!(one("a.md", &text).arguments.len(), 4, "{text}");
    }
    // bash drops a backslash at the end of a script.
    assert_eq!(one("run.sh", "sglang serve --model-path m --deepep-mode auto \\").arguments.len(), 2);
    let page = "vllm serve m \\\n --gpu-memory-utilization 0.8 \\ # less\n --max-num-seqs 1 \\  # one\n ...\n";
    assert_eq!(amiss("run.sh", page), ["LT04", "LT04"]);
}

#[test]
fn what_a_template_fills_in_is_not_known() {
    let text = "```\n--port {{ .Values.port }} \\\n--gpu-memory-utilization={{ .Values.gpu }} \\\n--max-model-len {{ len }}\n```\n";
    let launch = one("a.md", text);
    assert!(launch.arguments.iter().all(|argument| argument.values.iter().all(|value| value.value.known().is_none())));
    // Braces without a value are text.
    assert_eq!(amiss("run.sh", "vllm serve m --max-model-len {{9}}"), Vec::<&str>::new());
}

#[test]
fn variables_in_a_quoted_script_are_filled_in_by_the_shell_around_it() {
    let text = "f() {\n  local n=$1\n  local spec=\"{\\\"method\\\":\\\"mtp\\\",\\\"num_speculative_tokens\\\":${n}}\"\n  \
                bash -c \"vllm serve m --max-model-len 9 --speculative-config '$spec' > log 2>&1\"\n}\n";
    one("run.sh", text);
}

#[test]
fn rows_of_a_table_are_commands_only_with_a_program() {
    let case = "(['--speculative-config \\'{\"num_speculative_tokens\": 2}\\' --tp 8'], ['--tp', '8'])";
    check_none("cases.py", &format!("CASES = [{case}]\n"));
    // A row of a table that names a flag.
    check_none("a.py", "CHECKS = (\n    (\"cli\", \"vllm/engine/arg_utils.py\", \"--speculative-config\"),\n)\n");
    let both = "RUNS = [\n    [\"vllm\", \"serve\", \"m\", \"--max-model-len\", \"9\"],\n]\n";
    assert_eq!(launches("a.py", both).len(), 1);
}

#[test]
fn commands_that_a_program_starts_are_run() {
    let list = "[\"vllm\", \"serve\", \"m\", \"--max-model-len\", \"9\"]";
    let text = "\"vllm serve m --max-model-len 9\"";
    for (program, is_run) in [
        (format!("subprocess.Popen({list})"), true),
        (format!("command = {list}\nsubprocess.run(command, check=True)"), true),
        (format!("command = {text}\nsubprocess.run(args=command.split())"), false),
        (format!("command = {text}\nprocess = await start_server(shlex.split(command))"), true),
        (format!("os.system({text})"), true),
        (format!("execute_shell_command({text})"), true),
        (format!("subprocess.run(shlex.split({text}))"), true),
        (format!("COMMAND = {list}"), false),
        (format!("COMMAND = {text}"), false),
    ] {
        let found = launches("a.py", &program);
        assert_eq!(found.iter().map(|launch| !launch.is_shown).collect::<Vec<_>>(), [is_run], "{program}");
    }
    // Texts for a reader.
    for call in ["print", "logging.info", "parser.add_argument", "raise ValueError"] {
        check_none("a.py", &format!("{call}({text})\n"));
    }
}

#[test]
fn shares_of_flags_are_no_values_of_them() {
    check_none(
        "a.md",
        "```json\n{\"max_num_seqs\": 0.35, \"gpu_memory_utilization\": 0.28, \"block_size\": 0.07}\n```\n",
    );
    one("a.yaml", "max_num_seqs: 35\ngpu_memory_utilization: 0.28\nblock_size: 16\n");
}

#[test]
fn a_folded_command_may_be_split_by_a_program() {
    let stated = |style: char| {
        let text =
            format!("- name: serve\n  shell: {style}\n    vllm serve m\n      --port 80\n      --max-model-len 9\n");
        let found = settle_all(parse(&Source::new("a.yaml", text), &Options::default()).findings);
        found.into_iter().find(|one| one.code == "LT04").map(|one| one.severity)
    };
    assert_eq!(stated('>'), Some(Severity::Warning));
    assert_eq!(stated('|'), Some(Severity::Error));
}

#[test]
fn an_image_in_a_variables_default_may_be_a_fork() {
    let compose = |image: &str| {
        format!(
            "services:\n  a:\n    image: {image}\n    entrypoint: []\n    command: vllm serve m --kv-cache-dtype own4\n"
        )
    };
    assert!(one("compose.yaml", &compose("${IMAGE:-runtime-of-mine:v0261}")).may_be_fork());
    assert!(!one("compose.yaml", &compose("${IMAGE:-vllm/vllm-openai:v0.20.0}")).may_be_fork());
}

#[test]
fn an_engine_from_the_sources_of_someone_else_may_be_a_fork() {
    let run =
        |owner: &str| format!("git clone https://github.com/{owner}/vllm.git\nvllm serve m --kv-cache-dtype fp8\n");
    assert!(one("run.sh", &run("me")).may_be_fork());
    assert!(!one("run.sh", &run("vllm-project")).may_be_fork());
    let pip =
        "pip install git+https://github.com/me/sglang@x#subdirectory=python\nsglang serve --model-path m --tp 2\n";
    assert!(one("run.sh", pip).may_be_fork());
}

#[test]
fn a_backslash_where_folded_lines_meet_in_quotes_is_gone() {
    let compose = "services:\n  a:\n    image: me/vllm:1\n    command: /bin/bash -c \"vllm serve m \\\n      --max-num-seqs $N \\\n      --port 80\"\n";
    let launch = one("compose.yaml", compose);
    let flags: Vec<&str> = launch.arguments.iter().map(|argument| argument.flag.value.as_str()).collect();
    assert_eq!(flags, ["m", "--max-num-seqs", "--port"], "{launch:#?}");
}

#[test]
fn quoted_blocks_of_a_page_are_read_without_their_signs() {
    let page = "> Like this:\n>\n> ```shell\n> vllm serve m \\\n>   --host 0.0.0.0 --port 8888 \\\n>   --max-model-len 9\n> ```\n";
    let launch = one("a.md", page);
    assert!(launch.arguments.iter().all(|argument| argument.values.len() <= 1), "{launch:#?}");
    // A redirection to a file stays one.
    let log = one("run.sh", "vllm serve m --port 8888 \\\n  > log 2>&1\n");
    assert_eq!(log.arguments.len(), 2);
}

#[test]
fn a_list_of_python_may_end_in_a_flag() {
    one(
        "a.py",
        "LAUNCHERS = {\n    \"vllm\": [\"python3\", \"-m\", \"vllm.entrypoints.openai.api_server\", \"--model\"],\n}\n",
    );
}
