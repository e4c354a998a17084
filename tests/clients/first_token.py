#!/usr/bin/env python3
"""Time to first token and throughput of one or several spectune binaries, side by side, by the server's counters and by
this client. Needs nothing but Python.

    python3 tests/clients/first_token.py BINARY [BINARY ...] [--batch 1,8,32] [--repeats 3] -- SERVE_FLAGS

Everything after `--` goes to `spectune serve` (default: the demo pair on the CPU). Each repeat starts every binary in turn,
in the opposite order of the repeat before, so that a card that grows warmer favours none. Each start runs a warm-up, then a
closed loop per batch size: so many clients, each of which sends its next request when the last has ended. Prompts are random
tokens and never repeat. Example, on one GPU:

    python3 tests/clients/first_token.py before/spectune after/spectune --batch 1,8,32 -- \\
        --model-path MODEL --speculative-algorithm EAGLE3 --speculative-draft-model-path DRAFT --device cuda:0
"""

import argparse
import contextlib
import http.client
import json
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from demo_server import MODELS, SPECULATION

# Further than any start with graph capture and autotuning takes.
LONGEST_START, LONGEST_ANSWER = 900, 600
COLUMNS = [
    ("client_first_ms", "first token, client (ms)"),
    ("server_first_ms", "first token, server (ms)"),
    ("client_gap_ms", "first to second, client (ms)"),
    ("server_between_ms", "between tokens, server (ms)"),
    ("client_tokens_per_s", "tokens/s, client"),
    ("server_tokens_per_s", "tokens/s, server"),
]


