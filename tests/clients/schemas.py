#!/usr/bin/env python3
"""Structured output with the schemas of the JSON Schema Test Suite, with speculation: every output must be valid, and
requests without a schema that run at the same time must not become slower.

    python3 tests/clients/schemas.py target/release/spectune --count 1000 [--neighbours]

Needs `jsonschema`, whose source archive on the package index also contains the suite; it is fetched at run time. Schemas
that the server rejects must be rejected with 400, and are counted with the reasons.
"""

import collections
import concurrent.futures
import json
import pathlib
import random
import re
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

import jsonschema

import demo_server

PACKAGE = "jsonschema==4.25.1"
DRAFTS = {
    "draft2020-12": jsonschema.Draft202012Validator,
    "draft2019-09": jsonschema.Draft201909Validator,
    "draft7": jsonschema.Draft7Validator,
    "draft6": jsonschema.Draft6Validator,
    "draft4": jsonschema.Draft4Validator,
}


def fetch_suite(folder):
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "jsonschema",
               "--dest", folder, PACKAGE]
    ended = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    archives = list(pathlib.Path(folder).glob("jsonschema-*.tar.gz"))
    if not archives:
        sys.exit(f"the suite cannot be fetched: {ended.stderr.strip()[-500:]}")
    with tarfile.open(archives[0]) as archive:
        archive.extractall(folder, filter="data")
    return next(pathlib.Path(folder).glob("jsonschema-*/json/tests"))


def schemas_of(tests):
    """Each distinct schema of the suite, with its draft of the standard."""
    seen = {}
    for draft in DRAFTS:
        for path in sorted((tests / draft).rglob("*.json")):
            for group in json.loads(path.read_text()):
                schema = group["schema"]
                if isinstance(schema, dict):
                    # Older drafts interpret some keywords differently, and not all of their schemas declare the draft.
                    schema = {"$schema": DRAFTS[draft].META_SCHEMA["$schema"]} | schema
                if schema is not False:
                    seen.setdefault((draft, json.dumps(schema, sort_keys=True)), (draft, f"{path.stem}: {group['description']}", schema))
    return list(seen.values())


def ask(url, number, schema, most):
    body = {
        "messages": [{"role": "user", "content": "Fill in the form."}], "max_tokens": most, "seed": number,
        "temperature": 0 if number % 4 == 0 else 1,
        "response_format": {"type": "json_schema", "json_schema": {"name": "form", "schema": schema, "strict": True}},
    }
    return demo_server.post(f"{url}/v1/chat/completions", body, timeout=900)


def judge(draft, schema, status, answer):
    """The outcome of a request, and details."""
    if status == 400:
        return "refused", answer["error"]["message"]
    if status != 200:
        return "FAULT", f"status {status}: {answer}"
    choice = answer["choices"][0]
    text = choice["message"]["content"]
    if choice["finish_reason"] == "length":
        return "cut", text[-80:]
    try:
        value = json.loads(text)
    except ValueError as error:
        return "FAULT", f"{error}: {text!r}"
    try:
        error = jsonschema.exceptions.best_match(DRAFTS[draft](schema).iter_errors(value))
    except Exception as error:  # References to the network are not followed.
        return "unjudged", repr(error)[:100]
    return ("valid", text) if error is None else ("FAULT", f"{error.message}: {text!r}")


class Neighbours:
    """Requests without a schema, sent one after the other on several connections; counts their tokens."""

    def __init__(self, url, count):
        self.url, self.stopping, self.tokens = url, threading.Event(), [0] * count
        self.threads = [threading.Thread(target=self.run, args=(at,), daemon=True) for at in range(count)]
        for thread in self.threads:
            thread.start()

    def run(self, at):
        while not self.stopping.is_set():
            body = {"prompt": "def f(", "max_tokens": 64, "ignore_eos": True, "temperature": 0}
            status, answer = demo_server.post(f"{self.url}/v1/completions", body)
            self.tokens[at] += answer["usage"]["completion_tokens"] if status == 200 else 0

    def rate(self, seconds):
        begin, before = time.perf_counter(), sum(self.tokens)
        time.sleep(seconds)
        return (sum(self.tokens) - before) / (time.perf_counter() - begin)

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join()


