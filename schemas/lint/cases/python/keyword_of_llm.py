# `LLM` passes what it does not know on, and the server's own options are none of its keywords.
# expect: VL19 error
# expect: VL19 error
from vllm import LLM

llm = LLM("org/m", tensor_parallel_size=2, tensor_parallel_sizes=4, port=8000, speculative_config={"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4})
