# expect: nothing
K ?= 4
serve:
	vllm serve Qwen/Qwen3-8B --speculative-config '{"method":"ngram","num_speculative_tokens":$(K),"prompt_lookup_max":4}'
