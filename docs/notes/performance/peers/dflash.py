"""Milliseconds of a decode round of Qwen3-8B's shape (random weights) in SGLang 0.5.16, without speculation and with a
DFLASH head of five layers and a block of 16, for docs/blocks.md.

    dflash.py none|dflash [--batches 1,8,32] [--repeats 3]

A round is the difference between 128 and 32 new tokens, divided by the difference in rounds, so that prefill and start
of a request cancel; medians. Random heads are accepted about never: tokens per round are printed beside it.
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from pathlib import Path

PROMPT, SHORT, LONG = 512, 32, 128

SHAPE = {
    "model_type": "qwen3", "hidden_size": 4096, "intermediate_size": 12288, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960,
    "rms_norm_eps": 1e-6, "rope_theta": 1000000, "rope_scaling": None, "hidden_act": "silu", "attention_bias": False,
    "attention_dropout": 0.0, "tie_word_embeddings": False, "use_sliding_window": False, "sliding_window": None,
    "torch_dtype": "bfloat16", "bos_token_id": 151643, "eos_token_id": 151645,
}
TARGET = {**SHAPE, "architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 36, "max_window_layers": 36}
HEAD = {
    **SHAPE, "architectures": ["DFlashDraftModel"], "num_hidden_layers": 5, "max_window_layers": 5, "block_size": 16,
    "num_target_layers": 36, "layer_types": ["full_attention"] * 5,
    "dflash_config": {"mask_token_id": 151669, "target_layer_ids": [1, 9, 17, 25, 33]},
}


def folder(config):
    path = Path(tempfile.mkdtemp())
    (path / "config.json").write_text(json.dumps(config))
    return str(path)


def start(kind, batches):
    import sglang

    drafts = {}
    if kind == "dflash":
        drafts = dict(
            speculative_algorithm="DFLASH", speculative_draft_model_path=folder(HEAD), speculative_num_draft_tokens=16
        )
    return sglang.Engine(
        model_path=folder(TARGET), load_format="dummy", skip_tokenizer_init=True, dtype="bfloat16",
        attention_backend="fa3", sampling_backend="pytorch", disable_prefill_cuda_graph=True,
        cuda_graph_bs_decode=batches, context_length=2048, mem_fraction_static=0.6, disable_radix_cache=True,
        max_running_requests=max(batches), chunked_prefill_size=16384, max_prefill_tokens=16384, random_seed=1, **drafts,
    )


def run(engine, prompts, tokens):
    """Seconds, rounds of the longest request, and tokens per round."""
    begin = time.perf_counter()
    sampling = dict(temperature=0, max_new_tokens=tokens, ignore_eos=True)
    answers = [answer["meta_info"] for answer in engine.generate(input_ids=prompts, sampling_params=sampling)]
    seconds = time.perf_counter() - begin
    rounds = [answer.get("spec_verify_ct") or answer["completion_tokens"] - 1 for answer in answers]
    return seconds, max(rounds), sum(answer["completion_tokens"] - 1 for answer in answers) / sum(rounds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["none", "dflash"])
    parser.add_argument("--batches", default="1,8,32")
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    batches = [int(batch) for batch in asked.batches.split(",")]
    engine, numbers = start(asked.kind, batches), random.Random(7)
    prompts = [[numbers.randrange(1000, 150000) for _ in range(PROMPT)] for _ in range(max(batches))]
    for batch in batches:
        for tokens in (SHORT, LONG):
            run(engine, prompts[:batch], tokens)
        runs = {tokens: [run(engine, prompts[:batch], tokens) for _ in range(asked.repeats)] for tokens in (SHORT, LONG)}
        seconds, rounds = ({tokens: statistics.median(one[at] for one in runs[tokens]) for tokens in runs} for at in (0, 1))
        each = 1000 * (seconds[LONG] - seconds[SHORT]) / (rounds[LONG] - rounds[SHORT])
        print(f"{asked.kind}, batch {batch}: {each:.3f} ms a round, {runs[LONG][0][2]:.3f} tokens a round", flush=True)
    engine.shutdown()


if __name__ == "__main__":
    main()
