#!/usr/bin/env python3
"""Reads the environment variables of SGLang and vLLM, and writes the tables of `schemas/src/variables`.

    pip download --no-deps --dest wheels sglang==0.5.23      # and so on, one wheel for each version
    python3 read_variables.py sglang wheels --into ../src/variables
    python3 read_variables.py vllm wheels --into ../src/variables

The folder contains wheels, or unpacked wheels in folders named after the version. No code of an engine is run or copied: the
files are read as syntax trees, and only names and versions are written.

A variable counts as read by a version if any of its Python files contains the whole name, as a string or as a field of the
class `Envs`, unless the version only warns that it is without effect. Columns are separated by tabs: name, since, until, now.
`since` is the first version read that has the name, if an older one lacks it; `until` is the first one that no longer has it;
`now` is the variable or flag that the engine names as its replacement.
"""

import argparse
import ast
import re
import sys
from pathlib import Path

from read_flags import span, versions_in

PREFIXES = {"sglang": ("SGLANG_", "SGL_"), "vllm": ("VLLM_",)}

NAME = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")


def sources(package, engine):
    """The texts of all Python files of one version, by name."""
    if package.archive:
        names = [name for name in package.names if name.startswith(engine + "/") and name.endswith(".py")]
        return {name: package.archive.read(name).decode(errors="replace") for name in names}
    return {str(file): file.read_text(errors="replace") for file in (package.path / engine).rglob("*.py")}


def variables(package, engine):
    """The variables that one version reads, and the replacements that it names."""
    names, dead, now = set(), set(), {}
    for file, text in sources(package, engine).items():
        if not any(prefix in text for prefix in PREFIXES[engine]):
            continue
        tree = ast.parse(text)
        skipped = deprecated(tree, engine, dead, now) if file.endswith("environ.py") else set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and is_name(node.value, engine) and id(node) not in skipped:
                names.add(node.value)
            elif isinstance(node, ast.ClassDef) and node.name == "Envs":
                names |= {target.id for field in node.body for target in targets(field) if is_name(target.id, engine)}
    return names - dead, now


def targets(node):
    found = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target for target in found if isinstance(target, ast.Name)]


def is_name(value, engine):
    return isinstance(value, str) and value.startswith(PREFIXES[engine]) and NAME.fullmatch(value) is not None


def deprecated(tree, engine, dead, now):
    """Adds the variables that only cause a warning to `dead`, and the replacements to `now`; the nodes that only name them."""
    skipped = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == "_DEPRECATED_ENVS" and isinstance(node.value, ast.Dict):
            for key, entry in zip(node.value.keys, node.value.values):
                replacement = replacement_of(entry, engine)
                if replacement:
                    now[key.value] = replacement
                if not (replacement and replacement.startswith(PREFIXES[engine])):
                    dead.add(key.value)
                    skipped |= {id(inner) for inner in ast.walk(key)}
        if not isinstance(node, ast.Call):
            continue
        called = getattr(node.func, "id", "")
        texts = [argument.value for argument in node.args if isinstance(argument, ast.Constant) and isinstance(argument.value, str)]
        if called == "_print_deprecated_env" and len(texts) == 2:
            now[texts[1]] = texts[0]
        elif called == "_warn_deprecated_env_to_cli_flag" and len(texts) == 2 and flag_in(texts[1]):
            now[texts[0]] = flag_in(texts[1])
        elif called.endswith("WithAlias"):
            field = next((part.value.value for part in node.keywords if part.arg == "deprecated_name"), None)
            owner = field and next((target.id for target in owners(tree, node)), None)
            if owner:
                now[field] = owner
    return skipped


def owners(tree, call):
    return [target for node in ast.walk(tree) if isinstance(node, ast.Assign) and node.value is call for target in targets(node)]


def replacement_of(entry, engine):
    """The variable or flag that an entry of the table of deprecated variables names first."""
    for node in ast.walk(entry):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if is_name(node.value, engine):
                return node.value
            if flag_in(node.value):
                return flag_in(node.value)
    return None


def flag_in(text):
    found = re.search(r"--[a-z][a-z0-9-]+[a-z0-9]", text)
    return found.group(0) if found else None


def rows(packages, engine):
    versions = list(packages)
    found, now = {}, {}
    for version, package in packages.items():
        names, replaced = variables(package, engine)
        print(f"{version}: {len(names)} variables, {len(replaced)} with a replacement", file=sys.stderr)
        now |= replaced
        for name in names:
            found.setdefault(name, []).append(version)
    # Some renames were reverted: a replacement counts if the newest version has it.
    lasts = {name for name, own in found.items() if own[-1] == versions[-1]}
    now = {name: new for name, new in now.items() if new.startswith("--") or new in lasts}
    return [(name, *span(own, versions, versions), now.get(name, "-")) for name, own in sorted(found.items())]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=sorted(PREFIXES))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--into", type=Path, required=True)
    arguments = parser.parse_args()
    packages = versions_in(arguments.folder, arguments.engine)
    if not packages:
        sys.exit(f"no wheel of {arguments.engine} in {arguments.folder}")
    text = f"# read from {', '.join(packages)}\n# name\tsince\tuntil\tnow\n"
    text += "".join("\t".join(row) + "\n" for row in rows(packages, arguments.engine))
    (arguments.into / f"{arguments.engine}.tsv").write_text(text)


if __name__ == "__main__":
    main()
