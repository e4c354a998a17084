# expect: SD194 warning
pip install sglang==0.5.15
python3 -m sglang.launch_server --model-path sgl-project/DeepSeek-V4-Flash-FP8 --tp-size 8 --disaggregation-mode decode --enable-hisparse --disable-radix-cache
