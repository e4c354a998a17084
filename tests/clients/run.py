#!/usr/bin/env python3
"""Runs real clients against `spectune serve` and prints a table: works, FAILED, or SKIPPED where a client cannot be installed.

    cargo build --release && python3 tests/clients/run.py target/release/spectune [--only openai,aiohttp] [--work DIR]
    python3 tests/clients/run.py target/release/spectune --write docs/engine.md     # also updates the table of clients there

Each set of packages gets its own virtual environment (or node_modules) under the work folder, with the versions named below.
Exits with 1 if a client fails. A skipped client is reported in capitals and does not count as passed; its row in the page stays
as it was.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import venv

import demo_server
from demo_server import MODELS, ROOT

HERE = pathlib.Path(__file__).resolve().parent
TARGET, DRAFT = MODELS / "target", MODELS / "eagle3"

# Name, packages, and the command with the server's address. A package prefixed with `alone:` is installed without its
# dependencies.
PYTHON = [
    ("openai", ["openai==3.57.0"], [ROOT / "tests/openai/client.py", "{url}/v1"]),
    ("openai features", ["openai==3.57.0"], [HERE / "openai_features.py", "{url}"]),
    ("aiohttp", ["aiohttp==3.13.2"], [HERE / "aiohttp_timing.py", "{url}"]),
    ("rollouts", ["aiohttp==3.13.2"], [HERE / "rollout_client.py", "{url}", TARGET, DRAFT]),
    ("langchain", ["langchain-openai==1.7.4"], [HERE / "langchain_client.py", "{url}"]),
    ("llama-index", ["llama-index-llms-openai-like==0.8.1"], [HERE / "llama_index_client.py", "{url}"]),
    ("instructor", ["instructor==1.17.0"], [HERE / "instructor_client.py", "{url}"]),
    ("pydantic-ai", ["pydantic-ai-slim[openai]==2.66.0"], [HERE / "pydantic_ai_client.py", "{url}"]),
    # Its bridge to Anthropic streams through its proxy, which needs more than the package declares.
    ("LiteLLM", ["litellm==1.110.2", "fastapi==0.165.0", "orjson==3.13.0", "soundfile==0.14.0"], [HERE / "litellm_client.py", "{url}"]),
    ("OpenAI Agents", ["openai-agents==0.24.0"], [HERE / "agents_client.py", "{url}"]),
    (
        "lm-eval",
        ["lm-eval[api]==0.4.13", "transformers==5.24.0"],
        [
            "-m", "lm_eval", "--model", "local-completions", "--tasks", "spectune_choice", "--include_path",
            HERE / "lm_eval", "--model_args",
            f"model=target,base_url={{url}}/v1/completions,tokenizer={TARGET},num_concurrent=4,max_length=512",
        ],
    ),
    ("AIPerf", ["aiperf==0.13.0"], [HERE / "aiperf_client.py", "{url}", TARGET]),
    (
        "SGLang bench_serving",
        ["alone:sglang==0.5.16", "aiohttp==3.13.2", "numpy==2.3.4", "requests==2.32.5", "tqdm==4.67.1", "transformers==4.57.1",
         "pillow==12.0.0", "pybase64==1.4.2", "jinja2==3.1.6"],
        [HERE / "sglang_bench.py", "{url}", TARGET],
    ),
    (
        "GuideLLM",
        ["guidellm==0.8.1"],
        ["-m", "guidellm", "run", "--backend", "kind=openai_http,target={url},model=target", "--tokenizer",
         f"kind=hf_auto,model={TARGET}", "--data", "kind=synthetic_text,prompt_tokens=64,output_tokens=32", "--profile",
         "kind=concurrent,streams=2", "--constraint", "kind=max_requests,count=12", "--disable-console-interactive"],
    ),
    (
        "evalscope perf",
        ["evalscope[perf]==1.14.1"],
        ["-m", "evalscope.cli.cli", "perf", "--url", "{url}/v1/chat/completions", "--model", "target", "--api", "openai", "--number", "12",
         "--parallel", "2", "--dataset", "random", "--tokenizer-path", TARGET, "--min-prompt-length", "32", "--max-prompt-length", "64",
         "--min-tokens", "16", "--max-tokens", "32", "--stream"],
    ),
]
NODE = [
    ("openai npm", ["openai@7.59.0"], [HERE / "node" / "openai.mjs", "{url}"]),
    ("AI SDK", ["ai@7.0.173", "@ai-sdk/openai-compatible@3.0.92", "@ai-sdk/openai@4.0.118", "zod@4.6.7"],
     [HERE / "node" / "ai.mjs", "{url}"]),
]
SYSTEM = [("curl", "curl", [HERE / "curl.sh", "{url}"])]
# What the script of a client does, for the page.
DOES = {
    "openai": "chat, completions, streams, log-probabilities, cancellation, errors",
    "openai features": "tools, structured output, scoring, Responses",
    "aiohttp": "streams over kept-alive connections",
    "rollouts": "pause, new weights, continue, as trainers do",
    "langchain": "chat, stream, tools, structured output, both together",
    "llama-index": "chat and completions, streamed and not",
    "instructor": "tools, JSON schema, Responses with tools",
    "pydantic-ai": "tool and native output with a tool, over chat and Responses",
    "LiteLLM": "two providers, streams, tools, JSON schema, `/v1/messages`",
    "OpenAI Agents": "tools, output types with tools, over Responses and chat",
    "lm-eval": "multiple choice and generation",
    "AIPerf": "a load test with the server's metrics",
    "SGLang bench_serving": "five backends, accept length, cache flush",
    "GuideLLM": "a load test",
    "evalscope perf": "a load test",
    "openai npm": "chat, streams, tools, Responses",
    "AI SDK": "text, stream, objects, objects with tools, Responses",
    "curl": "headers that clients and proxies send, expected statuses",
}
# The table in a page is between these lines.
BEGIN, END = "<!-- clients: tests/clients/run.py writes this table -->", "<!-- end of clients -->"
# Clients that are not installed, and why; listed so that they are not assumed to be tested.
LEFT_OUT = [
    ("vLLM bench serve", "its package needs torch; its two backends of bench_serving run above"),
    ("k6", "it is a separate program that is not on a package index"),
]


class Skipped(Exception):
    """A client that cannot be installed here."""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--only", help="names, separated by commas")
    parser.add_argument("--work", type=pathlib.Path, help="folder for environments; kept, so that they are created once")
    parser.add_argument("--write", type=pathlib.Path, help="page whose table of clients is updated")
    parser.add_argument("--prepare", action="store_true", help="only create the environments, run nothing")
    arguments = parser.parse_args()
    only = arguments.only.split(",") if arguments.only else None
    work = (arguments.work or pathlib.Path(tempfile.mkdtemp(prefix="spectune-clients-"))).resolve()
    work.mkdir(parents=True, exist_ok=True)
    kinds = ((python_command, PYTHON), (node_command, NODE), (system_command, SYSTEM))
    clients = [(kind, *client) for kind, of_kind in kinds for client in of_kind if only is None or client[0] in only]
    prepared = [(name, packages, command, prepare(kind, work, name, packages)) for kind, name, packages, command in clients]
    if arguments.prepare:
        return 0 if all(environment for *_, environment in prepared) else 1
    with demo_server.serve(arguments.binary) as (server, url):
        rows = [(name, packages, run(name, environment, command, url)) for name, packages, command, environment in prepared]
        alive = server.poll() is None
    rows += [(name, reason, "SKIPPED") for name, reason in LEFT_OUT if only is None]
    width = max(len(name) for name, _, _ in rows)
    print()
    for name, packages, result in rows:
        print(f"{name:<{width}}  {result:<8}  {packages if isinstance(packages, str) else ' '.join(packages)}")
    if arguments.write:
        write(arguments.write, rows)
    if not alive:
        print("FAILED: the server has exited")
    return 1 if not alive or any(result == "FAILED" for _, _, result in rows) else 0


def write(page, rows):
    """Updates the rows of the clients that ran in a page's table."""
    text = page.read_text()
    before, rest = text.split(BEGIN)
    table, after = rest.split(END)
    kept = dict(line.strip("| ").split(" | ", 1) for line in table.splitlines() if line.startswith("| ") and not line.startswith(("| client", "|---")))
    for name, packages, result in rows:
        if result != "SKIPPED":
            versions = packages if isinstance(packages, str) else packages[0].removeprefix("alone:")
            versions = "the system's" if versions == name else versions
            kept[name] = f"{versions} | {DOES.get(name, '')} | {result}"
    lines = [f"| {name} | {kept[name]} |" for name in sorted(kept, key=str.lower)]
    table = "\n".join(["| client | version | what runs | result |", "|---|---|---|---|", *lines])
    page.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}")


