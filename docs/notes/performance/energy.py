"""Time of rounds of Llama-3.1-8B's shape at the power limit if only their products and memory reads took energy, from the output
of energy.cu: `energy.py LINES [WATTS]`. Computed, not measured."""

import re
import sys

lines = open(sys.argv[1]).read()
watts = float(sys.argv[2]) if len(sys.argv) > 2 else 695.0
layer_of = {int(rows): float(mj) for rows, mj in re.findall(r"products of a layer, (\d+) rows .*?([\d.]+) mJ", lines)}
gibibyte = float(re.search(r"cp\.async, rows of 8 KB .*?([\d.]+) mJ", lines)[1])

# Weights of a layer, of the head, and of EAGLE-3's draft: input projection, qkv, and everything after it.
LAYER, HEAD, DRAFT_STATES, DRAFT_QKV, DRAFT_REST = 218.1e6, 525.3e6, 50.3e6, 50.3e6, 323.9e6
POSITIONS, CACHE_BYTES, LAYERS = 768, 131072, 32


def product(weights, rows):
    """Millijoules, interpolated linearly between the measured numbers of rows."""
    known = sorted(layer_of)
    low = max([r for r in known if r <= rows], default=known[0])
    high = min([r for r in known if r >= rows], default=known[-1])
    share = (rows - low) / (high - low) if high > low else 0
    return weights / LAYER * (layer_of[low] + share * (layer_of[high] - layer_of[low]))


def readings(rows):
    """Time of a product, in units of reading its weights once."""
    return max(rows, 160) / 160


def round_of(batch, steps, topk, nodes):
    """Joules of layers, head, cache and draft. When the draft processes accepted tokens, all rows of a request but the last end after
    keys and values. The number of target passes, the 160 and the 100 MiB are as in `VerifyPlan` (engine/src/backend/verify_plan.rs)."""
    cache = batch * POSITIONS * CACHE_BYTES / 2**30 * gibibyte
    rows, inner = batch * nodes, (batch * nodes + 1) // 2
    weights = 2 * (LAYERS * LAYER + HEAD)
    second = LAYERS * (100 << 20) / weights
    # Rows of the target's passes.
    passes = [rows]
    if topk >= 4 and nodes >= 16 and readings(inner) + readings(batch) + second < readings(rows):
        passes = [inner, batch]
    head = sum(product(HEAD, one) for one in passes)
    draft = product(DRAFT_STATES + DRAFT_QKV, batch * (steps + 1)) + product(DRAFT_REST, batch)
    draft += (steps - 1) * product(DRAFT_QKV + DRAFT_REST, batch * topk) + steps * cache / LAYERS
    layers = LAYERS * sum(product(LAYER, one) for one in passes)
    return [energy / 1000 for energy in (layers, head, len(passes) * cache, draft)]


print("shape   batch   layers   head  cache  draft    sum J    ms  tok/s")
for steps, topk, nodes, accepted, batch in [(3, 1, 4, 3, 8), (3, 1, 4, 3, 64), (5, 8, 32, 3, 8), (5, 8, 32, 3, 32), (8, 10, 60, 5, 8)]:
    parts = round_of(batch, steps, topk, nodes)
    seconds = sum(parts) / watts
    print(f"{steps},{topk},{nodes:<5} {batch:3}   " + " ".join(f"{part:6.2f}" for part in parts) +
          f"  {sum(parts):6.2f} {seconds * 1e3:6.2f} {batch * accepted / seconds:6.0f}")
