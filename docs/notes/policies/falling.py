"""Prints a trace of one long text whose drafts are accepted less often above a context.

    python3 falling.py TRACE PROMPT_TOKENS OUTPUT_TOKENS BORDER SHARE > FALLING

The text consists of the positions of TRACE, one text after the other, again and again. Above BORDER tokens of context, a round
accepts what it accepts in TRACE with the probability SHARE, and nothing otherwise. It is made up: a load on which tables by
context must gain, if they gain anywhere.
"""

import itertools
import json
import random
import sys


def falling(trace: dict, prompt_tokens: int, output_tokens: int, border: int, share: float) -> dict:
    """The trace with one text, of prompt_tokens and output_tokens."""
    chances = random.Random(1)
    every = itertools.cycle([nodes for text in trace["texts"] for nodes in text["positions"]])
    positions = []
    for at in range(output_tokens - 1):
        nodes = dict(next(every))
        if prompt_tokens + at > border and chances.random() >= share:
            nodes["on_text"] = []
        positions.append(nodes)
    text = {
        "prompt_tokens": prompt_tokens,
        "output_tokens": output_tokens,
        "sampled": trace["texts"][0]["sampled"],
        "positions": positions,
    }
    return {**trace, "texts": [text]}


def main() -> None:
    path, prompt_tokens, output_tokens, border, share = sys.argv[1:]
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                trace = json.loads(line)
                print(json.dumps(falling(trace, int(prompt_tokens), int(output_tokens), int(border), float(share))))


if __name__ == "__main__":
    main()
