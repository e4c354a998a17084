#!/usr/bin/env python3
"""Reads the flags that the argument parsers of SGLang and vLLM register, and writes the tables of `schemas/src/flags`.

    pip download --no-deps --dest wheels sglang==0.5.23      # and so on, one wheel for each version
    python3 read_flags.py sglang wheels --into ../src/flags
    python3 read_flags.py vllm wheels --into ../src/flags

The folder contains wheels, or unpacked wheels in folders named after the version. No code of an engine is run or copied: the
definitions are read as syntax trees, and only names, types, accepted words and versions are written.

There are two tables per engine, and one more for vLLM. Columns are separated by tabs:

- `ENGINE.tsv`: name, takes (switch, optional, value, values), since, until, same as. `since` is the first version read that has
  the name, if an older one lacks it; `until` is the first one that no longer has it.
- `ENGINE_values.tsv`: name, type (int, size, float, text, or one of JSON), open or closed, since, until, words. `since` and
  `until` are those of the list of accepted words, if there is one; of JSON `since` is the first version from which on the type
  is the newest version's, if an older one has another. A word that was added or removed while there was a list has its own
  versions after an `@`, as `dsa@0.5.13..` or `qoq@..0.5.20`. A list is open if plugins can extend it, or if a function of the
  engine parses its words. Types and openness are those of the newest version. A flag that accepts any text has no row.
  The types of JSON: `json` is any; of `dict` the parser takes any, and the engine an object; the parser itself refuses what
  is no `object`; of `text-or-dict` only a text in braces is read as JSON.
- `vllm_speculative.tsv`: what, name, since, until. The keys that the JSON of `--speculative-config` accepts, and the words of
  `method` and `rejection_sample_method`.
"""

import argparse
import ast
import re
import sys
import zipfile
from pathlib import Path

UNKNOWN = object()
"""A value that cannot be derived from the syntax tree alone."""


class Package:
    """The Python files of one version."""

    def __init__(self, path):
        self.path = path
        self.archive = zipfile.ZipFile(path) if path.is_file() else None
        self.names = set(self.archive.namelist()) if self.archive else None
        self.trees = {}

    def tree(self, name):
        """The syntax tree of a file; None if it does not exist."""
        if name not in self.trees:
            text = self.text(name)
            self.trees[name] = ast.parse(text) if text is not None else None
        return self.trees[name]

    def text(self, name):
        if self.archive:
            return self.archive.read(name).decode() if name in self.names else None
        file = self.path / name
        return file.read_text() if file.is_file() else None

    def files(self, folder):
        """The Python files directly in a folder."""
        names = self.names if self.archive else {str(file.relative_to(self.path)) for file in (self.path / folder).glob("*.py")}
        return sorted(name for name in names if name.startswith(folder + "/") and name.endswith(".py") and "/" not in name[len(folder) + 1 :])

    def module(self, dotted):
        """The file of a module; None if it does not exist."""
        base = dotted.replace(".", "/")
        return next((name for name in (base + ".py", base + "/__init__.py") if self.tree(name) is not None), None)


