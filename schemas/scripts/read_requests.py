#!/usr/bin/env python3
"""Reads the request types that openai-python, SGLang and vLLM publish, and writes `server/src/http/neutral/published.tsv`.

    pip download --no-deps --dest wheels openai==3.57.0      # and so on; several versions of a package are merged
    python3 read_requests.py wheels --into ../../server/src/http/neutral/published.tsv

The folder contains wheels, or unpacked wheels in folders named PACKAGE-VERSION. As in `read_flags.py`, no code is run or copied:
the types are read as syntax trees, and only names of fields and their neutral values are written.

One row per endpoint and field; a field of a nested object has a dotted name. Columns are separated by tabs:

- endpoint, field
- published: a JSON list of the defaults that the types state. A client that writes them out asks for nothing.
- empty: a JSON list of the values that say nothing by their type: `[]` for lists, `{}` for objects, `""` for free text, and `false`
  for a switch that no package turns on by default.
- packages: those that have the field. Required fields have no row.
"""

import argparse
import ast
import json
from pathlib import Path

from read_flags import UNKNOWN, Module, Package, keyword, parts

OPENAI, SGLANG = "openai/types", "sglang/srt/entrypoints/openai/protocol.py"
SGLANG_GENERATE, SGLANG_SAMPLING = "sglang/srt/managers/io_struct.py", "sglang/srt/sampling/sampling_params.py"
VLLM = "vllm/entrypoints/openai"
VLLM_TOKENIZE = "vllm/entrypoints/serve/tokenize/protocol.py"
TYPES = {
    "openai": [
        ("chat", "", f"{OPENAI}/chat/completion_create_params.py", ["CompletionCreateParamsBase", "CompletionCreateParamsStreaming"]),
        ("completions", "", f"{OPENAI}/completion_create_params.py", ["CompletionCreateParamsBase", "CompletionCreateParamsStreaming"]),
        ("responses", "", f"{OPENAI}/responses/response_create_params.py", ["ResponseCreateParamsBase", "ResponseCreateParamsStreaming"]),
    ],
    "sglang": [
        ("chat", "", SGLANG, ["ChatCompletionRequest"]),
        ("completions", "", SGLANG, ["CompletionRequest"]),
        ("responses", "", SGLANG, ["ResponsesRequest"]),
        ("generate", "", SGLANG_GENERATE, ["GenerateReqInput"]),
        ("generate", "sampling_params.", SGLANG_SAMPLING, ["SamplingParams"]),
        ("tokenize", "", SGLANG, ["TokenizeRequest"]),
        ("detokenize", "", SGLANG, ["DetokenizeRequest"]),
    ],
    "vllm": [
        ("chat", "", f"{VLLM}/chat_completion/protocol.py", ["ChatCompletionRequest"]),
        ("completions", "", f"{VLLM}/completion/protocol.py", ["CompletionRequest"]),
        ("responses", "", f"{VLLM}/responses/protocol.py", ["ResponsesRequest"]),
        ("tokenize", "", VLLM_TOKENIZE, ["TokenizeCompletionRequest", "TokenizeChatRequest"]),
        ("detokenize", "", VLLM_TOKENIZE, ["DetokenizeRequest"]),
    ],
}
"""By package: endpoint, prefix of the fields' names, file, classes."""
DEEPEST = 4
"""Maximum number of names in a dotted name."""
MISSING = object()


def fields_of(module, body, seen=()):
    """The fields of a class and its bases: name, owner, annotation, default (MISSING if it is required)."""
    fields = {}
    for base in body.bases:
        found = module.lookup(base.id) if isinstance(base, ast.Name) and base.id not in seen else UNKNOWN
        if isinstance(found, tuple) and isinstance(found[1], ast.ClassDef):
            fields.update(fields_of(*found, (*seen, body.name)))
    is_typed_dict = any(getattr(base, "id", "") == "TypedDict" for base in body.bases) or any(word.arg == "total" for word in body.keywords)
    for node in body.body:
        if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)) or node.target.id.startswith("_"):
            continue
        annotation = node.annotation
        if "ClassVar" in ast.dump(annotation):
            continue
        default = None if is_typed_dict or body.name.endswith("CreateParamsBase") else default_of(module, node.value)
        if isinstance(annotation, ast.Subscript) and getattr(annotation.value, "id", "") == "Required":
            annotation, default = annotation.slice, MISSING
        fields[name_of(node)] = (module, annotation, default)
    return fields


def name_of(node):
    """The name of a field in JSON."""
    alias = keyword(node.value, "alias") if isinstance(node.value, ast.Call) else None
    return alias.value if isinstance(alias, ast.Constant) else node.target.id


