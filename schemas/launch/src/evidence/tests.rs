//! Versions that texts state.

use super::*;
use crate::{Options, parse};

#[test]
fn tags_and_requirements_name_versions() {
    for (image, expected) in [
        ("lmsysorg/sglang:v0.5.9", Some("0.5.9")),
        ("docker.io/lmsysorg/sglang:v0.5.12.post1-cu130-amd64", Some("0.5.12.post1")),
        ("lmsysorg+sglang+v0.5.8.sqsh", Some("0.5.8")),
        ("/images/sglang_v0.5.8-cu13.sqsh", Some("0.5.8")),
        ("rocm/sgl-dev:v0.5.9-rocm700-mi35x", Some("0.5.9")),
        ("vllm/vllm-openai:v0.11.0", Some("0.11.0")),
        ("vllm/vllm-openai:v0.11.0rc2", Some("0.11.0rc2")),
        ("nvcr.io/nvidia/sglang:25.10-py3", None),
        ("nvcr.io/nvidia/ai-dynamo/sglang-runtime:0.7.0", None),
        ("lmsysorg/sglang:latest", None),
        ("lmsysorg/sglang", None),
        ("slimerl/slime:v0.5.9", None),
        ("registry:5000/sglang", None),
        ("sglang-router==0.3.0", None),
        ("intel/llm-scaler-vllm:0.21.0-b9", None),
    ] {
        let found = version_in_image(image, Span::default()).map(|stated| stated.version.value.to_string());
        assert_eq!(found.as_deref(), expected, "{image}");
    }
    for (requirement, expected) in [
        ("sglang==0.5.9", Some("0.5.9")),
        ("sglang[all]==0.5.9", Some("0.5.9")),
        ("vllm==0.11.0", Some("0.11.0")),
        ("sglang-router==0.3.0", None),
    ] {
        let found = version_in_requirement(requirement, Span::default()).map(|stated| stated.version.value.to_string());
        assert_eq!(found.as_deref(), expected, "{requirement}");
    }
}

fn check(name: &str, text: &str, expected: Option<&str>) {
    let parsed = parse(&Source::new(name, text), &Options::default());
    let version = parsed.launches.last().and_then(|launch| launch.engine_version);
    assert_eq!(version.map(|version| version.value.to_string()).as_deref(), expected, "{name}: {text}");
}

#[test]
fn reports_state_versions_in_many_forms() {
    let launch = "\n\n```sh\nvllm serve m --tensor-parallel-size 2\n```\n";
    for (words, expected) in [
        ("# Crash\n\nvLLM Version                 : 0.24.0", Some("0.24.0")),
        ("# Crash\n\nvLLM       : 0.27.1+rocm723", Some("0.27.1")),
        ("# Crash\n\nMI355X, vLLM 0.27.1+rocm723", Some("0.27.1")),
        ("# Crash\n\n- **vLLM Version**: 0.20.2", Some("0.20.2")),
        ("# Crash\n\n- **vLLM**: `0.26.1rc1.dev668+g3ee2df303`", Some("0.26.1rc1")),
        ("# Crash\n\nvLLM nightlies **0.28.1rc1.dev380+g25268f0c9**", Some("0.28.1rc1")),
        ("# Crash\n\n| GPU | H100 |\n| vLLM | 0.28.0 |", Some("0.28.0")),
        ("# Crash\n\nInitializing a V1 LLM engine (v0.20.0) with config", Some("0.20.0")),
        ("# Crash\n\nvLLM API server version 0.19.1", Some("0.19.1")),
        ("# Crash\n\nvllm-ascend v0.26.0rc1, A3", Some("0.26.0")),
        ("# Crash at start (m, v0.19.1)\n\nIt stops.", Some("0.19.1")),
        ("# Crash at start on 0.25.1\n\nIt stops.", Some("0.25.1")),
        ("# Crash\n\nH800, official docker image 0.25.1", Some("0.25.1")),
        ("# Crash on 0.25.1 and 0.25.0\n\nIt stops.", None),
        ("# Crash with flashinfer 0.6.12\n\nIt stops.", None),
        ("# Crash\n\n- vLLM 0.18.0\n- torch 2.9", Some("0.18.0")),
        ("# Crash\n\n1. vLLM 0.18.0, one H100", Some("0.18.0")),
        ("# Crash\n\nIt still exists in vLLM 0.28.0.", Some("0.28.0")),
        ("# Crash\n\nFixed in vLLM 0.28.0.", None),
        ("# Crash\n\n- works on vLLM 0.17.1\n- vLLM 0.18.0: it does not start", Some("0.18.0")),
        ("# Crash\n\nvLLM 0.18.0, and no crash after going back to vLLM 0.17.1", Some("0.18.0")),
        ("# Crash\n\nvLLM version 0.20.0 or later", None),
        ("# Crash\n\nvLLM 0.20.0+ only", None),
        ("# Crash\n\nneeds at least vLLM (0.20.0 or later)", None),
    ] {
        check("page.md", &format!("{words}{launch}"), expected);
    }
}