class Module:
    """Evaluates constant expressions of a module from its syntax tree."""

    def __init__(self, package, name):
        self.package, self.name, self.tree = package, name, package.tree(name)

    def lookup(self, name, depth=0):
        """The value of a name at the top level of the module, following imports."""
        if depth > 6 or self.tree is None:
            return UNKNOWN
        found = UNKNOWN
        for node in self.tree.body:
            found = self._bound(node, name, found, depth)
        return found

    def _bound(self, node, name, before, depth):
        if isinstance(node, ast.Assign) and any(isinstance(target, ast.Name) and target.id == name for target in node.targets):
            return self.value(node.value, depth)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name and node.value:
            return self.value(node.value, depth)
        if isinstance(node, ast.ClassDef) and node.name == name:
            return (self, node)
        if isinstance(node, (ast.If, ast.Try)):
            for inner in node.body:
                before = self._bound(inner, name, before, depth)
            return before
        if isinstance(node, ast.ImportFrom) and node.module and any((alias.asname or alias.name) == name for alias in node.names):
            original = next(alias.name for alias in node.names if (alias.asname or alias.name) == name)
            dotted = node.module
            if node.level:
                package = self.name.rsplit("/", node.level)[0].replace("/", ".")
                dotted = f"{package}.{node.module}"
            file = self.package.module(dotted)
            return Module(self.package, file).lookup(original, depth + 1) if file else UNKNOWN
        return before

    def value(self, node, depth=0):
        """The value of an expression of constants; UNKNOWN for parts that are not constant."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            items = []
            for item in node.elts:
                if isinstance(item, ast.Starred):
                    inner = self.value(item.value, depth)
                    if not isinstance(inner, list):
                        return UNKNOWN
                    items.extend(inner)
                else:
                    items.append(self.value(item, depth))
            return items
        if isinstance(node, ast.Dict):
            return {self.value(key, depth): None for key in node.keys if key is not None}
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self.value(node.left, depth), self.value(node.right, depth)
            return left + right if isinstance(left, list) and isinstance(right, list) else UNKNOWN
        if isinstance(node, ast.Name):
            return self.lookup(node.id, depth + 1)
        if isinstance(node, ast.Attribute):
            return self._attribute(self.value(node.value, depth), node.attr)
        if isinstance(node, ast.Call):
            return self._call(node, depth)
        if isinstance(node, ast.Subscript) and isinstance(node.value, (ast.Name, ast.Attribute)):
            return UNKNOWN
        return UNKNOWN

    def _attribute(self, owner, attribute):
        if not (isinstance(owner, tuple) and isinstance(owner[1], ast.ClassDef)):
            return UNKNOWN
        module, body = owner
        for node in body.body:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
            if any(isinstance(target, ast.Name) and target.id == attribute for target in targets) and node.value is not None:
                scope = {}
                for before in body.body:
                    if isinstance(before, ast.Assign) and isinstance(before.targets[0], ast.Name):
                        scope[before.targets[0].id] = module.value(before.value)
                if isinstance(node.value, (ast.Tuple, ast.List)):
                    return [scope.get(item.id, module.value(item)) if isinstance(item, ast.Name) else module.value(item) for item in node.value.elts]
                return module.value(node.value)
        return UNKNOWN

    def _call(self, node, depth):
        function = node.func
        if isinstance(function, ast.Name) and function.id in ("list", "sorted", "set", "frozenset", "tuple") and node.args:
            inner = self.value(node.args[0], depth)
            return list(inner) if isinstance(inner, (list, dict)) else UNKNOWN
        if isinstance(function, ast.Attribute) and function.attr == "keys":
            inner = self.value(function.value, depth)
            return list(inner) if isinstance(inner, dict) else UNKNOWN
        return UNKNOWN


class Flag:
    """One argument of one version's parser."""

    def __init__(self, names, takes, kind="text", words=None, is_open=False, dest=None):
        self.names, self.takes, self.kind, self.words, self.is_open = names, takes, kind, words, is_open
        self.dest, self.inverses = dest, []

    def values(self):
        words = None if self.words is None else tuple(str(word) for word in self.words if word is not None)
        return (self.kind, self.is_open if words else False, words)


def words_of(value):
    """The accepted words; None unless all of them are known."""
    plain = isinstance(value, list) and value and all(isinstance(word, (str, int, float)) or word is None for word in value)
    return value if plain else None


KINDS = {
    "int": "int",
    "float": "float",
    "human_readable_int": "size",
    "human_readable_int_or_auto": "size",
    "loads": "json",
    "json_list_type": "json",
}
JSON = ("json", "dict", "object", "text-or-dict")
"""Types that are JSON."""


def kind_of(node):
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("optional_type", "parse_type") and node.args:
        return kind_of(node.args[0])
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return KINDS.get(name, "text")


def keyword(call, name):
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def of_call(module, call, extendable):
    """The flag that a call of `add_argument` registers."""
    names = [module.value(argument) for argument in call.args]
    names = [name for name in names if isinstance(name, str) and name.startswith("-")]
    if not names:
        return None
    action, nargs, kind, choices = (keyword(call, part) for part in ("action", "nargs", "type", "choices"))
    words = words_of(module.value(choices)) if choices is not None else None
    dest = module.value(keyword(call, "dest")) if keyword(call, "dest") is not None else None
    return Flag(names, takes_of(action, nargs, module), kind_of(kind), words, is_open(choices, kind, extendable), dest)


