//! What is read as a launch, for which engine and version, and what is not, on shortened published
//! launches.

use launch::{Launch, Launcher, Options, parse};
use lint::report::{self, report_text};
use schemas::{diagnostic::Severity, engines::Engine, text::Source};

/// The launches and findings of a text.
struct Read {
    launches: Vec<Launch>,
    /// Code, line and severity of each finding that is worse than `info`.
    found: Vec<(String, usize, Severity)>,
}

fn read(name: &str, text: &str) -> Read {
    let source = Source::new(name, text);
    let parsed = parse(&source, &Options::default());
    let found = report_text(&source, &report::ReportOptions::default()).findings;
    let found = found.iter().filter(|finding| finding.severity > Severity::Info);
    let found =
        found.map(|finding| (finding.code.to_owned(), source.position(finding.span.start).line, finding.severity));
    Read { launches: parsed.launches, found: found.collect() }
}

/// Checks the codes that are found.
#[track_caller]
fn codes(name: &str, text: &str, expected: &[&str]) -> Read {
    let read = read(name, text);
    let mut codes: Vec<&str> = read.found.iter().map(|(code, ..)| code.as_str()).collect();
    codes.sort_unstable();
    codes.dedup();
    assert_eq!(codes, expected, "{name}:\n{text}\n{:?}", read.found);
    read
}

#[track_caller]
fn engines(name: &str, text: &str, expected: &[Engine]) -> Read {
    let read = read(name, text);
    let found: Vec<Engine> = read.launches.iter().map(|launch| launch.engine).collect();
    assert_eq!(found, expected, "{name}:\n{text}");
    read
}

/// Checks that there is no error, and that the number of launches is `launches`.
#[track_caller]
fn no_error(name: &str, text: &str, launches: usize) -> Read {
    let read = read(name, text);
    assert_eq!(read.launches.len(), launches, "{name}:\n{text}");
    let errors: Vec<_> =
        read.found.iter().filter(|(code, _, severity)| *severity == Severity::Error && code != "LT02").collect();
    assert!(errors.is_empty(), "{name}:\n{text}\n{errors:?}");
    read
}

#[test]
fn yaml_in_markdown_is_read_as_yaml() {
    let manifest = "kind: Pod\nspec:\n  containers:\n  - name: s\n    image: lmsysorg/sglang:v0.5.16\n    command: [\"python3\", \"-m\", \
                    \"sglang.launch_server\"]\n    args:\n    - --model-path\n    - m\n    - --max-running-requests\n    - '64'\n    - \
                    --speculative-algorithm\n    - EAGLE\n";
    let alone = read("pod.yaml", manifest);
    let within = codes("a.md", &format!("# Pod\n\n```yaml\n{manifest}```\n"), &[]);
    assert_eq!((alone.found.len(), within.launches.len()), (0, 1));
    let version = within.launches[0].engine_version.expect("a version");
    assert_eq!(version.value.to_string(), "0.5.16");
    let tied = "kind: Pod\nspec:\n  containers:\n  - name: s\n    image: lmsysorg/sglang:v0.5.16\n    command: [sglang, serve]\n    args:\n    - --model-path=m\n    - \
                --max-running-requests=64\n    - --speculative-algorithm=EAGLE\n    - --speculative-num-steps=3\n";
    let read = codes("a.md", &format!("```yaml\n{tied}```\n"), &["SD021"]);
    assert_eq!(read.found[0].1, 12, "the place is one of the Markdown");
}

#[test]
fn quotes_out_of_a_variable_stay() {
    let json = "{\"method\":\"ngram\",\"num_speculative_tokens\":5,\"prompt_lookup_max\":4}";
    codes("a.sh", &format!("A='--speculative-config {json}'\nvllm serve m $A\n"), &[]);
    codes("a.sh", &format!("export VLLM_ARGS='--speculative-config {json}'\nvllm serve m $VLLM_ARGS\n"), &[]);
    let escaped = json.replace('"', "\\\"");
    codes("a.sh", &format!("A=\"--speculative-config {escaped}\"\nvllm serve m $A\n"), &[]);
    // Quotes within the value reach the engine.
    codes("a.sh", &format!("A=\"--speculative-config '{escaped}'\"\nvllm serve m $A\n"), &["LT14"]);
    // `eval` and nested shells remove them.
    codes("a.sh", &format!("A=\"vllm serve m --speculative-config '{escaped}'\"\neval \"$A\"\n"), &[]);
    codes("a.sh", &format!("A=\"vllm serve m\"\nA+=\" --speculative-config '{escaped}'\"\neval $A\n"), &[]);
    codes("a.sh", &format!("bash -c \"vllm serve m --speculative-config '{escaped}'\"\n"), &[]);
    codes("a.sh", &format!("A=\"vllm serve m --speculative-config '{escaped}'\"\nssh host \"$A\"\n"), &[]);
    codes("a.sh", &format!("vllm serve m --speculative-config {json}\n"), &["LT14"]);
}

