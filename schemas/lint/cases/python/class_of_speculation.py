# The class takes the keys of the configuration as keywords.
# expect: VL12 error
from vllm import LLM
from vllm.config import SpeculativeConfig

llm = LLM(
    model="Qwen/Qwen3-8B",
    speculative_config=SpeculativeConfig(method="ngram", num_speculative_tokens=0, prompt_lookup_max=4),
)
