#!/usr/bin/env python3
"""AIPerf, with its figures compared with the server's."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import timings

url, tokenizer = sys.argv[1:]
with tempfile.TemporaryDirectory() as folder:
    before = timings.totals(url)
    command = [
        sys.executable, "-m", "aiperf", "profile", "--model", "target", "--url", url, "--endpoint-type", "chat", "--streaming",
        "--tokenizer", tokenizer, "--request-count", "40", "--concurrency", "2", "--synthetic-input-tokens-mean", "512",
        "--output-tokens-mean", "48", "--extra-inputs", "ignore_eos:true", "--ui", "none", "--artifact-dir", folder,
    ]
    # A tokenizer in a local folder is not found while the hub is set to offline.
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_OFFLINE")}
    subprocess.run(command, check=True, env=environment)
    found = json.loads(next(pathlib.Path(folder).rglob("profile_export_aiperf.json")).read_text())
client = {"first token": found["time_to_first_token"]["avg"] / 1e3, "between tokens": found["inter_token_latency"]["avg"] / 1e3}
sys.exit(0 if timings.compare(before, timings.totals(url), client) else 1)
