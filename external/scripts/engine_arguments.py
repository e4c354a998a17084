#!/usr/bin/env python3
"""Runs the command lines that spectune starts servers with through an engine's own argument parser, without a GPU.

    spectune sweep sweep.toml --dry-run | engine_arguments.py vllm
    spectune sweep sweep.toml --dry-run | engine_arguments.py sglang

Reads lines from standard input and uses those that start the engine. The package must be importable: in a virtual environment
with `pip install vllm`, or with only its wheel (`pip install --no-deps vllm`, or its unpacked Python files on PYTHONPATH) plus
pydantic, regex and typing_extensions. Packages that are not installed (torch, transformers and their dependencies) are replaced by
empty classes, and the last line of output names them. The parser and the checks of the configuration that read only its own values
are the engine's; checks that need the model or the device do not run.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import json
import shlex
import sys
import types


# Parts of the engines that register kernels when they are imported.
KERNELS = ("ir", "kernels", "_custom_ops")


# Packages whose presence indicates a device.
DEVICES = ("torch_npu", "torch_xla", "torch_musa", "habana_frameworks", "intel_extension_for_pytorch", "mlx")


class StandIn(type):
    """Replaces every class of a module that is not installed."""

    def __new__(mcs, name, bases, members, **_):
        return super().__new__(mcs, name, bases, members)

    def __init__(cls, name, bases, members, **_):
        super().__init__(name, bases, members)

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return make(name)

    def __call__(cls, *arguments, **keywords):
        if cls.__name__ == "dumps":
            return b""
        # A decorator returns what it decorates.
        if len(arguments) == 1 and not keywords and callable(arguments[0]):
            return arguments[0]
        return make(cls.__name__)

    def __getitem__(cls, _):
        return cls

    def __setitem__(cls, _, value):
        pass

    def __or__(cls, other):
        return cls

    __ror__ = __or__

    def __radd__(cls, other):
        return other

    __add__ = __sub__ = __mul__ = __truediv__ = __radd__

    def __int__(cls):
        return 0

    __index__ = __int__

    def __iter__(cls):
        return iter(())

    def __eq__(cls, other):
        return isinstance(other, StandIn) and cls.__name__ == other.__name__

    def __hash__(cls):
        return hash(cls.__name__)

    def __bool__(cls):
        return False

    def __lt__(cls, _):
        return False

    __gt__ = __le__ = __ge__ = __lt__

    def __enter__(cls):
        return cls

    def __exit__(cls, *_):
        return False


def make(name):
    members = {
        "__module__": "stand_in",
        "__init_subclass__": classmethod(lambda cls, **_: None),
        # pydantic accepts any value for a field of such a type.
        "__get_pydantic_core_schema__": classmethod(lambda cls, *_: {"type": "any"}),
    }
    return StandIn(name, (), members)


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Provides modules that no other finder finds, except the engine's own and ones whose presence is only tested."""

    def __init__(self, engine):
        self.engine = engine
        self.names = set()

    def find_spec(self, name, path=None, target=None):
        top, _, rest = name.partition(".")
        of_engine = top == self.engine
        kernels = of_engine and rest.partition(".")[0] in KERNELS
        if top in DEVICES:
            return None
        if not kernels and (top in sys.stdlib_module_names or importlib.machinery.PathFinder.find_spec(name, path)):
            return None
        # Compiled parts of the engine are not among its Python files; installed packages provide their own compiled
        # parts.
        compiled = of_engine and name.rpartition(".")[2].startswith(("_C", "_version"))
        if not (kernels or compiled or (not of_engine and (not rest or top in self.names))):
            return None
        self.names.add(top)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__version__ = "0"
        module.__getattr__ = lambda name: self.attribute(name)
        return module

    def exec_module(self, module):
        pass

    @staticmethod
    def attribute(name):
        # Devices whose torch attributes exist only if the device does.
        if name.startswith("__") or name in ("npu", "xpu", "musa", "hpu", "mlu", "xla"):
            raise AttributeError(name)
        return make(name)


def lines_of(engine):
    words = {"vllm": ["vllm", "serve"], "sglang": ["-m", "sglang.launch_server"]}[engine]
    for line in sys.stdin:
        try:
            parts = shlex.split(line)
        except ValueError:
            continue
        at = next((at for at in range(len(parts)) if parts[at : at + 2] == words), None)
        if at is not None:
            yield line.strip(), parts[at + 2 :]


def vllm(arguments):
    import vllm.platforms

    if not vllm.platforms.current_platform.device_type:
        # Without a GPU and a package for another device, use vLLM's CPU platform.
        from vllm.platforms.cpu import CpuPlatform

        vllm.platforms._current_platform = CpuPlatform()
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser(exit_on_error=False))
    parser.add_argument("model_tag", nargs="?")
    # Flags of the HTTP front end, whose module needs a full installation.
    for flag in ("--host", "--port"):
        parser.add_argument(flag)
    parsed = parser.parse_args(arguments)
    # Every field has a default, so the engine's arguments can be built from what was parsed.
    AsyncEngineArgs.from_cli_args(parsed)
    speculation = parsed.speculative_config
    if isinstance(speculation, str):
        speculation = json.loads(speculation)
    if speculation:
        from vllm.config.speculative import SpeculativeConfig

        known = SpeculativeConfig.__dataclass_fields__
        unknown = [key for key in speculation if key not in known]
        if unknown:
            raise ValueError(f"SpeculativeConfig has no {unknown}")
        schedule = speculation.get("num_speculative_tokens_per_batch_size")
        if schedule:
            from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

            most = parsed.max_num_seqs or 8
            table = build_dynamic_sd_schedule_lookup(schedule, int(most), speculation["num_speculative_tokens"])
            print(f"        draft tokens by batch size: {table[1:]}")
    return parsed


def sglang(arguments):
    import argparse

    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser(exit_on_error=False)
    ServerArgs.add_cli_args(parser)
    parsed = parser.parse_args(arguments)
    if parsed.speculative_adaptive_config:
        from sglang.srt.speculative.adaptive_spec_params import resolve_candidate_steps_from_config

        steps = resolve_candidate_steps_from_config(parsed.speculative_adaptive_config)
        assert parsed.speculative_num_steps in steps, f"{parsed.speculative_num_steps} is none of {steps}"
        print(f"        candidate steps: {steps}")
    return parsed


def main():
    engine = sys.argv[1] if len(sys.argv) > 1 else ""
    if engine not in ("vllm", "sglang"):
        sys.exit(__doc__)
    absent = Absent(engine)
    sys.meta_path.insert(0, absent)
    parse = {"vllm": vllm, "sglang": sglang}[engine]
    taken = refused = 0
    for line, arguments in lines_of(engine):
        try:
            parse(arguments)
            taken += 1
            print(f"accepted {line}")
        except (Exception, SystemExit) as error:
            if "-v" in sys.argv:
                raise
            refused += 1
            print(f"REJECTED {line}\n        {type(error).__name__}: {error}")
    version = getattr(sys.modules.get(engine), "__version__", "of unknown version")
    print(f"{engine} {version}: {taken} accepted, {refused} rejected; replaced: {', '.join(sorted(absent.names)) or 'nothing'}")
    sys.exit(refused > 0 or taken == 0)


if __name__ == "__main__":
    main()