def is_open(node, parser, extendable):
    """Whether a list may be extended, or the engine does more than compare words with it."""
    if parser is not None and getattr(parser, "id", "") not in ("str", "int", "float"):
        return True
    return node is not None and any(isinstance(part, ast.Name) and part.id in extendable for part in ast.walk(node))


def takes_of(action, nargs, module):
    count = module.value(nargs) if nargs is not None else ""
    if count == 0:
        return "switch"
    if count in ("+", "*") or (isinstance(count, int) and count > 1):
        return "values"
    if count == "?":
        return "optional"
    if action is None:
        return "value"
    name = action.value if isinstance(action, ast.Constant) else getattr(action, "attr", getattr(action, "id", ""))
    if name in ("append", "store"):
        return "value"
    if name == "BooleanOptionalAction":
        return "boolean"
    if "LoRA" in str(name):
        return "values"
    return "switch" if name in SWITCHES and count is not None else "value"


SWITCHES = {
    "store_true",
    "store_false",
    "store_const",
    "count",
    "version",
    "help",
    "DeprecatedAction",
    "DeprecatedStoreTrueAction",
    "DeprecatedStoreConstAction",
}
"""Actions that take no value, unless their `nargs` is None."""


# --- SGLang ---

SGLANG = "sglang/srt/server_args.py"


def sglang(package):
    """Every flag of one version of SGLang."""
    flags = []
    files = [SGLANG, *package.files("sglang/srt/arg_groups/fields")]
    extendable = set()
    for name in [SGLANG, "sglang/srt/arg_groups/choices.py"]:
        for node in ast.walk(package.tree(name) or ast.Module([], [])):
            if isinstance(node, ast.Attribute) and node.attr == "extend" and isinstance(node.value, ast.Name) and node.value.id.isupper():
                extendable.add(node.value.id)
    for name in files:
        module = Module(package, name)
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
                flags.append(of_call(module, node, extendable))
            elif isinstance(node, ast.AnnAssign) and isinstance(node.annotation, ast.Subscript):
                flags.append(of_field(module, node, extendable))
    for flag in flags:
        if flag and flag.names[0] in PARSERS:
            flag.words, flag.is_open = parser_words(package, *PARSERS[flag.names[0]]), True
        if flag and flag.names[0] in PARSED_LATER:
            flag.kind = "dict"
    return [flag for flag in flags if flag]


PARSERS = {
    "--reasoning-parser": ("sglang/srt/parser/reasoning_parser.py", "ReasoningParser", "DetectorMap"),
    "--tool-call-parser": ("sglang/srt/function_call/function_call_parser.py", "FunctionCallParser", "ToolCallParserEnum"),
}
"""Flags whose words are `auto` and the keys of a mapping in a class."""

PARSED_LATER = ("--json-model-override-args", "--model-loader-extra-config")
"""Flags whose JSON is read after the parser, in any launch (`configs/model_config.py`, `configs/load_config.py`)."""


def parser_words(package, file, owner, mapping):
    if package.tree(file) is None:
        return None
    found = Module(package, file).lookup(owner)
    words = Module(package, file)._attribute(found, mapping)
    return ["auto", *words] if isinstance(words, dict) else None


