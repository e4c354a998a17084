"""Starts `spectune serve` with the demo pair on the CPU, and observes it from outside."""

import argparse
import contextlib
import json
import multiprocessing
import pathlib
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODELS = ROOT / "models" / "tiny"
SPECULATION = [
    "--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", MODELS / "eagle3",
    "--speculative-num-steps", "3", "--speculative-eagle-topk", "4", "--speculative-num-draft-tokens", "8",
]


def parser(description, count, at_once):
    """Arguments shared by all scripts that send many requests."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=count, help="requests (default: %(default)s)")
    parser.add_argument("--at-once", type=int, default=at_once, help="requests at a time (default: %(default)s)")
    return parser


@contextlib.contextmanager
def serve(binary, *further):
    """Context manager: the server's process and its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [binary, "serve", "--model-path", MODELS / "target", *SPECULATION, "--device", "cpu", "--port", port, *further]
    server = subprocess.Popen([str(part) for part in command])
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until_healthy(server, url)
        yield server, url
    finally:
        server.terminate()
        server.wait(timeout=60)


def wait_until_healthy(server, url):
    for _ in range(600):
        try:
            urllib.request.urlopen(f"{url}/health", timeout=1)
            return
        except OSError:
            if server.poll() is not None:
                sys.exit(f"the server exited with {server.returncode}")
            time.sleep(0.1)
    server.kill()
    sys.exit("the server does not become healthy")


def post(url, body, timeout=300):
    """Status and JSON of a response."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def no_calls(url):
    """Fields with which the demo model, where it may call a function or answer, answers: it would never stop calling."""
    _, tokens = post(f"{url}/tokenize", {"prompt": "<tool_call>", "add_special_tokens": False})
    return {"logit_bias": {str(tokens["tokens"][0]): -100}}


def metrics(url):
    """Values of the metrics page that have no labels except the model's."""
    values = {}
    for line in urllib.request.urlopen(f"{url}/metrics", timeout=30).read().decode().splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            values.setdefault(name.split("{")[0], float(value))
    return values


def wait_until_idle(url, seconds=300):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        now = metrics(url)
        if now["spectune_requests_running"] == now["spectune_requests_waiting"] == 0:
            return now
        time.sleep(0.1)
    sys.exit("the server does not become idle")


def resident(server):
    """Resident memory in MiB."""
    status = pathlib.Path(f"/proc/{server.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


def open_files(server):
    return len(list(pathlib.Path(f"/proc/{server.pid}/fd").iterdir()))


class HealthWatch:
    """Requests `/health` repeatedly, each time on a new connection, from a separate process, so that clients that keep
    this one busy do not affect the times. `late` is the longest delay with which the system woke that process, which is
    the machine's share of the worst time."""

    def __init__(self, url, every=0.05):
        host, port = url.removeprefix("http://").split(":")
        self.stopping, self.results = multiprocessing.Event(), multiprocessing.Queue()
        arguments = (host, int(port), every, self.stopping, self.results)
        self.process = multiprocessing.Process(target=watch_health, args=arguments, daemon=True)
        self.process.start()

    def stop(self):
        self.stopping.set()
        times, self.failures, self.late = self.results.get(timeout=60)
        self.process.join()
        return sorted(times) or [0.0]


def watch_health(host, port, every, stopping, results):
    times, failures, late = [], [], 0.0
    while True:
        asleep = time.perf_counter()
        if stopping.wait(every):
            break
        begin = time.perf_counter()
        late = max(late, begin - asleep - every)
        try:
            with socket.create_connection((host, port), timeout=10) as connection:
                connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                answer = connection.recv(100)
            times.append(time.perf_counter() - begin)
            if not answer.startswith(b"HTTP/1.1 200"):
                failures.append(answer.decode(errors="replace"))
        except OSError as error:
            failures.append(repr(error))
    results.put((times, failures, late))
