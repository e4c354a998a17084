#!/usr/bin/env python3
"""Reads the days on which versions of SGLang and vLLM were published, and writes the table of `schemas/src/engines`.

    python3 read_releases.py --into ../src/engines

The days are those of the first file of each version on the package index. Candidates are omitted. Columns are separated by
tabs: engine, version, day.
"""

import argparse
import json
import re
import urllib.request
from pathlib import Path

INDEX = "https://pypi.org/simple/{}/"
OLDEST = {"sglang": (0, 4, 0), "vllm": (0, 6, 0)}


def releases(engine):
    """Pairs of version and day, oldest first."""
    request = urllib.request.Request(INDEX.format(engine), headers={"Accept": "application/vnd.pypi.simple.v1+json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        files = json.load(answer)["files"]
    days = {}
    for file in files:
        found = re.match(re.escape(engine) + r"-(\d+\.\d+\.\d+(?:\.post\d+)?)(?:\+[^-]*)?(?:-|\.tar)", file["filename"])
        if found:
            version, day = found.group(1), file["upload-time"][:10]
            days[version] = min(day, days.get(version, day))
    order = lambda version: [int(part) for part in re.findall(r"\d+", version)]
    return [(version, days[version]) for version in sorted(days, key=order) if tuple(order(version)) >= OLDEST[engine]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, required=True)
    into = parser.parse_args().into
    lines = ["# engine\tversion\tday"]
    for engine in ("sglang", "vllm"):
        found = releases(engine)
        lines += [f"{engine}\t{version}\t{day}" for version, day in found]
        print(f"{engine}: {len(found)} versions")
    (into / "releases.tsv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
