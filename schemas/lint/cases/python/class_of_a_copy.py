# The class is one of a copy of the engine in another package, with keywords of its own.
# expect: LT02 error
from verl.third_party.vllm import LLM

engine = LLM(model="org/m", tokenizer=tokenizer, model_hf_config=settings, tensor_parallel_size=2)
