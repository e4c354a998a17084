# expect: SD202 error
# expect: SD202 error
# expect: SD202 error
# expect: SD202 error
pip install sglang==0.5.20
sglang serve --model-path org/m --enable-lora
sglang serve --model-path org/m --served-model-name qwen:8b
sglang serve --model-path org/m --moe-dense-tp-size 2 --tp 8
sglang serve --model-path org/m --enable-linear-replayssm --disaggregation-mode decode
