# The engine has the patches of the pull request. expect: VL24 warning
pip install vllm==0.27.1
git apply dflash2.patch
vllm serve org/target --speculative-config '{"method": "dflash", "model": "org/Qwen3.8-27B-DFlash2", "num_speculative_tokens": 7}'