def of_field(module, node, extendable):
    """The flag of a field that is annotated as `A[type, "help"]` or `A[type, Arg(...)]`."""
    annotation = node.annotation
    if not (isinstance(annotation.value, ast.Name) and annotation.value.id == "A" and isinstance(annotation.slice, ast.Tuple)):
        return None
    kind = annotation.slice.elts[0]
    metas = [part for part in annotation.slice.elts[1:] if isinstance(part, ast.Call) and getattr(part.func, "id", "") == "Arg"]
    meta = metas[0] if metas else ast.Call(ast.Name("Arg"), [], [])
    is_told = metas or any(isinstance(part, (ast.Constant, ast.JoinedStr, ast.BinOp)) for part in annotation.slice.elts[1:])
    if not is_told:
        return None
    part = lambda name: keyword(meta, name)
    if part("no_cli") is not None:
        return None
    name = module.value(part("cli_name")) if part("cli_name") is not None else "--" + node.target.id.replace("_", "-")
    aliases = module.value(part("aliases")) if part("aliases") is not None else []
    names = [name, *aliases] if isinstance(aliases, list) else [name]
    if not name.startswith("-"):
        return None
    inner = optional(kind)
    choices, nargs, parser = part("choices"), part("nargs"), part("type_parser")
    words = words_of(module.value(choices)) if choices is not None else None
    if part("action") is not None:
        extra = part("action_kwargs")
        if isinstance(extra, ast.Dict):
            pairs = {key.value: value for key, value in zip(extra.keys, extra.values) if isinstance(key, ast.Constant)}
            nargs, choices = pairs.get("nargs", nargs), pairs.get("choices", choices)
            parser = pairs.get("type", parser)
            words = words_of(module.value(choices)) if choices is not None else words
        return Flag(names, takes_of(part("action"), nargs, module), kind_of(parser), words, is_open(choices, parser, extendable), node.target.id)
    base = inner.value.id if isinstance(inner, ast.Subscript) and isinstance(inner.value, ast.Name) else ""
    if base == "Literal":
        literal = inner.slice.elts if isinstance(inner.slice, ast.Tuple) else [inner.slice]
        own = words_of([module.value(item) for item in literal])
        # A custom parser may fold case, or accept more words than the list.
        return Flag(names, "value", "text", words or own, is_open(choices, parser, extendable), node.target.id)
    if base in ("List", "list") and parser is None:
        return Flag(names, takes_of(None, nargs or ast.Constant("+"), module), kind_of(inner.slice), words, is_open(choices, parser, extendable), node.target.id)
    if isinstance(inner, ast.Name) and inner.id == "bool" and parser is None:
        return Flag(names, "switch", dest=node.target.id)
    kind = kind_of(parser if parser is not None else inner)
    if kind == "json" and base in ("Dict", "dict"):
        kind = "dict"
    return Flag(names, takes_of(None, nargs, module), kind, words, is_open(choices, parser, extendable), node.target.id)


def optional(node):
    """`X` of `Optional[X]`, `Union[X, None]` or `X | None`."""
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "Optional":
        return node.slice
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) and isinstance(node.right, ast.Constant) and node.right.value is None:
        return node.left
    return node


# --- vLLM ---

VLLM = "vllm/engine/arg_utils.py"
FRONTENDS = [f"vllm/entrypoints/{folder}/cli_args.py" for folder in ("common", "launchers", "openai")]
SIZES = {"max_model_len", "max_num_batched_tokens", "max_num_scheduled_tokens", "kv_cache_memory_bytes", "safetensors_prefetch_block_size", "max_num_queued_tokens"}


def vllm(package):
    """Every flag of `vllm serve` of one version."""
    module = Module(package, VLLM)
    flags = []
    kwargs = {}
    for function in ast.walk(module.tree):
        if not (isinstance(function, ast.FunctionDef) and function.name == "add_cli_args"):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and getattr(node.value.func, "id", "") == "get_kwargs":
                kwargs[node.targets[0].id] = config_class(module, node.value.args[0].id)
        flags += [of_vllm(module, call, kwargs) for call in ast.walk(function) if is_add_argument(call)]
    for name in FRONTENDS:
        if package.tree(name) is not None:
            flags += frontend(Module(package, name))
    if "EnableDisableAction" in (package.text("vllm/utils/argparse_utils.py") or ""):
        for flag in flags:
            if flag and flag.takes == "boolean":
                flag.inverses = [INVERSE[name[:9]] + name[9:] if name.startswith("--enable-") else INVERSE[name[:10]] + name[10:] for name in flag.names if name.startswith(tuple(INVERSE))]
    return [flag for flag in flags if flag]


INVERSE = {"--enable-": "--disable-", "--disable-": "--enable-"}
"""In versions with `EnableDisableAction`, each of the two prefixes of a switch is also accepted with the other one, for its opposite."""


