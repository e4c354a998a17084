# expect: VL02 error
python3 - <<PY
from vllm import LLM
llm = LLM(model="$MODEL", tensor_parallel_size=$TP, speculative_config={"method": "eagle3", "model": "draft"})
PY
