#!/usr/bin/env python3
"""Reads which architectures of vLLM provide hidden states to EAGLE-3 and DFlash drafts, and writes `vllm_eagle3.tsv`.

    pip download --no-deps --dest wheels vllm==0.33.0        # and so on, one wheel for each version
    python3 read_eagle3.py wheels --into ../src/rules/vllm

The folder contains wheels, or folders named after a version that contain an unpacked wheel. No code of the engine is run or copied:
its registry and the bases of its classes are read as syntax trees. A row is an architecture of the registry that lacks the interface
`SupportsEagle3` in some version: its name, the first version read that has it (`-` if none has it), and the first version read that
registers the architecture (`-` for the oldest one).
"""

import argparse
import ast
import sys
import zipfile
from pathlib import Path

MODELS = "vllm.model_executor.models"
INTERFACE = "SupportsEagle3"
REGISTRIES = {"_TEXT_GENERATION_MODELS", "_MULTIMODAL_MODELS"}


class Package:
    """The Python files of one version, by module name."""

    def __init__(self, path):
        self.path = path
        self.archive = zipfile.ZipFile(path) if path.is_file() else None
        self.names = set(self.archive.namelist()) if self.archive else None
        self.modules = {}

    def text(self, name):
        if self.archive:
            return self.archive.read(name).decode() if name in self.names else None
        file = self.path / name
        return file.read_text() if file.is_file() else None

    def module(self, name):
        """The classes of a module with their bases, and the origins of its other names; empty if it does not exist."""
        if name not in self.modules:
            path = name.replace(".", "/")
            text, is_package = self.text(f"{path}.py"), False
            if text is None:
                text, is_package = self.text(f"{path}/__init__.py"), True
            self.modules[name] = read(ast.parse(text), name, is_package) if text else ({}, {})
        return self.modules[name]

    def has_interface(self, module, name, seen=()):
        """Whether a class has the interface, itself or through a base class; None if the class is not found."""
        if (module, name) in seen or len(seen) > 32:
            return None
        classes, imports = self.module(module)
        if name == INTERFACE:
            return True
        if name not in classes:
            places = imports.get(name, [])
            found = [self.has_interface(*place, (*seen, (module, name))) for place in places]
            return None if not found or all(one is None for one in found) else any(found)
        return any(self.has_interface(module, base, (*seen, (module, name))) for base in classes[name])


def read(tree, module, is_package):
    classes, imports = {}, {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            bases = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
            classes.setdefault(node.name, [last(base) for base in bases if last(base)])
        elif isinstance(node, ast.ImportFrom):
            package = module.split(".") if is_package else module.split(".")[:-1]
            parent = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*parent, node.module] if node.module else parent)
            for one in node.names:
                imports.setdefault(one.asname or one.name, []).append((source, one.name))
    return classes, imports


def last(node):
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None


def registered(package):
    """The architectures of the registry, with the module and the class of each."""
    tree = ast.parse(package.text("vllm/model_executor/models/registry.py"))
    found = {}
    for node in tree.body:
        target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0] if isinstance(node, ast.Assign) else None
        if not isinstance(target, ast.Name) or target.id not in REGISTRIES or not isinstance(node.value, ast.Dict):
            continue
        for key, value in zip(node.value.keys, node.value.values):
            if isinstance(key, ast.Constant) and isinstance(value, ast.Tuple):
                module, name = (part.value for part in value.elts[:2])
                found[key.value] = (module if module.startswith("vllm.") else f"{MODELS}.{module}", name)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheels", type=Path)
    parser.add_argument("--into", type=Path, required=True)
    args = parser.parse_args()
    version_of = lambda path: path.name.split("-")[1] if path.suffix == ".whl" else path.name
    order = lambda version: [int(part) for part in version.split(".")[:3]]
    paths = {version_of(path): path for path in args.wheels.iterdir()}
    versions = sorted(paths, key=order)
    first, gains, lacking = {}, {}, set()
    for version in versions:
        package = Package(paths[version])
        names = registered(package)
        for name, place in names.items():
            first.setdefault(name, version)
            has = package.has_interface(*place)
            if has:
                gains.setdefault(name, version)
            elif has is False:
                lacking.add(name)
                if name in gains:
                    print(f"{name}: lost in {version}", file=sys.stderr)
                    del gains[name]
        print(f"{version}: {len(names)} architectures", file=sys.stderr)
    rows = [
        (name, gains.get(name, "-"), "-" if first[name] == versions[0] else first[name])
        for name in sorted(lacking)
    ]
    head = [f"# read from {', '.join(versions)}", "# architecture\thas it since\tregistered since"]
    lines = head + ["\t".join(row) for row in rows]
    (args.into / "vllm_eagle3.tsv").write_text("\n".join(lines) + "\n")


main()
