"""What a real SGLang decides with `--speculative-adaptive`, round by round, under closed loops of several numbers of users.

    sglang_tiers.py record TARGET HEAD PROMPTS OUT       starts the server (sglang must be importable) and loads it
    sglang_tiers.py decisions OUT > tuner/src/forecast/policy/decisions/sglang-server.jsonl
    sglang_tiers.py compare OUT SPECTUNE TRACE           simulates each load, with the times of every second round

PROMPTS is a JSON list of lists of token ids; TRACE is of the same prompts (`spectune generate --trace`). OUT gets `decisions.jsonl` and `loads.json`. In decisions.jsonl,
`["run", s, batch, steps]` is a round that is launched, and `["done", s, accepted, before, after]` one whose accepted drafts
are known, with the steps of its slot before and after; s is a clock in seconds. SGLang logs changes alone, so its controller
gets these lines by a file that Python loads first (`sitecustomize.py`).
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

VERSION = "0.5.16"
PORT = 30017
STEPS = 7
SIZES = [1, 2, 4, 8, 16, 24, 32]
TOKENS = 128
USERS = [(1, 12), (4, 48), (12, 96), (24, 120), (32, 160)]

HOOK = '''
import importlib.abc, importlib.machinery, json, os, sys, time

NAME = "sglang.srt.speculative.adaptive_runtime_state"

def follow(module):
    log = open(os.environ["DECISIONS"], "a", buffering=1)
    controller = module.AdaptiveController
    done, run = controller.on_verify_complete, controller.activate_step_by_batch

    def on_verify_complete(self, num_correct_drafts_per_req, batch_size):
        before = self.params.get_steps_for_batch(batch_size)
        done(self, num_correct_drafts_per_req, batch_size)
        after = self.params.get_steps_for_batch(batch_size)
        line = ["done", time.perf_counter(), num_correct_drafts_per_req, batch_size, before, after]
        log.write(json.dumps(line) + "\\n")

    def activate_step_by_batch(self, batch_size):
        run(self, batch_size)
        log.write(json.dumps(["run", time.perf_counter(), batch_size, self.worker.speculative_num_steps]) + "\\n")

    controller.on_verify_complete, controller.activate_step_by_batch = on_verify_complete, activate_step_by_batch

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != NAME:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        execute = spec.loader.exec_module
        spec.loader.exec_module = lambda module: (execute(module), follow(module))
        return spec

sys.meta_path.insert(0, Finder())
'''


def start(target, head, out):
    folder = tempfile.mkdtemp()
    Path(folder, "sitecustomize.py").write_text(HOOK)
    paths = [folder] + ([os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else [])
    environment = {**os.environ, "PYTHONPATH": ":".join(paths), "DECISIONS": str(out / "decisions.jsonl")}
    command = [
        sys.executable, "-m", "sglang.launch_server", "--model-path", target, "--skip-tokenizer-init", "--dtype", "bfloat16",
        "--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", head, "--speculative-num-steps", str(STEPS),
        "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", str(STEPS + 1), "--speculative-adaptive",
        "--attention-backend", "fa3", "--sampling-backend", "pytorch", "--disable-prefill-cuda-graph", "--disable-radix-cache",
        "--cuda-graph-bs-decode", *map(str, SIZES), "--max-running-requests", str(SIZES[-1]),
        "--mem-fraction-static", "0.3", "--port", str(PORT), "--random-seed", "1", "--decode-log-interval", "10",
    ]
    log = open(out / "server.log", "w")
    return subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)


def post(path, body, timeout=60):
    data = json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", data, {"Content-Type": "application/json"})
    return json.loads(urllib.request.urlopen(request, timeout=timeout).read())


def wait(server, seconds):
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds:
        if server.poll() is not None:
            sys.exit(f"the server ended with {server.returncode}")
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health_generate", timeout=5).read()
        except OSError:
            time.sleep(1)
    sys.exit(f"the server did not answer within {seconds} s")


def generate(prompt):
    sampling = {"temperature": 0, "max_new_tokens": TOKENS, "ignore_eos": True}
    return post("/generate", {"input_ids": prompt, "sampling_params": sampling})


def load(prompts, users, count):
    """A closed loop: seconds, and for each request its prompt, start, end and rounds."""
    left, lock, done = iter(range(count)), threading.Lock(), []

    def user():
        while True:
            with lock:
                number = next(left, None)
            if number is None:
                return
            begin = time.perf_counter()
            answer = generate(prompts[number % len(prompts)])
            end = time.perf_counter()
            done.append([number % len(prompts), begin, end, answer["meta_info"].get("spec_verify_ct"), answer["output_ids"][:8]])

    begin = time.perf_counter()
    threads = [threading.Thread(target=user) for _ in range(users)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"users": users, "begin": begin, "end": time.perf_counter(), "requests": done}


def record(target, head, prompts, out):
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    prompts = json.loads(Path(prompts).read_text())
    begin = time.perf_counter()
    server = start(target, head, out)
    try:
        wait(server, 420)
        print(f"started in {time.perf_counter() - begin:.0f} s", flush=True)
        info = urllib.request.urlopen(f"http://127.0.0.1:{PORT}/get_server_info", timeout=20).read().decode()
        (out / "info.json").write_text(info)
        loads = []
        for turn in range(2):
            for users, count in USERS:
                loads.append({"turn": turn, **load(prompts, users, count)})
                print(f"turn {turn}, {users} users: {loads[-1]['end'] - loads[-1]['begin']:.2f} s", flush=True)
        (out / "loads.json").write_text(json.dumps(loads))
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()


def decisions(out):
    """The log as a case of the simulator's test."""
    rounds = []
    for kind, *line in read_log(out):
        if kind == "done":
            _, accepted, batch, before, _ = line
            rounds += [batch, sum(accepted), before]
    case = {"version": VERSION, "file": None, "steps": STEPS, "sizes": SIZES, "start": STEPS, "rounds": rounds}
    print(json.dumps(case, separators=(",", ":")))


