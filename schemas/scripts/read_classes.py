#!/usr/bin/env python3
"""Reads from which version on vLLM has the class of an architecture, and writes `vllm_classes.tsv`.

    pip download --no-deps --dest wheels vllm==0.33.0        # and so on, one wheel for each version
    python3 read_classes.py wheels --into ../src/rules/vllm

The folder contains wheels, or unpacked wheels in folders named after the version. No code of the engine is run or copied: its
registry is read as a syntax tree. There is a row for each architecture of a target that the oldest version read lacks: its name and the
first version read that has it. One that later versions lack has no row: Transformers' own class runs those.
"""

import argparse
import ast
import zipfile
from pathlib import Path

REGISTRY = "vllm/model_executor/models/registry.py"
TARGETS = {"_TEXT_GENERATION_MODELS", "_MULTIMODAL_MODELS"}


def versions_in(folder):
    """Pairs of a version and the text of its registry, in order."""
    found = []
    for path in folder.iterdir():
        if path.suffix == ".whl":
            version, text = path.name.split("-")[1], zipfile.ZipFile(path).read(REGISTRY).decode()
        elif (path / REGISTRY).is_file():
            version, text = path.name, (path / REGISTRY).read_text()
        else:
            continue
        found.append((tuple(int(part) for part in version.split(".")), version, text))
    return [(version, text) for _, version, text in sorted(found)]


def names_of(text):
    """The architectures of targets."""
    names = set()
    for node in ast.parse(text).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and target.id in TARGETS and isinstance(node.value, ast.Dict):
            names.update(key.value for key in node.value.keys if isinstance(key, ast.Constant))
    return names


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", type=Path)
    parser.add_argument("--into", type=Path, required=True)
    options = parser.parse_args()
    read = [(version, names_of(text)) for version, text in versions_in(options.wheels)]
    lines = ["# read from " + ", ".join(version for version, _ in read), "# architecture\tsince"]
    for name in sorted(set().union(*(names for _, names in read))):
        has = [name in names for _, names in read]
        first = has.index(True)
        if first > 0 and all(has[first:]):
            lines.append(f"{name}\t{read[first][0]}")
    (options.into / "vllm_classes.tsv").write_text("\n".join(lines) + "\n")
    print(f"{len(lines) - 2} architectures in {len(read)} versions")


main()