#[test]
fn the_strongest_evidence_tells_the_engine() {
    let json = "'{\"num_speculative_tokens\": 0, \"method\":\"mtp\"}'";
    for text in [
        format!("python3 -m dynamo.vllm --model m --max-model-len 4096 --speculative-config {json}"),
        format!("python3 -m vllm.entrypoints.openai.api_server --model m --speculative-config {json}"),
        format!("docker run --gpus all --ipc=host --rm vllm/vllm-openai:v0.20.0 --model m --speculative-config {json}"),
        format!("--model m --max-model-len 8 --kv-cache-dtype fp8 --served-model-name a b --speculative-config {json}"),
        format!("srun --gpus 8 vllm serve m --speculative-config {json}"),
    ] {
        let read = engines("a.sh", &text, &[Engine::Vllm]);
        assert!(read.found.iter().any(|(code, ..)| code == "VL12"), "{text}: {:?}", read.found);
        assert!(read.found.iter().all(|(code, ..)| code != "LT09" && code != "LT08"), "{text}: {:?}", read.found);
    }
    let list = "args:\n- --model\n- m\n- --max-model-len\n- '9'\n- --speculative-config\n- '{\"method\":\"ngram\",\"num_speculative_tokens\":2}'\n";
    engines("a.yaml", list, &[Engine::Vllm]);
    let serve = "containers:\n- image: vllm/vllm-openai:v0.11.0\n  args: [serve, org/m, --max-model-len, '9']\n";
    let read = engines("a.yaml", serve, &[Engine::Vllm]);
    assert_eq!(read.launches[0].engine_version.map(|version| version.value.to_string()).as_deref(), Some("0.11.0"));
    engines("a.sh", "python3 -m dynamo.sglang --model-path m --dyn-tool-call-parser x --tp 2", &[Engine::Sglang]);
    codes("a.sh", "python3 -m dynamo.sglang --model-path m --dyn-tool-call-parser x --tp 2", &[]);
    engines("a.sh", "vllm serve org/model", &[Engine::Vllm]);
}

#[test]
fn prose_is_no_launch() {
    let changelog = "changelog:\n- description:\n  - \"Enable MTP (--speculative-algorithm EAGLE, --speculative-num-steps 3) for all runs\"\n";
    codes("a.yaml", changelog, &["LT02"]);
    codes("a.yaml", &changelog.replace("description", "entries"), &["LT02"]);
    codes("a.yaml", "x: \"uses --speculative-algorithm EAGLE, see --model-path.\"\n", &["LT02"]);
    codes("a.md", "Use `--speculative-algorithm EAGLE` with --speculative-num-steps 3, please.\n", &["LT02"]);
    codes("a.md", "Start it. Then run sglang serve with `--tp 2`, and --model-path m.\n\n```\nhi\n```\n", &["LT02"]);
    codes("a.sh", "echo hi\n: 'Enable (--speculative-algorithm EAGLE, --tp 2)'\n", &["LT02"]);
}

#[test]
fn half_a_command_is_not_judged_as_a_whole_one() {
    let flags = "m:\n  base_flags: \"--kv-cache-dtype fp8_e4m3\"\n  mtp_flags: \"--speculative-algorithm NEXTN --speculative-eagle-topk 1\"\n";
    no_error("a.yaml", flags, 1);
    no_error("a.sh", "FLAGS=\"--speculative-algorithm NEXTN --speculative-eagle-topk 1\"\n", 1);
    no_error(
        "a.sh",
        "./serve.sh --model-path m --speculative-algorithm NEXTN --speculative-eagle-topk 1 --my-own 3\n",
        1,
    );
    no_error(
        "a.sh",
        "go() { python3 -m sglang.launch_server --model-path m \"$@\"; }\ngo --speculative-algorithm EAGLE --speculative-num-steps 3\n",
        2,
    );
}