def read_log(out):
    return [json.loads(line) for line in Path(out, "decisions.jsonl").read_text().splitlines()]


def costs_of(milliseconds):
    """A round, and what a prefill before it adds, of every second round: rounds do not depend on batch or steps here."""
    every_second = milliseconds[::2]
    bound = 1.8 * statistics.median(every_second)
    alone = statistics.mean(ms for ms in every_second if ms < bound)
    prefill = statistics.mean([ms for ms in every_second if ms >= bound] or [alone]) - alone
    draft = {"pass_ms": 0, "row_ms": 0, "context_ms": 0, "kind": "eagle3"}
    return {
        "format": 1, "source": "rounds of a server of SGLang", "verify_ms": [[1, alone], [1000, alone]], "request_ms": 0,
        "context_ms": 0, "draft": draft, "prefill_step_ms": prefill, "prefill_token_ms": 0,
    }


def compare(out, spectune, trace):
    log = [line for line in read_log(out) if line[0] == "run"]
    print("turn users | seconds  simulated  error | rows of a request  simulated")
    for load in json.loads(Path(out, "loads.json").read_text()):
        rounds = [(at, steps) for _, at, _, steps in log if load["begin"] <= at <= load["end"]]
        times = Path(out, "costs.json")
        times.write_text(json.dumps(costs_of([1000 * (b[0] - a[0]) for a, b in zip(rounds, rounds[1:])])))
        command = [
            spectune, "simulate", "--trace", trace, "--times", str(times), "--policy", "sglang", "--engine-version", VERSION,
            "--speculative-num-steps", str(STEPS), "--cuda-graph-bs", ",".join(map(str, SIZES)), "--max-running-requests",
            str(SIZES[-1]), "--batch-size", str(load["users"]), "--requests", str(len(load["requests"])), "--prompt-len",
            "128", "--median-len", str(TOKENS), "--tail", "0", "--max-len", str(TOKENS), "--json",
        ]
        report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        study = report["study"]
        simulated = next(one for one in study["policies"] if one["name"] == "sglang")["judged_on_s"]
        seconds = load["end"] - load["begin"]
        rows = statistics.mean(steps + 1 for _, steps in rounds)
        of_slices = statistics.mean(part["rows"] for part in report["timeline"] if part["batch"] > 0)
        # The timeline is that of the fastest policy.
        is_chosen = study["policies"][study["chosen"]]["name"] == "sglang"
        of_slices = f"{of_slices:.2f}" if is_chosen else "-"
        error = 100 * (simulated / seconds - 1)
        print(f"{load['turn']:4} {load['users']:5} | {seconds:7.2f} {simulated:10.2f} {error:+6.1f}% | {rows:17.2f} {of_slices:>10}")


if __name__ == "__main__":
    parts = {"record": (record, 4), "decisions": (decisions, 1), "compare": (compare, 3)}
    part, count = parts.get(sys.argv[1] if len(sys.argv) > 1 else "", (None, 0))
    if part is None or len(sys.argv) != 2 + count:
        sys.exit(__doc__)
    part(*sys.argv[2:])
