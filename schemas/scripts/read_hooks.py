#!/usr/bin/env python3
"""Reads which models of SGLang hand out what drafts need, and writes `sglang_hooks.tsv`.

    pip download --no-deps --dest wheels sglang==0.5.23        # and so on, one wheel for each version
    python3 read_hooks.py wheels --into ../lint/src/rules/algorithm

The folder contains wheels, or unpacked wheels in folders named after the version. No code of the engine is run or copied: its models
are read as syntax trees, with their base classes. There is a row for each architecture that lacks one of the methods in some version:
its name, the first version read that has the architecture, and for each method the first version from which on all have it (`-` if
the newest lacks it). Classes that answer for unknown attributes are left out.
"""

import argparse
import ast
import re
import sys
import zipfile
from pathlib import Path

MODELS = "sglang/srt/models/"
# What the target must have: for its states, and for heads that share its embedding.
HOOKS = {
    "EAGLE3": {"set_eagle3_layers_to_capture"},
    "DFLASH": {"set_dflash_layers_to_capture"},
    "DSPARK": {"set_dflash_layers_to_capture", "set_dspark_layers_to_capture"},
    "embedding": {"get_embed_and_head", "get_embed_and_head_for_draft"},
}


def texts(path):
    if path.is_dir():
        return {str(file.relative_to(path)): file.read_text("utf-8-sig") for file in (path / MODELS).rglob("*.py")}
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name).decode("utf-8-sig") for name in archive.namelist() if name.startswith(MODELS) and name.endswith(".py")}


def classes_of(path):
    """The methods and bases of each class by its name, and the classes that are registered."""
    classes, registered = {}, set()
    for text in texts(path).values():
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                methods = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
                bases = [base.id if isinstance(base, ast.Name) else base.attr for base in node.bases if isinstance(base, (ast.Name, ast.Attribute))]
                known = classes.setdefault(node.name, (set(), []))
                known[0].update(methods)
                known[1].extend(bases)
        for node in tree.body:
            if isinstance(node, ast.Assign) and any(isinstance(one, ast.Name) and one.id == "EntryClass" for one in node.targets):
                registered |= {one.id for one in ast.walk(node.value) if isinstance(one, ast.Name)}
    return classes, registered


def methods_of(classes, name, seen=()):
    if name in seen or name not in classes:
        return set()
    own, bases = classes[name]
    return own.union(*(methods_of(classes, base, (*seen, name)) for base in bases))


def order(version):
    return [int(part) for part in re.findall(r"\d+", version)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheels", type=Path)
    parser.add_argument("--into", type=Path, required=True)
    args = parser.parse_args()
    paths = {path.name.split("-")[1] if path.suffix == ".whl" else path.name: path for path in args.wheels.iterdir()}
    versions = sorted(paths, key=order)
    first, has, opaque = {}, {}, set()
    for version in versions:
        classes, registered = classes_of(paths[version])
        print(f"{version}: {len(registered)} architectures", file=sys.stderr)
        for name in registered:
            first.setdefault(name, version)
            methods = methods_of(classes, name)
            if "__getattr__" in methods:
                opaque.add(name)
            has.setdefault(name, {})[version] = {hook for hook, names in HOOKS.items() if names & methods}
    rows = []
    for name in sorted(set(has) - opaque):
        if all(len(hooks) == len(HOOKS) for hooks in has[name].values()):
            continue
        since = []
        for hook in HOOKS:
            lacking = [version for version in versions if version in has[name] and hook not in has[name][version]]
            later = [version for version in versions if not lacking or order(version) > order(lacking[-1])]
            later = [version for version in later if version in has[name]]
            since.append(later[0] if later else "-")
        rows.append((name, first[name], *since))
    head = [f"# read from {', '.join(versions)}", "\t".join(("# architecture", "known since", *HOOKS))]
    lines = head + ["\t".join(row) for row in rows]
    (args.into / "sglang_hooks.tsv").write_text("\n".join(lines) + "\n")


main()