#[test]
fn other_programs_are_not_judged() {
    for text in [
        "lmdeploy serve api_server m --speculative-algorithm eagle3 --speculative-num-draft-tokens 3",
        "trtllm-serve m --speculative_config x --max-model-len 3",
        "python train_eagle3.py --target-model-path m --draft-model-config c --sglang-tp-size 2",
        "sglang serve --model-path black-forest-labs/FLUX --num-gpus 2 --ulysses-degree 2",
        "vllm bench serve --model m --num-prompts 3",
        "python client.py --model-path m --tp 2",
    ] {
        codes("a.sh", text, &["LT02"]);
    }
    codes("a.yaml", "speculative_config:\n  decoding_type: MTP\n  num_nextn_predict_layers: 3\n", &["LT02"]);
}

#[test]
fn placeholders_stand_for_something() {
    no_error(
        "a.md",
        "```bash\nsglang serve --model-path m --cuda-graph-bs-decode 1 2 4 8 ... 16 --speculative-algorithm NGRAM\n```\n",
        1,
    );
    no_error("a.md", "```bash\nsglang serve --model .... --tp 8\n```\n", 1);
    no_error(
        "a.md",
        "```bash\nvllm serve m --speculative-config '{\"model\": <name>, \"method\": \"eagle3\"}'\n```\n",
        1,
    );
    no_error(
        "a.md",
        "```bash\nsglang serve --model-path <model> --speculative-algorithm [EAGLE|EAGLE3] --tp <n>\n```\n",
        1,
    );
}

#[test]
fn miles_takes_what_slime_sets() {
    let array = "SGLANG_ARGS=( --rollout-num-gpus-per-engine 8 --sglang-tp-size 8 )\n";
    for (place, launcher) in
        [("cd /root/miles\n", Launcher::Miles), ("cd /root/slime\n", Launcher::Slime), ("", Launcher::SlimeOrMiles)]
    {
        let read = no_error("a.sh", &format!("{place}{array}"), 1);
        assert_eq!(read.launches[0].launcher, launcher, "{place}");
    }
}

#[test]
fn strings_of_branches_are_read() {
    let script = "if [ \"$1\" = mtp ]; then\n  SPEC=\"--speculative-algorithm EAGLE --speculative-num-steps 3\"\nelse\n  SPEC=\"\"\nfi\n\
                  python3 -m sglang.launch_server --model-path m --max-running-requests 16 $SPEC\n";
    codes("a.sh", script, &["SD021"]);
    let simulated = "if [ -n \"$S\" ]; then\n  export SGLANG_SIMULATE_ACC_LEN=3.4\nfi\nsglang serve --model-path m --max-running-requests 8 \
                     --speculative-algorithm NGRAM\n";
    let read = read("a.sh", simulated);
    assert!(read.launches[0].variable("SGLANG_SIMULATE_ACC_LEN").is_some());
    let other = simulated.replace("fi\n", "else\n  export SGLANG_SIMULATE_ACC_LEN=1\nfi\n");
    assert!(self::read("a.sh", &other).launches[0].variable("SGLANG_SIMULATE_ACC_LEN").is_none());
    codes(
        "a.sh",
        "sglang serve --model-path m --max-running-requests 8 ${MTP:+--speculative-algorithm EAGLE --speculative-num-steps 3}\n",
        &["SD021"],
    );
    // A value that only one branch sets does not count as a word that may be missing.
    no_error(
        "a.sh",
        "if a; then N=4; fi\nif b; then X=\"--tp 2 --dp 2\"; fi\nsglang serve --model-path m --page-size $N $X\n",
        1,
    );
}

#[test]
fn recipes_of_srt_slurm_are_read() {
    let recipe = "name: x\nmodel:\n  path: dsr1\n  container: lmsysorg/sglang:v0.5.8\nbackend:\n  type: sglang\n  decode_environment:\n    \
                  SGLANG_SIMULATE_ACC_LEN: \"3\"\n  sglang_config:\n    prefill:\n      model-path: /model/\n      tensor-parallel-size: 8\n    \
                  decode:\n      model-path: /model/\n      speculative-algorithm: EAGLE\n      speculative-num-steps: 3\n      \
                  max-running-requests: 8\n";
    let read = engines("a.yaml", recipe, &[Engine::Sglang, Engine::Sglang]);
    assert_eq!(read.launches[1].engine_version.map(|version| version.value.to_string()).as_deref(), Some("0.5.8"));
    let codes: Vec<&str> = read.found.iter().map(|(code, ..)| code.as_str()).collect();
    assert!(codes.contains(&"SD021") && codes.contains(&"SD190"), "{codes:?}");
}

