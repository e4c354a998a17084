#!/usr/bin/env python3
"""Records decisions of the adaptive rules of other engines, made by the engines' own classes, without a GPU.

    engine_decisions.py sglang WHEEL… > tuner/src/forecast/policy/decisions/sglang.jsonl
    engine_decisions.py vllm WHEEL… > tuner/src/forecast/policy/decisions/vllm.jsonl

A WHEEL is a folder with the unpacked Python files of a version, named after the version: `pip download --no-deps sglang==0.5.23`
and `unzip -d 0.5.23 sglang-*.whl '*.py'`. For vLLM numpy is needed (`pip install numpy`); torch and all other packages are
replaced by stand-ins, and tensors by numpy's arrays. Each line is a case: its inputs, drawn from a fixed seed, and what the engine
decides. The same wheels yield the same lines.

Recorded so far: SGLang 0.5.11, 0.5.12, 0.5.13, 0.5.14, 0.5.16, 0.5.20 and 0.5.23; vLLM 0.28.0 and 0.33.0.
"""

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import pathlib
import random
import sys
import tempfile
import types


class Anything:
    """Stands in for what is imported and not needed."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_, **__):
        return self

    def __or__(self, _):
        return self

    __ror__ = __or__


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Provides modules of the engine and of torch as stand-ins."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("sglang", "vllm", "torch"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__getattr__ = lambda name: getattr(Anything(), name)
        return module

    def exec_module(self, module):
        pass


def module_of(wheel, path):
    """A module of a wheel, under a name of its own."""
    file = pathlib.Path(wheel) / path
    if not file.is_file():
        sys.exit(f"{file} does not exist: give the folder into which the wheel was unpacked")
    spec = importlib.util.spec_from_file_location(f"of_{pathlib.Path(wheel).name.replace('.', '_')}_{file.stem}", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write(case):
    print(json.dumps(case, separators=(",", ":")))


# SGLang


SIZES = [1, 2, 4, 8, 16, 24, 32, 48, 64]

# (file, steps of the launch); without a file, the settings of the version.
SLOTS = [
    (None, None),
    (None, 1),
    (None, 7),
    # Settings of all slots, and of some.
    (
        {
            "ema_alpha": 0.5,
            "warmup_batches": 2,
            "update_interval": 3,
            "1": {"candidate_steps": [1, 2, 4, 6]},
            "8": {"candidate_steps": [2, 4], "down_hysteresis": 0.1, "up_hysteresis": -0.3, "ema_alpha": 0.1},
            "32": {"candidate_steps": [1, 2, 3], "update_interval": 1, "warmup_batches": 0},
        },
        4,
    ),
    # Ceilings, and a slot that lacks the launch's steps.
    (
        {
            "ceiling_coeff": 1.5,
            "warmup_batches": 0,
            "update_interval": 1,
            "up_hysteresis": 0.4,
            "1": {"candidate_steps": [1, 3, 5, 7]},
            "4": {"candidate_steps": [2, 3, 6, 9], "ceiling_coeff": 0.8},
            "24": {"candidate_steps": [1, 2, 3, 4], "ceiling_coeff": -1},
        },
        5,
    ),
    # Hysteresis that would move down and up again in one update.
    (
        {
            "update_interval": 2,
            "ema_alpha": 0.4,
            "1": {"candidate_steps": [1, 3, 7], "down_hysteresis": 2, "up_hysteresis": -2},
            "16": {"candidate_steps": [2, 3, 4, 5], "down_hysteresis": 1.25, "up_hysteresis": -1},
        },
        3,
    ),
    # No speculation, at the start and later; batches below the first slot.
    (
        {
            "update_interval": 2,
            "warmup_batches": 1,
            "ema_alpha": 0.3,
            "2": {"candidate_steps": [0, 2, 5]},
            "16": {"candidate_steps": [0], "down_hysteresis": 1},
            "24": {"candidate_steps": [4, 0], "down_hysteresis": 0.0},
        },
        0,
    ),
    # Unsorted, with duplicates and unknown keys.
    ({"comment": "text", "candidate_steps": [9], "07": {"candidate_steps": [5, 1, 5, 3], "note": 1}}, 1),
    ({"1": {"candidate_steps": [1, 3]}, "8": {"candidate_steps": [2]}}, 4),
    ({"1": {"candidate_steps": []}}, 1),
    ({"one": {"candidate_steps": [1]}}, 1),
    ({"1": {"candidate_steps": [1, -1]}}, 1),
]

ONE_LIST = [
    (None, 3),
    (None, 7),
    ({"candidate_steps": [2, 4, 8, 4], "ema_alpha": 0.6, "update_interval": 2, "warmup_batches": 1}, 6),
    ({"candidate_steps": [4, 1], "down_hysteresis": 1.5, "up_hysteresis": -1.25, "8": 1, "update_interval": 1}, 3),
    ({"candidate_steps": [3], "ema_alpha": 0.4, "up_hysteresis": 0.3}, 5),
    ({"candidate_steps": [3]}, 3),
]


def sglang_server(module, file, steps):
    """The engine's object for a launch: how to ask it for steps, how to tell it a result, and its averages."""
    has_slots = hasattr(module, "AdaptiveStepSlot")
    with tempfile.TemporaryDirectory() as folder:
        path = None
        if file is not None:
            path = str(pathlib.Path(folder) / "adaptive.json")
            pathlib.Path(path).write_text(json.dumps(file))
        if not has_slots:
            server = module.AdaptiveSpeculativeParams(steps, module.load_adaptive_config(path))
            return steps, lambda _: server.current_steps, lambda all, _: server.update(all), lambda: [server.ema_accept_len]
        # What `speculative_hook.py` does with the steps of a launch.
        candidates = module.resolve_candidate_steps_from_config(path)
        steps = candidates[len(candidates) // 2] if steps is None else steps
        if steps not in candidates:
            raise ValueError("the steps are no candidate")
        server = module.AdaptiveSpeculativeParams(steps, path)
    server.set_cuda_graph_bs(SIZES)
    averages = lambda: [server._slots[batch].ema_accept_len for batch in server._bs_list]
    return steps, server.get_steps_for_batch, lambda all, batch: server.on_verify_complete(all, batch), averages


def sglang_case(module, version, file, steps, rounds, draw):
    case = {"version": version, "file": file, "steps": steps, "sizes": SIZES}
    try:
        steps, steps_at, tell, averages = sglang_server(module, file, steps)
    except (ValueError, AssertionError):
        return {**case, "refused": True}
    played, batch, chance = [], 1, 0.5
    for number in range(rounds):
        if number % 12 == 0:
            chance = draw.choice([0.05, 0.3, 0.6, 0.8, 0.97])
        if draw.random() < 0.3:
            batch = draw.choice([1, 2, 3, 5, 7, 9, 17, 25, 33, 65, 80])
        chosen = steps_at(batch)
        accepted = [0] * batch
        for request in range(batch):
            while accepted[request] < chosen and draw.random() < chance:
                accepted[request] += 1
        is_empty = draw.random() < 0.04
        tell([] if is_empty else accepted, batch)
        played += [batch, -1 if is_empty else sum(accepted), chosen]
    return {**case, "start": steps, "rounds": played, "averages": averages()}


def sglang(wheels):
    for wheel in wheels:
        version = pathlib.Path(wheel).name
        module = module_of(wheel, "sglang/srt/speculative/adaptive_spec_params.py")
        cases = SLOTS if hasattr(module, "AdaptiveStepSlot") else ONE_LIST
        for number, (file, steps) in enumerate(cases):
            write(sglang_case(module, version, file, steps, 120, random.Random(f"sglang {number}")))


# vLLM


SCHEDULES = [
    ([[1, 8, 5], [9, 32, 3], [33, 128, 0]], 64, 5),
    ([[17, 32, 1], [1, 8, 5], [64, 128, 0]], 100, 4),
    ([[1, 1, 7]], 9, 7),
    ([[1, 300, 2]], 20, 7),
    ([[2, 8, 5]], 9, 7),
    ([[1, 8, 5], [8, 9, 3]], 9, 7),
    ([[1, 8, 5], [10, 9, 3]], 20, 7),
    ([], 9, 7),
]

# (drafts, requests, tokens of a step, captured sizes, logits of a chunk, curve of drafting, curve of verification)
VERIFICATIONS = [
    (3, 12, 256, [1, 2, 4, 8, 16, 24, 32], 4096, [[1, 0.6], [2, 0.62], [4, 0.7], [8, 0.9], [12, 1.2]],
     [[1, 4.0], [2, 4.1], [4, 4.05], [8, 4.6], [16, 5.5], [24, 6.4], [32, 7.5], [48, 12.0], [64, 14.0], [128, 22.0], [256, 45.0]]),
    (7, 8, 128, [8, 16], 4096, [[8, 0.8]], [[8, 3.0], [16, 3.4], [24, 9.0], [32, 10.5], [64, 15.0], [128, 33.0]]),
    (5, 10, 200, [4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60], 4096, [[4, 1.0], [8, 1.4], [10, 1.3]],
     [[size, 2.0 + 0.35 * size] for size in range(4, 64, 4)] + [[90, 40.0], [120, 50.0], [200, 80.0]]),
    # The chunk of logits limits the drafts.
    (4, 10, 128, [16, 32], 22, [[10, 0.5]], [[16, 8.0], [32, 8.2], [48, 8.4], [64, 8.5], [128, 9.0]]),
    # A flat curve, where equal rates have to be told apart.
    (2, 6, 64, [8], 4096, [[6, 0.0]], [[8, 1.0], [12, 2.0], [16, 3.0], [32, 7.0], [64, 15.0]]),
]


def stand_in_torch(np):
    class Array(np.ndarray):
        def fill_(self, value):
            self.fill(value)

        def copy_(self, other):
            self[...] = other

        def zero_(self):
            self.fill(0)

        device = None

        def cumprod(self, dim):
            return np.cumprod(self, axis=dim)

        def masked_fill(self, mask, value):
            return np.where(mask, value, self).view(Array)

        # Ties go to the first, as to the earlier request; torch leaves their order open.
        def topk(self, count):
            return types.SimpleNamespace(indices=np.argsort(-self, kind="stable")[:count])

        def index_fill_(self, dim, indices, value):
            self[indices] = value
            return self

        def view_as(self, other):
            return self.reshape(other.shape)

    empty = lambda shape, dtype=np.float32, **_: np.zeros(shape, dtype).view(Array)
    event = lambda **_: types.SimpleNamespace(record=lambda: None, synchronize=lambda: None)
    stream = lambda *_: types.SimpleNamespace(wait_stream=lambda _: None)
    cuda = types.SimpleNamespace(Event=event, Stream=stream, current_stream=stream)
    torch = types.SimpleNamespace(
        empty=empty,
        empty_like=lambda one: empty(one.shape, one.dtype),
        zeros_like=lambda one, dtype: empty(one.shape, dtype),
        arange=lambda count, device: np.arange(count).view(Array),
        sum=lambda one, dim, dtype, out: np.sum(one, axis=dim, dtype=dtype, out=out),
        float32=np.float32,
        int32=np.int32,
        bool=np.bool_,
        cuda=cuda,
    )

    class Buffer:
        def __init__(self, *shape, dtype, device):
            self.gpu, self.np = empty(shape, dtype), np.zeros(shape, dtype)

        # The engine waits for the copy before it reads it.
        def copy_to_cpu(self):
            self.np[...] = self.gpu

    return torch, Buffer


def vllm_manager(module, np, drafts, requests, tokens, logits):
    states = types.SimpleNamespace(
        num_speculative_steps=drafts,
        device=None,
        max_num_reqs=requests,
        max_num_batched_tokens=tokens,
        req_id_to_index={},
        num_computed_tokens_np=np.zeros(requests, np.int32),
        prefill_len=types.SimpleNamespace(np=np.zeros(requests, np.int32)),
    )
    module.torch, module.CpuGpuBuffer = stand_in_torch(np)
    module.gpu_sync_allowed = contextlib.nullcontext
    module.stream = lambda *_: contextlib.nullcontext()
    module.get_tp_group = lambda: types.SimpleNamespace(broadcast_object=lambda curves, src: curves)
    starts = np.zeros(requests + 1, np.int32)
    return states, module.AdaptiveVerificationManager(states, starts, 1, max_total_logits=logits)


def vllm_steps(manager, assign, states, np, drafts, requests, tokens, draw, number):
    """Steps in which requests come, read their prompts in pieces, decode and end."""
    running, free, name, steps = {}, list(range(requests)), 0, []
    for _ in range(number):
        left = tokens - (drafts + 1) * len(running)
        while free and draw.random() < 0.5:
            index, prompt = free.pop(), draw.randint(1, 30)
            running[name] = {"index": index, "prompt": prompt, "computed": 0, "ends": draw.randint(2, 9)}
            states.req_id_to_index[name] = index
            states.prefill_len.np[index] = prompt
            manager.add_request(index)
            name += 1
        scheduled, proposed, confidences = {}, {}, {}
        for request, state in running.items():
            states.num_computed_tokens_np[state["index"]] = state["computed"]
            unread = state["prompt"] - state["computed"]
            if unread > 0:
                piece = max(1, min(unread, left, 20))
                left -= piece
                scheduled[request] = piece
                state["computed"] += piece
                continue
            # Near the end of an output fewer drafts are scheduled.
            proposed[request] = [0] * (drafts if draw.random() < 0.85 else draw.randint(0, drafts))
            scheduled[request] = 1 + len(proposed[request])
            state["computed"] += 1
            state["ends"] -= 1
        if not scheduled:
            continue
        record = []
        for request, count in scheduled.items():
            at = running[request]["index"]
            confidences[request] = [round(draw.random() ** 0.4, 3) for _ in range(drafts)]
            computed, prompt = int(states.num_computed_tokens_np[at]), int(states.prefill_len.np[at])
            record.append([request, len(proposed.get(request, [])), count, computed, prompt, confidences[request]])
        budget, admitted = None, []
        if any(proposed.values()):
            total = manager.get_num_tokens(scheduled, proposed)
            drafts_of = np.array([len(proposed.get(request, [])) for request in scheduled], np.int32)
            budget = total - sum(scheduled.values()) + int(drafts_of.sum())
            # As `reallocate_drafts` does it.
            if 0 < budget < drafts_of.sum():
                mapping = np.array([running[request]["index"] for request in scheduled])
                assign(manager._confidence_probs, mapping, drafts_of, budget, drafts)
                admitted = drafts_of.tolist()
        steps.append([budget, admitted, record])
        rows = np.array([confidences[request] for request in scheduled], np.float32)
        mapping = np.array([running[request]["index"] for request in scheduled])
        manager.record_confidences(rows, types.SimpleNamespace(num_reqs=len(scheduled), idx_mapping=mapping))
        for request in [request for request, state in running.items() if state["ends"] <= 0]:
            free.append(running.pop(request)["index"])
    return steps


def vllm(wheels):
    import numpy as np

    for wheel in wheels:
        version = pathlib.Path(wheel).name
        lookup = module_of(wheel, "vllm/v1/spec_decode/dynamic/utils.py").build_dynamic_sd_schedule_lookup
        for ranges, most, drafts in SCHEDULES:
            try:
                found = {"lookup": lookup(ranges, most, drafts)[1:]}
            except ValueError:
                found = {"refused": True}
            write({"version": version, "ranges": ranges, "most": most, "drafts": drafts, **found})
        module = module_of(wheel, "vllm/v1/worker/gpu/spec_decode/adaptive_verification.py")
        for number, (drafts, requests, tokens, captured, logits, drafting, verifying) in enumerate(VERIFICATIONS):
            states, manager = vllm_manager(module, np, drafts, requests, tokens, logits)
            sizes = [batch["num_tokens"] for batch in manager.batches_to_profile(captured)]
            manager.set_cost_curves([tuple(point) for point in drafting], [tuple(point) for point in verifying])
            tables = [[float(ms) for ms in table] for table in manager.cost_tables]
            draw = random.Random(f"vllm {number}")
            write(
                {
                    "version": version,
                    "drafts": drafts,
                    "requests": requests,
                    "tokens": tokens,
                    "captured": captured,
                    "logits": logits,
                    "curves": [drafting, verifying],
                    "sizes": sorted(set(sizes)),
                    "tables": [tables[0], tables[1][:: 1 + len(tables[1]) // 64]],
                    "steps": vllm_steps(manager, module._assign_draft_token_budget, states, np, drafts, requests, tokens, draw, 24),
                }
            )


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("sglang", "vllm"):
        sys.exit(__doc__)
    sys.meta_path.append(Absent())
    {"sglang": sglang, "vllm": vllm}[sys.argv[1]](sys.argv[2:])
