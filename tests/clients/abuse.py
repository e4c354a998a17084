#!/usr/bin/env python3
"""Thousands of malformed, truncated, slow and cancelled requests, then several prompts of 8 MiB at once. The server must
stay up, free everything, and answer `/health` all the time.

    python3 tests/clients/abuse.py target/release/spectune --count 10000 --limits

Without `--limits` times and sizes are not checked, so the result does not depend on the machine.
"""

import collections
import concurrent.futures
import http.client
import json
import random
import socket
import struct
import sys
import time

import demo_server

PAGES = ["/v1/completions", "/v1/chat/completions", "/generate", "/v1/responses", "/tokenize", "/detokenize", "/abort_request",
         "/update_weights_from_disk", "/flush_cache"]
ODD = [None, True, False, 0, -1, 1.5, 1e308, 2**63, -(2**63), "", "x", "\ud800", "\x00", [], [[]], [None], {}, {"a": {}},
       "a" * 5000, [1, "a"], {"type": "json_schema"}, {"type": "function"}, [{"role": "user"}], "auto", "required"]
FIELDS = ["model", "prompt", "messages", "input", "text", "input_ids", "max_tokens", "temperature", "top_p", "top_k", "min_p", "n",
          "seed", "stop", "stream", "stream_options", "logprobs", "top_logprobs", "echo", "logit_bias", "presence_penalty",
          "frequency_penalty", "repetition_penalty", "response_format", "tools", "tool_choice", "regex", "guided_json",
          "structured_outputs", "sampling_params", "return_logprob", "logprob_start_len", "rid", "min_tokens", "stop_token_ids",
          "ignore_eos", "prompt_logprobs", "chat_template_kwargs", "best_of", "suffix", "never_heard_of", "tokens", "separate_reasoning"]


