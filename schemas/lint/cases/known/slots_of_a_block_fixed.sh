# expect: nothing
pip install vllm==0.25.0
vllm serve Qwen/Qwen3-8B --max-num-batched-tokens 16384 --max-num-seqs 64 --speculative-config '{"method": "dflash", "model": "z-lab/Qwen3-8B-DFlash-b16", "num_speculative_tokens": 15}'