def measure_neighbours(url, seconds, repeats):
    """Ratio of the tokens per second of eight requests without a schema while another one runs with and without a schema:
    measured in turn, medians."""
    form = {"type": "object", "properties": {"a": {"type": "array", "minItems": 40, "items": {"type": "integer"}}}, "required": ["a"]}
    beside = {
        "without a schema": {},
        "with a schema": {"response_format": {"type": "json_schema", "json_schema": {"name": "form", "schema": form}}},
    }
    rates = {name: [] for name in beside}
    neighbours = Neighbours(url, 8)
    for _ in range(repeats):
        for name, further in beside.items():
            stopping = threading.Event()

            def run():
                number = 0
                while not stopping.is_set():
                    number += 1
                    body = {"messages": [{"role": "user", "content": "Go."}], "max_tokens": 64, "seed": number, "ignore_eos": not further}
                    demo_server.post(f"{url}/v1/chat/completions", body | further)

            thread = threading.Thread(target=run, daemon=True)
            thread.start()
            rates[name].append(neighbours.rate(seconds))
            stopping.set()
            thread.join()
    neighbours.stop()
    medians = {name: sorted(of)[len(of) // 2] for name, of in rates.items()}
    for name, of in rates.items():
        print(f"next to one request {name}: {medians[name]:.0f} tokens/s ({', '.join(f'{one:.0f}' for one in of)})")
    return medians["with a schema"] / medians["without a schema"]


def main():
    parser = demo_server.parser(__doc__, count=100, at_once=16)
    parser.add_argument("--max-tokens", type=int, default=1500)
    parser.add_argument("--suite", type=pathlib.Path, help="folder `tests` of the suite; fetched by default")
    parser.add_argument("--neighbours", action="store_true", help="measure requests without a schema too")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, demo_server.serve(arguments.binary) as (_, url):
        schemas = schemas_of(arguments.suite or fetch_suite(folder))
        random.Random(1).shuffle(schemas)
        rounds = [schemas[at % len(schemas)] for at in range(arguments.count)]

        def one(numbered):
            number, (draft, name, schema) = numbered
            outcome, words = judge(draft, schema, *ask(url, number, schema, arguments.max_tokens))
            if number % 100 == 99:
                print(f"{number + 1} requests after {time.perf_counter() - begin:.0f} s", flush=True)
            return outcome, words, f"{draft} {name}"

        begin = time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(arguments.at_once) as pool:
            results = list(pool.map(one, enumerate(rounds)))
        outcomes = collections.Counter(outcome for outcome, _, _ in results)
        print(f"{len(schemas)} schemas, {arguments.count} requests in {time.perf_counter() - begin:.0f} s: "
              + ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common()))
        reasons = collections.Counter(re.sub(r"'[^']*'|\"[^\"]*\"|[0-9]+", "…", words)[:110] for outcome, words, _ in results if outcome == "refused")
        for reason, count in reasons.most_common(12):
            print(f"  refused {count:>4}: {reason}")
        for outcome, words, name in results:
            if outcome in ("FAULT", "unjudged", "cut"):
                print(f"{outcome}: {name}: {words}")
        speculation = demo_server.metrics(url)
        print("drafts accepted:", speculation.get("spectune_accepted_drafts_total", speculation.get("vllm:spec_decode_num_accepted_tokens_total")))
        share = measure_neighbours(url, arguments.seconds, arguments.repeats) if arguments.neighbours else None
        if share is not None:
            print(f"next to a request with a schema, others keep {share:.1%} of their tokens per second")
    return 1 if outcomes["FAULT"] or (share is not None and share < 0.95) else 0


if __name__ == "__main__":
    sys.exit(main())
