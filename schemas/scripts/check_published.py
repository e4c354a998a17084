#!/usr/bin/env python3
"""Checks `schemas/src/model/published.json`: structure, sources, duplicates, order, and that drafts name targets of the table.

    python3 check_published.py ../src/model/published.json

Prints the problems, one per line, and exits with 1. Without problems it prints the number of rows.
"""

import json
import sys
from pathlib import Path

FIELDS = {"name", "aliases", "draft_for", "series", "pickle", "config", "stated", "source"}
NUMBERS = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "block_size", "dspark_block_size")


def last(name):
    return name.rsplit("/", 1)[-1].lower()


def problems(text):
    rows = json.loads(text)
    lines = [line for line in text.splitlines() if line not in ("[", "]")]
    if len(lines) != len(rows):
        yield f"{len(rows)} rows stand on {len(lines)} lines: one row a line"
    names, lasts = {}, {}
    for row in rows:
        name = row.get("name", "?")
        for field in sorted(row.keys() - FIELDS):
            yield f"{name}: no field is called {field}"
        for field in ("name", "config", "stated", "source"):
            if field not in row:
                yield f"{name}: {field} is missing"
        yield from of_config(name, row)
        for own in [name, *row.get("aliases", [])]:
            if own.lower() in names:
                yield f"{own} stands there twice"
            names[own.lower()] = row
            lasts.setdefault(last(own), set()).add(json.dumps(row.get("config"), sort_keys=True))
    for row in rows:
        for target in row.get("draft_for", []):
            if target.lower() not in names:
                yield f"{row['name']} is for {target}, which is not in the table"
        if row.get("draft_for") and "/" not in row["name"]:
            yield f"{row['name']} has no organisation"
    for name, configs in lasts.items():
        if len(configs) > 1:
            yield f"several rows with different facts end with {name}: a path of that name is found by its last part"
    order = [row["name"].lower() for row in rows]
    for before, after in zip(order, order[1:]):
        if before > after:
            yield f"{after} stands behind {before}: rows are in the order of their names"


def of_config(name, row):
    config = row.get("config", {})
    if not isinstance(config, dict) or not config:
        yield f"{name}: config holds no fields"
        return
    if not config.get("architectures"):
        yield f"{name}: config names no architecture"
    for field in NUMBERS:
        value = config.get(field)
        if value is not None and (not isinstance(value, int) or value < 1):
            yield f"{name}: {field} is {value!r}"
    for field in row.get("stated", []):
        if field not in config:
            yield f"{name}: {field} is stated by the source and not in config"
    if len(row.get("source", "")) < 8:
        yield f"{name}: says no source"


def main():
    text = Path(sys.argv[1]).read_text()
    found = list(problems(text))
    for problem in found:
        print(problem)
    if found:
        sys.exit(1)
    print(f"{len(json.loads(text))} rows, each with a source")


if __name__ == "__main__":
    main()
