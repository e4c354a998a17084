# The program goes on without the keyword. expect: nothing
from vllm import LLM

try:
    llm = LLM(model="org/m", warm_start_rows=3)
except TypeError:
    llm = LLM(model="org/m")