def is_add_argument(node):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument"


def config_class(module, name):
    """Fields of a configuration class, each with its annotation and the module in which to resolve it."""
    found = module.lookup(name)
    if not (isinstance(found, tuple) and isinstance(found[1], ast.ClassDef)):
        return {}
    owner, body = found
    fields = {}
    for base in body.bases:
        if isinstance(base, ast.Name):
            fields.update(config_class(owner, base.id))
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            fields[node.target.id] = (owner, node.annotation)
    return fields


def parts(module, node, depth=0):
    """The types of an annotation's union as (module, node), with type aliases resolved."""
    if depth > 6:
        return []
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return parts(module, node.left, depth) + parts(module, node.right, depth)
    if isinstance(node, ast.Subscript) and getattr(node.value, "id", "") in ("Optional", "Union"):
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return [part for item in inner for part in parts(module, item, depth)]
    if isinstance(node, ast.Subscript) and getattr(node.value, "id", "") in ("SkipValidation", "Annotated"):
        inner = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice
        return parts(module, inner, depth)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return parts(module, ast.parse(node.value, mode="eval").body, depth)
    if isinstance(node, ast.Name) and node.id not in ("int", "float", "str", "bool"):
        alias = type_alias(module, node.id)
        if alias:
            return parts(*alias, depth + 1)
    return [(module, node)]


def type_alias(module, name, depth=0):
    """The type expression that a name is bound to, such as a Literal, as (module, node)."""
    if module.tree is None or depth > 6:
        return None
    for node in module.tree.body:
        value = node.value if isinstance(node, ast.Assign) and any(getattr(target, "id", "") == name for target in node.targets) else None
        if value is not None and isinstance(value, (ast.Subscript, ast.BinOp)):
            return (module, value)
        if isinstance(node, ast.ImportFrom) and node.module and any((alias.asname or alias.name) == name for alias in node.names):
            file = module.package.module(node.module)
            original = next(alias.name for alias in node.names if (alias.asname or alias.name) == name)
            return type_alias(Module(module.package, file), original, depth + 1) if file else None
    return None


def of_annotation(owner, annotation, field):
    """(takes, kind, words, open) that `get_kwargs` derives from a field."""
    types = parts(owner, annotation)
    name = lambda node: node.id if isinstance(node, ast.Name) else getattr(getattr(node, "value", None), "id", "")
    names = [name(node) for _, node in types]
    if any(is_dataclass(module, node) for module, node in types):
        return "value", "object", None, False
    if "bool" in names:
        return ("optional" if "str" in names else "boolean"), "text", None, False
    literals = [(module, node) for module, node in types if isinstance(node, ast.Subscript) and name(node) == "Literal"]
    if literals:
        words = flat_literal(literals)
        # If any text is accepted too, the list is only a hint.
        return "value", "text", (None if "str" in names else words), False
    for container in ("tuple", "list", "set"):
        if container in names:
            node = next(node for _, node in types if name(node) == container)
            inner = node.slice if isinstance(node, ast.Subscript) else None
            return "values", (kind_of(inner) if isinstance(inner, ast.Name) else "text"), None, False
    if "int" in names:
        return "value", ("size" if field in SIZES else "text" if "str" in names else "int"), None, False
    if "float" in names:
        return "value", ("text" if "str" in names else "float"), None, False
    if any(one in ("dict", "Dict") for one in names):
        # Any other type beside it makes a text without braces one.
        is_alone = all(one in ("dict", "Dict", "") for one in names)
        takes_pairs = "nullable_kvs" in (owner.package.text(VLLM) or "")
        return "value", ("dict" if is_alone and not takes_pairs else "text-or-dict"), None, False
    return "value", "text", None, False


def is_dataclass(module, node):
    """Whether a type is one of the configuration classes, which `get_kwargs` reads from JSON."""
    if not isinstance(node, ast.Name):
        return False
    found = module.lookup(node.id)
    if not (isinstance(found, tuple) and isinstance(found[1], ast.ClassDef)) or is_for_checkers(module, node.id):
        return False
    named = [part.func if isinstance(part, ast.Call) else part for part in found[1].decorator_list]
    return any(getattr(part, "id", getattr(part, "attr", "")) in ("config", "dataclass") for part in named)


