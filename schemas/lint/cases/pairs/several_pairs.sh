# Each decode engine has a prefill engine that is like it.
# expect: nothing
pip install sglang==0.5.17
sglang serve --model-path org/m --disaggregation-mode prefill --page-size 64 --kv-cache-dtype bf16 &
sglang serve --model-path org/m --disaggregation-mode decode --page-size 64 --kv-cache-dtype bf16
sglang serve --model-path org/m --disaggregation-mode prefill --page-size 1 --kv-cache-dtype fp8_e4m3 &
sglang serve --model-path org/m --disaggregation-mode decode --page-size 1 --kv-cache-dtype fp8_e4m3
