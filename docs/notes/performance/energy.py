"""What rounds of Llama-3.1-8B's shape take at the limit of power if nothing but their products and what they read of memory took
energy, from the lines of energy.cu: `energy.py LINES [WATTS]`. Counted, not measured."""

import re
import sys

lines = open(sys.argv[1]).read()
watts = float(sys.argv[2]) if len(sys.argv) > 2 else 695.0
layer_of = {int(rows): float(mj) for rows, mj in re.findall(r"products of a layer, (\d+) rows .*?([\d.]+) mJ", lines)}
gibibyte = float(re.search(r"cp\.async, rows of 8 KB .*?([\d.]+) mJ", lines)[1])

# Weights of a layer, of the head, and of EAGLE-3's: what all accepted rows pass, and the rest, which of these only the last does.
LAYER, HEAD, DRAFT_INPUT, DRAFT_REST, DRAFT_STEP = 218.1e6, 525.3e6, 100.6e6, 323.9e6, 374.3e6
POSITIONS, CACHE_BYTES, LAYERS = 768, 131072, 32


def product(weights, rows):
    """Millijoules, between the rows that were measured in proportion."""
    known = sorted(layer_of)
    low = max([r for r in known if r <= rows], default=known[0])
    high = min([r for r in known if r >= rows], default=known[-1])
    share = (rows - low) / (high - low) if high > low else 0
    return weights / LAYER * (layer_of[low] + share * (layer_of[high] - layer_of[low]))


def round_of(batch, steps, topk, nodes, walks):
    """Joules of target, head, cache and draft. A head that walks is read once a step (`walk_on`)."""
    cache = batch * POSITIONS * CACHE_BYTES / 2**30 * gibibyte
    head = (steps + 1) * product(HEAD, batch) if walks else product(HEAD, batch * nodes)
    draft = product(DRAFT_INPUT, batch * (steps + 1)) + product(DRAFT_REST, batch)
    draft += (steps - 1) * product(DRAFT_STEP, batch * topk) + steps * cache / LAYERS
    return [energy / 1000 for energy in (LAYERS * product(LAYER, batch * nodes), head, cache, draft)]


print("shape   batch   layers   head  cache  draft    sum J    ms  tok/s")
for steps, topk, nodes, accepted, batch, walks in [
    (3, 1, 4, 3, 8, False), (3, 1, 4, 3, 64, False), (5, 8, 32, 3, 8, False), (5, 8, 32, 3, 32, True), (8, 10, 60, 5, 8, False)
]:  # fmt: skip
    parts = round_of(batch, steps, topk, nodes, walks)
    seconds = sum(parts) / watts
    print(f"{steps},{topk},{nodes:<5} {batch:3}   " + " ".join(f"{part:6.2f}" for part in parts) +
          f"  {sum(parts):6.2f} {seconds * 1e3:6.2f} {batch * accepted / seconds:6.0f}")