def is_for_checkers(module, name):
    """Whether a name is a class for type checkers alone: at run time it is bound to another value, such as `Any`."""
    blocks = [node for node in module.tree.body if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"]
    targets = [target for block in blocks for node in block.orelse if isinstance(node, ast.Assign) for target in node.targets]
    return any(isinstance(target, ast.Name) and target.id == name for target in targets)


def flat_literal(literals):
    words = []
    for module, node in literals:
        for item in node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]:
            if isinstance(item, ast.Name):
                alias = type_alias(module, item.id)
                words += flat_literal([alias]) if alias and getattr(getattr(alias[1], "value", None), "id", "") == "Literal" else []
            elif isinstance(item, ast.Constant):
                words.append(item.value)
    return words_of(words)


def of_vllm(module, call, kwargs):
    flag = of_call(module, call, set())
    if flag is None:
        return None
    for unpacked in (keyword_.value for keyword_ in call.keywords if keyword_.arg is None):
        for inner in ast.walk(unpacked):
            if isinstance(inner, ast.Subscript) and isinstance(inner.value, ast.Name):
                fields, key = kwargs.get(inner.value.id, {}), module.value(inner.slice)
                if key in fields:
                    flag.takes, flag.kind, flag.words, flag.is_open = of_annotation(*fields[key], key)
    # Words that are computed at run time, or that plugins extend, do not count as a list.
    if any(name in ("--quantization", "--device", "--load-format", "--tool-call-parser", "--reasoning-parser") for name in flag.names):
        flag.words = None
    return flag


def frontend(module):
    """The flags of a frontend: the fields of `FrontendArgs`, and the arguments that are added by name."""
    flags = []
    fields = config_class(module, "FrontendArgs")
    for name, (owner, annotation) in fields.items():
        takes, kind, words, is_open = of_annotation(owner, annotation, name)
        if name in ("allowed_origins", "allowed_methods", "allowed_headers", "middleware", "disable_access_log_for_endpoints"):
            takes = "value"
        if name == "lora_modules":
            takes = "values"
        if name in ("tool_call_parser", "reasoning_parser"):
            words = None
        flags.append(Flag(["--" + name.replace("_", "-")], takes, kind, words, is_open))
    own = [of_call(module, call, set()) for call in ast.walk(module.tree) if is_add_argument(call)]
    return flags + [flag for flag in own if flag]


SPECULATIVE = ("vllm/config/speculative.py", "vllm/config/__init__.py", "vllm/config.py")


def speculative(package):
    """The keys of one version's speculative configuration, and the accepted words of two of them."""
    file = next((name for name in SPECULATIVE if package.tree(name) is not None and "class SpeculativeConfig" in package.text(name)), None)
    if file is None:
        return set()
    module = Module(package, file)
    found = {("key", name) for name in config_class(module, "SpeculativeConfig")}
    for what, alias in [("method", "SpeculativeMethod"), ("rejection_sample_method", "RejectionSampleMethod")]:
        literal = type_alias(module, alias)
        found |= {(what, word) for word in (flat_literal([literal]) or [] if literal else [])}
    return found


def speculative_rows(packages):
    versions = list(packages)
    found = {version: speculative(package) for version, package in packages.items()}
    rows = []
    for what, name in sorted(set().union(*found.values())):
        # A version without the class or the list says nothing about its words.
        among = [version for version in versions if any(kind == what for kind, _ in found[version])]
        own = [version for version in among if (what, name) in found[version]]
        rows.append((what, name, *span(own, versions, among)))
    return rows


# --- Tables ---


def version_key(text):
    numbers = [int(number) for number in re.findall(r"\d+", text)]
    return (numbers + [0, 0, 0])[:4] if "post" not in text else numbers[:3] + [numbers[3]]