#[test]
fn trainers_are_read() {
    let verl = "python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.name=sglang \\\n  \
                actor_rollout_ref.model.mtp.enable=True actor_rollout_ref.model.mtp.enable_rollout=True \
                actor_rollout_ref.model.mtp.speculative_num_steps=4 \\\n  \
                +actor_rollout_ref.rollout.engine_kwargs.sglang.speculative_algorithm=EAGLE \\\n  \
                +actor_rollout_ref.rollout.engine_kwargs.sglang.speculative_eagle_topk=1 \\\n  \
                +actor_rollout_ref.rollout.engine_kwargs.sglang.speculative_num_draft_tokens=32\n";
    let read = engines("a.sh", verl, &[Engine::Sglang]);
    assert!(read.found.iter().any(|(code, line, _)| code == "SD023" && *line == 5), "{:?}", read.found);
    let nemo = "policy:\n  generation:\n    vllm_kwargs:\n      speculative_config:\n        method: eagle3\n        num_speculative_tokens: 0\n        model: d\n";
    let read = engines("a.yaml", nemo, &[Engine::Vllm]);
    assert!(read.found.iter().any(|(code, ..)| code == "VL12"), "{:?}", read.found);
    let nested =
        "actor_rollout_ref:\n  rollout:\n    engine_kwargs:\n      sglang:\n        speculative_algorithm: EAGEL\n";
    assert!(codes("a.yaml", nested, &["SD001"]).launches.len() == 1);
}

#[test]
fn config_files_in_a_config_map_are_read() {
    let map = "kind: ConfigMap\nmetadata: {name: x}\ndata:\n  config.yaml: |\n    model-path: m\n    max-running-requests: 8\n    speculative-algorithm: EAGLE\n    speculative-num-steps: 3\n";
    let read = codes("a.yaml", map, &["SD021"]);
    assert_eq!(read.found[0].1, 8);
    // The command line and its config file are one launch.
    let command = "---\nkind: Pod\nspec:\n  containers:\n  - image: lmsysorg/sglang:v0.5.16\n    command: [sglang, serve]\n    args: [--config, /etc/x/config.yaml, --speculative-eagle-topk, \"1\", --speculative-num-draft-tokens, \"4\"]\n";
    let both = codes("a.yaml", &format!("{map}{command}"), &[]);
    assert_eq!(both.launches.len(), 1);
}

#[test]
fn charts_lists_are_judged() {
    let values = "engine:\n  extraArgs:\n  - --speculative-algorithm\n  - EAGLE\n  - --speculative-num-steps\n  - \"3\"\n  - --max-running-requests\n  - \"4\"\n";
    codes("values.yaml", values, &["SD021"]);
}

#[test]
fn batch_scripts_images_and_units_are_read() {
    let launch = "python3 -m sglang.launch_server --model-path m --max-running-requests 8 --speculative-algorithm EAGLE --speculative-num-steps 3";
    codes("a.sh", &format!("sbatch -N 1 --wrap=\"{launch}\"\n"), &["SD021"]);
    codes("a.sh", &format!("sbatch -N 1 --wrap '{launch}'\n"), &["SD021"]);
    let words = launch.split(' ').map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ");
    let image = format!("FROM lmsysorg/sglang:v0.5.9\nENV A=b\nENTRYPOINT [{words}]\n");
    let read = codes("Dockerfile", &image, &["SD021"]);
    assert_eq!(read.launches[0].engine_version.map(|version| version.value.to_string()).as_deref(), Some("0.5.9"));
    codes("Dockerfile", &format!("FROM x\nRUN pip install y\nCMD {launch}\n"), &["SD021"]);
    codes("Dockerfile", &format!("FROM x\nCMD [\"bash\", \"-c\", \"{launch}\"]\n"), &["SD021"]);
    let unit = format!(
        "[Unit]\nDescription=x\n\n[Service]\nEnvironment=\"A=b\" C=d\nExecStart=/usr/bin/{}\nRestart=always\n",
        launch.replace(" --tp", " \\\n  --tp")
    );
    codes("sglang.service", &unit, &["SD021"]);
    codes("<stdin>", &unit, &["SD021"]);
    let refused = parse(&Source::new("main.tf", "command = [\"--model-path\"]"), &Options::default());
    assert!(refused.findings[0].message.contains("Terraform"));
}

