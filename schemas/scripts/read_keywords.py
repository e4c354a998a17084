#!/usr/bin/env python3
"""Reads the keywords that Python calls of SGLang's and vLLM's classes take, and writes the tables of `schemas/src/keywords`.

    python3 read_keywords.py sglang wheels --older older --into ../src/keywords
    python3 read_keywords.py vllm wheels --older older --into ../src/keywords

The folder is that of `read_flags.py`, which this script uses. No code of an engine is run or copied: definitions are read as
syntax trees, and only names and versions are written. Columns of `ENGINE.tsv` are separated by tabs: class, name, flag, since,
until.

- The class is `ServerArgs` of SGLang (`Engine` passes its keywords on to it), or `EngineArgs`, `AsyncEngineArgs` and `LLM` of
  vLLM. A row of `EngineArgs` holds for the other two as well; their rows are what only they take.
- The flag is the one of the command line that sets the same field, if its name is not the keyword's with dashes.
- `since` and `until` are as in the tables of flags. What only wheels of the folder `older` have ends with the first version read.
"""

import argparse
import ast
import sys
from pathlib import Path

from read_flags import SGLANG, VLLM, Module, config_class, dashed, sglang, span, versions_in, vllm


def annotated(body):
    """The fields of a class, without constants of the class itself."""
    fields = [node for node in body.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)]
    return {node.target.id for node in fields if "ClassVar" not in ast.unparse(node.annotation)}


def of_sglang(package):
    """The fields of `ServerArgs`; newer versions collect them from the namespaces of a folder."""
    names = set()
    for name in [SGLANG, *package.files("sglang/srt/arg_groups/fields")]:
        for node in package.tree(name).body:
            is_own = isinstance(node, ast.ClassDef) and (node.name == "ServerArgs" or name != SGLANG)
            names |= annotated(node) if is_own else set()
    return {("ServerArgs", name) for name in names}


LLM = ("vllm/entrypoints/llm.py", "vllm/entrypoints/generate/llm.py")


def of_vllm(package):
    """The fields of both classes of arguments, and what `LLM` takes besides."""
    module = Module(package, VLLM)
    engine, own = set(config_class(module, "EngineArgs")), set(config_class(module, "AsyncEngineArgs"))
    found = {("EngineArgs", name) for name in engine} | {("AsyncEngineArgs", name) for name in own - engine}
    return found | {("LLM", name) for name in of_llm(package) - engine}


def of_llm(package):
    """The parameters of `LLM`, and the keywords that it takes out of the others before it passes them on."""
    trees = [package.tree(name) for name in LLM if package.tree(name) is not None]
    classes = [node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "LLM"]
    starts = [node for body in classes for node in body.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    if len(starts) != 1:
        raise ValueError(f"{package.path}: {len(starts)} constructors of LLM")
    start = starts[0]
    names = {argument.arg for argument in start.args.args + start.args.kwonlyargs} - {"self"}
    for node in ast.walk(start):
        is_pop = isinstance(node, ast.Call) and ast.unparse(node.func) == "kwargs.pop"
        names |= {node.args[0].value} if is_pop and isinstance(node.args[0], ast.Constant) else set()
    return names


def other_flags(read, packages):
    """Flags by the keyword that they set, where no flag has the keyword's name."""
    found, names = {}, set()
    for package in packages.values():
        for flag in read(package):
            own = [dashed(name) for name in flag.names if name.startswith("--")]
            names.update(own)
            if own and flag.dest:
                found[flag.dest] = own[0]
    return {keyword: flag for keyword, flag in found.items() if keyword.replace("_", "-") not in names}


def rows(keywords, read, packages, older):
    versions = list(packages)
    there = {version: keywords(package) for version, package in packages.items()}
    for version, found in there.items():
        print(f"{version}: {len(found)} keywords", file=sys.stderr)
    flags = other_flags(read, packages)
    known = set().union(*there.values())
    past = {pair for package in older.values() for pair in keywords(package)} - known
    for owner, name in sorted(known | past, key=lambda pair: (pair[1], pair[0])):
        if (owner, name) in past:
            yield (owner, name, "-", "-", versions[0])
            continue
        own = [version for version in versions if (owner, name) in there[version]]
        yield (owner, name, flags.get(name, "-"), *span(own, versions, versions))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=["sglang", "vllm"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--older", type=Path, required=True)
    parser.add_argument("--into", type=Path, required=True)
    arguments = parser.parse_args()
    packages = versions_in(arguments.folder, arguments.engine)
    if not packages:
        sys.exit(f"no wheel of {arguments.engine} in {arguments.folder}")
    keywords, read = {"sglang": (of_sglang, sglang), "vllm": (of_vllm, vllm)}[arguments.engine]
    older = versions_in(arguments.older, arguments.engine)
    table = "".join("\t".join(row) + "\n" for row in rows(keywords, read, packages, older))
    head = f"# read from {', '.join(packages)}\n# class\tname\tflag\tsince\tuntil\n"
    (arguments.into / f"{arguments.engine}.tsv").write_text(head + table)


if __name__ == "__main__":
    main()
