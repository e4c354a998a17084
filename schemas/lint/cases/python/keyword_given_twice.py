# expect: NR06 error
from vllm import LLM

settings = {"tensor_parallel_size": 2, "dtype": "auto"}
llm = LLM(model="org/m", tensor_parallel_size=4, **settings)
