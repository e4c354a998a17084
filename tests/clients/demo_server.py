"""Starts `spectune serve` with the demo pair on the CPU, and looks at it from outside."""

import contextlib
import json
import pathlib
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODELS = ROOT / "models" / "tiny"
SPECULATION = [
    "--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", MODELS / "eagle3",
    "--speculative-num-steps", "3", "--speculative-eagle-topk", "4", "--speculative-num-draft-tokens", "8",
]


@contextlib.contextmanager
def serve(binary, *further):
    """The server's process and its address, until it is left."""
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
                sys.exit(f"the server ended with {server.returncode}")
            time.sleep(0.1)
    server.kill()
    sys.exit("the server does not become healthy")


def post(url, body, timeout=300):
    """Status and JSON of an answer."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def metrics(url):
    """Values of the metrics page that have no labels beyond the model's."""
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


class HealthWatch(threading.Thread):
    """Asks for the server's health over and over on connections of their own."""

    def __init__(self, url, every=0.05):
        super().__init__(daemon=True)
        self.host, self.port = url.removeprefix("http://").split(":")
        self.every, self.stopping, self.times, self.failures = every, threading.Event(), [], []
        self.start()

    def run(self):
        while not self.stopping.wait(self.every):
            begin = time.perf_counter()
            try:
                with socket.create_connection((self.host, int(self.port)), timeout=10) as connection:
                    connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                    answer = connection.recv(100)
                self.times.append(time.perf_counter() - begin)
                if not answer.startswith(b"HTTP/1.1 200"):
                    self.failures.append(answer.decode(errors="replace"))
            except OSError as error:
                self.failures.append(repr(error))

    def stop(self):
        self.stopping.set()
        self.join()
        return sorted(self.times) or [0.0]