class Client:
    """Sends one kind of bad request per run; returns the name of the kind and the response status, if any."""

    def __init__(self, url, seed):
        self.host, port = url.removeprefix("http://").split(":")
        self.port, self.random = int(port), random.Random(seed)

    def run(self):
        way = self.random.choice([self.odd_field, self.odd_field, self.mutated, self.cut_body, self.garbage, self.slow, self.cancelled,
                                  self.reset, self.unread, self.batch, self.structured, self.good, self.odd_head, self.pipelined])
        try:
            return way.__name__, way()
        except (OSError, http.client.HTTPException):
            # The server may close the connection of an invalid request.
            return way.__name__, "closed"

    def body(self):
        page = self.random.choice(PAGES[:3])
        length = self.random.randrange(1, 64)
        body = {"temperature": 0, "stream": self.random.random() < 0.5}
        if page == "/v1/completions":
            body |= {"prompt": "def f(" * self.random.randrange(1, 40), "max_tokens": length}
        elif page == "/generate":
            del body["temperature"]
            body |= {"text": "struct", "sampling_params": {"max_new_tokens": length, "temperature": 1}}
        else:
            body |= {"messages": [{"role": "user", "content": "Why?"}], "max_tokens": length}
        return page, body

    def post(self, page, body, headers=None):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=120)
        try:
            connection.request("POST", page, body, {"Content-Type": "application/json", **(headers or {})})
            answer = connection.getresponse()
            answer.read()
            return answer.status
        finally:
            connection.close()

    def raw(self, data, answer=True):
        with socket.create_connection((self.host, self.port), timeout=120) as connection:
            connection.sendall(data)
            if not answer:
                return None
            head = connection.recv(64)
            return int(head.split()[1]) if head.startswith(b"HTTP/1.") else "closed"

    def begin(self, page, body):
        """A connection over which a request has been sent."""
        data = json.dumps(body).encode()
        connection = socket.create_connection((self.host, self.port), timeout=120)
        connection.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (page.encode(), len(data)) + data)
        return connection

    def odd_field(self):
        page, body = self.random.choice(PAGES), self.body()[1]
        for _ in range(self.random.randrange(1, 4)):
            body[self.random.choice(FIELDS)] = self.random.choice(ODD)
        body.setdefault("max_tokens", 8)
        return self.post(page, json.dumps(body))

    def mutated(self):
        page, body = self.body()
        data = bytearray(json.dumps(body).encode())
        for _ in range(self.random.randrange(1, 6)):
            at = self.random.randrange(len(data))
            data[at:at + self.random.randrange(3)] = bytes(self.random.randrange(256) for _ in range(self.random.randrange(3)))
        return self.post(page, bytes(data))

    def cut_body(self):
        page, body = self.body()
        data = json.dumps(body).encode()
        head = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (page.encode(), len(data))
        whole = head + data
        return self.raw(whole[:self.random.randrange(1, len(whole))], answer=False)

    def garbage(self):
        return self.raw(bytes(self.random.randrange(256) for _ in range(self.random.randrange(1, 400))) + b"\r\n\r\n")

    def slow(self):
        page, body = self.body()
        body["stream"] = False
        data = json.dumps(body).encode()
        whole = b"POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % (page.encode(), len(data)) + data
        with socket.create_connection((self.host, self.port), timeout=120) as connection:
            step = max(1, len(whole) // 8)
            for at in range(0, len(whole), step):
                connection.sendall(whole[at:at + step])
                time.sleep(0.02)
            head = connection.recv(64)
            return int(head.split()[1]) if head else "closed"

    def cancelled(self):
        page, body = self.body()
        body["stream"] = True
        with self.begin(page, body) as connection:
            for _ in range(self.random.randrange(3)):
                if not connection.recv(200):
                    break
        return None

    def reset(self):
        page, body = self.body()
        connection = self.begin(page, body)
        time.sleep(self.random.random() * 0.05)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
        return None

    def unread(self):
        with self.begin("/v1/completions", {"prompt": "a", "max_tokens": 200, "ignore_eos": True, "stream": True, "n": 2}):
            time.sleep(0.2)
        return None

    def batch(self):
        prompts = [["a", "b"], [[1, 2], [3]], [], [[]], [1, 2, 3], ["a"] * 300, [2**40], [-1], list(range(5000)), "a " * 20000]
        body = {"prompt": self.random.choice(prompts), "max_tokens": 2, "n": self.random.choice([1, 2, 129])}
        return self.post("/v1/completions", json.dumps(body))

    def structured(self):
        form = self.random.choice([
            {"regex": "("}, {"regex": "(a|b)*c"}, {"regex": "[a-z]{1,40}"}, {"guided_json": {"$ref": "#"}}, {"guided_choice": ["a", "b"]},
            {"guided_json": {"type": "object", "properties": {"a": {"type": "integer"}}}}, {"guided_json": {"type": "nothing"}},
            {"response_format": {"type": "json_object"}}, {"logit_bias": {"5": 100, "x": 1}}, {"presence_penalty": 1.5},
        ])
        return self.post("/v1/completions", json.dumps({"prompt": "a", "max_tokens": 12} | form))

    def odd_head(self):
        heads = [
            b"GET /v1/models HTTP/1.1\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n",
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n", b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", b"DELETE /generate HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"X-A: b\r\n" * 200 + b"\r\n", b"OPTIONS /v1/models HTTP/1.1\r\nHost: x\r\nOrigin: null\r\n\r\n",
        ]
        return self.raw(self.random.choice(heads))

    def pipelined(self):
        return self.raw(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" * 5)

    def good(self):
        page, body = self.body()
        status = self.post(page, json.dumps(body))
        assert status in (200, 429, 503), f"a good request got {status}: {body}"
        return status


def greedy(url):
    status, answer = demo_server.post(f"{url}/v1/completions", {"prompt": "def read(self", "max_tokens": 64, "temperature": 0})
    assert status == 200, answer
    return answer["choices"][0]["text"]


def warm_up(url):
    """Fills the KV cache and allocates what a server under load allocates, so that sizes can be compared."""
    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        body = {"prompt": "def f(", "max_tokens": 1800, "ignore_eos": True, "stream": False, "temperature": 1}
        list(pool.map(lambda seed: demo_server.post(f"{url}/v1/completions", body | {"seed": seed, "max_tokens": 64}), range(64)))
    return greedy(url)


def huge_prompts(url, count):
    """Concurrent prompts of 8 MiB: half of the clients disconnect, half wait for the response."""
    host, port = url.removeprefix("http://").split(":")
    data = b'{"prompt": "' + b"a " * (4 << 20)
    data = data[:(8 << 20) - 2] + b'"}'

    def one(number):
        with socket.create_connection((host, int(port)), timeout=300) as connection:
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
            if number % 2:
                time.sleep(0.3)
                return "left"
            return int(connection.recv(64).split()[1])

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return collections.Counter(pool.map(one, range(count)))


def main():
    parser = demo_server.parser(__doc__, count=300, at_once=32)
    parser.add_argument("--huge", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limits", action="store_true", help="check times and memory too")
    arguments = parser.parse_args()
    with demo_server.serve(arguments.binary) as (server, url):
        fresh = demo_server.resident(server)
        expected = warm_up(url)
        before = demo_server.wait_until_idle(url)
        files, memory = demo_server.open_files(server), demo_server.resident(server)
        print(f"before: {memory:.0f} MiB ({fresh:.0f} when fresh), {files} open files", flush=True)
        watch, peak = demo_server.HealthWatch(url), 0.0
        results = collections.Counter()
        with concurrent.futures.ThreadPoolExecutor(arguments.at_once) as pool:
            clients = (Client(url, arguments.seed * 1_000_000 + number) for number in range(arguments.count))
            for result in pool.map(Client.run, clients):
                results[result] += 1
                peak = max(peak, demo_server.resident(server)) if sum(results.values()) % 100 == 0 else peak
        huge = huge_prompts(url, arguments.huge)
        after = demo_server.wait_until_idle(url)
        times = watch.stop()
        time.sleep(3 if arguments.limits else 0)
        left = demo_server.resident(server)
        text = greedy(url)
        report(results, huge)
        print(f"after: {left:.0f} MiB, peak {peak:.0f}; {demo_server.open_files(server)} open files; health: {len(times)} times, "
              f"median {times[len(times) // 2] * 1e3:.1f} ms, 99.9% {times[len(times) * 999 // 1000] * 1e3:.1f} ms, "
              f"worst {times[-1] * 1e3:.1f} ms; the machine woke the health watch up to {watch.late * 1e3:.1f} ms late")
        faults = []

        def check(holds, words):
            if not holds:
                faults.append(words)

        check(server.poll() is None, "the server has exited")
        check(text == expected, f"the greedy output has changed: {text!r}")
        check(after["spectune_kv_pages_used"] == 0, f"{after['spectune_kv_pages_used']} pages are still held")
        check(after["spectune_kv_pages"] == before["spectune_kv_pages"], "the number of pages has changed")
        check(not watch.failures, f"health failed {len(watch.failures)} times: {watch.failures[:3]}")
        bad = {result: count for result, count in results.items() if result[1] in (500, 501, 502, 504)}
        check(not bad, f"server errors: {bad}")
        check(set(huge) <= {"left", 400, 503}, f"huge prompts: {huge}")
        if arguments.limits:
            check(left <= 1.2 * memory, f"{left:.0f} MiB are resident, but {memory:.0f} MiB were before")
            check(times[-1] < 0.1, f"/health took {times[-1] * 1e3:.0f} ms")
        for fault in faults:
            print("FAULT:", fault)
        print(f"{arguments.count} requests, {len(faults)} faults")
        return 1 if faults else 0


def report(results, huge):
    ways = collections.defaultdict(collections.Counter)
    for (way, status), count in results.items():
        ways[way][status] += count
    for way, statuses in sorted(ways.items()):
        print(f"{way:<12} " + ", ".join(f"{status}: {count}" for status, count in sorted(statuses.items(), key=str)))
    print(f"{'huge':<12} {dict(huge)}")


if __name__ == "__main__":
    sys.exit(main())