def prepare(kind, work, name, packages):
    """The start of the client's command; None if it cannot be installed."""
    folder = work / (packages if isinstance(packages, str) else packages[0].strip("@").replace("/", "-").replace(":", "-"))
    try:
        return kind(folder, packages)
    except Skipped as reason:
        print(f"SKIPPED {name}: {reason}", flush=True)
        return None


def run(name, prefix, command, url):
    print(f"== {name}", flush=True)
    if prefix is None:
        return "SKIPPED"
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    environment = {**os.environ, **offline, "OPENAI_API_KEY": "none"}
    command = prefix + [str(part).replace("{url}", url) for part in command]
    # Benchmarks write their results to the working directory, and lm-eval's task file is relative to it.
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "lm_eval").symlink_to(HERE / "lm_eval")
        try:
            ended = subprocess.run(command, env=environment, timeout=900, cwd=folder)
        except subprocess.TimeoutExpired:
            print("it does not finish")
            return "FAILED"
    return "works" if ended.returncode == 0 else "FAILED"


def python_command(folder, packages):
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        try:
            venv.create(folder, with_pip=True, clear=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise Skipped(f"there is no virtual environment: {error}") from error
        together = [package for package in packages if not package.startswith("alone:")]
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        install([*pip, *together])
        for package in packages:
            if package.startswith("alone:"):
                install([*pip, "--no-deps", package.removeprefix("alone:")])
        (folder / "ready").touch()
    return [str(python)]


def node_command(folder, packages):
    if not shutil.which("npm"):
        raise Skipped("npm is not installed")
    if not (folder / "ready").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text('{"private": true}')
        install(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", folder, *packages])
        (folder / "ready").touch()
    # Modules are found relative to the script's folder, so the script is copied next to them.
    for script in (HERE / "node").glob("*.mjs"):
        shutil.copy(script, folder)
    return [sys.executable, "-c", NODE_LAUNCHER, str(folder)]


def system_command(_, program):
    if not shutil.which(program):
        raise Skipped(f"{program} is not installed")
    return ["bash"]


NODE_LAUNCHER = """
import pathlib, subprocess, sys
folder, script, *rest = sys.argv[1:]
sys.exit(subprocess.run(["node", str(pathlib.Path(folder) / pathlib.Path(script).name), *rest]).returncode)
"""


def install(command):
    ended = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if ended.returncode != 0:
        last = (ended.stderr or ended.stdout).strip().splitlines()[-1:]
        raise Skipped(f"it cannot be installed: {' '.join(last)}")


if __name__ == "__main__":
    sys.exit(main())
