# expect: VL24 warning
pip install vllm==0.22.0
vllm serve Qwen/Qwen3-8B-GGUF:Q8_0 --tokenizer Qwen/Qwen3-8B --hf-config-path Qwen/Qwen3-8B
