# expect: VL24 warning
pip install vllm==0.28.0
vllm serve RedHatAI/Llama-4-Scout-17B-16E-Instruct-quantized.w4a16 -tp 4 --speculative-config '{"method": "eagle", "model": "morgendave/EAGLE-Llama-4-Scout-17B-16E-Instruct", "num_speculative_tokens": 3}'
