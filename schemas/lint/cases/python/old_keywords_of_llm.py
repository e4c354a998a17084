# pip install vllm==0.24.0
# expect: VL19 error
# expect: VL19 error
from vllm import LLM

llm = LLM(model="org/m", speculative_model="org/d", num_speculative_tokens=5)
