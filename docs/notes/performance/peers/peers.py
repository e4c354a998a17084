"""Speed of one SGLang or vLLM engine with random weights, by the protocol of the notes: prompts of 512 random tokens sent
together, greedy, no end token; tokens per second between the 128th and the 384th new token, and the time until all
prompts have their first token.

    peers.py sglang|vllm MODEL_DIR [--quantization fp8] [--draft DIR --shape 3,1,4 --accept 3.0] [--batches 1,8,32,64]

MODEL_DIR and DIR hold a config.json (models.sh writes them). vLLM drafts chains alone. Acceptance is simulated: each
round accepts LEN tokens on average, the bonus token included. Medians of 3 with the slowest and the fastest.
"""

import argparse
import os
import random
import time

PROMPT = 512


def vllm_engine(asked, most):
    from vllm import LLM, SamplingParams

    settings = dict(
        model=asked.model, load_format="dummy", skip_tokenizer_init=True, dtype="bfloat16", max_model_len=4096,
        quantization=asked.quantization, max_num_seqs=most, enable_prefix_caching=False, gpu_memory_utilization=0.85, seed=1,
    )
    if asked.draft:
        settings["speculative_config"] = dict(
            method="eagle3", model=asked.draft, num_speculative_tokens=int(asked.shape.split(",")[0]),
            rejection_sample_method="synthetic", synthetic_acceptance_length=asked.accept,
        )
    engine = LLM(**settings)

    def run(prompts, tokens):
        sampling = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False)
        outputs = engine.generate([{"prompt_token_ids": prompt} for prompt in prompts], sampling, use_tqdm=False)
        assert all(len(output.outputs[0].token_ids) == tokens for output in outputs)

    return run


def sglang_engine(asked, most):
    if asked.draft:
        os.environ["SGLANG_SIMULATE_ACC_LEN"] = str(asked.accept)
    import sglang

    settings = dict(
        model_path=asked.model, load_format="dummy", skip_tokenizer_init=True, dtype="bfloat16", context_length=4096,
        quantization=asked.quantization, max_running_requests=most, cuda_graph_max_bs_decode=most, random_seed=1,
        disable_radix_cache=True, attention_backend="fa3", sampling_backend="pytorch", mem_fraction_static=0.8,
        disable_prefill_cuda_graph=True, log_level="error",
    )
    if asked.draft:
        steps, topk, nodes = map(int, asked.shape.split(","))
        settings |= dict(
            speculative_algorithm="EAGLE3", speculative_draft_model_path=asked.draft, speculative_num_steps=steps,
            speculative_eagle_topk=topk, speculative_num_draft_tokens=nodes,
        )
    engine = sglang.Engine(**settings)

    def run(prompts, tokens):
        sampling = dict(temperature=0, max_new_tokens=tokens, ignore_eos=True)
        engine.generate(input_ids=prompts, sampling_params=sampling)

    return run


def spread(seconds):
    seconds = sorted(seconds)
    return seconds[len(seconds) // 2], seconds[-1], seconds[0]


def timed(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("engine", choices=["sglang", "vllm"])
    parser.add_argument("model")
    parser.add_argument("--draft")
    parser.add_argument("--shape", default="3,1,4")
    parser.add_argument("--accept", type=float, default=3.0)
    parser.add_argument("--quantization")
    parser.add_argument("--batches", default="1,8,32,64")
    asked = parser.parse_args()
    batches = [int(word) for word in asked.batches.split(",")]
    begin = time.perf_counter()
    run = (vllm_engine if asked.engine == "vllm" else sglang_engine)(asked, max(batches))
    shape = asked.shape if asked.draft else "none"
    name = f"{asked.engine} {asked.quantization or 'bfloat16'} {shape}"
    print(f"{name}: started in {time.perf_counter() - begin:.0f} s", flush=True)
    for batch in batches:
        prompts = [[random.randrange(1000, 100_000) for _ in range(PROMPT)] for _ in range(batch)]
        run(prompts, 32)
        first = spread([timed(lambda: run(prompts, 1)) for _ in range(3)])
        decode = spread([timed(lambda: run(prompts, 384)) - timed(lambda: run(prompts, 128)) for _ in range(3)])
        rates = " ".join(f"{batch * 256 / seconds:.0f}" for seconds in decode)
        firsts = " ".join(f"{1000 * seconds:.1f}" for seconds in first)
        print(f"{name} batch {batch}: tok/s {rates} first token ms {firsts} (median slowest fastest)", flush=True)


if __name__ == "__main__":
    main()
