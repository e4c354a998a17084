#!/usr/bin/env python3
"""SGLang's bench_serving with each of its backends and the options that the server must support; its figures are compared
with the server's. The package is installed without its dependencies: only the benchmark is loaded."""

import importlib.machinery
import importlib.util
import json
import pathlib
import sys
import tempfile
import types

import demo_server
import timings

# Without warm-up requests, which the counters include and SGLang's accept length, reset by the flush, does not.
COUNTED = ["--flush-cache", "--warmup-requests", "0"]


class Stub(types.ModuleType):
    """A module of SGLang's server from which the benchmark imports names that it does not call here."""

    __path__ = []

    def __init__(self, name):
        super().__init__(name)
        self.__spec__ = importlib.machinery.ModuleSpec(name, None)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return f"{self.__name__}.{name}"


def load_benchmark():
    root = pathlib.Path(importlib.util.find_spec("sglang").submodule_search_locations[0])
    # Importing the package itself would import torch.
    package = types.ModuleType("sglang")
    package.__path__ = [str(root)]
    package.__spec__ = importlib.machinery.ModuleSpec("sglang", None, is_package=True)
    sys.modules["sglang"] = package
    for name in ("srt", "srt.disaggregation", "srt.disaggregation.utils", "srt.utils", "srt.utils.hf_transformers_utils"):
        sys.modules[f"sglang.{name}"] = Stub(f"sglang.{name}")
    for name in ("datasets", "zmq", "psutil", "pandas"):
        sys.modules.setdefault(name, Stub(name))
    network = "sglang.srt.utils.network"
    spec = importlib.util.spec_from_file_location(network, root / "srt/utils/network.py")
    sys.modules[network] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[network])
    from sglang.benchmark import serving
    return serving


def accept_length(before, after):
    """Tokens per round and request between two readings of the metrics page, bonus token included."""
    rounds, accepted = (after[name] - before[name] for name in ("spectune_request_rounds_total", "spectune_accepted_drafts_total"))
    return (accepted + rounds) / rounds


def main():
    url, tokenizer = sys.argv[1:]
    serving, agree = load_benchmark(), True
    base = ["bench_serving", "--base-url", url, "--model", "target", "--tokenizer", tokenizer, "--dataset-name", "random-ids",
            "--num-prompts", "24", "--random-input-len", "512", "--random-output-len", "48", "--random-range-ratio", "1",
            "--max-concurrency", "2", "--disable-tqdm"]
    runs = [(backend, []) for backend in ("sglang", "sglang-oai", "sglang-oai-chat", "vllm", "vllm-chat")]
    runs += [("sglang", further) for further in (["--flush-cache"], ["--return-logprob"], ["--disable-stream"], ["--tokenize-prompt"])]
    runs += [("sglang-oai-chat", ["--cache-report"]), ("sglang", ["--request-rate", "20"]), ("sglang", COUNTED)]
    with tempfile.TemporaryDirectory() as folder:
        for number, (backend, further) in enumerate(runs):
            output = pathlib.Path(folder) / f"{number}.jsonl"
            # Every run sends the same prompts, and a cache would hide the time to be measured.
            cold = [] if further else ["--flush-cache"]
            sys.argv = [*base, "--backend", backend, "--output-file", str(output), *further, *cold]
            before, counted = timings.totals(url), demo_server.metrics(url)
            print(f"-- {backend} {' '.join(further)}", flush=True)
            serving.cli_main()
            found = json.loads(output.read_text().splitlines()[-1])
            assert found["completed"] == 24, found["completed"]
            # The first run is a warm-up for all others: the server counts warm-up requests, and the client does not.
            if number and not further:
                client = {"first token": found["mean_ttft_ms"] / 1e3, "between tokens": found["mean_tpot_ms"] / 1e3}
                agree &= timings.compare(before, timings.totals(url), client)
            if further == COUNTED:
                expected = accept_length(counted, demo_server.wait_until_idle(url))
                off = found["accept_length"] / expected - 1
                agree &= abs(off) <= 0.01
                print(f"accept length: client {found['accept_length']:.4f}, server {expected:.4f} ({off:+.2%})"
                      f"{'' if abs(off) <= 0.01 else '  DIFFERS'}")
    return 0 if agree else 1


sys.exit(main())
