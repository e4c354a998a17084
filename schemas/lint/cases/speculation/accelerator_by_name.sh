# The type of the draft says which method it is: no method is given.
# expect: VL36 error
pip install vllm==0.20.2
vllm serve meta-llama/Llama-3.3-70B-Instruct -tp 4 --speculative-config '{"model": "ibm-ai-platform/llama3-70b-accelerator", "draft_tensor_parallel_size": 4, "num_speculative_tokens": 3}'
