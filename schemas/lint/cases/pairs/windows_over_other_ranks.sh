# expect: SD204 error
pip install sglang==0.5.16
sglang serve --model-path openai/gpt-oss-120b --disaggregation-mode prefill --tp-size 1 &
sglang serve --model-path openai/gpt-oss-120b --disaggregation-mode decode --tp-size 4
