# pip install vllm==0.24.0
# expect: VL19 error
import vllm

llm = vllm.LLM(model="org/m", warm_start_rows=3)
