# expect: nothing
pip install sglang==0.5.17
sglang serve --model-path org/m --disaggregation-mode prefill --page-size 64 &
sglang serve --model-path org/other --disaggregation-mode decode --page-size 1