def arguments():
    given, flags = sys.argv[1:], []
    if "--" in given:
        at = given.index("--")
        given, flags = given[:at], given[at + 1:]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", nargs="+", type=pathlib.Path, metavar="BINARY")
    parser.add_argument("--batch", default="1,8,32", help="numbers of clients (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=6, help="requests per client (default: %(default)s)")
    parser.add_argument("--input-len", type=int, default=256, help="tokens of a prompt (default: %(default)s)")
    parser.add_argument("--output-len", type=int, default=64, help="tokens of an output (default: %(default)s)")
    parser.add_argument("--vocabulary", type=int, default=1000, help="prompts hold tokens below this (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="starts of each binary (default: %(default)s)")
    parser.add_argument("--json", type=pathlib.Path, help="a file for all figures")
    chosen = parser.parse_args(given)
    chosen.batch = [int(size) for size in chosen.batch.split(",")]
    if min(chosen.batch + [chosen.rounds, chosen.input_len, chosen.repeats]) < 1 or chosen.output_len < 2:
        parser.error("sizes must be at least 1, and --output-len at least 2")
    chosen.flags = flags or ["--model-path", MODELS / "target", *SPECULATION, "--device", "cpu"]
    return chosen


@contextlib.contextmanager
def serve(binary, flags, most):
    """Context manager: host and port of a server that accepts requests."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [binary, "serve", *flags, "--port", port]
    if "--max-running-requests" not in map(str, flags):
        command += ["--max-running-requests", most]
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen([str(part) for part in command], stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + LONGEST_START
            while not is_healthy(port):
                if server.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    sys.exit(f"{binary} did not start:\n{log.read().decode(errors='replace')[-4000:]}")
                time.sleep(0.1)
            yield port
        finally:
            server.terminate()
            try:
                server.wait(timeout=60)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def is_healthy(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def counters(port):
    """Sums over labels of all samples whose names begin with `spectune_`, except buckets."""
    found = {}
    page = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30).read().decode()
    for line in page.splitlines():
        if line.startswith("spectune_") and "_bucket{" not in line:
            name, value = line.rsplit(" ", 1)
            name = name.split("{")[0]
            found[name] = found.get(name, 0.0) + float(value)
    return found


class Client(threading.Thread):
    """Sends requests one after the other, and keeps the times of their first two events."""

    def __init__(self, port, prompts, output_len, begin):
        super().__init__(daemon=True)
        self.port, self.prompts, self.output_len, self.begin = port, prompts, output_len, begin
        self.first, self.gaps, self.failure = [], [], None

    def run(self):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONGEST_ANSWER)
            connection.connect()
            # A request is two small writes.
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.begin.wait()
            for prompt in self.prompts:
                self.send(connection, prompt)
        except Exception as error:  # Reported by the main thread, whatever it is.
            self.failure = error
            self.begin.abort()

    def send(self, connection, prompt):
        sampling = {"temperature": 0, "max_new_tokens": self.output_len, "ignore_eos": True}
        body = json.dumps({"input_ids": prompt, "sampling_params": sampling, "stream": True})
        sent = time.perf_counter()
        connection.request("POST", "/generate", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"status {answer.status}: {answer.read()[:500]!r}")
        times = []
        while len(times) < 2:
            line = answer.readline()
            if not line:
                raise RuntimeError("the stream ended before its second event")
            if line.startswith(b"data:"):
                times.append(time.perf_counter())
                if b'"error"' in line:
                    raise RuntimeError(line.decode(errors="replace")[:500])
        rest = answer.read()
        if not rest.rstrip().endswith(b"[DONE]"):
            raise RuntimeError(f"the stream was cut off: {rest[-300:]!r}")
        self.first.append(times[0] - sent)
        self.gaps.append(times[1] - times[0])


def load(port, batch, rounds, chosen, numbers):
    """Figures of one closed loop."""
    begin = threading.Barrier(batch + 1)
    prompt = lambda: [2 + numbers.randrange(max(chosen.vocabulary - 2, 1)) for _ in range(chosen.input_len)]
    clients = [Client(port, [prompt() for _ in range(rounds)], chosen.output_len, begin) for _ in range(batch)]
    before = counters(port)
    for client in clients:
        client.start()
    with contextlib.suppress(threading.BrokenBarrierError):
        begin.wait()
    started = time.perf_counter()
    for client in clients:
        client.join()
    elapsed = time.perf_counter() - started
    for client in clients:
        if client.failure is not None:
            sys.exit(f"a request failed: {client.failure!r}")
    after = settled(port)
    grown = lambda name: after.get(name, 0.0) - before.get(name, 0.0)
    mean = lambda name: 1e3 * grown(f"{name}_sum") / max(grown(f"{name}_count"), 1)
    requests = batch * rounds
    if grown("spectune_generation_tokens_total") != requests * chosen.output_len:
        print(f"note: the server counts {grown('spectune_generation_tokens_total'):.0f} tokens, "
              f"expected {requests * chosen.output_len}", file=sys.stderr)
    return {
        "client_first_ms": 1e3 * statistics.mean(time for client in clients for time in client.first),
        "client_gap_ms": 1e3 * statistics.mean(time for client in clients for time in client.gaps),
        "client_tokens_per_s": requests * chosen.output_len / elapsed,
        "server_first_ms": mean("spectune_time_to_first_token_seconds"),
        "server_between_ms": mean("spectune_inter_token_latency_seconds"),
        "server_tokens_per_s": grown("spectune_generation_tokens_total") / elapsed,
    }


def settled(port):
    """The counters once nothing runs."""
    deadline = time.monotonic() + 60
    while True:
        now = counters(port)
        if now["spectune_requests_running"] == now["spectune_requests_waiting"] == 0 or time.monotonic() > deadline:
            return now
        time.sleep(0.05)


def main():
    chosen = arguments()
    names = list(dict.fromkeys(str(path) for path in chosen.binaries))
    found = {(name, batch): [] for name in names for batch in chosen.batch}
    for repeat in range(chosen.repeats):
        for name in names if repeat % 2 == 0 else reversed(names):
            # All binaries get the same prompts.
            numbers = random.Random(repeat)
            with serve(name, chosen.flags, max(chosen.batch)) as port:
                for batch in chosen.batch:
                    load(port, batch, 2, chosen, numbers)
                for batch in chosen.batch:
                    found[name, batch].append(load(port, batch, chosen.rounds, chosen, numbers))
            print(f"repeat {repeat + 1} of {chosen.repeats}: {name}", file=sys.stderr, flush=True)
    if chosen.json:
        rows = [{"binary": name, "batch": batch, "repeats": all} for (name, batch), all in found.items()]
        chosen.json.write_text(json.dumps(rows, indent=1))
    show(chosen, names, found)


def show(chosen, names, found):
    print(f"{chosen.input_len} prompt and {chosen.output_len} output tokens; medians of {chosen.repeats} starts [range]; "
          "in parentheses the median change within a repeat, relative to the first binary")
    for batch in chosen.batch:
        print(f"\nbatch {batch}")
        for key, title in COLUMNS:
            for name in names:
                values = [one[key] for one in found[name, batch]]
                first = [one[key] for one in found[names[0], batch]]
                change = statistics.median(value / max(base, 1e-9) - 1 for value, base in zip(values, first))
                shown = f"{statistics.median(values):10.3f} [{min(values):.3f}, {max(values):.3f}]"
                print(f"  {title:30} {shown:36} {'' if name == names[0] else f'({change:+.1%})':9} {name}")


main()
