#!/usr/bin/env python3
"""Reads for which models SGLang chooses its attention backend by itself, and writes `fa3_classes.tsv`.

    pip download --no-deps --dest wheels sglang==0.5.7       # and so on, one wheel for each version
    python3 read_attention.py wheels --into ../launch/src/resolve

The folder contains wheels, or unpacked wheels in folders named after the version. No code of the engine is run or copied: its files
are read as syntax trees. A row is what is chosen, a name, the first version read that has it, and the first one after it that lacks
it (`-` if the newest has it):

    fa3        CLASS    the class is in the list of classes that get fa3 on Hopper
    fa3        *        no list is asked, and any class gets it
    fa3-not-by FLAG     fa3 is not chosen with this flag
    trtllm_mha *        Blackwell gets it
"""

import argparse
import ast
import re
import zipfile
from pathlib import Path

LIST = "is_fa3_default_architecture"
CHOICE = "is_no_spec_infer_or_topk_one"
FILES = re.compile(r"sglang/srt/(server_args|utils|utils/common|model_executor/model_runner|arg_groups/[a-z0-9_]+)\.py$")


def texts(path):
    if path.is_dir():
        files = {str(file.relative_to(path)): file for file in (path / "sglang/srt").rglob("*.py")}
        return [file.read_text("utf-8-sig") for name, file in files.items() if FILES.search(name)]
    with zipfile.ZipFile(path) as archive:
        return [archive.read(name).decode("utf-8-sig") for name in archive.namelist() if FILES.search(name)]


def names(node):
    found = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return found | {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}


def words(nodes):
    return {part.value for node in nodes for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)}


def chosen(path):
    """The rows that hold in a version, without edges."""
    rows, listed, is_asked = set(), set(), False
    for text in texts(path):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and node.name == LIST:
                listed |= {word for part in node.body if isinstance(part, ast.Assign) for word in words([part]) if word[:1].isupper()}
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == LIST:
                is_asked = True
            elif isinstance(node, ast.If) and CHOICE in names(node.test):
                tested = names(node.test)
                given = {word for part in node.body for word in words([part])}
                if "fa3" in given:
                    rows |= {("fa3-not-by", flag.replace("_", "-")) for flag in tested if flag == "enable_hierarchical_cache"}
                    rows.add(("fa3", "*"))
                if "trtllm_mha" in given:
                    rows.add(("trtllm_mha", "*"))
    if is_asked:
        rows.discard(("fa3", "*"))
        rows |= {("fa3", name) for name in listed}
    return rows


def order(version):
    return [int(part) for part in re.findall(r"\d+", version)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheels", type=Path)
    parser.add_argument("--into", type=Path, required=True)
    args = parser.parse_args()
    paths = {path.name.split("-")[1] if path.suffix == ".whl" else path.name: path for path in args.wheels.iterdir()}
    versions = sorted(paths, key=order)
    open_rows, rows = {}, []
    for version in versions:
        now = chosen(paths[version])
        rows += [(*row, open_rows.pop(row), version) for row in sorted(open_rows) if row not in now]
        for row in now:
            open_rows.setdefault(row, version)
    rows += [(*row, since, "-") for row, since in open_rows.items()]
    head = [f"# read from {', '.join(versions)}", "# chosen\tfor\tsince\tuntil"]
    lines = head + ["\t".join(row) for row in sorted(rows)]
    (args.into / "fa3_classes.tsv").write_text("\n".join(lines) + "\n")


main()