#[test]
fn what_a_page_says_is_true_of_published_images_without_a_version() {
    let page =
        |image: &str| format!("# Crash\n\n- vLLM 0.18.0\n\n```sh\ndocker run --gpus all {image} --model m\n```\n");
    check("page.md", &page("vllm/vllm-openai:latest"), Some("0.18.0"));
    check("page.md", &page("me/vllm-openai:mine"), None);
    check("page.md", &page("vllm/vllm-openai:v0.20.0"), Some("0.20.0"));
}

#[track_caller]
fn check_day(name: &str, text: &str, expected: Option<&str>) {
    let parsed = parse(&Source::new(name, text), &Options::default());
    let version = parsed.launches.last().and_then(|launch| launch.version_of_day);
    assert_eq!(version.map(|version| version.to_string()).as_deref(), expected, "{name}: {text}");
}

#[test]
fn the_day_of_a_report_or_of_a_build_tells_the_version() {
    let launch = "sglang serve --model-path m --tp 2";
    let report = |launch: &str| format!("# Crash\n2026-03-23\n\n```sh\n{launch}\n```\n");
    check_day("page.md", &report(launch), Some("0.5.9"));
    // The version of that day lacks the flag, or the algorithm.
    check_day("page.md", &report(&format!("{launch} --cuda-graph-bs-decode 1 2")), None);
    check_day("page.md", &report(&format!("{launch} --speculative-algorithm DSPARK")), None);
    check_day("page.md", &report(&format!("docker run lmsysorg/sglang:v0.5.8 {launch}")), None);
    // A day in a script is that of a change.
    check_day("run.sh", &format!("# 2026-03-23\n{launch}"), None);
    let image = format!("docker run --gpus all lmsysorg/sglang:nightly-dev-20260323-0a1b2c3 {launch}");
    check_day("run.sh", &image, Some("0.5.9"));
}

#[test]
fn a_version_between_two_that_were_read_may_have_what_the_later_one_has() {
    let config = "'{\"method\": \"dflash\", \"model\": \"d\", \"num_speculative_tokens\": 7}'";
    let text = |version: &str| format!("# vLLM {version}\nvllm serve m --speculative-config {config}");
    check("run.sh", &text("0.20.0"), Some("0.20.0"));
    check("run.sh", &text("0.19.1"), None);
}