def versions_in(folder, engine):
    found = {}
    for path in folder.iterdir():
        name = path.name.removeprefix(engine + "-") if path.suffix == ".whl" else path.name
        match = re.match(r"\d+\.\d+\.\d+(\.post\d+)?", name)
        if match and (path.suffix == ".whl" and path.name.startswith(engine + "-") or path.is_dir()):
            found[match.group(0)] = Package(path)
    return dict(sorted(found.items(), key=lambda pair: version_key(pair[0])))


def dashed(name):
    return name.lstrip("-")


def tables(read, packages):
    """The rows of both tables of an engine."""
    versions = list(packages)
    names, values = {}, {}
    for version, package in packages.items():
        flags = read(package)
        print(f"{version}: {len(flags)} flags, {sum(flag.words is not None for flag in flags)} with words", file=sys.stderr)
        for flag in flags:
            own = [dashed(name) for name in flag.names if name.startswith("--")]
            if not own:
                continue
            dest = (flag.dest or own[0]).replace("_", "-")
            first = dest if dest in own else own[0]
            takes = "switch" if flag.takes == "boolean" else flag.takes
            for name in own:
                names.setdefault(name, {})[version] = (takes, first)
                if flag.takes == "boolean":
                    for other in ["no-" + name, *map(dashed, flag.inverses)]:
                        names.setdefault(other, {}).setdefault(version, (takes, other))
            # A deprecated alias may accept other words than the flag itself.
            if first in own:
                values.setdefault(first, {})[version] = flag.values()
    return flag_rows(names, versions), value_rows(values, versions)


def flag_rows(names, versions):
    rows = []
    for name in sorted(names):
        there = [version for version in versions if version in names[name]]
        takes, first = names[name][there[-1]]
        after = versions.index(there[-1]) + 1
        since = "-" if there[0] == versions[0] else there[0]
        until = "-" if after == len(versions) else versions[after]
        rows.append((name, takes, since, until, "-" if first == name else first))
    return rows


def value_rows(values, versions):
    rows = []
    for name in sorted(values):
        there = [version for version in versions if version in values[name]]
        kind, is_open, _ = values[name][there[-1]]
        listed = [version for version in there if values[name][version][2]]
        if not listed and kind == "text":
            continue
        is_open = values[name][listed[-1]][1] if listed else is_open
        since, until = span(listed, versions, there) if listed else ("-", "-")
        if kind in JSON:
            others = [version for version in there if values[name][version][0] != kind]
            since = there[there.index(others[-1]) + 1] if others else "-"
        words = {word: [version for version in listed if word in values[name][version][2]] for version in listed for word in values[name][version][2]}
        shown = [word + at(*span(own, versions, listed)) for word, own in words.items()]
        rows.append((name, kind, "open" if is_open else "closed", since, until, " ".join(shown)))
    return rows


def span(own, versions, among):
    """The columns since and until for the versions `own`; `-` at an end that coincides with that of `among`."""
    after = versions.index(own[-1]) + 1
    since = "-" if own[0] == among[0] else own[0]
    until = "-" if own[-1] == among[-1] else versions[after]
    return since, until


def at(since, until):
    if (since, until) == ("-", "-"):
        return ""
    return "@" + since.replace("-", "") + ".." + until.replace("-", "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=["sglang", "vllm"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--into", type=Path, required=True)
    arguments = parser.parse_args()
    packages = versions_in(arguments.folder, arguments.engine)
    if not packages:
        sys.exit(f"no wheel of {arguments.engine} in {arguments.folder}")
    flags, values = tables({"sglang": sglang, "vllm": vllm}[arguments.engine], packages)
    read = ", ".join(packages)
    files = [
        (arguments.engine, "name\ttakes\tsince\tuntil\tsame as", flags),
        (arguments.engine + "_values", "name\ttype\tlist\tsince\tuntil\twords", values),
    ]
    if arguments.engine == "vllm":
        files.append(("vllm_speculative", "what\tname\tsince\tuntil", speculative_rows(packages)))
    for name, head, rows in files:
        text = f"# read from {read}\n# {head}\n" + "".join("\t".join(row).rstrip() + "\n" for row in rows)
        (arguments.into / f"{name}.tsv").write_text(text)


if __name__ == "__main__":
    main()
