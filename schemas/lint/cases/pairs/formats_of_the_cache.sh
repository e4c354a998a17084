# expect: SD204 error
pip install sglang==0.5.17
sglang serve --model-path org/m --disaggregation-mode prefill --kv-cache-dtype fp8_e4m3 &
sglang serve --model-path org/m --disaggregation-mode decode --kv-cache-dtype bf16