def default_of(module, node):
    """The default that a field states; UNKNOWN if it is computed."""
    if node is None:
        return MISSING
    name = getattr(getattr(node, "func", None), "id", "") or getattr(getattr(node, "func", None), "attr", "")
    if name.lower() == "field":
        if node.args:
            return MISSING if isinstance(node.args[0], ast.Constant) and node.args[0].value is Ellipsis else module.value(node.args[0])
        if keyword(node, "default") is not None:
            return module.value(keyword(node, "default"))
        factory = keyword(node, "default_factory")
        if factory is None:
            return MISSING
        return {"list": [], "dict": {}}.get(getattr(factory, "id", ""), UNKNOWN)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return -node.operand.value
    return module.value(node)


CONTAINERS = {"List", "list", "Iterable", "SequenceNotStr", "Sequence", "Set", "set", "Tuple", "tuple"}


def alias(module, name, depth=0):
    """The type of `name: TypeAlias = ...`, as (module, node)."""
    for node in module.tree.body if module.tree is not None and depth < 6 else []:
        if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == name and node.value is not None:
            return (module, node.value)
        if isinstance(node, ast.ImportFrom) and node.module and any((one.asname or one.name) == name for one in node.names):
            folder = module.name.rsplit("/", node.level)[0].replace("/", ".") + "." if node.level else ""
            file = module.package.module(folder + node.module)
            original = next(one.name for one in node.names if (one.asname or one.name) == name)
            return alias(Module(module.package, file), original, depth + 1) if file else None
    return None


def types_of(module, annotation, depth=0):
    """The types of a union, with aliases of both kinds resolved."""
    for owner, node in parts(module, annotation):
        found = alias(owner, node.id) if isinstance(node, ast.Name) and depth < 6 else None
        if found:
            yield from types_of(*found, depth + 1)
        else:
            yield owner, node


def kinds_of(module, annotation):
    """The kinds of values that a type accepts, and the classes of its objects."""
    kinds, classes = set(), []
    for owner, node in types_of(module, annotation):
        base = getattr(node.value, "id", getattr(node.value, "attr", "")) if isinstance(node, ast.Subscript) else getattr(node, "id", "")
        if base == "Literal":
            for item in node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]:
                value = owner.value(item)
                kinds.add("bool" if isinstance(value, bool) else "word")
        elif base in CONTAINERS:
            kinds.add("list")
        elif base in ("Dict", "dict", "Mapping"):
            kinds.add("object")
        elif base in ("str", "bool", "int", "float"):
            kinds.add(base)
        elif base and isinstance(node, ast.Name):
            found = owner.lookup(base)
            if isinstance(found, tuple) and isinstance(found[1], ast.ClassDef):
                kinds.add("object")
                classes.append(found)
    return kinds, classes


def read(module, body, prefix, row, depth=1):
    """Reports each optional field of a class and of the objects in it."""
    for name, (owner, annotation, default) in fields_of(module, body).items():
        path = prefix + name
        kinds, classes = kinds_of(owner, annotation)
        if default is not MISSING:
            row(path, kinds, default)
        if depth < DEEPEST:
            for found in classes:
                read(*found, path + ".", row, depth + 1)


def is_plain(value):
    """Whether a default is a value of JSON."""
    if isinstance(value, list):
        return all(is_plain(item) for item in value)
    return value is not UNKNOWN and (isinstance(value, (bool, int, float, str)) or value == {})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", type=Path)
    parser.add_argument("--into", type=Path, required=True)
    arguments = parser.parse_args()
    rows, versions = {}, []
    for path in sorted(arguments.wheels.iterdir()):
        name, _, version = path.name.partition("-")
        if name not in TYPES:
            continue
        version = version.split("-")[0]
        versions.append(f"{name} {version}")
        package = Package(path)
        for endpoint, prefix, file, classes in TYPES[name]:
            if package.tree(file) is None:
                raise SystemExit(f"{path.name} has no {file}")
            module = Module(package, file)

            def row(field, kinds, default):
                of = rows.setdefault((endpoint, field), {"kinds": set(), "published": [], "packages": set()})
                of["kinds"] |= kinds
                of["packages"].add(name)
                if default is not None and is_plain(default) and not any(same(default, one) for one in of["published"]):
                    of["published"].append(default)

            for found in [module.lookup(one) for one in classes]:
                if not isinstance(found, tuple):
                    raise SystemExit(f"{path.name}: a type of {classes} is not in {file}")
                read(*found, prefix, row)
    lines = ["# Fields of " + ", ".join(versions) + ": endpoint, field, published, empty, packages. Generated by schemas/scripts/read_requests.py"]
    for (endpoint, field), of in sorted(rows.items()):
        values = {"list": [], "object": {}, "str": ""}
        empty = [values[kind] for kind in sorted(of["kinds"]) if kind in values]
        if "bool" in of["kinds"] and not any(one is True for one in of["published"]):
            empty.insert(0, False)
        empty = [one for one in empty if not any(same(one, default) for default in of["published"])]
        published = sorted(of["published"], key=json.dumps)
        lines.append("\t".join([endpoint, field, json.dumps(published), json.dumps(empty), ",".join(sorted(of["packages"]))]))
    arguments.into.write_text("\n".join(lines) + "\n")


def same(one, other):
    return type(one) is type(other) and one == other


if __name__ == "__main__":
    main()
