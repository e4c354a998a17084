//! Texts that show, record or test a launch, and placeholders: no error in any of them, though the
//! same words in a script are one.

use launch::{Options, parse};
use schemas::{diagnostic::Severity, text::Source};

use crate::report::{self, report};

/// The codes of the errors in a text.
fn errors(name: &str, text: &str) -> Vec<&'static str> {
    let source = Source::new(name, text);
    let parsed = parse(&source, &Options::default());
    if parsed.launches.is_empty() {
        return Vec::new();
    }
    let found = report(&source, parsed, |_| (None, None), &report::ReportOptions::default()).findings;
    let found = found.into_iter().filter(|one| one.severity == Severity::Error);
    found.map(|one| one.code).collect()
}

#[track_caller]
fn none(name: &str, text: &str) {
    assert_eq!(errors(name, text), Vec::<&str>::new(), "{name}\n{text}");
}

#[track_caller]
fn some(name: &str, text: &str) {
    assert!(!errors(name, text).is_empty(), "{name}\n{text}");
}

const WRONG: &str = "vllm serve org/m --tensor-parallel-size two\n";
const UNKNOWN: &str = "python3 -m sglang.launch_server --model-path org/m --speculative-algorithm FOO\n";

#[test]
fn other_languages_and_records_hold_no_errors() {
    for text in [WRONG, UNKNOWN] {
        some("run.sh", text);
        for name in [
            "a.rs",
            "a.go",
            "b.ts",
            "c.java",
            "start.ps1",
            "start.bat",
            "x.fish",
            "s.log",
            "s.patch",
            "r.csv",
            "p.html",
        ] {
            none(name, text);
        }
    }
}

#[test]
fn programs_that_test_hold_no_errors() {
    let of_class = "class TestIt:\n    ARGV = [\"vllm\", \"serve\", \"org/m\", \"--tensor-parallel-size\", \"two\"]\n";
    let of_fixture = "@pytest.fixture\ndef words():\n    return \"vllm serve org/m --tensor-parallel-size two\"\n";
    let of_table = "BAD = [\n    \"python3 -m sglang.launch_server --model-path m --speculative-algorithm FOO\",\n]\n";
    for text in [of_class, of_fixture, of_table] {
        none("start.py", text);
        for name in ["test_start.py", "start_test.py", "conftest.py", "tests/cases.py", "pkg/fixtures/start.py"] {
            none(name, text);
        }
    }
    let started =
        "import subprocess\nsubprocess.run([\"vllm\", \"serve\", \"org/m\", \"--tensor-parallel-size\", \"two\"])\n";
    some("start.py", started);
    none("test_start.py", started);
    let json = "{\"command\": [\"vllm\", \"serve\", \"org/m\", \"--tensor-parallel-size\", \"two\"]}";
    none("start.json", json);
    none("a/testdata/start.yaml", json);
    some("tests/run.sh", WRONG);
}

#[test]
fn texts_of_json_hold_no_errors() {
    for text in [
        "{\"cases\": [{\"input\": \"vllm serve org/m --tensor-parallel-size two\", \"is_valid\": false}]}",
        "{\"command\": \"vllm serve org/m --max-model-len\"}",
        "{\"allow\": [\"Bash(vllm serve org/m --tensor-parallel-size two:*)\"]}",
    ] {
        none("a.json", text);
    }
}

#[test]
fn sentences_and_records_on_pages_hold_no_errors() {
    none("a.md", "We ran vllm serve org/m --tensor-parallel-size two and saw it fail.\n");
    none("a.md", "---\ndescription: python -m sglang.launch_server --model-path and --tp\n---\n# Title\n");
    some("a.md", "```bash\nvllm serve org/m --tensor-parallel-size two\n```\n");
    for block in ["```powershell", "```text", "```"] {
        none("a.md", &format!("{block}\nvllm serve org/m --tensor-parallel-size two\n```\n"));
    }
    none("a.md", "Run\n\n    vllm serve org/m --tensor-parallel-size two\n");
    none("notes.txt", "INFO 01-05 10:00:00 started vllm serve m --speculative-config {\"method\": \"ngram\"}");
}