#[test]
fn a_version_is_seen_wherever_the_text_states_it() {
    let launch = "sglang serve --model-path m --tp 2";
    for text in [
        format!("#SBATCH --container-image=lmsysorg/sglang:v0.5.9\n{launch}"),
        format!("SGLANG_VERSION=\"v0.5.9\"\n{launch}"),
        format!("IMAGE=${{IMAGE:-lmsysorg/sglang:v0.5.9-cu129}}\n{launch}"),
        format!("git clone -b v0.5.9 https://x && pip install sglang[all]==0.5.9\n{launch}"),
        format!("# Tested with SGLang v0.5.9.\n{launch}"),
        format!("git clone --depth 1 --branch v0.5.9 https://github.com/sgl-project/sglang.git\n{launch}"),
        format!("git clone -b v0.5.9 git@github.com:sgl-project/sglang.git src && cd src\n{launch}"),
        format!("git clone https://github.com/sgl-project/sglang\ncd sglang && git checkout v0.5.9\n{launch}"),
        format!("pip install 'git+https://github.com/sgl-project/sglang.git@v0.5.9#subdirectory=python'\n{launch}"),
        format!("uv pip install --system \"sglang[all]==0.5.9\"\n{launch}"),
        format!("cat > requirements.txt <<EOF\ntorch\nsglang==0.5.9\nEOF\n{launch}"),
    ] {
        check("run.sh", &text, Some("0.5.9"));
    }
    check("a.md", &format!("Image: `lmsysorg/sglang:v0.5.9`\n\n```bash\n{launch}\n```\n"), Some("0.5.9"));
    check("v0.5.6/run.sh", launch, Some("0.5.6"));
    check("sglang-0.5.6/run.sh", launch, Some("0.5.6"));
    check("vllm-0.11.0/run.sh", launch, None);
    check("1.0.0/run.sh", launch, None);
    for text in [
        format!("# needs SGLang >= 0.5.9\n{launch}"),
        format!("# since SGLang v0.5.9\n{launch}"),
        format!("# SGLang v0.5.9+ only\n{launch}"),
        format!("A=lmsysorg/sglang:v0.5.9\nB=lmsysorg/sglang:v0.5.10\n{launch}"),
        format!("pip install sglang-router==0.3.0 vllm==0.11.0\n{launch}"),
        format!("git clone -b v0.5.9 https://github.com/me/sglang-tools\n{launch}"),
        format!(
            "git clone https://github.com/sgl-project/sglang\ngit clone https://x.org/other\ngit checkout v0.5.9\n{launch}"
        ),
        format!("curl -O https://x.org/vllm-0.0.0.0.txt; echo sglang-0.0.0\n{launch}"),
        // The command's own image is a different one.
        "docker pull lmsysorg/sglang:v0.5.9\ndocker run --gpus all me/sglang:mine python3 -m \
         sglang.launch_server --tp 2"
            .into(),
    ] {
        check("run.sh", &text, None);
    }
    let two = format!("# Old\n`sglang:v0.5.9`\n```\nls\n```\n# New\n`sglang:v0.5.12`\n```\n{launch}\n```\n");
    check("a.md", &two, Some("0.5.12"));
    check("run.sh", "pip install vllm==0.11.0\nvllm serve m --max-model-len 9", Some("0.11.0"));
}

#[test]
fn what_may_be_about_another_launch_counts_where_it_fits() {
    let old = "sglang serve --model-path m --tp 2";
    let new = "sglang serve --model-path m --tp 2 --cuda-graph-bs-decode 1 2";
    let section = |launch: &str| format!("# Setup\n`sglang:v0.5.9`\n# Run\n```\n{launch}\n```\n");
    check("a.md", &section(old), Some("0.5.9"));
    check("a.md", &section(new), None);
    // In the launch's own section it does apply.
    check("a.md", &format!("# Run\n`sglang:v0.5.9`\n```\n{new}\n```\n"), Some("0.5.9"));
    check("run.sh", &format!("IMAGE=lmsysorg/sglang:v0.5.9\n{new}"), Some("0.5.9"));
    check("run.sh", &format!("# Faster than SGLang 0.5.9.\n{new}"), None);
    check("v0.5.9/run.sh", new, None);
    // The engine has no such release.
    check("versions/v0.5.0/a.md", &format!("```\n{old}\n```\n"), None);
}
