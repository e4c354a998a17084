# expect: VL19 error
# requires vllm==0.33.0
from vllm import LLM

settings = {"model": "org/m", "tensor_parallel_size": 2}
if use_drafts:
    settings["speculative_configuration"] = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}
llm = LLM(**settings)