#[test]
fn lists_of_flags_on_pages_hold_no_errors() {
    none(
        "a.md",
        "```\n--speculative-algorithm   the algorithm\n--speculative-num-steps   steps\n--tp N                    ranks\n```\n",
    );
}

#[test]
fn placeholders_are_no_values() {
    for value in
        ["%d", "%TP%", "%%i", "@tp@", "N/A", "xx", "1/2/4", "1|2", "1-4", "~8", "2，", "your_tp", "num_gpus", "1..4"]
    {
        none("a.md", &format!("```\nvllm serve org/m --tensor-parallel-size {value}\n```\n"));
    }
    none("a.md", "```\nvllm serve org/m --tensor-parallel-size #GPUs --port 8000\n```\n");
    none("a.md", "```\npython3 -m sglang.launch_server --model-path m --tp 2 （default）\n```\n");
    none("x@.service", "[Service]\nExecStart=/usr/bin/vllm serve org/m --port %i\n");
    none("run.sh.erb", "vllm serve org/m --tensor-parallel-size <%= tp %>\n");
    none("run.sh", "parallel vllm serve org/m --tensor-parallel-size {} ::: 1 2\n");
}

#[test]
fn placeholders_in_json_are_no_mistakes() {
    let with = |value: &str| {
        format!("vllm serve m --speculative-config '{{\"method\": \"ngram\", \"num_speculative_tokens\": {value}}}'\n")
    };
    for value in ["n", "N", "NUM_TOKENS", "%d", "__N__", "@n@"] {
        none("run.sh", &with(value));
    }
    for value in ["True", "three", "$N"] {
        some("run.sh", &with(value));
    }
    for config in ["JSON", "'%s'", "%SPEC%", "@spec@", "X"] {
        none("run.sh", &format!("vllm serve m --speculative-config {config}\n"));
    }
    some("run.sh", "vllm serve m --speculative-config bad\n");
}

#[test]
fn what_is_filled_in_first_is_not_known() {
    let json = "{\"method\":\"ngram\",\"num_speculative_tokens\":${N:-3}}";
    none(
        "compose.yml",
        &format!(
            "services:\n  a:\n    image: vllm/vllm-openai:v0.11.0\n    command: >\n      --model m\n      --speculative-config '{json}'\n"
        ),
    );
    none(
        "swap.yaml",
        &format!("models:\n  q:\n    cmd: |\n      vllm serve m --port 1 --speculative-config '{json}'\n"),
    );
    none(".env", "ARGS=\"--tensor-parallel-size 2 --speculative-config '{\\\"method\\\":\\\"ngram\\\"}'\"\n");
    none(
        "sweep.json",
        "{\"vllm\": {\"tensor-parallel-size\": 2, \"speculative-config\": {\"method\": \"ngram\", \"num_speculative_tokens\": [1, 2]}}}",
    );
}

#[test]
fn what_python_decides_ends_before_a_flag() {
    none(
        "a.py",
        "cmd = f\"python -m sglang.launch_server --model-path {m} \" + (f\"--tp {tp} \" if tp > 1 else \"\") + \"--port 8000 --log-level info\"\n",
    );
    none("a.py", "gr.Markdown(\"vllm serve org/m --tensor-parallel-size two\")\n");
    none("a.py", "DATA = [{\"question\": \"x\", \"answer\": \"vllm serve org/m --tensor-parallel-size two\"}]\n");
}

#[test]
fn comments_in_an_instruction_do_not_end_it() {
    let shell =
        "FROM vllm/vllm-openai:v0.11.0\nCMD vllm serve m \\\n    # the port\n    --port 8000 \\\n\n    --dtype auto\n";
    none("Dockerfile", shell);
    let list = "FROM vllm/vllm-openai:v0.11.0\nCMD [\"vllm\", \"serve\", \"m\", \\\n  # ranks\n  \"--tensor-parallel-size\", \"two\"]\n";
    some("Dockerfile", list);
    none("Dockerfile", &list.replace("two", "2"));
}

