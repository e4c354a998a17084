#!/usr/bin/env python3
"""Checks an exported table of chains with the code of the engine that reads it, from its wheel, on any machine.

    pip download --no-deps --dest wheels sglang==0.5.16      # or vllm==0.33.0
    spectune export tuned.toml --to sglang-adaptive --engine-version 0.5.16 > adaptive.json
    python3 check_tables.py sglang wheels/sglang-0.5.16-*.whl adaptive.json --steps 5
    spectune export tuned.toml --to vllm --engine-version 0.33.0 > run.sh
    python3 check_tables.py vllm wheels/vllm-0.33.0-*.whl run.sh --largest 64

Runs `speculative/adaptive_spec_params.py` of SGLang (with a stand-in for its logger, which is all that it takes of the rest
at run time), or `v1/spec_decode/dynamic/utils.py` of vLLM, which imports nothing, and prints the steps at each batch size. A
file that the engine refuses ends with the engine's error and exit code 1. No GPU, no torch. What this does not show: that the
whole server starts.
"""

import argparse
import json
import re
import shlex
import sys
import types
import zipfile


def module(wheel, name, given=None):
    """Runs one file of a wheel as a module; `given` are modules that it imports."""
    for path, contents in (given or {}).items():
        found = types.ModuleType(path)
        found.__dict__.update(contents)
        sys.modules[path] = found
    text = zipfile.ZipFile(wheel).read(name).decode()
    made = types.ModuleType(name)
    exec(compile(text, name, "exec"), made.__dict__)
    return made


def runs(steps):
    """Batch sizes with their steps, adjacent equal ones together."""
    lines, first = [], None
    for batch, step in steps:
        if lines and lines[-1][2] == step:
            lines[-1][1] = batch
        else:
            lines.append([batch, batch, step])
    return [f"batch {first} to {last}: {step} steps" for first, last, step in lines]


def sglang(arguments):
    package = "sglang.srt"
    nothing = lambda *_, **__: None
    parts = ["sglang", package, f"{package}.utils", f"{package}.arg_groups", f"{package}.speculative"]
    given = {part: {"__path__": []} for part in parts}
    given[f"{package}.utils"]["log_info_on_rank0"] = nothing
    given[f"{package}.arg_groups.overrides"] = {"resolved_view": nothing, "resolving_view": nothing}
    given[f"{package}.runtime_context"] = {"attn_dp_enabled_of": nothing}
    given[f"{package}.speculative.spec_info"] = {"SpeculativeAlgorithm": object}
    code = module(arguments.wheel, "sglang/srt/speculative/adaptive_spec_params.py", given)
    if not hasattr(code, "resolve_candidate_steps_from_config"):
        raise ValueError("this version reads one list of steps for all batch sizes")
    candidates = code.resolve_candidate_steps_from_config(arguments.file)
    if arguments.steps not in candidates:
        raise ValueError(f"--speculative-num-steps {arguments.steps} is not among {candidates}")
    params = code.AdaptiveSpeculativeParams(arguments.steps, arguments.file)
    if arguments.captures:
        params.set_cuda_graph_bs([int(size) for size in arguments.captures.split(",")])
    steps = []
    for batch in range(1, arguments.largest + 1):
        # A slot with one candidate stays with it, whatever is accepted.
        for accepted in (0, 9):
            for _ in range(40):
                moved = params.on_verify_complete([accepted] * batch, batch)
                if moved is not None:
                    raise ValueError(f"batch {batch} moves to {moved} steps")
        steps.append((batch, params.get_steps_for_batch(batch)))
    return steps


def vllm(arguments):
    with open(arguments.file) as file:
        words = shlex.split(re.sub(r"\\\n", " ", file.read()))
    config = json.loads(words[words.index("--speculative-config") + 1])
    code = module(arguments.wheel, "vllm/v1/spec_decode/dynamic/utils.py")
    most = config["num_speculative_tokens"]
    lookup = code.build_dynamic_sd_schedule_lookup(config["num_speculative_tokens_per_batch_size"], arguments.largest, most)
    return list(enumerate(lookup))[1:]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("engine", choices=["sglang", "vllm"])
    parser.add_argument("wheel")
    parser.add_argument("file", help="the adaptive file, or the command with the schedule")
    parser.add_argument("--steps", type=int, help="SGLang's --speculative-num-steps")
    parser.add_argument("--captures", help="SGLang's capture sizes, separated by commas")
    parser.add_argument("--largest", type=int, default=64, help="largest batch size to look up")
    arguments = parser.parse_args()
    try:
        steps = {"sglang": sglang, "vllm": vllm}[arguments.engine](arguments)
    except (ValueError, AssertionError) as error:
        print(f"refused: {error}")
        return 1
    print("\n".join(runs(steps)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
