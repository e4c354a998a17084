#!/usr/bin/env python3
"""Runs real clients against `spectune serve` and prints a table: ok, FAILED, or SKIPPED where a client cannot be installed.

    cargo build --release && python3 tests/clients/run.py target/release/spectune [--only openai,aiohttp] [--work DIR]

Each client gets a virtual environment (or node_modules) of its own under the work folder, with the versions named below.
Exit code 1 if a client fails; one that is skipped is said so in capitals, and does not count as passed.
"""

import argparse
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MODELS = ROOT / "models" / "tiny"

# Name, packages, and what is run with the server's address.
PYTHON = [
    ("openai", ["openai==2.54.0"], [ROOT / "tests/openai/client.py", "{url}/v1"]),
    ("openai features", ["openai==2.54.0"], [HERE / "openai_features.py", "{url}"]),
    ("aiohttp", ["aiohttp==3.13.2"], [HERE / "aiohttp_timing.py", "{url}"]),
    ("langchain", ["langchain-openai==1.1.0"], [HERE / "langchain_client.py", "{url}"]),
    ("instructor", ["instructor==1.13.0"], [HERE / "instructor_client.py", "{url}"]),
    (
        "lm-eval",
        ["lm-eval[api]==0.4.9.2"],
        [
            "-m", "lm_eval", "--model", "local-completions", "--tasks", "spectune_choice", "--include_path",
            HERE / "lm_eval", "--model_args",
            "model=target,base_url={url}/v1/completions,tokenizer=" + str(MODELS / "target")
            + ",num_concurrent=4,max_length=512",
        ],
    ),
    (
        "AIPerf",
        ["aiperf==0.13.0"],
        [
            "-m", "aiperf", "profile", "--model", "target", "--url", "{url}", "--endpoint-type", "chat", "--streaming",
            "--tokenizer", MODELS / "target", "--request-count", "8", "--concurrency", "2",
            "--synthetic-input-tokens-mean", "64", "--output-tokens-mean", "24", "--ui", "none",
        ],
    ),
]
NODE = [
    ("openai npm", ["openai@6.9.0"], [HERE / "node" / "openai.mjs", "{url}"]),
    ("AI SDK", ["ai@6.0.3", "@ai-sdk/openai-compatible@2.0.1", "@ai-sdk/openai@3.0.1", "zod@4.1.12"],
     [HERE / "node" / "ai.mjs", "{url}"]),
]


class Skipped(Exception):
    """A client cannot be installed here."""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--only", help="names, separated by commas")
    parser.add_argument("--work", type=pathlib.Path, help="folder for environments; kept, so that they are made once")
    arguments = parser.parse_args()
    only = arguments.only.split(",") if arguments.only else None
    work = arguments.work or pathlib.Path(tempfile.mkdtemp(prefix="spectune-clients-"))
    server, url = serve(arguments.binary)
    rows = []
    try:
        for kind, clients in ((python_command, PYTHON), (node_command, NODE)):
            for name, packages, command in clients:
                if only is None or name in only:
                    rows.append((name, " ".join(packages), run(kind, work, name, packages, command, url)))
    finally:
        server.terminate()
        server.wait(timeout=60)
    width = max(len(name) for name, _, _ in rows)
    print()
    for name, packages, result in rows:
        print(f"{name:<{width}}  {result:<8}  {packages}")
    return 1 if any(result == "FAILED" for _, _, result in rows) else 0


def serve(binary):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        binary, "serve", "--model-path", MODELS / "target", "--speculative-algorithm", "EAGLE3",
        "--speculative-draft-model-path", MODELS / "eagle3", "--speculative-num-steps", "3", "--speculative-eagle-topk", "4",
        "--speculative-num-draft-tokens", "8", "--device", "cpu", "--port", str(port),
    ]
    server = subprocess.Popen(command)
    url = f"http://127.0.0.1:{port}"
    for _ in range(600):
        try:
            urllib.request.urlopen(f"{url}/health", timeout=1)
            return server, url
        except OSError:
            if server.poll() is not None:
                sys.exit(f"the server ended with {server.returncode}")
            time.sleep(0.1)
    server.kill()
    sys.exit("the server does not become healthy")


def run(kind, work, name, packages, command, url):
    print(f"== {name}", flush=True)
    try:
        prefix, environment = kind(work / name.replace(" ", "-"), packages)
    except Skipped as reason:
        print(f"SKIPPED: {reason}")
        return "SKIPPED"
    environment = {**os.environ, **environment, "OPENAI_API_KEY": "none", "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    command = prefix + [str(part).replace("{url}", url) for part in command]
    try:
        ended = subprocess.run(command, env=environment, timeout=900, cwd=work)
    except subprocess.TimeoutExpired:
        print("it does not end")
        return "FAILED"
    return "ok" if ended.returncode == 0 else "FAILED"


def python_command(folder, packages):
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        venv.create(folder, with_pip=True, clear=True)
        install([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages])
        (folder / "ready").touch()
    return [str(python)], {}


def node_command(folder, packages):
    if not shutil.which("npm"):
        raise Skipped("there is no npm")
    if not (folder / "ready").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text('{"private": true}')
        install(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", folder, *packages])
        (folder / "ready").touch()
    # Modules are found from the script's own folder, so it is run from beside them.
    for script in (HERE / "node").glob("*.mjs"):
        shutil.copy(script, folder)
    return [sys.executable, "-c", NODE_LAUNCHER, str(folder)], {}


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
