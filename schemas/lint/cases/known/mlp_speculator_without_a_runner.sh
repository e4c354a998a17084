# expect: VL36 error
pip install vllm==0.23.0
vllm serve meta-llama/Meta-Llama-3.1-8B-Instruct --speculative-config '{"model": "ibm-ai-platform/llama3-8b-accelerator", "method": "mlp_speculator", "num_speculative_tokens": 3}'
