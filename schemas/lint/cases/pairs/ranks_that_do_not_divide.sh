# expect: SD204 warning
pip install sglang==0.5.17
sglang serve --model-path org/m --disaggregation-mode prefill --tp-size 6 &
sglang serve --model-path org/m --disaggregation-mode decode --tp-size 4