#[test]
fn python_that_starts_an_engine_is_read() {
    let adjacent = "import os\nargs = (\n    \"--input-key prompt \"\n    \"--sglang-speculative-algorithm EAGLE \"\n    \"--sglang-enable-dp-attention \"\n)\n";
    engines("a.py", adjacent, &[Engine::Slime]);
    no_error("a.py", adjacent, 1);
    let list = "import subprocess\ncmd = [\n    \"python3\", \"-m\", \"sglang.launch_server\",\n    \"--model-path\", model,\n    \"--max-running-requests\", \"8\",\n    \"--speculative-algorithm\", \"EAGLE\",\n    \"--speculative-num-steps\", str(3),\n]\nsubprocess.Popen(cmd)\n";
    let read = codes("a.py", list, &["SD021"]);
    assert_eq!(read.found[0].1, 7);
    // Words that are added later may be the missing ones.
    no_error("a.py", &list.replace("subprocess.Popen(cmd)", "cmd += extra\nsubprocess.Popen(cmd)"), 1);
    let engine = "import sglang as sgl\nllm = sgl.Engine(\n    model_path=\"m\",\n    max_running_requests=8,\n    speculative_algorithm=\"EAGLE\",\n    speculative_num_steps=3,\n    disable_cuda_graph=False,\n)\n";
    let read = codes("a.py", engine, &["SD021"]);
    assert_eq!(read.found[0].1, 6);
    let vllm = "from vllm import LLM\nllm = LLM(\n    model=\"m\",\n    speculative_config={\n        \"method\": \"eagle3\",\n        \"model\": \"d\",\n        \"num_speculative_tokens\": 0,\n    },\n)\n";
    let read = engines("a.py", vllm, &[Engine::Vllm]);
    assert!(read.found.iter().any(|(code, line, _)| code == "VL12" && *line == 4), "{:?}", read.found);
    let json = "cmd = f\"vllm serve {model} --speculative-config '{{\\\"method\\\": \\\"ngram\\\", \\\"num_speculative_tokens\\\": {n}}}'\"\n";
    no_error("a.py", json, 1);
    codes(
        "a.py",
        "parser.add_argument(\"--speculative-algorithm\", help=\"use --speculative-algorithm EAGLE with sglang\")\n",
        &["LT02"],
    );
    codes("a.md", &format!("```python\n{engine}```\n"), &["SD021"]);
}

#[test]
fn value_of_a_variable_of_make_or_just_is_found_and_never_fixed() {
    let flags = "--model-path Qwen/Qwen3-8B --speculative-algorithm EAGLE3 --speculative-draft-model-path \
                 AngelSlim/Qwen3-8B_eagle3 --max-running-requests 8 --speculative-num-steps 3 --speculative-eagle-topk 1 \
                 --speculative-num-draft-tokens";
    for (name, text) in [
        ("Makefile", format!("N ?= 8\nserve:\n\tpython3 -m sglang.launch_server {flags} $(N)\n")),
        ("Makefile", format!("N ?= 8\nserve:\n\tpython3 -m sglang.launch_server {flags}=${{N}}\n")),
        ("justfile", format!("n := \"8\"\nserve:\n    python3 -m sglang.launch_server {flags} {{{{n}}}}\n")),
        ("justfile", format!("n := \"8\"\nserve n=\"9\":\n    python3 -m sglang.launch_server {flags} {{{{n}}}}\n")),
    ] {
        let found = report_text(&Source::new(name, text.clone()), &report::ReportOptions::default()).findings;
        let fixed: Vec<_> = found.iter().filter(|finding| finding.fix.is_some()).map(|finding| &finding.code).collect();
        assert!(fixed.is_empty(), "{fixed:?} in {text}");
    }
    codes("Makefile", &format!("N ?= 8\nserve:\n\tpython3 -m sglang.launch_server {flags} $(N)\n"), &["SD023"]);
}