#[test]
fn texts_of_variables_are_split_elsewhere() {
    none(".envrc", "export ARGS=\"--tensor-parallel-size 2 --speculative-config '{\\\"method\\\":\\\"ngram\\\"}'\"\n");
}

#[test]
fn rulers_are_no_flags() {
    let command = "vllm serve org/m \\\n--port 8000 \\\n--dtype auto\n";
    for ruler in ["------------------", "---", "--- or ---", "-----BEGIN-----"] {
        none("notes.txt", &format!("{command}\n{ruler}\n\n{command}"));
    }
    some("run.sh", "python3 -m sglang.launch_server --model-path org/m ----tp-size 2\n");
}

#[test]
fn other_flags_to_try_are_not_part_of_a_command() {
    let text =
        "# 1. Run it\nvllm serve org/m \\\n    --enforce-eager\n\n# 2. Shorten the context\n--max-model-len 4096\n";
    none("a.md", &format!("```bash\n{text}```\n"));
    some("run.sh", text);
    none("notes.txt", text);
    none("a.md", "```bash\nvllm serve org/m --enforce-eager\n# optional\n--max-model-len 4096\n```\n");
    some("a.md", "```bash\nvllm serve org/m \\\n# ranks\n--tensor-parallel-size 2\n```\n");
    some("a.md", "```bash\nvllm serve org/m\n  --enforce-eager\n```\n");
    some("a.md", "```bash\nvllm serve org/m \\\n  --dtype auto\n  --enforce-eager\n```\n");
}

#[test]
fn a_folded_text_is_one_command() {
    let task = "- name: serve\n  shell: >\n    vllm serve org/m\n      --host 0.0.0.0\n      --dtype auto\n";
    none("a.yaml", task);
    some("a.yaml", &task.replace('>', "|"));
    some("a.yaml", &format!("{task}      --tensor-parallel-size two\n"));
    none("notes.md", &format!("Notes\n\n{task}"));
}

#[test]
fn what_may_come_to_a_value_is_not_missing() {
    let run = "vllm serve --model ${MODEL_NAME}\n";
    none("a.md", &format!("```\nexport MODEL_NAME=<the model, for instance org/m>\n```\n\n```bash\n{run}```\n"));
    none("run.sh", &format!("MODEL_NAME=\n{run}"));
    some("run.sh", "python3 -m sglang.launch_server --model-path org/m --tp-size --port 80\n");
}

#[test]
fn keywords_of_a_call_are_no_abbreviations() {
    let call =
        |arguments: &str| format!("import sglang as sgl\nllm = sgl.Engine(model_path=m, {arguments}, tp_size=2)\n");
    none("a.py", &call("return_hidden_states=True"));
    some("a.py", &call("tp_size=\"two\""));
    some("run.sh", "python3 -m sglang.launch_server --model-path m --return-hidden-states-m\n");
}

#[test]
fn what_another_section_installs_does_not_run() {
    let page = |between: &str| {
        format!(
            "# A\n```bash\npip install vllm==0.8.5.post1\n```\n{between}\n```bash\nvllm serve org/m --async-scheduling\n```\n"
        )
    };
    none("a.md", &page("## Judge"));
    none("a.md", &page("Then:"));
    some("run.sh", "pip install vllm==0.8.5.post1\nvllm serve org/m --async-scheduling\n");
}

#[test]
fn classes_of_other_libraries_are_no_engines() {
    let call = "LLM(model=m, tensor_parallel_size=\"two\")\n";
    some("a.py", &format!("from vllm import LLM\nx = {call}"));
    some("a.py", &format!("import vllm\nx = vllm.{call}"));
    none("a.py", &format!("from other import LLM\nbackend = \"vllm\"\nx = {call}"));
    none("a.py", &format!("import other\nbackend = \"vllm\"\nx = other.{call}"));
}

#[test]
fn abbreviations_without_a_version_may_be_of_an_older_one() {
    let command = "python3 -m sglang.launch_server --model m --tp 8 --quant fp8\n";
    none("run.sh", command);
    some("run.sh", &format!("pip install sglang==0.5.9\n{command}"));
}
