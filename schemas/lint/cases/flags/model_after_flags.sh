# expect: VL36 error
pip install vllm==0.33.0
vllm serve --port 8000 org/m --served-model-name name
