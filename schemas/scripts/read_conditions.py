#!/usr/bin/env python3
"""Prints the conditions under which SGLang and vLLM refuse a configuration, by ranges of versions.

    pip download --no-deps --dest wheels sglang==0.5.23      # and so on, one wheel for each version
    python3 read_conditions.py sglang wheels                 # what the newest version refuses
    python3 read_conditions.py sglang wheels 'two batch'     # the history of messages that match
    python3 read_conditions.py sglang wheels 'two batch' --edges   # the first and last version with such a message

The rows of `lint/src/rules/refused/*.json`, and the versions in the files of rules, are written by hand from what this prints. The
folder contains wheels, or unpacked wheels in folders named after engine and version (`sglang-0.5.23`). No code of an engine is run
or copied: the definitions are read as syntax trees.
"""

import argparse
import ast
import re
import zipfile
from pathlib import Path

FILES = {
    "sglang": re.compile(
        r"sglang/srt/(server_args|environ|runtime_context"
        r"|(arg_groups|configs|disaggregation|layers/attention|managers|mem_cache|model_executor|models|speculative)/[a-z0-9_/]+)\.py$"
    ),
    "vllm": re.compile(r"vllm/(config(/[a-z_]+)?|engine/arg_utils|transformers_utils/configs/[a-z0-9_/]+|v1/[a-z0-9_/]+|model_executor/models/[a-z0-9_]+)\.py$"),
}


def source(node):
    return " ".join(ast.unparse(node).split())


def refusals(statements, conditions, function=""):
    """Each `raise` and `assert`: the function, the conditions around it, and its text."""
    for statement in statements:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from refusals(statement.body, [], statement.name)
        elif isinstance(statement, ast.Raise) and statement.exc is not None:
            yield function, conditions, source(statement.exc)
        elif isinstance(statement, ast.Assert):
            message = source(statement.msg) if statement.msg else ""
            yield function, conditions + [f"not ({source(statement.test)})"], f"AssertionError({message})"
        elif isinstance(statement, ast.If):
            test = source(statement.test)
            yield from refusals(statement.body, conditions + [test], function)
            yield from refusals(statement.orelse, conditions + [f"not ({test})"], function)
        elif isinstance(statement, ast.Try):
            yield from refusals(statement.body, conditions, function)
        elif isinstance(statement, (ast.ClassDef, ast.For, ast.While, ast.With)):
            yield from refusals(statement.body, conditions, function)


def version_of(path):
    numbers = re.match(r"[a-z]+-(\d+)\.(\d+)\.(\d+)(?:\.post(\d+))?", path.name)
    return tuple(int(number or 0) for number in numbers.groups())


def texts(engine, path):
    """The files of a wheel, or of an unpacked one, that may refuse something."""
    if path.is_dir():
        files = sorted(path.glob(f"{engine}/**/*.py"))
        return [file.read_text("utf-8-sig") for file in files if FILES[engine].search(file.as_posix())]
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if FILES[engine].search(name)]
        return [archive.read(name).decode("utf-8-sig") for name in sorted(names)]


def read(engine, path):
    return [found for text in texts(engine, path) for found in refusals(ast.parse(text).body, [])]


def version_text(path):
    return path.name.removesuffix(".whl").split("-")[1]


def shown(found):
    function, conditions, message = found
    text = f"{function}: {' and '.join(conditions)} => {message}"
    return re.sub(r"\b(self|cfg|server_args|view)\.", "", text)


def history(engine, wheels, pattern):
    """Prints the refusals whose message matches, one block per range of versions with the same ones."""
    first = last = text = None
    for wheel in wheels + [None]:
        matching = read(engine, wheel) if wheel else []
        now = "\n  ".join(shown(found) for found in matching if re.search(pattern, found[2])) if wheel else None
        if first is not None and now != text:
            print(f"{first} to {last}\n  {text or 'nothing'}")
            first = None
        if wheel:
            last = version_text(wheel)
            first, text = first or last, now


def edges(engine, wheels, pattern):
    """Prints the first and the last version with a message that matches, and the one before the first."""
    has = [any(re.search(pattern, found[2]) for found in read(engine, wheel)) for wheel in wheels]
    if True not in has:
        print(f"{pattern}: nowhere")
        return
    first, last = has.index(True), len(has) - 1 - has[::-1].index(True)
    before = version_text(wheels[first - 1]) if first else "-"
    gaps = [version_text(wheel) for wheel, is_there in zip(wheels[first:last], has[first:last]) if not is_there]
    until = "the newest" if last == len(has) - 1 else version_text(wheels[last])
    print(f"{pattern}: {version_text(wheels[first])} (not in {before}) to {until}{', not in ' + ', '.join(gaps) if gaps else ''}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=FILES)
    parser.add_argument("wheels", type=Path)
    parser.add_argument("pattern", nargs="?")
    parser.add_argument("--edges", action="store_true")
    options = parser.parse_args()
    wheels = sorted(options.wheels.glob(f"{options.engine}-*"), key=version_of)
    if not wheels:
        parser.error(f"no wheel of {options.engine} in {options.wheels}")
    if options.pattern and options.edges:
        edges(options.engine, wheels, options.pattern)
    elif options.pattern:
        history(options.engine, wheels, options.pattern)
    else:
        print("\n".join(shown(found) for found in read(options.engine, wheels[-1])))


if __name__ == "__main__":
    main()
